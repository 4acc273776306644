//! Has core files copied, each by a process in a jail of its own, while everything else goes on.
//!
//! Runs in: the launcher, as root. Sees: exits. Never: waits for a copy, or reads one.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use sys::process::{Child, Exit};

use crate::components::Component;
use supervisor::Supervisor;
use supervisor::error::Error;
use supervisor::process::Process;
use supervisor::restart::Ended;
use supervisor::spawn::core_copy::NOTHING;
use supervisor::spawn::core_dumps;

/// LIMIT: how long a copy may take.
const COPY_MAX: Duration = Duration::from_secs(600);
/// LIMIT: the same, while the launcher stops.
const LAST_COPY_MAX: Duration = Duration::from_secs(5);

/// A copy that is being made.
#[derive(Debug)]
struct CoreCopy {
    child: Child,
    slot: usize,
    deadline: Instant,
}

/// Those that are being made, by the number by which their end is reported.
#[derive(Debug, Default)]
pub(crate) struct CoreCopies {
    copies: BTreeMap<u64, CoreCopy>,
}

impl Component for CoreCopies {
    fn holds(&self, slot: usize) -> bool {
        self.copies.values().any(|copy| copy.slot == slot)
    }

    fn deadline(&self) -> Option<Instant> {
        self.copies.values().map(|copy| copy.deadline).min()
    }

    /// Ends copies that take too long.
    fn on_time(&mut self, supervisor: &mut Supervisor, now: Instant) {
        for copy in self.copies.values_mut() {
            if copy.deadline <= now {
                copy.child.kill();
            }
            copy.deadline = next_deadline(copy.deadline, supervisor.is_stopping(), now);
        }
    }

    fn on_exit(&mut self, supervisor: &mut Supervisor, ended: &mut Ended) {
        self.keep_core(supervisor, &mut ended.process, ended.exit);
    }

    fn on_helper_exit(&mut self, supervisor: &mut Supervisor, serial: u64) -> bool {
        let Some(copy) = self.copies.get(&serial) else {
            return false;
        };
        let exit = copy.child.try_wait();
        if !matches!(exit, Ok(None)) {
            let slot = copy.slot;
            self.copies.remove(&serial);
            self.kept(supervisor, slot, exit.ok().flatten());
        }
        true
    }

    fn is_idle(&self) -> bool {
        self.copies.is_empty()
    }
}

/// When a copy is looked at again: of one that was ended, the exit is what is waited for.
fn next_deadline(deadline: Instant, is_stopping: bool, now: Instant) -> Instant {
    let latest = now + if is_stopping { LAST_COPY_MAX } else { COPY_MAX };
    if deadline <= now { latest } else { deadline.min(latest) }
}

impl CoreCopies {
    /// Has the core file kept of a service that has died, if it left one.
    fn keep_core(&mut self, supervisor: &mut Supervisor, process: &mut Process, exit: Exit) {
        let slot = process.slot;
        let Some(folder) = process.core_folder.take().filter(|folder| !core_dumps::is_empty(folder)) else {
            return;
        };
        if !matches!(exit, Exit::Signal(_)) {
            return;
        }
        let title = supervisor.spec(slot).title();
        if self.copies.values().any(|copy| copy.slot == slot) {
            return supervisor
                .warn(format!("{title}: its core file is lost: the one before is still copied"));
        }
        if let Err(error) = self.start_keeper(supervisor, slot, &folder) {
            let _ = supervisor.context().core_dumps.give_up(&supervisor.spec(slot).name);
            supervisor.warn(format!("{title}: its core file is lost: {error}"));
        }
    }

    fn start_keeper(
        &mut self,
        supervisor: &mut Supervisor,
        slot: usize,
        folder: &OwnedFd,
    ) -> Result<(), Error> {
        let child = supervisor.context().keep_core(supervisor.spec(slot), folder)?;
        let serial = supervisor.watch_helper(&child)?;
        let deadline = Instant::now() + COPY_MAX;
        self.copies.insert(serial, CoreCopy { child, slot, deadline });
        Ok(())
    }

    fn kept(&mut self, supervisor: &mut Supervisor, slot: usize, exit: Option<Exit>) {
        let (title, name) = (supervisor.spec(slot).title(), supervisor.spec(slot).name.clone());
        let lost = match exit {
            Some(Exit::Clean) => match supervisor.context().core_dumps.finish(&name) {
                Ok(path) => {
                    return supervisor.info(format!("{title} left a core file in {}", path.display()));
                }
                Err(error) => error.to_string(),
            },
            Some(Exit::Status(status)) if status == i32::from(NOTHING) => String::new(),
            Some(Exit::Status(status)) => std::io::Error::from_raw_os_error(status).to_string(),
            Some(exit) => format!("what copied it ended with {exit}"),
            None => "nobody knows how its copy ended".to_owned(),
        };
        let removed = supervisor.context().core_dumps.give_up(&name);
        if !lost.is_empty() {
            supervisor.warn(format!("{title}: its core file is lost: {lost}"));
        }
        if let Err(error) = removed {
            supervisor.warn(format!("{title}: a part of its core file is left: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_its_time_and_less_while_the_launcher_stops() {
        let now = Instant::now();
        let begun = now + COPY_MAX;
        assert_eq!(next_deadline(begun, false, now), begun);
        assert_eq!(next_deadline(begun, true, now), now + LAST_COPY_MAX);
        assert_eq!(next_deadline(now, false, now), now + COPY_MAX, "was ended");
        assert_eq!(next_deadline(now + Duration::from_secs(1), true, now), now + Duration::from_secs(1));
    }
}
