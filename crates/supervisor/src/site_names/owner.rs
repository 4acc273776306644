//! Who owns the folder of a site, as far as that can be found out.
//!
//! Runs in: the launcher, as root, and the commands `check`, `run` and `site`. Sees: owners of folders, and a field of
//! the file of holders. Never: has a folder that could not be looked at be nobody's: whoever comes back would be
//! another one then.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use config::{Class, Opener};
use sys::absence::if_there;

/// What stands for nobody.
const NONE: &str = "-";
/// What stands for somebody of whom nothing is known: the kernel has no such uid, and a launcher of an earlier version
/// reads a number.
const UNKNOWN: u32 = u32::MAX;

/// See the file's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// There is no folder.
    Nobody,
    /// The user of this uid.
    Uid(u32),
    /// The folder could not be looked at, or somebody would have had to be waited for.
    Unknown,
}

impl Owner {
    /// That of a folder, if nobody has to be waited for to say so.
    pub fn of(folder: &Path) -> Self {
        let Some(above) = folder.parent() else { return Self::Nobody };
        let opener = Opener::of(Path::new("/"));
        let would_wait = |path| opener.would_wait(Class::Published, path);
        if would_wait(above) || would_wait(folder) {
            return Self::Unknown;
        }
        // A link is its maker's: where it leads is no matter of whose the site is.
        Self::from(folder.symlink_metadata().map(|found| found.uid()))
    }

    /// Reads one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            NONE => Some(Self::Nobody),
            uid => uid.parse::<u32>().ok().map(Self::from),
        }
    }
}

impl From<u32> for Owner {
    fn from(uid: u32) -> Self {
        if uid == UNKNOWN { Self::Unknown } else { Self::Uid(uid) }
    }
}

impl From<io::Result<u32>> for Owner {
    fn from(found: io::Result<u32>) -> Self {
        match if_there(found) {
            Ok(uid) => uid.map_or(Self::Nobody, Self::Uid),
            Err(_) => Self::Unknown,
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str(NONE),
            Self::Uid(uid) => write!(f, "{uid}"),
            Self::Unknown => write!(f, "{UNKNOWN}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_cannot_be_looked_at_is_not_nobodys() {
        let folder = tempfile::tempdir().unwrap();
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(Owner::of(folder.path()), Owner::Uid(own));
        assert_eq!(Owner::of(&folder.path().join("none")), Owner::Nobody);
        // No file system has such a name; where memory runs out, another error comes of the same call.
        assert_eq!(Owner::of(&folder.path().join("x".repeat(300))), Owner::Unknown);
        for owner in [Owner::Nobody, Owner::Uid(0), Owner::Uid(1001), Owner::Unknown] {
            assert_eq!(Owner::parse(&owner.to_string()), Some(owner));
        }
        assert_eq!(Owner::parse("-1"), None);
    }
}
