//! What the kernel says of processes and descriptors: how many there are, and how many there may be.
//!
//! Runs in: the launcher, as root. Sees: the kernel's figures. Never: looks more often than every [`LOOK_EVERY`],
//! however many processes are started.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::limits::{self, ProcessLimit};
use crate::user_threads::UserThreads;

/// LIMIT: how old what is known of the kernel's figures may be. What was started since is added.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What the kernel says of processes and descriptors.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// The control groups that count the launcher's processes.
    groups: Vec<PathBuf>,
    pub(crate) processes: Vec<ProcessLimit>,
    pub(crate) descriptors: Option<u64>,
    /// Those of the launcher's user.
    user: UserThreads,
    /// When that was looked up, and the last process that there was.
    looked: Option<(Instant, u64)>,
}

impl Figures {
    /// Those of this process.
    pub(crate) fn of_launcher() -> Self {
        Self { groups: limits::process_groups(), ..Self::default() }
    }

    /// Looks them up, if they are too old; `serial` is that of the last process.
    pub(crate) fn look(&mut self, now: Instant, serial: u64) {
        if self.looked.is_none_or(|(at, _)| now.saturating_duration_since(at) >= LOOK_EVERY) {
            self.processes = limits::of_groups(&self.groups);
            self.processes.extend(limits::of_kernel());
            let of_user = limits::of_user().map(|limit| self.user.complete(limit, now, serial));
            self.processes.extend(of_user);
            self.descriptors = limits::descriptors_now();
            self.looked = Some((now, serial));
        }
    }

    /// How many processes were started since, up to the one with this number.
    pub(crate) fn since(&self, serial: u64) -> u64 {
        self.looked.map_or(0, |(_, then)| serial.saturating_sub(then))
    }
}
