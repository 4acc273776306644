//! What a process sees of the file system: a root of its own with nothing in it but what is bound there.
//!
//! Runs in: `view` in the launcher; the rest in a child of it between fork and exec, as root. Sees: directories
//! and files that the operator named. Never: resolves a name that a partition could have made; what is bound comes
//! as a descriptor, and the root is made of new, empty directories.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{CWD, Mode as Bits, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags,
};

use crate::{Jail, MountTemplate};

/// LIMIT: bytes of the tmpfs that holds the directories on the way to what is bound, and how many there are.
const FRAME_BYTES: &str = "256k";
const FRAME_ENTRIES: &str = "1024";
/// LIMIT: files in a process's `/tmp`.
const TEMPORARY_ENTRIES: u32 = 4096;

/// The directory of the new file system that becomes the root.
///
/// SECURITY: the kernel refuses user namespaces to whoever is not at the top of its mount namespace, so that they
/// are refused even if the filter of system calls is not there.
const INSIDE: &str = "/inside";

/// What a process sees of the file system.
#[derive(Debug)]
pub struct Root {
    /// Of what its namespace of mounts is a copy, to begin with.
    pub template: Rc<MountTemplate>,
    /// What it holds.
    pub binds: Vec<Bind>,
    /// The size of a private `/tmp` in bytes; `None` for none.
    pub temporary_bytes: Option<u64>,
    /// The directory that the process starts in; it is made.
    pub start_in: PathBuf,
}

impl Root {
    /// Whether there is nothing to be seen in it.
    fn is_empty(&self) -> bool {
        let Self { template: _, binds, temporary_bytes, start_in } = self;
        binds.is_empty() && temporary_bytes.is_none() && start_in == Path::new("/")
    }
}

/// A directory or file of the machine's at its place in a process's root.
#[derive(Debug)]
pub struct Bind {
    /// The absolute path under which it appears.
    pub at: PathBuf,
    /// From [`view`].
    pub tree: OwnedFd,
    /// Whether it is a directory.
    pub directory: bool,
}

/// What may be done with what is in a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Read.
    Read,
    /// Read and execute.
    Execute,
    /// Read and written; nothing in it is executed.
    Write,
    /// Read and written: a device, whose file system is left as it is.
    Device,
}

/// A view of an open directory or file that cannot be left by `..`, nor written through, nor gain a privilege.
///
/// Its descriptor is a mount of its own that is in no file system tree: above its top there is nothing.
///
/// # Errors
/// The kernel is older than 5.12, or the caller is not root.
pub fn view(of: &impl AsFd, mode: Mode) -> io::Result<OwnedFd> {
    // What is mounted below comes along, as the files of a site may lie on several disks.
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = rustix::mount::open_tree(of, "", flags)?;
    let (constant, data) = (libc::MOUNT_ATTR_RDONLY, libc::MOUNT_ATTR_NOEXEC);
    let attributes = libc::MOUNT_ATTR_NOSUID
        | match mode {
            Mode::Read => constant | data | libc::MOUNT_ATTR_NODEV,
            Mode::Execute => constant | libc::MOUNT_ATTR_NODEV,
            Mode::Write => data | libc::MOUNT_ATTR_NODEV,
            Mode::Device => constant | data,
        };
    set_attributes(tree.as_fd(), attributes, libc::AT_RECURSIVE)?;
    Ok(tree)
}

fn set_attributes(mount: BorrowedFd<'_>, set: u64, flags: libc::c_int) -> io::Result<()> {
    // SECURITY: a view of a shared mount would show what the machine mounts there later, without these attributes.
    let propagation = libc::MS_PRIVATE;
    let attributes = libc::mount_attr { attr_set: set, attr_clr: 0, propagation, userns_fd: 0 };
    // SAFETY: the path is an empty C string, as AT_EMPTY_PATH allows, and the kernel reads as many bytes of the
    // structure as its size says.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            std::os::fd::AsRawFd::as_raw_fd(&mount),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Moves the process into a mount namespace of its own whose root has nothing in it but what is bound there.
///
/// SECURITY: the namespace is a copy of one in which nothing of the machine is mounted, so nothing of it is to be
/// reached from here, whatever descriptor or way up the process may find.
pub(crate) fn enter(jail: &Jail) -> io::Result<()> {
    let Some(root) = &jail.root else { return Ok(()) };
    root.template.enter_copy()?;
    if !root.is_empty() {
        let frame = frame()?;
        attach(&frame, CWD, Path::new(INSIDE))?;
        // First of all, as what is bound may lie below it.
        if let Some(bytes) = root.temporary_bytes {
            temporary(jail, frame.as_fd(), bytes)?;
        }
        root.binds.iter().try_for_each(|bind| furnish(frame.as_fd(), bind))?;
        make_directories(frame.as_fd(), &root.start_in)?;
        set_attributes(frame.as_fd(), libc::MOUNT_ATTR_RDONLY, 0)?;
    }
    rustix::process::chroot(INSIDE)?;
    rustix::process::chdir(&root.start_in)?;
    Ok(())
}

/// In a new namespace of mounts, over the working directory: a root with one empty directory in it, for ever.
pub(crate) fn make_empty() -> io::Result<()> {
    // Nothing that is mounted from here on may be seen by the rest of the machine.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private)?;
    let frame = frame()?;
    attach(&frame, CWD, Path::new("."))?;
    make_directories(frame.as_fd(), Path::new(INSIDE))?;
    set_attributes(frame.as_fd(), libc::MOUNT_ATTR_RDONLY, 0)?;
    pivot(&frame)
}

/// A file system for directories and for what is mounted over them.
fn frame() -> io::Result<OwnedFd> {
    tmpfs(&[("size", FRAME_BYTES), ("nr_inodes", FRAME_ENTRIES), ("mode", "0555")])
}

/// Makes `frame` the root and lets go of the machine's.
fn pivot(frame: &OwnedFd) -> io::Result<()> {
    rustix::process::fchdir(frame)?;
    // The old root is then mounted over the new one, at the same place, and is the first to be taken off.
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")?;
    Ok(())
}

/// A new file system in memory.
fn tmpfs(options: &[(&str, &str)]) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        rustix::mount::fsconfig_set_string(&context, *name, *value)?;
    }
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

fn attach(mount: &OwnedFd, directory: BorrowedFd<'_>, at: &Path) -> io::Result<()> {
    Ok(rustix::mount::move_mount(mount, "", directory, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

fn furnish(frame: BorrowedFd<'_>, bind: &Bind) -> io::Result<()> {
    let at = relative(&bind.at)?;
    if bind.directory {
        make_directories(frame, &bind.at)?;
    } else {
        make_directories(frame, bind.at.parent().unwrap_or(Path::new("/")))?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::openat(frame, at, flags, Bits::empty()) {
            // It lies in a directory that is bound already.
            Ok(_) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    attach(&bind.tree, frame, at)
}

/// A new, empty directory in memory that belongs to `identity`, in which there is room for so many bytes and files; to
/// be bound into one root, or to be looked at afterwards.
///
/// # Errors
/// The kernel is older than 5.2, or the caller is not root.
pub fn memory(bytes: u64, entries: u32, identity: crate::Identity) -> io::Result<OwnedFd> {
    own_tmpfs(bytes, entries, Some(identity))
}

fn own_tmpfs(bytes: u64, entries: u32, identity: Option<crate::Identity>) -> io::Result<OwnedFd> {
    let (bytes, entries) = (bytes.to_string(), entries.to_string());
    let (uid, gid) = identity.map_or((0, 0), |identity| (identity.id(), identity.gid()));
    let (uid, gid) = (uid.to_string(), gid.to_string());
    tmpfs(&[
        ("size", bytes.as_str()),
        ("nr_inodes", entries.as_str()),
        ("mode", "0700"),
        ("uid", uid.as_str()),
        ("gid", gid.as_str()),
    ])
}

/// A `/tmp` that nobody else sees and that is gone with the process.
fn temporary(jail: &Jail, frame: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
    let mount = own_tmpfs(bytes, TEMPORARY_ENTRIES, jail.identity)?;
    make_directories(frame, Path::new("/tmp"))?;
    attach(&mount, frame, Path::new("tmp"))
}

/// Makes a directory of the frame and those above it.
fn make_directories(frame: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let mut made = PathBuf::new();
    for component in relative(path)?.components() {
        made.push(component);
        // The umask of a jail would leave them to root alone.
        match rustix::fs::mkdirat(frame, &made, Bits::empty()) {
            Ok(()) => {
                rustix::fs::chmodat(frame, &made, Bits::from_raw_mode(0o555), rustix::fs::AtFlags::empty())?
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// An absolute path without `..`, as seen from the root.
fn relative(path: &Path) -> io::Result<&Path> {
    let climbs = path.components().any(|part| matches!(part, Component::ParentDir | Component::CurDir));
    match path.strip_prefix("/") {
        Ok(below) if !climbs => Ok(below),
        _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
}
