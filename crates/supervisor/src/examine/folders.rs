//! Whether a partition can read the folders that it is given, and what it would publish that is no document.
//!
//! Runs in: the launcher, as root, and the commands `check` and `run`. Sees: names, kinds, owners and modes below
//! folders that the operator named, in which others may write. Never: follows a link, or opens a file.
//!
//! As root the launcher opens the folder itself, so that folders above it need not be open to the partition; without
//! root the whole path is walked by the user.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use config::Finding;
use jail::Identity;

use super::finding::{Depth, error, warning};

/// LIMIT: entries of a folder that are looked at, with those below; the first faults are what the operator needs.
const ENTRIES_MAX: usize = 4000;
/// LIMIT: folders within folders.
const DEPTH_MAX: usize = 8;
/// Names that are said of each kind.
const NAMES: usize = 3;

/// Suffixes of what is no document: sources of programs that another server would run, settings, data. PHP is not among
/// them, as its sources are not sent in any case.
const SOURCES: [&str; 18] = [
    ".py",
    ".pyc",
    ".pl",
    ".pm",
    ".cgi",
    ".rb",
    ".erb",
    ".lua",
    ".asp",
    ".aspx",
    ".jsp",
    ".cfm",
    ".env",
    ".sql",
    ".sqlite",
    ".sqlite3",
    ".key",
    ".htpasswd",
];
/// Names with a dot in front that nobody means to publish.
const SECRETS: [&str; 8] = [".git", ".svn", ".hg", ".env", ".htpasswd", ".htaccess", ".ssh", ".aws"];

/// Who reads a folder.
#[derive(Debug)]
pub(super) struct Reader {
    /// `None`: the user of this process.
    identity: Option<Identity>,
    /// What people call it.
    name: String,
}

/// What a site says of its files.
pub(super) struct Published<'p> {
    pub(super) routed: &'p [&'p str],
    pub(super) send_hidden: &'p [String],
}

/// What is to be allowed.
#[derive(Clone, Copy)]
enum Right {
    Read = 4,
    Search = 1,
}

impl Reader {
    pub(super) fn of(identity: Option<Identity>, name: String) -> Self {
        Self { identity, name }
    }

    /// What keeps it from a folder.
    pub(super) fn folder(&self, path: &Path) -> Option<Finding> {
        let Some(identity) = self.identity else {
            return self.folder_of_user(path);
        };
        let found = std::fs::metadata(path).ok()?;
        (!may(&found, path, identity, Right::Search)).then(|| {
            error(
                format!(
                    "cannot be read by {}: uid {} may not enter it, which belongs to uid {} and has mode {:04o}",
                    self.name,
                    identity.id(),
                    found.uid(),
                    found.mode() & 0o7777
                ),
                format!("run `chmod o+rx {0}`, or `setfacl -m u:{1}:rx {0}`", path.display(), identity.id()),
            )
        })
    }

    /// Without root, everything is the user's own: the first part of the path that the user may not enter.
    fn folder_of_user(&self, path: &Path) -> Option<Finding> {
        let fault = std::fs::read_dir(path).err()?;
        let closed =
            path.ancestors().filter(|part| part.metadata().is_ok()).find(|part| part.read_dir().is_err());
        let closed = closed.unwrap_or(path).display();
        Some(error(
            format!("cannot be read by this user, as whom {} runs: {fault}", self.name),
            format!(
                "run `chmod u+rx {closed}`, or `setfacl -m u:{}:rx {closed}`",
                rustix::process::geteuid().as_raw()
            ),
        ))
    }

    /// Whether it may read a file, or a folder within.
    fn may_read(&self, path: &Path, found: &Metadata) -> bool {
        match self.identity {
            Some(identity) => {
                let needed: &[Right] = if found.is_dir() { &[Right::Search] } else { &[Right::Read] };
                needed.iter().all(|right| may(found, path, identity, *right))
            }
            None if found.is_dir() => rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok(),
            None => rustix::fs::access(path, rustix::fs::Access::READ_OK).is_ok(),
        }
    }
}

/// Whether the mode of a file allows it. A list of access rights (ACL) may say otherwise: then it is taken for allowed.
fn may(found: &Metadata, path: &Path, identity: Identity, right: Right) -> bool {
    let shift = match (found.uid() == identity.id(), found.gid() == identity.gid()) {
        (true, _) => 6,
        (_, true) => 3,
        _ => 0,
    };
    (found.mode() >> shift) & right as u32 != 0
        || rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0u8; 512]).is_ok()
}

/// What is wrong with the folder of a site's files, and what in it is perhaps not meant.
pub(super) fn published(
    path: &Path,
    reader: &Reader,
    published: &Published<'_>,
    depth: Depth,
) -> Vec<Finding> {
    if let Some(closed) = reader.folder(path) {
        return vec![closed];
    }
    let secrets = published.send_hidden.iter().filter(|name| SECRETS.contains(&name.as_str()));
    let mut found: Vec<Finding> = secrets
        .map(|name| {
            warning(
                format!("is sent with `{name}` in it, as `send_hidden` says"),
                format!("take \"{name}\" out of `send_hidden`"),
            )
        })
        .collect();
    // A warning for whoever asks, and no work for a start: there may be thousands of sites.
    if depth == Depth::Start {
        return found;
    }
    let mut walk = Walk { reader, published, closed: Vec::new(), sources: Vec::new(), left: ENTRIES_MAX };
    walk.folder(path, path, 0);
    if let Some((names, first)) = named(&walk.closed) {
        let whom = reader.identity.map_or_else(|| rustix::process::geteuid().as_raw(), Identity::id);
        found.push(warning(
            format!("has {names}, which {} cannot read: clients get 403", reader.name),
            format!("run `chmod -R o+rX {0}`, or `setfacl -m u:{whom}:rX {0}`", path.join(first).display()),
        ));
    }
    if let Some((names, first)) = named(&walk.sources) {
        let suffix = source_suffix(&first.to_string_lossy()).unwrap_or_default();
        found.push(warning(
            format!("has {names}, which is sent as a file to whoever asks: a source or data, and no document"),
            format!(
                "move it out of the folder, or write a [[site.route]] with `suffix = \"{suffix}\"` and `deny = [\"0.0.0.0/0\", \
                 \"::/0\"]`, or with `fastcgi` if a server runs it"
            ),
        ));
    }
    found
}

/// Up to three names, with how many there are beside them; and the first.
fn named(names: &[PathBuf]) -> Option<(String, &Path)> {
    let first = names.first()?;
    let shown: Vec<String> = names.iter().take(NAMES).map(|name| name.display().to_string()).collect();
    let more = names.len().saturating_sub(NAMES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some((format!("{}{more}", shown.join(", ")), first))
}

fn source_suffix(name: &str) -> Option<&'static str> {
    SOURCES.into_iter().find(|suffix| name.len() > suffix.len() && name.ends_with(suffix))
}

/// The entries of a folder, with those below.
struct Walk<'w> {
    reader: &'w Reader,
    published: &'w Published<'w>,
    closed: Vec<PathBuf>,
    sources: Vec<PathBuf>,
    /// How many more entries are looked at.
    left: usize,
}

impl Walk<'_> {
    fn folder(&mut self, top: &Path, folder: &Path, depth: usize) {
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        let mut entries: Vec<_> = entries.flatten().take(self.left).collect();
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            self.left = self.left.saturating_sub(1);
            let name = entry.file_name().to_string_lossy().into_owned();
            let hidden = name.starts_with('.') && name != ".well-known";
            let (path, Ok(found)) = (entry.path(), entry.metadata()) else { continue };
            // Of a link, this says nothing: where it leads is another name's matter.
            if self.left == 0 || found.is_symlink() || (hidden && !self.published.send_hidden.contains(&name))
            {
                continue;
            }
            let below = path.strip_prefix(top).unwrap_or(&path).to_path_buf();
            if !self.reader.may_read(&path, &found) {
                self.closed.push(below);
            } else if found.is_dir() && depth < DEPTH_MAX {
                self.folder(top, &path, depth + 1);
            } else if found.is_file()
                && source_suffix(&name).is_some_and(|suffix| !self.published.routed.contains(&suffix))
            {
                self.sources.push(below);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn messages(folder: &Path, identity: Option<u32>, routed: &[&str], hidden: &[&str]) -> Vec<String> {
        let reader = Reader::of(identity.and_then(Identity::new), "the worker of site \"a\"".into());
        let hidden: Vec<String> = hidden.iter().map(|name| (*name).to_owned()).collect();
        let published = Published { routed, send_hidden: &hidden };
        super::published(folder, &reader, &published, Depth::Check)
            .into_iter()
            .map(|found| found.message)
            .collect()
    }

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for (name, mode) in [("index.html", 0o644), ("own.html", 0o600), ("tool.py", 0o644), (".env", 0o644)]
        {
            fs::write(folder.path().join(name), "").unwrap();
            fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        folder
    }

    #[test]
    fn what_a_partition_cannot_read_is_named() {
        let folder = folder();
        let found = messages(folder.path(), Some(51001), &[".py"], &[]);
        assert_eq!(found, ["has own.html, which the worker of site \"a\" cannot read: clients get 403"]);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let found = messages(folder.path(), Some(51001), &[], &[]);
        assert!(found.len() == 1 && found[0].contains("uid 51001 may not enter it"), "{found:?}");
        let own = folder.path().metadata().unwrap().uid();
        if own != 0 {
            assert_eq!(messages(folder.path(), Some(own), &[".py"], &[]), [""; 0]);
        }
    }

    #[test]
    fn sources_that_are_sent_are_named() {
        let folder = folder();
        fs::set_permissions(folder.path().join("own.html"), fs::Permissions::from_mode(0o644)).unwrap();
        let found = messages(folder.path(), Some(51001), &[], &[]);
        assert!(
            found.len() == 1 && found[0].starts_with("has tool.py, which is sent as a file"),
            "{found:?}"
        );
        assert_eq!(messages(folder.path(), Some(51001), &[".py"], &[]), [""; 0]);
        let found = messages(folder.path(), Some(51001), &[".py"], &[".env"]);
        assert!(found.len() == 1 && found[0].contains("`send_hidden`"), "{found:?}");
    }

    #[test]
    fn a_folder_is_looked_at_up_to_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        (0..ENTRIES_MAX + 100)
            .for_each(|number| fs::write(folder.path().join(format!("{number}.py")), "").unwrap());
        let found = messages(folder.path(), None, &[], &[]);
        let more: usize = found[0].split(" and ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!((ENTRIES_MAX - NAMES - 1..ENTRIES_MAX).contains(&more), "{found:?}");
        let mut deep = folder.path().join("deep");
        (0..=DEPTH_MAX).for_each(|number| deep.push(number.to_string()));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("x.py"), "").unwrap();
        let top = folder.path().join("deep");
        assert_eq!(messages(&top, None, &[], &[]), [""; 0]);
        fs::rename(deep.join("x.py"), deep.parent().unwrap().join("x.py")).unwrap();
        assert_eq!(messages(&top, None, &[], &[]).len(), 1);
    }
}
