//! Layers that give a process a machine of its own: control group, processes, IPC, host name, network.
//!
//! Runs in: a child of the launcher between fork and exec, as root. Sees no untrusted bytes. Never: makes a user
//! namespace, which would give capabilities back.

use std::io;
use std::os::fd::OwnedFd;

use rustix::thread::UnshareFlags;

use crate::{Jail, Network};

/// The name that every process takes its machine to have.
const HOST_NAME: &[u8] = b"bulkhead";

/// Makes sure that the call which made this process gave it a PID namespace.
pub(crate) fn pids(_: &Jail) -> io::Result<()> {
    if std::process::id() == 1 { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EINVAL)) }
}

/// Joins its control groups, and sees none but those and what is below.
pub(crate) fn cgroup(jail: &Jail) -> io::Result<()> {
    jail.cgroups.iter().try_for_each(join)?;
    unshare(UnshareFlags::NEWCGROUP)
}

fn join(processes: &OwnedFd) -> io::Result<()> {
    // Nought stands for the process that writes.
    rustix::io::write(processes, b"0\n")?;
    Ok(())
}

pub(crate) fn ipc(_: &Jail) -> io::Result<()> {
    unshare(UnshareFlags::NEWIPC)
}

pub(crate) fn uts(_: &Jail) -> io::Result<()> {
    unshare(UnshareFlags::NEWUTS)?;
    rustix::system::sethostname(HOST_NAME)?;
    Ok(())
}

pub(crate) fn network(jail: &Jail) -> io::Result<()> {
    match jail.network {
        Network::None => unshare(UnshareFlags::NEWNET),
        Network::Host => Ok(()),
    }
}

pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the calls whose flags could break an invariant of safe code are those that unshare descriptors
    // (CLONE_FILES) or memory; this crate passes only flags of namespaces.
    unsafe { rustix::thread::unshare_unsafe(flags)? };
    Ok(())
}
