//! What the kernel has killed when memory ran out: found at the end of a process, said, and counted.
//!
//! Runs in: the launcher, as root. Sees: the kernel's counts of control groups. Never: takes a kill for the kernel's
//! that nobody counts.

use sys::process::Exit;

use crate::Supervisor;
use crate::memory::{has_reached_limit, kills_of};
use crate::process::Process;

const KILL: i32 = rustix::process::Signal::KILL.as_raw();

impl Supervisor {
    /// How many processes the kernel has killed for want of memory.
    pub fn oom_kills(&self) -> u32 {
        self.oom_kills.all
    }

    /// Looks whether the kernel has killed a process that has ended, or others of its control group. Returns whether
    /// the process was killed for what all processes take.
    pub(crate) fn look_for_oom_kill(&mut self, process: &Process, exit: Exit) -> bool {
        if exit == Exit::Clean {
            return false;
        }
        let paths = process.group.iter().flat_map(|group| group.paths());
        let counted = paths.clone().find_map(|path| kills_of(path));
        let count = match counted {
            Some(count) => count,
            None if exit == Exit::Signal(KILL) => {
                let now = self.memory.kills();
                let before = std::mem::replace(&mut self.oom_kills.shared, now);
                u64::from(now > before)
            }
            None => 0,
        };
        if count == 0 {
            return false;
        }
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.oom_kills.all = self.oom_kills.all.saturating_add(count);
        let kills = &mut self.slots[process.slot].oom_kills;
        *kills = kills.saturating_add(count);
        let is_own_limit = paths.clone().any(|path| has_reached_limit(path));
        self.say_oom_kill(process, (count, exit), is_own_limit);
        exit == Exit::Signal(KILL) && !is_own_limit
    }

    fn say_oom_kill(&mut self, process: &Process, (count, exit): (u32, Exit), is_own_limit: bool) {
        let spec = &self.specs[process.slot];
        let (title, pid) = (spec.title(), process.child.pid);
        let what = match (count, exit) {
            (1, Exit::Signal(KILL)) => "it".to_owned(),
            _ => format!("{count} of its processes"),
        };
        let own = self.context.limits_of(spec).memory_bytes.filter(|_| is_own_limit);
        let why = match (own, self.memory.limit()) {
            (Some(bytes), _) => format!(
                "its limit of {} MiB is reached (`memory_max`): raise the limit, or see what the program keeps",
                bytes >> 20
            ),
            (None, Some(bytes)) => format!(
                "the server's control group has reached its limit of {} MiB: raise the limit (`MemoryMax=` of the unit, the memory \
                 of the container), or have less running",
                bytes >> 20
            ),
            (None, None) => "the machine has no memory left: have less running, or give it more".to_owned(),
        };
        self.log
            .warning(format!("{title} (pid {pid}): the kernel has killed {what} for want of memory; {why}"));
    }
}
