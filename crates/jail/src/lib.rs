//! The jail that every child of the launcher is in before it executes its program: a list of layers.
//!
//! Runs in: a child of the launcher, as root, between fork and exec (as the ordinary user in a rootless run).
//! Sees no untrusted bytes. Never: goes on after a layer failed; the program is then not executed.
//!
//! Layers are applied in the order of [`LAYERS`]; each is a function of its own that can be tested and reported
//! by its name. A layer that needs root is left out of a rootless run, and [`missing`] names it.

mod identity;
mod layers;

pub use identity::Identity;
pub use layers::{LAYERS, Layer, note_launcher};

use std::io;
use std::os::fd::{OwnedFd, RawFd};

/// What the jail of one process is made of.
#[derive(Debug)]
pub struct Jail {
    /// The uid and gid, which nobody shares; `None` in a rootless run.
    pub identity: Option<Identity>,
    /// The directory that becomes its root; `None` leaves the machine's.
    pub root: Option<OwnedFd>,
    /// The directory that it starts in, if its root is the machine's; with a `root` of its own it is refused.
    pub directory: Option<OwnedFd>,
    /// Descriptors and the numbers at which the program finds them; all others are closed.
    pub descriptors: Vec<(OwnedFd, RawFd)>,
    /// Its resource limits.
    pub limits: Limits,
}

/// Resource limits of one process (`setrlimit`).
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open descriptors.
    pub descriptors: u64,
    /// Processes and threads of its uid; not set in a rootless run, where the uid is shared.
    pub processes: u64,
    /// Private writable memory in bytes (`RLIMIT_DATA`: the address space may be larger, as runtimes that only
    /// reserve it need); `None` for no limit.
    pub memory_bytes: Option<u64>,
}

/// Builds the jail around the calling process.
///
/// # Errors
/// The name of the layer that failed, and what the kernel said.
pub fn enter(jail: &Jail) -> Result<(), (&'static str, io::Error)> {
    for layer in LAYERS {
        if layer.applies_to(jail) {
            (layer.apply)(jail).map_err(|error| (layer.name, error))?;
        }
    }
    Ok(())
}

/// The names of the layers that a rootless run does without.
pub fn missing(root: bool) -> Vec<&'static str> {
    LAYERS.iter().filter(|layer| layer.needs_root && !root).map(|layer| layer.name).collect()
}
