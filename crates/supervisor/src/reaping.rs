//! The reaper is looked after as all others are: when it has ended, another one is started, and given what lives.
//!
//! Runs in: the launcher, as root. Sees: the reaper's end. Never: starts reapers faster than they can be seen to end.

use std::time::{Duration, Instant};

use rustix::event::epoll;
use wire::Role;

use crate::{REAPER, Supervisor, watch};

/// LIMIT: how soon after a start the reaper is started again.
const PAUSE: Duration = Duration::from_secs(1);

impl Supervisor {
    /// Waits for the end of the reaper, if it is another one than before.
    pub(crate) fn watch_reaper(&mut self) {
        let Some(pidfd) = self.context.reaper.take_new() else { return };
        if let Err(error) = watch(&self.epoll, &pidfd, REAPER) {
            self.log.warning(format!("nobody sees the end of the reaper: {error}"));
        }
        if let Some((before, _)) = self.reaper.replace((pidfd, Instant::now())) {
            // A process that was started meanwhile has found that the one before had ended.
            let _ = epoll::delete(&self.epoll, before);
            self.reaper_due = Some(Instant::now());
        }
    }

    /// Takes notice that the reaper has ended, which it does by itself only when the launcher has.
    pub fn on_reaper_end(&mut self) {
        let Some((pidfd, since)) = self.reaper.take() else { return };
        let _ = epoll::delete(&self.epoll, pidfd);
        if self.stopping.is_none() {
            self.log.warning("the reaper, which ends services and filters with the launcher, has ended; another one is started");
            self.reaper_due = Some(Instant::now().max(since + PAUSE));
        }
    }

    /// Gives all that is to end with the launcher to the reaper that runs, or to another one, when that is due.
    pub(crate) fn reap_on_time(&mut self, now: Instant) {
        if self.reaper_due.take_if(|due| *due <= now).is_none() || self.stopping.is_some() {
            return;
        }
        let is_given = |slot: usize| matches!(self.specs[slot].role, Role::Service | Role::Filter);
        let mut living = self.processes.values().filter(|process| is_given(process.slot));
        if let Err(error) = living.try_for_each(|process| self.context.reap_with_launcher(&process.child)) {
            self.log.warning(format!("services and filters do not all end with the launcher: {error}"));
            self.reaper_due = Some(now + PAUSE);
        }
        self.watch_reaper();
    }

    /// Gives what is foreign to the process that closes it.
    pub(crate) fn close_foreign(&mut self, now: Instant) {
        let context = &self.context;
        match self.closer.on_time(now, || context.start_closer()) {
            Ok(false) => {}
            Ok(true) => self.log.warning("what closes others' descriptors was stuck with one, and was ended"),
            Err(error) => self.log.warning(format!("nobody closes others' descriptors: {error}")),
        }
    }
}
