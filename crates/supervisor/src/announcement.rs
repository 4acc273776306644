//! When the server says that it serves: what is waited for at its start, and what is not.
//!
//! Runs in: the launcher, as root. Sees: which processes are ready, and the clock. Never: has all wait for one site
//! whose program fails or hangs, or for which there is no room.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::process::Stage;
use crate::{Slot, Supervisor};

/// How often it is looked whether all is up that is waited for, until it is.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// LIMIT: starts in a row of a site's process that have failed, until nobody waits for it; after `start_timeout`, one
/// is enough.
const FAILED_MAX: u32 = 3;
/// LIMIT: names in a line of what is not up.
const NAMES_MAX: usize = 8;

impl Supervisor {
    /// Says once that everything is up: every gate accepts, as those are never given up.
    pub fn announce(&mut self) {
        if self.announced || !self.is_all_up(Instant::now()) {
            return;
        }
        self.announced = true;
        let config = &self.context.config;
        let services: usize = config.sites.iter().map(|site| site.services.len()).sum();
        let (sites, processes) = (config.sites.len(), self.processes.len());
        let named = |is_meant: &dyn Fn(usize, &Slot) -> bool| {
            let slots = self.slots.iter().enumerate().filter(|(slot, state)| is_meant(*slot, state));
            names_of(slots.map(|(slot, _)| self.specs[slot].name.as_str()).collect())
        };
        let broken = named(&|_, state| state.broken.is_some());
        let late = named(&|slot, _| !self.is_up(slot) && !self.slots[slot].life.is_over());
        let parts = [("broken", broken), ("not up yet", late)].map(|(what, names)| match names.is_empty() {
            true => String::new(),
            false => format!(", {what}: {names}"),
        });
        let without_room = match self.count_without_room() {
            0 => String::new(),
            count => format!(", waiting for room: {count}"),
        };
        self.log.info(format!(
            "serving on {}; sites: {sites}, services: {services}, processes: {processes}{}{without_room}",
            self.urls().join(", "),
            parts.concat()
        ));
    }

    /// Notes that a process of a slot was not there, or has ended, before it was ready.
    pub(crate) fn note_failed_start(&mut self, slot: usize) {
        let state = &mut self.slots[slot];
        state.failed_starts = state.failed_starts.saturating_add(1);
        state.unready_since.get_or_insert(Instant::now());
    }

    /// When it is looked again whether all is up that is waited for.
    pub(crate) fn announcement_due(&self, now: Instant) -> Option<Instant> {
        (!self.announced).then(|| now + LOOK_EVERY)
    }

    fn is_all_up(&mut self, now: Instant) -> bool {
        // A site whose file system does not answer is waited for by itself alone.
        let silent: HashSet<u16> = self.openings.silent().map(|slot| self.specs[slot].site).collect();
        let is_waited_for = |slot: usize| {
            !self.is_up(slot) && !self.is_late(slot, now) && !silent.contains(&self.specs[slot].site)
        };
        // Those before it are looked at again once all others are up, as they may have ended since.
        let not_up = (self.not_up..self.slots.len()).find(|&slot| is_waited_for(slot));
        let is_all_up = not_up.is_none() && !(0..self.slots.len()).any(is_waited_for);
        self.not_up = not_up.unwrap_or(0);
        is_all_up
    }

    /// Whether a slot has its process, or is to have none now.
    fn is_up(&self, slot: usize) -> bool {
        let state = &self.slots[slot];
        let waits = || self.waits_for(slot).is_some() && self.specs[slot].role.is_of_a_site();
        state.broken.is_some()
            || state.rests
            || state.life.is_over()
            || state.current.is_some_and(|serial| self.processes[&serial].stage == Stage::Serving)
            || waits()
    }

    /// Whether a process of a site is no longer waited for: its starts fail, or take longer than a start may.
    fn is_late(&self, slot: usize, now: Instant) -> bool {
        let (state, timeout) = (&self.slots[slot], self.context.config.limits.start_timeout_ms);
        let since = state.unready_since.map(|since| now.saturating_duration_since(since));
        self.specs[slot].role.is_of_a_site()
            && (state.failed_starts >= FAILED_MAX
                || since.is_some_and(|since| since >= Duration::from_millis(timeout.into())))
    }

    /// Where the server listens, as `http://127.0.0.1:80`.
    pub fn urls(&self) -> Vec<String> {
        let scheme = |tls| if tls { "https" } else { "http" };
        let listeners = self.context.config.listeners.iter();
        listeners.map(|listener| format!("{}://{}", scheme(listener.tls), listener.address)).collect()
    }
}

/// Names, the first ones, and how many more there are.
fn names_of(names: Vec<&str>) -> String {
    let first = names[..names.len().min(NAMES_MAX)].join(", ");
    match names.len().saturating_sub(NAMES_MAX) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_names_some_are_said() {
        assert_eq!((names_of(vec![]), names_of(vec!["a", "b"])), (String::new(), "a, b".into()));
        assert_eq!(names_of(vec!["x"; 10]), "x, x, x, x, x, x, x, x and 2 more");
    }
}
