//! What works beside the launcher's loop steps back: copies of the launcher, and what these start, have a control group
//! of little weight.
//!
//! Runs in: the launcher, as root, and its copies. Sees: the kernel's own files. Never: waits for a copy.
//!
//! Tenants' files decide for how long a copy computes, up to its limits. With the weight of a service it would hold the
//! processor that others' requests need, for the length of a slice each time.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use rustix::process::nice;
use sys::process::Child;
use wire::{OOM_STEP_HELPER, OOM_STEP_MAX};

use super::cgroup::{Cgroups, CpuWeight, Group};
use crate::error::Error;

/// How far a copy steps back where there are no control groups: about a tenth of the weight of others.
const NICE: i32 = 10;

/// Where copies work.
#[derive(Debug)]
pub struct Background {
    /// Not removed with this value: a successor goes on in it, and it goes with the launcher's own.
    group: ManuallyDrop<Group>,
    joins: Vec<OwnedFd>,
}

impl Background {
    /// Makes the group for copies, where that can be.
    pub fn of(cgroups: &Cgroups) -> Self {
        let (group, joins) = cgroups.background().unwrap_or_else(|_| (Group::known(Vec::new()), Vec::new()));
        Self { group: ManuallyDrop::new(group), joins }
    }

    /// Has a copy of this process do `work`, in the background; see [`sys::process::begin_work`].
    pub fn begin(
        &self,
        kept: &[RawFd],
        work: impl FnOnce() -> Result<(), (&'static str, io::Error)>,
    ) -> Result<Child, Error> {
        self.begin_after(kept, || (), |()| work())
    }

    /// The same, after something whose length no tenant decides, and for which the copy weighs as much as the launcher.
    pub fn begin_after<T>(
        &self,
        kept: &[RawFd],
        first: impl FnOnce() -> T,
        work: impl FnOnce(T) -> Result<(), (&'static str, io::Error)>,
    ) -> Result<Child, Error> {
        let joins = self.joins.iter().map(|join| join.as_raw_fd());
        let kept: Vec<_> = kept.iter().copied().chain(joins).collect();
        let behind = || {
            // It has the launcher's memory, and would be killed in the launcher's place.
            let _ = sys::oom::step_up(OOM_STEP_HELPER, OOM_STEP_MAX);
            let found = first();
            self.step_back();
            work(found)
        };
        sys::process::begin_work(&kept, behind).map_err(Error::Start)
    }

    /// In a copy. One that cannot step back does its work all the same.
    fn step_back(&self) {
        let join = |join: &OwnedFd| rustix::io::write(join, b"0").is_ok();
        if self.joins.is_empty() || !self.joins.iter().all(join) {
            let _ = nice(NICE);
        }
    }

    /// Has copies weigh as much as others, or less.
    pub(crate) fn hurry(&self, is_late: bool) {
        self.group.set_cpu_weight(if is_late { CpuWeight::times(1) } else { CpuWeight::BACKGROUND });
    }
}
