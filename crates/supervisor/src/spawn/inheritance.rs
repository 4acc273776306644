//! What a launcher, or a guard, prepares in itself before its first child inherits from it.
//!
//! Runs in: the launcher and the guard, before anything is opened. Sees no untrusted bytes. Never: leaves one of the
//! numbers free at which children find their descriptors.

use std::fs::File;
use std::os::fd::OwnedFd;

use crate::error::{Error, during};

/// Fills the numbers at which children find their descriptors, so that nothing of the launcher's is there.
pub fn occupy_inherited_numbers() -> Result<(), Error> {
    loop {
        let null = File::open("/dev/null").map_err(during("open /dev/null"))?;
        let null = OwnedFd::from(null);
        if std::os::fd::AsRawFd::as_raw_fd(&null) > sys::inherit::LOG {
            return Ok(());
        }
        std::mem::forget(null);
    }
}

/// Lets the launcher, and those children that it allows, have as many descriptors as the machine grants.
pub fn raise_descriptor_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
}
