//! Who can have put an entry of a folder under its name, and what that user may do elsewhere.
//!
//! Runs in: as the module above. Input: owners and modes. Must never: count a right that only a group or an access list
//! gives.

use rustix::fs::{FileType, Stat};

/// What is to be allowed, as in the last three bits of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModeRight {
    Search = 1,
    Read = 4,
    Enter = 5,
}

/// Who can have put an entry under its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Root, or whoever says what the configuration says.
    Root,
    /// This user.
    By(u32),
    /// More than one user, of whom nothing is known.
    Anyone,
}

impl Placement {
    /// Who can have put `entry` into `folder`. `trusted` are root and the owner of the configuration.
    ///
    /// In a sticky folder of root's, such as `/tmp`, nobody but its owner can rename or remove an entry; so a folder or
    /// a link of root's there is where root has put it. A file is not: who can make a hard link has put another's file
    /// there.
    pub(super) fn of(trusted: &[u32], folder: &Stat, entry: &Stat) -> Self {
        if !trusted.contains(&folder.st_uid) {
            return Self::By(folder.st_uid);
        }
        if folder.st_mode & 0o022 == 0 {
            return Self::Root;
        }
        if folder.st_mode & 0o1000 == 0 {
            return Self::Anyone;
        }
        let stays = match FileType::from_raw_mode(entry.st_mode) {
            FileType::Directory => true,
            FileType::Symlink => entry.st_nlink == 1,
            _ => false,
        };
        match trusted.contains(&entry.st_uid) {
            true if stays => Self::Root,
            true => Self::Anyone,
            false => Self::By(entry.st_uid),
        }
    }

    /// Whether whoever has put it there owns it, or may do this with it anyway.
    pub(super) fn may(self, entry: &Stat, right: ModeRight) -> bool {
        match self {
            Self::Root => true,
            Self::By(uid) => entry.st_uid == uid || may(entry, Some(uid), right),
            Self::Anyone => may(entry, None, right),
        }
    }
}

/// Whether a user may do this: as the owner, or as somebody of whom no group is known. `None` is somebody who owns
/// nothing.
pub(super) fn may(entry: &Stat, uid: Option<u32>, right: ModeRight) -> bool {
    let mode = entry.st_mode;
    // A member of the group has the group's rights, and no others: what both give, everybody has.
    let bits = if uid == Some(entry.st_uid) { mode >> 6 } else { (mode >> 3) & mode };
    bits & right as u32 == right as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(kind: u32, mode: u32, uid: u32, names: u64) -> Stat {
        let mut stat = rustix::fs::stat("/").unwrap();
        (stat.st_mode, stat.st_uid, stat.st_nlink) = (kind | mode, uid, names as _);
        stat
    }

    const FOLDER: u32 = 0o040_000;
    const FILE: u32 = 0o100_000;
    const LINK: u32 = 0o120_000;

    #[test]
    fn who_can_have_put_it_there() {
        let trusted = [0, 7];
        let of = |folder: (u32, u32), entry: Stat| {
            Placement::of(&trusted, &stat(FOLDER, folder.0, folder.1, 2), &entry)
        };
        let file = || stat(FILE, 0o600, 0, 1);
        assert_eq!(of((0o755, 0), file()), Placement::Root);
        assert_eq!(of((0o700, 7), file()), Placement::Root);
        assert_eq!(of((0o755, 9), file()), Placement::By(9));
        assert_eq!(of((0o775, 0), file()), Placement::Anyone);
        // Sticky.
        assert_eq!(of((0o1777, 0), file()), Placement::Anyone);
        assert_eq!(of((0o1777, 0), stat(FOLDER, 0o700, 0, 2)), Placement::Root);
        assert_eq!(of((0o1777, 0), stat(FOLDER, 0o700, 9, 2)), Placement::By(9));
        assert_eq!(of((0o1777, 0), stat(LINK, 0o777, 0, 1)), Placement::Root);
        assert_eq!(of((0o1777, 0), stat(LINK, 0o777, 0, 2)), Placement::Anyone);
        assert_eq!(of((0o1777, 9), stat(LINK, 0o777, 0, 1)), Placement::By(9));
    }

    #[test]
    fn rights_are_the_owners_or_everybodys() {
        for (mode, uid, right, allowed) in [
            (0o500, Some(9), ModeRight::Enter, true),
            (0o500, Some(8), ModeRight::Enter, false),
            (0o055, Some(9), ModeRight::Enter, false),
            (0o055, Some(8), ModeRight::Enter, true),
            (0o005, Some(8), ModeRight::Enter, false),
            (0o050, None, ModeRight::Enter, false),
            (0o711, None, ModeRight::Search, true),
            (0o711, None, ModeRight::Enter, false),
            (0o640, None, ModeRight::Read, false),
            (0o644, None, ModeRight::Read, true),
        ] {
            assert_eq!(may(&stat(FOLDER, mode, 9, 2), uid, right), allowed, "{mode:o} {uid:?} {right:?}");
        }
        let mine = stat(FILE, 0o000, 9, 1);
        assert!(
            Placement::By(9).may(&mine, ModeRight::Read) && !Placement::By(8).may(&mine, ModeRight::Read)
        );
    }
}
