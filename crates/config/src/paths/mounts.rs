//! Which file systems answer by themselves, and which somebody else answers for: a server of the network, or a program
//! (FUSE).
//!
//! Runs in: as the module above. Input: `/proc/self/mountinfo`, whose mount points tenants may choose. Must never: ask
//! a file system that it is not sure of.
//!
//! SECURITY: a call that asks NFS or FUSE waits until those answer, whatever its flags say; each user may mount a FUSE
//! file system on a folder of the user's own.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, StatxFlags, statx};

/// The types of file systems that the kernel answers for, from a disk of this machine or from memory.
const LOCAL: &[&str] = &[
    "bcachefs", "btrfs", "devtmpfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "iso9660", "jfs",
    "nilfs2", "ntfs3", "overlay", "proc", "ramfs", "reiserfs", "rootfs", "squashfs", "sysfs", "tmpfs", "udf",
    "vfat", "xfs", "zfs",
];

/// A mount, by the kernel's number.
pub(super) type MountId = u64;

thread_local! {
    static MOUNTS: RefCell<Option<Mounts>> = const { RefCell::new(None) };
}

/// The mounts of this process.
struct Mounts {
    /// Tells, when it is polled, that there are others than when it was read.
    list: File,
    local: BTreeMap<MountId, bool>,
}

impl Mounts {
    fn open() -> Option<Self> {
        let mut list = File::open("/proc/self/mountinfo").ok()?;
        let mut text = Vec::new();
        list.read_to_end(&mut text).ok()?;
        let local = String::from_utf8_lossy(&text).lines().filter_map(mount_of).collect();
        Some(Self { list, local })
    }

    fn have_changed(&self) -> bool {
        let mut polled = [PollFd::new(&self.list, PollFlags::PRI)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&at_once)).is_ok() && !polled[0].revents().is_empty()
    }
}

/// The number of a mount, and whether it is local, from its line.
fn mount_of(line: &str) -> Option<(MountId, bool)> {
    let (before, after) = line.split_once(" - ")?;
    let (id, kind) = (before.split(' ').next()?.parse().ok()?, after.split(' ').next()?);
    Some((id, LOCAL.contains(&kind)))
}

/// Has the mounts read anew: this process is a copy of the one that has opened their list, whose number may be another
/// file's here.
pub(super) fn forget() {
    std::mem::forget(MOUNTS.take());
}

/// The mount that an open file lies on, without asking its file system; `None` if that does not say so.
pub(super) fn mount(file: &OwnedFd) -> Option<MountId> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let found = statx(file, "", flags, StatxFlags::MNT_ID).ok()?;
    (found.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(found.stx_mnt_id)
}

/// Whether the file system of a mount is one that the kernel answers for. The mount must be held open meanwhile:
/// numbers are used again.
pub(super) fn is_local(mount: MountId) -> bool {
    MOUNTS.with_borrow_mut(|known| {
        if known.as_ref().is_none_or(Mounts::have_changed) {
            *known = Mounts::open();
        }
        let known = known.as_ref().and_then(|mounts| mounts.local.get(&mount));
        known.copied().unwrap_or(false)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_stands_behind_optional_fields() {
        let line = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 - ext4 /dev/root rw,errors=continue";
        assert_eq!(mount_of(line), Some((36, true)));
        assert_eq!(mount_of("40 35 0:50 / /home/a\\040b rw - fuse.sshfs host: rw"), Some((40, false)));
        assert_eq!(mount_of("41 35 0:51 / /net rw - nfs4 host:/ rw"), Some((41, false)));
        assert_eq!(mount_of("42 35 0:52 / /net rw - autofs x rw"), Some((42, false)));
        assert_eq!(mount_of("nonsense"), None);
    }

    #[test]
    fn what_this_machine_has_is_local_and_what_is_unknown_is_not() {
        let file = |path: &str| OwnedFd::from(File::open(path).unwrap());
        let proc = mount(&file("/proc/self")).unwrap();
        assert!(is_local(proc));
        assert!(!is_local(u64::MAX));
        // Mounts of a kernel that have no name.
        let nameless = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert!(!mount(&nameless).is_some_and(is_local));
    }
}
