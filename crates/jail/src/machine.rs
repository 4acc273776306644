//! Namespaces with nothing in them, made once, which many jails enter in place of new ones.
//!
//! Runs in: `EmptyMachine::make` in the launcher and a child of it that ends at once, as root; the rest in a child between
//! fork and exec. Sees no untrusted bytes. Never: lets a process in whose filter of system calls has a call by which it could
//! use what it shares ([`crate::policy::Policy::can_share`]).
//!
//! To make a root of its own, a process moves into a namespace of mounts that has never had the machine's: no old root is
//! there to get rid of. `pivot_root` looks at every thread of the machine, so that each start would cost more than the one
//! before.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use sys::process::StartError;

use crate::namespaces::{set_host_name, unshare};
use crate::root;

/// The namespaces; each is there for as long as this value or a process in it.
#[derive(Debug, Default)]
pub struct EmptyMachine {
    ipc: Option<OwnedFd>,
    uts: Option<OwnedFd>,
    network: Option<OwnedFd>,
    mounts: Option<OwnedFd>,
}

/// The layers that keep a process from using what it shares; without one of them it shares nothing.
///
/// SECURITY: the filter alone does so on every kernel. Landlock stands behind it, and has no rule for sockets of the network.
pub(crate) const KEEPERS: [&str; 2] = ["seccomp", "landlock"];

/// Which namespace a message of the child carries, by its first byte.
type Kind = u8;
const IPC: Kind = 0;
const UTS: Kind = 1;
const NETWORK: Kind = 2;
const MOUNTS: Kind = 3;

/// The namespaces: the layer that they belong to, and their names in `/proc`.
const KINDS: [(Kind, &str, &str, UnshareFlags); 4] = [
    (IPC, "ipc namespace", "ipc", UnshareFlags::NEWIPC),
    (UTS, "uts namespace", "uts", UnshareFlags::NEWUTS),
    (NETWORK, "network namespace", "net", UnshareFlags::NEWNET),
    (MOUNTS, "root", "mnt", UnshareFlags::NEWNS),
];

impl EmptyMachine {
    /// Makes the namespaces of all layers but those in `without`. `staging` is a directory of the launcher's, over which the
    /// new root is mounted, out of everybody's view.
    ///
    /// # Errors
    /// The layer whose namespace could not be made.
    pub fn make(staging: &OwnedFd, without: &[&str]) -> Result<Self, StartError> {
        let failed = |source| StartError { step: "empty machine".into(), source };
        let (ours, its) = sys::seqpacket::pair().map_err(failed)?;
        sys::process::run(|| {
            let mut wanted = KINDS.into_iter().filter(|(_, layer, ..)| !without.contains(layer));
            wanted.try_for_each(|(kind, layer, name, flags)| {
                make_namespace(kind, name, flags, &its, staging).map_err(|error| (layer, error))
            })
        })?;
        drop(its);
        Self::receive(&ours).map_err(failed)
    }

    /// Takes what the child has sent, all of which is there.
    fn receive(channel: &OwnedFd) -> io::Result<Self> {
        let mut machine = Self::default();
        let mut kind = [0];
        while let Some(received) = sys::seqpacket::receive(channel, &mut kind)? {
            let place = match kind[0] {
                IPC => &mut machine.ipc,
                UTS => &mut machine.uts,
                NETWORK => &mut machine.network,
                _ => &mut machine.mounts,
            };
            *place = received.descriptor;
        }
        Ok(machine)
    }

    /// The highest number of its descriptors.
    pub(crate) fn highest_descriptor(&self) -> Option<RawFd> {
        let Self { ipc, uts, network, mounts } = self;
        [ipc, uts, network, mounts].into_iter().flatten().map(AsRawFd::as_raw_fd).max()
    }

    /// Moves the calling process into the namespace of mounts.
    pub(crate) fn enter_mounts(&self) -> io::Result<()> {
        enter(self.mounts.as_ref(), LinkNameSpaceType::Mount)
    }

    /// The same for System V and POSIX IPC.
    pub(crate) fn enter_ipc(&self) -> io::Result<()> {
        enter(self.ipc.as_ref(), LinkNameSpaceType::InterProcessCommunication)
    }

    /// The same for the host name.
    pub(crate) fn enter_uts(&self) -> io::Result<()> {
        enter(self.uts.as_ref(), LinkNameSpaceType::HostNameAndNISDomainName)
    }

    /// The same for the network.
    pub(crate) fn enter_network(&self) -> io::Result<()> {
        enter(self.network.as_ref(), LinkNameSpaceType::Network)
    }
}

/// SECURITY: a namespace that was not made is not replaced by the machine's: the layer fails.
fn enter(namespace: Option<&OwnedFd>, kind: LinkNameSpaceType) -> io::Result<()> {
    let namespace = namespace.ok_or(io::Error::from_raw_os_error(libc::EINVAL))?;
    Ok(move_into_link_name_space(namespace.as_fd(), Some(kind))?)
}

/// In the child: makes a namespace, says which one it is, and leaves nothing of the machine's in it.
fn make_namespace(
    kind: Kind,
    name: &str,
    flags: UnshareFlags,
    channel: &OwnedFd,
    staging: &OwnedFd,
) -> io::Result<()> {
    if kind == MOUNTS {
        // The working directory is what the kernel carries over into the new namespace.
        rustix::process::fchdir(staging)?;
    }
    unshare(flags)?;
    // The root is the last: /proc is not in it.
    let opened = File::open(format!("/proc/thread-self/ns/{name}"))?;
    match kind {
        UTS => set_host_name()?,
        MOUNTS => root::make_empty()?,
        _ => {}
    }
    sys::seqpacket::send(channel, &[kind], Some(opened.as_fd()))
}
