//! Folders of a site beside its root: those of routes with `alias`, and those that symbolic links may lead into.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: paths of requests, and of files that servers behind
//! the site name. Must never: give a path another folder than its route says.
//!
//! An alias is to the site's paths what a mount is to a file system: what the root has there is hidden, and everything
//! else about a path, its rules above all, is as of any other.

use std::os::fd::OwnedFd;

use request::path::{NormalPath, covers};

/// One folder.
#[derive(Debug)]
pub struct OpenFolder {
    /// It is held open.
    pub fd: OwnedFd,
    /// Its absolute path, as the operator has written it.
    pub path: Box<str>,
}

impl OpenFolder {
    /// The folder that is open as `fd`, which the operator calls `path`.
    pub fn new(fd: OwnedFd, path: &str) -> Self {
        Self { fd, path: path.trim_end_matches('/').into() }
    }
}

/// A folder that stands at a path of the site.
#[derive(Debug)]
struct Alias {
    /// The path, without the slashes around.
    at: Box<[u8]>,
    folder: OpenFolder,
}

/// The folders of a site beside its root.
#[derive(Debug, Default)]
pub struct Folders {
    /// The longest paths first.
    aliases: Vec<Alias>,
    links: Vec<OpenFolder>,
    root: Box<str>,
}

impl Folders {
    /// Has `folder` stand at the path `at` of the site.
    pub fn add_alias(&mut self, at: &str, folder: OpenFolder) {
        let at = at.trim_matches('/').as_bytes().into();
        self.aliases.push(Alias { at, folder });
        self.aliases.sort_by_key(|alias| std::cmp::Reverse(alias.at.len()));
    }

    /// Lets links lead into `folder`.
    pub fn add_link_folder(&mut self, folder: OpenFolder) {
        self.links.push(folder);
    }

    /// Says where the root is, or the folder of the roots of all hosts.
    pub fn set_root(&mut self, path: &str) {
        self.root = path.trim_end_matches('/').into();
    }

    /// The path of the root, empty if nobody has asked for it.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Whether there is a folder at any path.
    pub fn has_aliases(&self) -> bool {
        !self.aliases.is_empty()
    }

    /// The folders that links may lead into.
    pub fn links(&self) -> &[OpenFolder] {
        &self.links
    }

    /// The folder that has the file of the site at `path`, which has no leading slash; and the file's path in it.
    /// Nothing where the root has it.
    pub fn alias_of<'p>(&self, path: &'p [u8]) -> Option<(&OpenFolder, &'p [u8])> {
        // SECURITY: a path ends at a slash: `media..` is not below `media`.
        let alias = self.aliases.iter().find(|alias| covers(&alias.at, path))?;
        let below = &path[alias.at.len()..];
        Some((&alias.folder, below.strip_prefix(b"/").unwrap_or(below)))
    }

    /// The site's path of a file in one of the folders at a path, by the file's path in the file system.
    pub fn site_path(&self, file: &[u8]) -> Option<NormalPath<'static>> {
        let in_alias = |alias: &Alias| {
            let below = file.strip_prefix(alias.folder.path.as_bytes())?.strip_prefix(b"/")?;
            NormalPath::of_file(&[&alias.at, &b"/"[..], below].concat()).ok()
        };
        self.aliases.iter().find_map(in_alias)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders() -> Folders {
        let mut folders = Folders::default();
        for (at, path) in [("/media/", "/srv/media/"), ("/media/deep", "/srv/deep"), ("/one", "/srv/one")] {
            let fd = std::fs::File::open("/").unwrap().into();
            folders.add_alias(at, OpenFolder::new(fd, path));
        }
        folders
    }

    #[test]
    fn the_longest_path_has_a_file_and_ends_at_a_slash() {
        let folders = folders();
        for (path, found) in [
            ("media/x", Some(("/srv/media", "x"))),
            ("media", Some(("/srv/media", ""))),
            ("media/deep/x/y", Some(("/srv/deep", "x/y"))),
            ("media/deeper", Some(("/srv/media", "deeper"))),
            ("one/x", Some(("/srv/one", "x"))),
            ("media..", None),
            ("media../x", None),
            ("media;/x", None),
            ("medi", None),
            ("one..", None),
            ("x/media/x", None),
            ("", None),
        ] {
            let alias = folders.alias_of(path.as_bytes());
            let alias = alias.map(|(folder, below)| (&*folder.path, std::str::from_utf8(below).unwrap()));
            assert_eq!(alias, found, "{path}");
        }
    }

    #[test]
    fn files_are_named_by_their_own_paths_too() {
        let path = |file: &str| folders().site_path(file.as_bytes()).map(|path| path.spelling());
        assert_eq!(path("/srv/media/a/b").as_deref(), Some("/media/a/b"));
        assert_eq!(path("/srv/deep/a").as_deref(), Some("/media/deep/a"));
        for file in ["/srv/media", "/srv/mediax/a", "/srv/media/../one/a", "/etc/passwd", ""] {
            assert_eq!(path(file), None, "{file}");
        }
    }
}
