//! Processes that hang, and processes that are to be replaced before anything is wrong with them.
//!
//! Runs in: the launcher, as root. Sees: numbers of partitions in use, counters of processes, and what the kernel says
//! of them. Never: wakes a process that nobody uses; ends one that answers.
//!
//! Processes are asked for their counters, as for `bulkhead status`, when `wire::Heartbeat` says so. Gates and sites
//! say which partitions are in use; the kernel says when connections come. A process that does not answer for
//! `hang_after`, a gate for less, is ended and started again like one that has ended by itself. Programs of the
//! operator's are told to end first.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use wire::successor::LauncherToSuccessor;
use wire::{Counters, Heartbeat, Role};

use super::health_checks::HealthChecks;
use crate::components::Component;
use supervisor::Supervisor;
use supervisor::health_check::{Arrivals, ArrivalsDue, SHORT_PATIENCE};
use supervisor::process::Stage;
use supervisor::restart::Ended;
use supervisor::upgrade::{Handed, Record};
use supervisor::whereabouts::{own_memory, whereabouts};

/// Tells a process to end; one that does not catch it, and is the first of its PID namespace, does not hear it.
const SIGTERM: i32 = rustix::process::Signal::TERM.as_raw();
/// How often processes are asked that are in use, and ages looked at.
const PERIOD: Duration = Duration::from_secs(5);
/// How often it is looked whether there are limits of age now, while no process is in use.
const REST: Duration = Duration::from_secs(60);
/// LIMIT: how long a process that hangs has to end by itself, as one may that catches SIGTERM.
const LAST_CHANCE: Duration = Duration::from_secs(5);
/// LIMIT: how long a process is left alone whose successor has just been started, or has failed to start.
const PAUSE: Duration = Duration::from_secs(60);

/// What is known of processes beside what the supervisor knows.
#[derive(Debug)]
pub(crate) struct Health {
    /// The slots whose processes are in use, as far as is known.
    used: BTreeSet<usize>,
    /// Processes that were asked.
    checks: HealthChecks,
    /// When gates are asked.
    arrivals: Arrivals,
    /// Processes that were told to end, and when they are killed.
    ending: BTreeMap<u64, Instant>,
    /// When they are looked at again.
    next: Instant,
    /// Slots whose processes are to be replaced, and why.
    due: Vec<(usize, String)>,
    /// Not to be replaced again before.
    not_before: BTreeMap<usize, Instant>,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            used: BTreeSet::new(),
            checks: HealthChecks::default(),
            arrivals: Arrivals::default(),
            ending: BTreeMap::new(),
            next: Instant::now(),
            due: Vec::new(),
            not_before: BTreeMap::new(),
        }
    }
}

impl Health {
    /// A gate or a site has given something to a worker of `partition`.
    pub(crate) fn on_used(&mut self, supervisor: &mut Supervisor, serial: u64, partition: u16) {
        let used = supervisor.on_used(serial, partition);
        if !used.is_empty() {
            self.used.extend(used);
            self.next = self.next.min(Instant::now() + PERIOD);
        }
    }

    /// A client has connected.
    pub(crate) fn on_arrival(&mut self) {
        self.arrivals.on_arrival(Instant::now());
    }

    /// Writes down which slots are in use.
    pub(crate) fn hand_over(&self, record: &mut Record<'_>) {
        self.used.iter().for_each(|&slot| record.add(LauncherToSuccessor::Used { slot: slot as u32 }));
    }

    /// What is known of the launcher before.
    pub(crate) fn resume(handed: &Handed, supervisor: &Supervisor) -> Self {
        let used = handed.items().filter_map(|item| match item {
            LauncherToSuccessor::Used { slot } => Some(*slot as usize),
            _ => None,
        });
        let slots = supervisor.specs().len();
        Self { used: used.filter(|slot| *slot < slots).collect(), ..Self::default() }
    }

    /// A process has said what it does.
    pub(crate) fn on_counters(&mut self, supervisor: &Supervisor, serial: u64, counters: &Counters) {
        self.checks.forget(serial);
        let Some(process) = supervisor.process(serial) else { return };
        if counters.connections_now == 0 {
            self.used.remove(&process.slot);
        }
        let recycle = supervisor.context().recycle(supervisor.spec(process.slot));
        let why = if recycle.requests.is_some_and(|most| counters.requests >= most) {
            format!("it has answered {} requests (`max_requests`)", counters.requests)
        } else if let Some(bytes) =
            recycle.memory.and_then(|most| own_memory(process.child.pid).filter(|&has| has >= most))
        {
            format!("it has {} MiB of memory (`recycle_memory`)", bytes >> 20)
        } else {
            return;
        };
        self.propose(supervisor, serial, why);
    }

    /// Has a process replaced, if it is the one that works.
    fn propose(&mut self, supervisor: &Supervisor, serial: u64, why: String) {
        let (Some(process), now) = (supervisor.process(serial), Instant::now()) else { return };
        let slot = process.slot;
        let is_paused = self.not_before.get(&slot).is_some_and(|at| now < *at);
        let works = process.stage == Stage::Serving && supervisor.slot(slot).current == Some(serial);
        if works && !is_paused && supervisor.slot(slot).next.is_none() {
            self.not_before.insert(slot, now + PAUSE);
            self.due.push((slot, why));
        }
    }

    /// The slots whose processes are to be replaced, each with the reason.
    pub(crate) fn take_due(&mut self) -> Vec<(usize, String)> {
        std::mem::take(&mut self.due)
    }

    /// Asks the processes that are in use, and those of the roles beside them.
    fn ask(&mut self, supervisor: &mut Supervisor, now: Instant) {
        let (mut serials, mut sites) = (Vec::new(), BTreeSet::new());
        for slot in self.used.clone() {
            let serial = supervisor.slot(slot).current;
            let serving = serial
                .filter(|serial| supervisor.process(*serial).is_some_and(|one| one.stage == Stage::Serving));
            match serving {
                Some(serial) => serials.push(serial),
                None => {
                    self.used.remove(&slot);
                }
            }
            sites.insert(supervisor.spec(slot).site);
        }
        let has_beat = |serial: &u64, beat| supervisor.spec_of(*serial).role.heartbeat() == beat;
        for site in sites {
            let of_site = supervisor.processes_of_site(site);
            serials.extend(of_site.filter(|serial| has_beat(serial, Heartbeat::SiteInUse)));
        }
        for role in Role::ALL.iter().filter(|role| role.heartbeat() == Heartbeat::Always) {
            serials.extend(supervisor.active(*role, None));
        }
        let patience = hang_after(supervisor);
        serials.into_iter().for_each(|serial| self.checks.ask(supervisor, serial, patience, now));
    }

    /// Asks gates while connections come; then has the next one be seen.
    fn ask_gates(&mut self, supervisor: &mut Supervisor, now: Instant) {
        match self.arrivals.due(now) {
            ArrivalsDue::Nothing => return,
            ArrivalsDue::Rest => return supervisor.await_arrival(),
            ArrivalsDue::Ask => {}
        }
        for role in Role::ALL.iter().filter(|role| role.heartbeat() == Heartbeat::Short) {
            for serial in supervisor.active(*role, None) {
                self.checks.ask(supervisor, serial, SHORT_PATIENCE, now);
            }
        }
    }

    /// Ends the processes that have not answered.
    fn end_hung(&mut self, supervisor: &mut Supervisor, now: Instant) {
        for (serial, waited) in self.checks.take_hung(supervisor, hang_after(supervisor), now) {
            match supervisor.spec_of(serial).role.heartbeat() {
                Heartbeat::InUse => {
                    self.ending.entry(serial).or_insert_with(|| {
                        tell_to_end(supervisor, serial, waited);
                        now + LAST_CHANCE
                    });
                }
                _ => end(supervisor, serial, waited),
            }
        }
    }

    /// Proposes to replace processes that are old.
    fn look_at_ages(&mut self, supervisor: &Supervisor) -> bool {
        let mut has_limits = false;
        let mut old = Vec::new();
        for (&serial, process) in supervisor.processes() {
            let Some(age) = supervisor.context().recycle(supervisor.spec(process.slot)).age_ms else {
                continue;
            };
            has_limits = true;
            if process.since.elapsed() >= Duration::from_millis(age.into()) {
                old.push(serial);
            }
        }
        old.into_iter()
            .for_each(|serial| self.propose(supervisor, serial, "it is old enough (`max_age`)".into()));
        has_limits
    }
}

impl Component for Health {
    fn deadline(&self) -> Option<Instant> {
        let arrivals = self.arrivals.deadline();
        self.ending.values().copied().chain([self.next]).chain(arrivals).chain(self.checks.deadline()).min()
    }

    fn on_time(&mut self, supervisor: &mut Supervisor, now: Instant) {
        for (serial, _) in self.ending.extract_if(.., |_, at| *at <= now) {
            supervisor.process(serial).into_iter().for_each(|process| process.child.kill());
        }
        if supervisor.is_stopping() {
            *self = Self { ending: std::mem::take(&mut self.ending), next: now + REST, ..Self::default() };
            return;
        }
        self.end_hung(supervisor, now);
        self.ask_gates(supervisor, now);
        if self.next > now {
            return;
        }
        self.next = now + REST;
        self.ask(supervisor, now);
        if self.arrivals.rest() {
            supervisor.await_arrival();
        }
        let has_limits = self.look_at_ages(supervisor);
        self.not_before.retain(|_, at| *at > now);
        if has_limits || !self.used.is_empty() {
            self.next = now + PERIOD;
        }
    }

    fn on_exit(&mut self, _: &mut Supervisor, ended: &mut Ended) {
        self.checks.forget(ended.serial);
        self.ending.remove(&ended.serial);
    }
}

/// How long a process may owe an answer.
fn hang_after(supervisor: &Supervisor) -> Duration {
    Duration::from_millis(supervisor.context().config.restart.hang_after_ms.into())
}

/// Says of a process that it does not answer, where it is, and what is done.
fn warn(supervisor: &mut Supervisor, serial: u64, waited: Duration, what: &str) {
    let Some(process) = supervisor.process(serial) else { return };
    let (pid, title) = (process.child.pid, supervisor.spec(process.slot).title());
    let waited = Duration::from_millis(waited.as_millis() as u64 / 100 * 100);
    supervisor.warn(format!(
        "{title} (pid {pid}) has not answered for {waited:?} and is {what}; it {}",
        whereabouts(pid)
    ));
}

/// Tells a process to end that does not answer.
fn tell_to_end(supervisor: &mut Supervisor, serial: u64, waited: Duration) {
    warn(supervisor, serial, waited, "told to end");
    supervisor.process(serial).into_iter().for_each(|process| process.child.pass_on(SIGTERM));
}

/// Ends a process that does not answer.
fn end(supervisor: &mut Supervisor, serial: u64, waited: Duration) {
    warn(supervisor, serial, waited, "killed");
    supervisor.process(serial).into_iter().for_each(|process| process.child.kill());
}
