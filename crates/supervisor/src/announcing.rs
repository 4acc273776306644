//! The line `serving on ...`: when everything is up that is not broken, or that fails.
//!
//! Runs in: the launcher, as root, and the guard. Sees: no input. Never: says so before every gate accepts, as gates are never given up; or
//! waits for a site whose process fails or hangs for longer than `start_timeout`.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use wire::NO_PARTITION;

use crate::process::Stage;
use crate::{Slot, Supervisor};

/// How often it is looked whether only what fails is not up, which no event says.
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl Supervisor {
    /// Says once that everything is up.
    pub fn announce(&mut self) {
        if self.announced {
            return;
        }
        let silent = self.silent_sites();
        let up = |(slot, state): (usize, &Slot)| self.is_up(state) || silent.contains(&self.specs[slot].site);
        // Those before it are looked at again once all others are up, as they may have ended since.
        let not_up = self.slots.iter().enumerate().skip(self.not_up).position(|state| !up(state));
        let not_up = not_up.map(|after| self.not_up + after);
        let is_all_up = not_up.is_none() && self.slots.iter().enumerate().all(up);
        self.not_up = not_up.unwrap_or_default();
        if is_all_up {
            self.say_serving(&[]);
        }
    }

    /// Sites whose file systems do not answer, each of which is waited for by itself alone.
    fn silent_sites(&self) -> HashSet<u16> {
        self.openings.silent().map(|slot| self.specs[slot].site).collect()
    }

    fn is_up(&self, state: &Slot) -> bool {
        state.broken.is_some()
            || state.rests
            || state.life.is_over()
            || state.current.is_some_and(|serial| self.processes[&serial].stage == Stage::Serving)
    }

    /// When it is looked again whether only what fails is not up.
    pub(crate) fn announcement_due(&self) -> Option<Instant> {
        self.stall_timer.next_look.filter(|_| !self.announced)
    }

    /// Says that everything is up but for what fails, when that has been waited for.
    pub(crate) fn announce_despite_stalls(&mut self, now: Instant) {
        if self.announced || self.stall_timer.next_look.is_some_and(|next| now < next) {
            return;
        }
        self.stall_timer.next_look = Some(now + LOOK_EVERY);
        let start_timeout = Duration::from_millis(self.context.config.limits.start_timeout_ms.into());
        let silent = self.silent_sites();
        let is_up = |slot: usize| self.is_up(&self.slots[slot]) || silent.contains(&self.specs[slot].site);
        let not_up: Vec<usize> = (0..self.slots.len()).filter(|&slot| !is_up(slot)).collect();
        let has_failed = |slot: &usize| self.slots[*slot].restarts > 0;
        let hangs = |slot: &usize| {
            let process = self.slots[*slot].current.and_then(|serial| self.processes.get(&serial));
            process.is_some_and(|process| process.since.elapsed() >= start_timeout)
        };
        let is_a_sites = |slot: &usize| self.specs[*slot].site != NO_PARTITION;
        let fails = |slot: &usize| is_a_sites(slot) && (has_failed(slot) || hangs(slot));
        if not_up.is_empty() || !not_up.iter().all(fails) {
            self.stall_timer.until = None;
            return;
        }
        // What hangs has had its time.
        let time = if not_up.iter().all(hangs) { Duration::ZERO } else { start_timeout };
        let until = *self.stall_timer.until.get_or_insert(now + time);
        if now >= until || time.is_zero() {
            self.say_serving(&not_up);
        }
    }

    fn say_serving(&mut self, not_up: &[usize]) {
        self.announced = true;
        let config = &self.context.config;
        let services: usize = config.sites.iter().map(|site| site.services.len()).sum();
        let (sites, processes) = (config.sites.len(), self.processes.len());
        let broken = self.slots.iter().zip(&self.specs).filter(|(state, _)| state.broken.is_some());
        let broken: Vec<&str> = broken.map(|(_, spec)| spec.name.as_str()).collect();
        let not_up: Vec<&str> = not_up.iter().map(|&slot| self.specs[slot].name.as_str()).collect();
        let list = |what: &str, names: &[&str]| match names {
            [] => String::new(),
            names => format!(", {what}: {}", names.join(", ")),
        };
        self.log.info(format!(
            "serving on {}; sites: {sites}, services: {services}, processes: {processes}{}{}",
            self.urls().join(", "),
            list("broken", &broken),
            list("not up yet", &not_up),
        ));
    }
}
