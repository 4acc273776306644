//! Which control groups a launcher has made, in a file of its state directory: the next start ends what is left in
//! them.
//!
//! Runs in: the launcher, as root. Sees no untrusted bytes: a file that only root can write. Never: names a group that
//! another launcher has made since, or one of a launcher that lives.
//!
//! A group's path is not enough: it holds a pid, which another launcher may have one day. Its inode is not used again
//! before the next boot.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use sys::absence::if_there;

/// The file; locked for as long as the launcher lives.
#[derive(Debug)]
pub struct CgroupRecord(File);

impl CgroupRecord {
    /// Opens the file in `state`.
    ///
    /// # Errors
    /// Those of the file, and `WouldBlock` if another launcher that lives has the same state directory.
    pub fn open(state: &Path) -> io::Result<Self> {
        let mut options = File::options();
        options.create(true).truncate(false).read(true).write(true).mode(0o600);
        let file = options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(state.join("control_groups"))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self(file))
    }

    /// The file of a launcher that this one has taken the place of, with its lock.
    pub fn known(file: OwnedFd) -> Self {
        Self(file.into())
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.0
    }

    /// The groups of the launcher before, as far as they are still there.
    pub fn left(&mut self) -> io::Result<Vec<PathBuf>> {
        let mut text = String::new();
        self.0.rewind()?;
        self.0.read_to_string(&mut text)?;
        let (boot, lines) = text.split_once('\n').unwrap_or_default();
        if boot != boot_id()? {
            return Ok(Vec::new());
        }
        let mut groups = Vec::new();
        for (inode, path) in lines.lines().filter_map(|line| line.split_once(' ')) {
            let found = if_there(fs::metadata(path))?;
            groups.extend(found.filter(|found| inode.parse() == Ok(found.ino())).map(|_| path.into()));
        }
        Ok(groups)
    }

    /// Writes down which groups this launcher has made.
    pub fn keep<'p>(&mut self, groups: impl Iterator<Item = &'p Path>) -> io::Result<()> {
        let mut text = boot_id()?;
        for group in groups {
            text.push_str(&format!("\n{} {}", fs::metadata(group)?.ino(), group.display()));
        }
        self.0.set_len(0)?;
        self.0.rewind()?;
        self.0.write_all(text.as_bytes())
    }
}

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_known_by_its_inode() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path();
        let (one, other) = (folder.join("one"), folder.join("other"));
        [&one, &other].into_iter().for_each(|path| fs::create_dir_all(path).unwrap());
        let mut record = CgroupRecord::open(folder).unwrap();
        assert!(record.left().unwrap().is_empty());
        record.keep([one.as_path(), other.as_path()].into_iter()).unwrap();
        assert_eq!(record.left().unwrap(), [one.clone(), other.clone()]);
        assert!(CgroupRecord::open(folder).is_err(), "its launcher lives");
        drop(record);
        // Another one of the same name.
        let away = folder.join("away");
        fs::rename(&one, &away).unwrap();
        fs::create_dir(&one).unwrap();
        fs::remove_dir(&other).unwrap();
        assert!(CgroupRecord::open(folder).unwrap().left().unwrap().is_empty());
        // One that cannot be looked at may be there.
        let text = format!("{}\n1 /{}", boot_id().unwrap(), "x".repeat(300));
        fs::write(folder.join("control_groups"), text).unwrap();
        assert!(CgroupRecord::open(folder).unwrap().left().is_err());
    }
}
