//! By what a file is known to be as it was, wherever that is asked: what is served from memory, read again, or not.
//!
//! Runs in: the launcher, site workers, commands. Sees: what the kernel says of files. Never: takes a file for
//! unchanged because its size and the time of its contents are, which whoever writes it can choose.
//!
//! `cp -p`, `tar --mtime`, SOURCE_DATE_EPOCH and layers of images write other bytes under the same size, time and
//! inode. The time of the last change of any kind (`st_ctime`) is the kernel's alone to set.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;

/// Nanoseconds since 1970. LIMIT: until the year 2262, which later times stand for; before 1677 likewise.
fn nanoseconds(seconds: i64, rest: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// What identifies one state of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileVersion {
    /// The number of the file system.
    pub device: u64,
    /// The inode number.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Nanoseconds since 1970 of the last change of the contents, as whoever wrote them says.
    pub modified_ns: i64,
    /// Nanoseconds since 1970 of the last change of any kind, as the kernel says.
    pub changed_ns: i64,
}

impl FileVersion {
    /// The version of the file that these are about.
    pub fn of(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified_ns: nanoseconds(found.mtime(), found.mtime_nsec()),
            changed_ns: nanoseconds(found.ctime(), found.ctime_nsec()),
        }
    }

    /// Which file it is, whatever it contains: each file system counts its inodes by itself.
    pub fn file(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// The version in numbers, for another process.
    pub fn numbers(&self) -> [u64; 5] {
        let Self { device, inode, size, modified_ns, changed_ns } = *self;
        [device, inode, size, modified_ns.cast_unsigned(), changed_ns.cast_unsigned()]
    }

    /// The version that these numbers are of.
    pub fn of_numbers([device, inode, size, modified, changed]: [u64; 5]) -> Self {
        let (modified_ns, changed_ns) = (modified.cast_signed(), changed.cast_signed());
        Self { device, inode, size, modified_ns, changed_ns }
    }

    /// Whether so much time has passed since the last change that one more would have another time: the clock of a file
    /// system has a grain. A change in the future is none that has passed.
    pub fn is_settled(&self, now: SystemTime, after: Duration) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let past = i64::try_from(now).ok().and_then(|now| now.checked_sub(self.changed_ns));
        past.and_then(|past| u128::try_from(past).ok()).is_some_and(|past| past >= after.as_nanos())
    }
}

impl From<&Stat> for FileVersion {
    fn from(found: &Stat) -> Self {
        Self {
            device: found.st_dev,
            inode: found.st_ino,
            size: u64::try_from(found.st_size).unwrap_or(0),
            modified_ns: nanoseconds(found.st_mtime, found.st_mtime_nsec.cast_signed()),
            changed_ns: nanoseconds(found.st_ctime, found.st_ctime_nsec.cast_signed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, FileTimes};
    use std::io::Write as _;

    use super::*;

    #[test]
    fn other_bytes_of_the_same_size_and_time_are_another_version() {
        let path = std::env::temp_dir().join(format!("bulkhead-version-{}", std::process::id()));
        fs::write(&path, "one").unwrap();
        let before = fs::metadata(&path).unwrap();
        let first = FileVersion::of(&before);
        assert_eq!(first, FileVersion::from(&rustix::fs::stat(&path).unwrap()));
        assert_eq!(FileVersion::of_numbers(first.numbers()), first);
        // The clock of file systems has a grain of some milliseconds: a later change has a later time.
        let now = || FileVersion::of(&fs::metadata(&path).unwrap());
        while now().changed_ns == first.changed_ns {
            let mut file = File::options().write(true).open(&path).unwrap();
            file.write_all(b"two").unwrap();
            file.set_times(FileTimes::new().set_modified(before.modified().unwrap())).unwrap();
        }
        let second = now();
        assert_eq!(
            (first.device, first.inode, first.size, first.modified_ns),
            (second.device, second.inode, second.size, second.modified_ns)
        );
        assert_ne!(first, second);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn files_of_two_file_systems_are_two_files_whatever_their_numbers() {
        let [one, other] = ["/proc", "/sys"].map(|path| FileVersion::of(&fs::metadata(path).unwrap()));
        assert_eq!(one.inode, other.inode);
        assert_ne!(one.file(), other.file());
    }

    #[test]
    fn a_version_is_settled_after_its_time_and_not_in_the_future() {
        let version = FileVersion { changed_ns: 5_000_000_000, ..FileVersion::default() };
        let at = |ms| UNIX_EPOCH + Duration::from_millis(ms);
        let after = Duration::from_millis(50);
        let settled = [4_000, 5_000, 5_049, 5_050, 5_051].map(|ms| version.is_settled(at(ms), after));
        assert_eq!(settled, [false, false, false, true, true]);
    }
}
