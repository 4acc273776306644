//! What a helper hands over is taken only if it is of the kind that it was to be.
//!
//! Runs in: the launcher, which has helpers open and make for it what it must not wait for itself. Sees no bytes.
//! Never: closes what is of another kind ([`foreign`]); asks anything of it but its type, which nobody less trusted can
//! delay.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::fs::{FileType, OFlags, fcntl_get_seals, fcntl_getfl, fstat, fstatfs};

use crate::foreign;
use crate::notify::ID_VALID;

/// The file system of namespaces (`statfs(2)`), and what an open one is asked for its kind (`ioctl_nsfs(2)`).
const NSFS_MAGIC: i64 = 0x6e73_6673;
const NS_GET_NSTYPE: libc::c_ulong = 0xb703;

/// What a helper may have to hand over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandedKind {
    /// A namespace of mounts.
    MountNamespace,
    /// Where the calls of a process arrive ([`crate::notify`]).
    Calls,
    /// A file or a folder that is open only to be named.
    Named,
    /// A folder that is open to be read.
    Folder,
    /// What a file had in it, in memory.
    Contents,
}

impl HandedKind {
    /// The descriptor, if it is of this kind.
    ///
    /// # Errors
    /// `InvalidData`: it is something else; whoever may wait for that closes it.
    pub fn take(self, descriptor: OwnedFd) -> io::Result<OwnedFd> {
        if self.is_of(&descriptor) {
            return Ok(descriptor);
        }
        foreign::leave(descriptor);
        Err(io::Error::new(io::ErrorKind::InvalidData, "a helper has handed over something else"))
    }

    fn is_of(self, descriptor: &OwnedFd) -> bool {
        match self {
            Self::MountNamespace => {
                is_namespace(descriptor) && kind_of_namespace(descriptor) == libc::CLONE_NEWNS
            }
            // What is no file has no type; of those, only this one knows that there is no such call.
            Self::Calls => {
                let found = fstat(descriptor).map(|stat| FileType::from_raw_mode(stat.st_mode));
                found == Ok(FileType::Unknown) && knows_of_no_call(descriptor)
            }
            // By their flags: whoever answers for their file system is not asked.
            Self::Named => fcntl_getfl(descriptor).is_ok_and(|flags| flags.contains(OFlags::PATH)),
            Self::Folder => fcntl_getfl(descriptor)
                .is_ok_and(|flags| flags.contains(OFlags::DIRECTORY) && !flags.contains(OFlags::PATH)),
            Self::Contents => fcntl_get_seals(descriptor).is_ok(),
        }
    }
}

#[expect(clippy::unnecessary_cast, reason = "the type of the number differs between processors")]
fn is_namespace(descriptor: &OwnedFd) -> bool {
    fstatfs(descriptor).is_ok_and(|found| found.f_type as i64 == NSFS_MAGIC)
}

/// The flag of `clone` that makes such a namespace.
fn kind_of_namespace(namespace: &OwnedFd) -> libc::c_int {
    // SAFETY: the descriptor is open for as long as it is borrowed; this call has no argument, and writes nothing.
    unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_NSTYPE as _) }
}

fn knows_of_no_call(descriptor: &OwnedFd) -> bool {
    let mut none = 0_u64;
    // SAFETY: the descriptor is open for as long as it is borrowed; the request's argument points to a 64-bit integer.
    let result = unsafe { libc::ioctl(descriptor.as_raw_fd(), ID_VALID as _, &raw mut none) };
    result < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::{TcpListener, UdpSocket};

    use rustix::event::{EventfdFlags, epoll, eventfd};
    use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, inotify, memfd_create, openat};

    use super::*;

    fn opened(path: &str) -> OwnedFd {
        File::open(path).unwrap().into()
    }

    /// One of each type that a descriptor can be of, and the kinds that it is.
    fn all() -> Vec<(OwnedFd, &'static [HandedKind])> {
        let path = openat(CWD, "/dev", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let folder = openat(CWD, "/dev", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let (reading, writing) = rustix::pipe::pipe().unwrap();
        let (one, other) = crate::seqpacket::pair().unwrap();
        vec![
            (memfd_create("file", MemfdFlags::CLOEXEC).unwrap(), &[HandedKind::Contents]),
            (folder, &[HandedKind::Folder]),
            (opened("/proc/self/exe"), &[]),
            (opened("/"), &[]),
            (path, &[HandedKind::Named]),
            (opened("/proc/self/ns/mnt"), &[HandedKind::MountNamespace]),
            (opened("/proc/self/ns/net"), &[]),
            (opened("/proc/self/ns/uts"), &[]),
            (opened("/dev/null"), &[]),
            (opened("/dev/ptmx"), &[]),
            (reading, &[]),
            (writing, &[]),
            (one, &[]),
            (other, &[]),
            (TcpListener::bind("127.0.0.1:0").unwrap().into(), &[]),
            (UdpSocket::bind("127.0.0.1:0").unwrap().into(), &[]),
            (epoll::create(epoll::CreateFlags::CLOEXEC).unwrap(), &[]),
            (eventfd(0, EventfdFlags::CLOEXEC).unwrap(), &[]),
            (inotify::init(inotify::CreateFlags::CLOEXEC).unwrap(), &[]),
        ]
    }

    #[test]
    fn each_kind_takes_its_own_and_nothing_else() {
        for kind in [
            HandedKind::MountNamespace,
            HandedKind::Calls,
            HandedKind::Named,
            HandedKind::Folder,
            HandedKind::Contents,
        ] {
            for (number, (descriptor, kinds)) in all().into_iter().enumerate() {
                let taken = kind.take(descriptor);
                assert_eq!(taken.is_ok(), kinds.contains(&kind), "{kind:?} of descriptor {number}");
            }
        }
    }
}
