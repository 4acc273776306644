//! Which script a path means, and what of the path is for the script.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: paths of requests. Must never: name a script that
//! is not a regular file below the root, or one whose name does not end as the operator said.
//!
//! SECURITY: with `/upload.jpg/x.php`, servers that ask FastCGI for whatever ends in `.php` run `upload.jpg`, as PHP
//! looks for a part of the path that exists. Here the script is found first, by this worker, and it is one only if its
//! own name ends so.
//!
//! Which names are hidden is asked of the part of the path that names a file. The part after a script is for the
//! application: there, `.gitignore` is a name like any other.

use fastcgi::parameters::Script;
use request::path::{ESCAPED_SLASH, NormalPath};
use request::script::is_script;

use crate::files::{Missing, RootFiles};

/// Which scripts a route is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scripts {
    /// Those whose names end so; there is no other answer.
    Suffix(String),
    /// This one, a path below the root.
    One(String),
    /// Those that end in `.php`, if the path names one; the server itself answers for everything else at or below
    /// this path.
    Below(String),
}

/// The suffix of scripts where the operator names none.
const SUFFIX: &str = ".php";

impl Scripts {
    /// Finds the script that the path `raw`, as sent, stands for.
    pub fn find(&self, files: Option<&RootFiles>, raw: &str) -> Result<Script, Missing> {
        let path = NormalPath::parse(raw).map_err(|_| Missing::Malformed)?;
        // SECURITY: scripts could only take an escaped slash for a separator.
        if path.as_bytes().contains(&ESCAPED_SLASH) {
            return Err(Missing::NotFound);
        }
        let path = path.as_bytes().to_vec();
        match self {
            Self::One(script) => {
                // A request for the script itself has no path behind it.
                let rest = path.strip_prefix(script.as_bytes()).filter(|rest| !is_longer_name(rest));
                Ok(Script { name: script.clone().into_bytes(), info: rest.unwrap_or(&path).to_vec() })
            }
            Self::Suffix(suffix) => below_root(files, &path, suffix)?.ok_or(Missing::NotFound),
            Self::Below(at) => {
                if let Some(script) = below_root(files, &path, SUFFIX)? {
                    return Ok(script);
                }
                let name = at.trim_end_matches('/').as_bytes();
                // A path with escapes in its first part, which only the table of routes has resolved.
                let info = path.strip_prefix(name).unwrap_or(&path).to_vec();
                Ok(Script { name: name.to_vec(), info })
            }
        }
    }
}

/// The first part of `path` that ends with `suffix` at a segment's end and is a file.
fn below_root(files: Option<&RootFiles>, path: &[u8], suffix: &str) -> Result<Option<Script>, Missing> {
    let Some(files) = files else {
        return Ok(None);
    };
    let conn = (1..=path.len()).filter(|&end| end == path.len() || path[end] == b'/');
    for end in conn.filter(|&end| is_script(last_name(&path[..end]), suffix)) {
        let Ok(name) = NormalPath::of_file(&path[..end]) else { continue };
        match files.has_file(&name) {
            Ok(true) => {
                return Ok(Some(Script { name: path[..end].to_vec(), info: path[end..].to_vec() }));
            }
            Ok(false) | Err(Missing::NotFound | Missing::Outside) => {}
            Err(missing) => return Err(missing),
        }
    }
    Ok(None)
}

fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// Whether what follows a path makes its last name longer.
fn is_longer_name(rest: &[u8]) -> bool {
    !rest.is_empty() && !rest.starts_with(b"/")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TempFolder(std::path::PathBuf);

    impl Drop for TempFolder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn files(name: &str) -> (TempFolder, RootFiles) {
        let folder = std::env::temp_dir().join(format!("bulkhead-script-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("dir.php/sub")).unwrap();
        std::fs::create_dir_all(folder.join(".git")).unwrap();
        for name in [
            "a.php",
            "upload.jpg",
            "dir.php/in.php",
            "a b.php",
            ".php",
            "x.phps",
            ".hidden.php",
            ".git/in.php",
        ] {
            std::fs::write(folder.join(name), "x").unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", folder.join("out.php")).unwrap();
        let root = std::fs::File::open(&folder).unwrap().into();
        (TempFolder(folder), RootFiles::new(root, Default::default()))
    }

    fn script(name: &str, info: &str) -> Result<Script, Missing> {
        Ok(Script { name: name.into(), info: info.into() })
    }

    #[test]
    fn scripts_are_files_whose_names_end_so() {
        let (_folder, files) = files("suffix");
        let find = |path: &str| Scripts::Suffix(".php".into()).find(Some(&files), path);
        assert_eq!(find("/a.php"), script("/a.php", ""));
        assert_eq!(find("/%61.ph%70"), script("/a.php", ""));
        assert_eq!(find("//a.php"), script("/a.php", ""));
        assert_eq!(find("/a.php/info/x.php"), script("/a.php", "/info/x.php"));
        assert_eq!(find("/a.php/"), script("/a.php", "/"));
        assert_eq!(find("/dir.php/in.php/i"), script("/dir.php/in.php", "/i"));
        assert_eq!(find("/a%20b.php/%3f"), script("/a b.php", "/?"));
        assert_eq!(find("/a.php/files/.gitignore"), script("/a.php", "/files/.gitignore"));
        assert_eq!(find("/a.php/.git/x.php"), script("/a.php", "/.git/x.php"));
        for path in [
            "/upload.jpg/x.php",
            "/upload.jpg%2fx.php",
            "/none.php",
            "/dir.php",
            "/x.phps",
            "/.php",
            "/",
            "/upload.jpg",
            "/dir.php/sub/x.php",
            "/a.phpx",
            "/A.PHP",
            "/out.php",
            "/.hidden.php",
            "/.hidden.php/a.php/x",
            "/.git/in.php",
            "/.git/in.php/x",
            "/a.php%2fx",
        ] {
            assert_eq!(find(path), Err(Missing::NotFound), "{path}");
        }
        for path in ["/upload.jpg/../a.php", "/a.php%00.jpg", "/upload.jpg%00.php", "/%2e%2e/a.php"] {
            assert_eq!(find(path), Err(Missing::Malformed), "{path}");
        }
    }

    #[test]
    fn a_script_that_has_gone_is_missed_and_one_that_has_come_is_there_at_once() {
        let (folder, files) = files("gone");
        let find = |path: &str| Scripts::Suffix(".php".into()).find(Some(&files), path);
        assert_eq!(find("/new.php"), Err(Missing::NotFound));
        std::fs::rename(folder.0.join("a.php"), folder.0.join("new.php")).unwrap();
        assert_eq!(find("/new.php"), script("/new.php", ""));
        assert_eq!(find("/a.php"), Err(Missing::NotFound));
        // The target of a link is looked at each time.
        std::os::unix::fs::symlink("new.php", folder.0.join("link.php")).unwrap();
        assert_eq!(find("/link.php"), script("/link.php", ""));
        std::fs::remove_file(folder.0.join("link.php")).unwrap();
        assert_eq!(find("/link.php"), Err(Missing::NotFound));
    }

    #[test]
    fn one_script_for_all() {
        let (_folder, files) = files("one");
        let find = |path: &str| Scripts::One("/a.php".into()).find(Some(&files), path);
        assert_eq!(find("/any/thing"), script("/a.php", "/any/thing"));
        assert_eq!(find("/upload.jpg/x.php"), script("/a.php", "/upload.jpg/x.php"));
        assert_eq!(find("/any/.thing"), script("/a.php", "/any/.thing"));
        assert_eq!(find("/any%2fthing"), Err(Missing::NotFound));
        assert_eq!(find("/x/../y"), Err(Missing::Malformed));
    }

    #[test]
    fn a_server_that_answers_itself_gets_no_name_of_the_clients_choice() {
        let (_folder, files) = files("below");
        let find = |path: &str| Scripts::Below("/app/".into()).find(Some(&files), path);
        assert_eq!(find("/app/x/y"), script("/app", "/x/y"));
        assert_eq!(find("/app/upload.jpg/x.php"), script("/app", "/upload.jpg/x.php"));
        let root = |path: &str| Scripts::Below("/".into()).find(Some(&files), path);
        assert_eq!(root("/a.php/x"), script("/a.php", "/x"));
        assert_eq!(root("/upload.jpg/x.php"), script("", "/upload.jpg/x.php"));
        assert_eq!(Scripts::Below("/app".into()).find(None, "/app"), script("/app", ""));
    }
}
