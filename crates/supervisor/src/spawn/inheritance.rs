//! What a launcher, or a guard, prepares in itself before its first child inherits from it.
//!
//! Runs in: the launcher and the guard, before anything is opened. Sees no untrusted bytes. Never: leaves one of the
//! numbers free at which children find their descriptors.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::{Error, during};
use crate::limits;

/// Makes this process one that starts children: it has no threads, so a helper closes what others have sent, and
/// nothing of its own is at the numbers at which children find their descriptors.
///
/// # Errors
/// There is no descriptor left.
pub fn prepare() -> Result<(), Error> {
    sys::foreign::leave_to_helper();
    occupy_inherited_numbers()
}

fn occupy_inherited_numbers() -> Result<(), Error> {
    loop {
        let null = File::open("/dev/null").map_err(during("open /dev/null"))?;
        let null = OwnedFd::from(null);
        if std::os::fd::AsRawFd::as_raw_fd(&null) > sys::inherit::SAY {
            return Ok(());
        }
        std::mem::forget(null);
    }
}

/// LIMIT: descriptors that root takes if it was given fewer: five for each of 65,534 processes, and the copies of all
/// that an upgrade needs for a moment.
const DESCRIPTORS: u64 = 1 << 20;

/// How many descriptors a launcher could have that was started from here.
pub(crate) fn descriptor_limit() -> Option<u64> {
    let most = getrlimit(Resource::Nofile).maximum?;
    let most = if limits::passes_limits() { most.max(DESCRIPTORS) } else { most };
    Some(limits::nr_open().map_or(most, |nr_open| most.min(nr_open)))
}

/// Lets the launcher, and those children that it allows, have as many descriptors as the machine grants; root grants
/// itself as many as it may need.
pub fn raise_descriptor_limit() {
    let given = getrlimit(Resource::Nofile).maximum;
    // The kernel has a bound of its own, above which it takes no limit, and not every root may pass the limit that it
    // was given.
    let nr_open = limits::nr_open().unwrap_or(u64::MAX);
    let (wanted, given) =
        (given.map(|given| given.max(DESCRIPTORS).min(nr_open)), given.map(|given| given.min(nr_open)));
    let set = |most| setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
    if set(wanted).is_err() {
        let _ = set(given);
    }
}

/// Lets a user's launcher have as many processes as the user may, and has root's children limited by their jails alone,
/// if root may pass the limit that it was given.
pub fn raise_process_limit() {
    let given = getrlimit(Resource::Nproc).maximum;
    let set = |most| setrlimit(Resource::Nproc, Rlimit { current: most, maximum: most });
    if set(None).is_err() {
        let _ = set(given);
    }
}
