//! What a launcher, or a guard, prepares in itself before its first child inherits from it.
//!
//! Runs in: the launcher and the guard, before anything is opened. Sees no untrusted bytes. Never: leaves one of the
//! numbers free at which children find their descriptors.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::{Error, during};

/// Makes this process one that starts children: it has no threads, so a helper closes what others have sent, and nothing of its own
/// is at the numbers at which children find their descriptors.
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

/// LIMIT: descriptors that root takes if it was given fewer: five for each of 65,534 processes, and the copies of all that an
/// upgrade needs for a moment.
const DESCRIPTORS: u64 = 1 << 20;

/// How many descriptors a launcher could have that was started from here, which root may raise in most places.
pub(crate) fn descriptor_limit() -> Option<u64> {
    const CAP_SYS_RESOURCE: u32 = 24;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0);
    let raises = effective >> CAP_SYS_RESOURCE & 1 == 1;
    getrlimit(Resource::Nofile).maximum.map(|most| if raises { most.max(DESCRIPTORS) } else { most })
}

/// Lets the launcher, and those children that it allows, have as many descriptors as the machine grants; root grants itself as
/// many as it may need.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let more = limit.maximum.map(|maximum| maximum.max(DESCRIPTORS));
    // The kernel has a bound of its own (`fs.nr_open`), and not every root may pass the limit that it was given.
    let tried = setrlimit(Resource::Nofile, Rlimit { current: more, maximum: more });
    if tried.is_err() {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}
