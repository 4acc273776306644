//! A namespace of mounts with nothing of the machine in it, made once, of which each jail has a copy.
//!
//! Runs in: `MountTemplate::make` in the launcher and a child of it that ends at once, as root; the rest in a child
//! between fork and exec. Sees no untrusted bytes. Never: has anything of the machine mounted in it.
//!
//! A process that begins with a copy has no old root to get rid of. `pivot_root` looks at every thread of the machine,
//! so that each start would cost more than the one before.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use sys::handed::HandedKind;
use sys::process::StartError;

use crate::namespaces::unshare;
use crate::root;

/// The layer that fails without the namespace.
const LAYER: &str = "root";

/// The namespace; it is there for as long as this value.
#[derive(Debug)]
pub struct MountTemplate(OwnedFd);

impl From<OwnedFd> for MountTemplate {
    /// The namespace that a descriptor is of.
    fn from(namespace: OwnedFd) -> Self {
        Self(namespace)
    }
}

impl MountTemplate {
    /// Makes the namespace. `staging` is a directory of the launcher's, over which the new root is mounted, out of
    /// everybody's view.
    ///
    /// # Errors
    /// That the layer `root` failed, and why.
    pub fn make(staging: &OwnedFd) -> Result<Self, StartError> {
        let failed = |source| StartError { step: LAYER.into(), source };
        let (ours, its) = sys::seqpacket::pair_that_takes(true, false).map_err(failed)?;
        sys::process::run(|| make_namespace(&its, staging).map_err(|error| (LAYER, error)))?;
        drop(its);
        let received = sys::seqpacket::receive(&ours, &mut [0]).map_err(failed)?;
        let namespace = received.and_then(|received| received.descriptor);
        let namespace = namespace.ok_or_else(|| failed(io::ErrorKind::UnexpectedEof.into()))?;
        HandedKind::MountNamespace.take(namespace).map(Self).map_err(failed)
    }

    /// The number of its descriptor.
    pub fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Moves the calling process into a copy, which is its own.
    pub(crate) fn enter_copy(&self) -> io::Result<()> {
        move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Mount))?;
        unshare(UnshareFlags::NEWNS)
    }
}

/// In the child: makes the namespace, and sends a descriptor of it.
fn make_namespace(channel: &OwnedFd, staging: &OwnedFd) -> io::Result<()> {
    // The working directory is what the kernel carries over into the new namespace.
    rustix::process::fchdir(staging)?;
    unshare(UnshareFlags::NEWNS)?;
    // Before the root is another: /proc is not in that.
    let namespace = File::open("/proc/thread-self/ns/mnt")?;
    root::make_empty()?;
    sys::seqpacket::send(channel, &[0], Some(namespace.as_fd()))
}
