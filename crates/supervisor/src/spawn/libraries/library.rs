//! Which files may be libraries of a service: those that only root can have put where libraries are.
//!
//! Runs in: the launcher, as root. Sees: paths that a loader named for a program, which may be made up. Never:
//! opens a file for reading, nor returns one that was not checked after it was opened.

use std::os::fd::OwnedFd;
use std::path::Path;

use config::{Found, Opener};
use rustix::fs::{FileType, Mode, OFlags, Stat};

/// Where libraries are.
pub const FOLDERS: [&str; 5] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"];

/// Opens the library at `path`, only to name it; or says what is wrong with it, to follow "which".
pub fn open(path: &Path) -> Result<OwnedFd, String> {
    if !is_below_a_folder(path) {
        return Err(outside());
    }
    let real = path.canonicalize().map_err(|error| format!("cannot be found: {error}; install it"))?;
    if !is_below_a_folder(&real) {
        return Err(format!("is a link to {}, which {}", real.display(), outside()));
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(&real, flags, Mode::empty());
    let file = opened.map_err(|error| format!("cannot be opened: {error}"))?;
    let stat = rustix::fs::fstat(&file).map_err(|error| format!("cannot be examined: {error}"))?;
    check(&stat).map(|()| file)
}

/// Opens a folder of libraries, only to name it; or says what is wrong with it, and what to do.
pub fn open_folder(path: &Path, opener: &Opener) -> Result<OwnedFd, (String, String)> {
    let found = opener.look_by_key("libraries", path).map_err(|fault| (fault.problem(), fault.remedy()))?;
    if found.real.parent().is_none() {
        return Err(("is the whole machine".into(), "name the folders of libraries in it".into()));
    }
    if !found.is_folder() {
        return Err(("is not a folder".into(), "correct the path".into()));
    }
    let Found { file: folder, stat, .. } = found;
    match check_folder(&stat) {
        Some(fault) => Err((
            fault,
            format!("`chown -R root: {0} && chmod -R go-w {0}`, or install it anew as root", path.display()),
        )),
        None => Ok(folder),
    }
}

/// SECURITY: code is loaded only from where root alone puts files.
fn check_folder(stat: &Stat) -> Option<String> {
    if stat.st_uid != 0 {
        return Some(format!(
            "belongs to uid {}, and code is loaded from folders of root's alone",
            stat.st_uid
        ));
    }
    (stat.st_mode & 0o022 != 0).then(|| "can be written by others than root".into())
}

/// Whether a path, taken by the word, is that of something in one of the folders.
pub fn is_below_a_folder(path: &Path) -> bool {
    let plain = config::lexical(path).as_os_str() == path.as_os_str();
    plain && FOLDERS.iter().any(|folder| path.starts_with(folder) && path != Path::new(folder))
}

/// SECURITY: what a service runs as its own code must be nobody's to change but root's.
fn check(stat: &Stat) -> Result<(), String> {
    let fault = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if stat.st_uid != 0 => {
            format!("belongs to uid {}; it must be root's", stat.st_uid)
        }
        FileType::RegularFile if stat.st_mode & 0o022 != 0 => {
            "can be written by others than root; `chmod go-w` it".into()
        }
        FileType::RegularFile if stat.st_mode & 0o6000 != 0 => "is setuid or setgid; remove that bit".into(),
        FileType::RegularFile => return Ok(()),
        _ => "is not a regular file".into(),
    };
    Err(fault)
}

fn outside() -> String {
    format!("is outside of {}; install it in one of them, or link the program statically", FOLDERS.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_below_the_folders() {
        for path in ["/lib/x.so", "/usr/lib/a/b/x.so", "/lib64/ld-linux-x86-64.so.2", "/usr/local/lib/x.so"] {
            assert!(is_below_a_folder(Path::new(path)), "{path}");
        }
        for path in [
            "x.so",
            "./x.so",
            "/lib",
            "/lib/",
            "/lib/../etc/shadow",
            "/lib/./x.so",
            "/library/x.so",
            "/tmp/x.so",
            "",
        ] {
            assert!(!is_below_a_folder(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn only_files_of_root_that_nobody_else_writes() {
        let stat = |change: fn(&mut Stat)| {
            let mut stat = rustix::fs::stat("/dev/null").unwrap();
            (stat.st_mode, stat.st_uid) = (0o100_644, 0);
            change(&mut stat);
            check(&stat)
        };
        assert_eq!(stat(|_| ()), Ok(()));
        assert_eq!(stat(|stat| stat.st_mode = 0o100_755), Ok(()));
        for change in [
            (|stat| stat.st_uid = 1000) as fn(&mut Stat),
            |stat| stat.st_mode |= 0o020,
            |stat| stat.st_mode |= 0o002,
            |stat| stat.st_mode |= 0o4000,
            |stat| stat.st_mode |= 0o2000,
            |stat| stat.st_mode = 0o040_755,
            |stat| stat.st_mode = 0o020_644,
        ] {
            assert!(stat(change).is_err());
        }
    }

    #[test]
    fn only_folders_of_root_that_nobody_else_writes() {
        let mut stat = rustix::fs::stat("/dev").unwrap();
        for (uid, mode, good) in
            [(0, 0o755, true), (0, 0o700, true), (1000, 0o755, false), (0, 0o775, false), (0, 0o1777, false)]
        {
            (stat.st_uid, stat.st_mode) = (uid, 0o040_000 | mode);
            assert_eq!(check_folder(&stat).is_none(), good, "{uid} {mode:o}");
        }
        let opened = |path: &str| open_folder(Path::new(path), &Opener::of(Path::new("/etc"))).unwrap_err();
        assert_eq!(opened("/etc/passwd").0, "is not a folder");
        assert!(opened("/etc/none").0.starts_with("cannot be opened"));
        assert_eq!(opened("/usr/..").0, "is the whole machine");
        assert!(opened("/tmp").1.contains("chmod -R go-w /tmp"));
    }

    #[test]
    fn says_what_is_wrong() {
        assert!(open(Path::new("/tmp/x.so")).unwrap_err().contains("/usr/local/lib; install it"));
        assert!(open(Path::new("/lib/libnone-4711.so")).unwrap_err().starts_with("cannot be found"));
    }
}
