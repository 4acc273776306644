//! The change of uid, gid and groups, and the proof that it took place.
//!
//! Runs in: a child of the launcher between fork and exec. Sees no untrusted bytes. Never: trusts that a call
//! which returned success had its effect (mpm-itk's CVE-2011-1176, lighttpd's CVE-2013-4559).

use std::io;

/// A uid and a gid, which one partition or role has for itself; of the same number, unless they are an account's of
/// the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    uid: u32,
    gid: u32,
}

impl Identity {
    /// The identity with this number.
    ///
    /// # Errors
    /// `None` for 0, which is root, and for the number that means "no change" to the kernel.
    pub fn new(id: u32) -> Option<Self> {
        Self::account(id, id)
    }

    /// The identity of an account of the machine.
    ///
    /// # Errors
    /// As for [`Identity::new`], for each of the two.
    pub fn account(uid: u32, gid: u32) -> Option<Self> {
        let usable = |id| id != 0 && id != u32::MAX;
        (usable(uid) && usable(gid)).then_some(Self { uid, gid })
    }

    /// The uid; unless it is an account's, this is the gid as well.
    pub fn id(self) -> u32 {
        self.uid
    }

    /// The gid.
    pub fn gid(self) -> u32 {
        self.gid
    }

    /// Becomes this identity for good: one group, real, effective and saved ids alike.
    pub(crate) fn assume(self) -> io::Result<()> {
        let Self { uid, gid } = self;
        let groups = [gid];
        // SAFETY: setgroups reads one gid from `groups`, which is that long; the others take integers. The raw
        // effect is on the whole process because it has one thread.
        let changed = unsafe {
            libc::setgroups(1, groups.as_ptr()) == 0
                && libc::setresgid(gid, gid, gid) == 0
                && libc::setresuid(uid, uid, uid) == 0
        };
        if !changed {
            return Err(io::Error::last_os_error());
        }
        self.verify()
    }

    fn verify(self) -> io::Result<()> {
        let (mut uids, mut gids, mut groups) = ([0; 3], [0; 3], [0; 2]);
        // SAFETY: each pointer is to a writable u32 of the arrays above; getgroups writes at most two entries.
        let (count, back_to_root) = unsafe {
            libc::getresuid(&raw mut uids[0], &raw mut uids[1], &raw mut uids[2]);
            libc::getresgid(&raw mut gids[0], &raw mut gids[1], &raw mut gids[2]);
            (libc::getgroups(2, groups.as_mut_ptr()), libc::setuid(0) == 0)
        };
        let as_meant = uids == [self.uid; 3] && gids == [self.gid; 3] && count == 1 && groups[0] == self.gid;
        if as_meant && !back_to_root { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
    }
}
