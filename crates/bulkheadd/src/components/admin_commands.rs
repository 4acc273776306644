//! What the administrator may ask for: status, relaunch, stop. Numbers only; names stay in the admin role.
//!
//! Runs in: the launcher. Sees: fixed-size messages of the admin role, which may be compromised: it can then do
//! what an administrator can, and no more. Never: a string from it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use wire::stapler::LauncherToStapler;
use wire::tls::LauncherToSigner;
use wire::{Counters, LauncherToAdmin, LauncherToBroker, LauncherToConnector, LauncherToGate};
use wire::{LauncherToLogger, LauncherToService, LauncherToSite};
use wire::{Outcome, Role, Text};

use crate::components::fan_out::FanOut;
use crate::spawn::process_spec::ProcessSpec;
use crate::supervisor::Launcher;
use crate::supervisor::process::Stage;

/// The most relaunches under way.
const RELAUNCHES_MAX: usize = 64;

/// AdminCommands under way.
#[derive(Debug)]
pub struct AdminCommands {
    /// What can be relaunched: a name, and the specs that it stands for.
    targets: Vec<(String, Vec<usize>)>,
    /// The status, which waits for the counters of all processes.
    status: FanOut,
    /// Relaunches under way, by ticket: who asked, how many processes are still to come up, and what failed.
    relaunches: HashMap<u32, (u64, usize, Vec<String>)>,
}

impl AdminCommands {
    /// Makes the table of what can be relaunched.
    pub fn new(specs: &[ProcessSpec]) -> Self {
        let mut targets: Vec<(String, Vec<usize>)> = Vec::new();
        for (index, spec) in specs.iter().enumerate() {
            match targets.iter_mut().find(|(name, _)| *name == spec.name) {
                Some((_, same)) => same.push(index),
                None => targets.push((spec.name.clone(), vec![index])),
            }
        }
        Self { targets, status: FanOut::default(), relaunches: HashMap::new() }
    }

    /// The names of what can be relaunched; their place is the number that stands for them.
    pub fn targets(&self) -> impl Iterator<Item = &str> {
        self.targets.iter().map(|(name, _)| name.as_str())
    }

    /// The first slot of a target.
    pub fn first_post(&self, target: u16) -> Option<usize> {
        self.targets.get(usize::from(target))?.1.first().copied()
    }

    /// By when something is to be done here.
    pub fn deadline(&self) -> Option<Instant> {
        self.status.deadline()
    }
}

impl Launcher {
    /// Asks every process for its counters.
    pub(crate) fn begin_status(&mut self, admin: u64, ticket: u32) {
        if !self.admin_commands.status.join(admin, ticket) {
            return;
        }
        let serving: Vec<u64> = self.processes.keys().copied().collect();
        for serial in serving {
            self.ask_for_report(serial);
        }
        self.finish_status_if_complete();
    }

    pub(crate) fn ask_for_report(&mut self, serial: u64) {
        let Some(process) = self.processes.get_mut(&serial) else {
            return;
        };
        // One that has not answered the last time is not asked again, or questions would pile up.
        if process.stage != Stage::Serving || process.owes_report {
            return;
        }
        let role = self.specs[process.slot].role;
        // Filters say nothing.
        process.owes_report = role != Role::Filter;
        match role {
            Role::Gate => self.send(serial, &LauncherToGate::Report {}, None),
            Role::Site => self.send(serial, &LauncherToSite::Report {}, None),
            Role::Service => self.send(serial, &LauncherToService::Report {}, None),
            Role::Logger => self.send(serial, &LauncherToLogger::Report {}, None),
            Role::Admin => self.send(serial, &LauncherToAdmin::Report {}, None),
            Role::Signer => self.send(serial, &LauncherToSigner::Report {}, None),
            Role::Connector => self.send(serial, &LauncherToConnector::Report {}, None),
            Role::Stapler => self.send(serial, &LauncherToStapler::Report {}, None),
            Role::Broker => self.send(serial, &LauncherToBroker::Report {}, None),
            Role::Filter | Role::Launcher => {}
        }
    }

    /// Takes a process's counters.
    pub(crate) fn on_counters(&mut self, serial: u64, counters: Counters) {
        match self.processes.get_mut(&serial) {
            Some(process) if process.owes_report => process.counters = counters,
            // Nobody asked.
            _ => return self.protocol_violation(serial),
        }
        self.report_from(serial);
    }

    /// A process has answered, or is gone.
    pub(crate) fn report_from(&mut self, serial: u64) {
        if let Some(process) = self.processes.get_mut(&serial) {
            process.owes_report = false;
        }
        self.finish_status_if_complete();
    }

    fn finish_status_if_complete(&mut self) {
        if self.admin_commands.status.is_open() && !self.processes.values().any(|process| process.owes_report)
        {
            self.finish_status();
        }
    }

    /// Does what is due.
    pub(crate) fn orders_on_time(&mut self, now: Instant) {
        if self.admin_commands.status.is_due(now) {
            self.finish_status();
        }
    }

    fn finish_status(&mut self) {
        for (admin, ticket) in self.admin_commands.status.end() {
            let lines = self.status_lines(ticket);
            for line in &lines {
                self.send(admin, line, None);
            }
            let missing = Text::new(self.missing().join(", "));
            self.send(admin, &LauncherToAdmin::StatusEnd { ticket, missing }, None);
        }
    }

    /// One line for the launcher, one for each process, and one for each slot that nobody fills.
    fn status_lines(&self, ticket: u32) -> Vec<LauncherToAdmin> {
        let none = Counters::default();
        let mut lines = vec![LauncherToAdmin::Process {
            ticket,
            role: Role::Launcher,
            name: Text::new(""),
            pid: std::process::id(),
            uid: rustix::process::getuid().as_raw(),
            state: Text::new("serving"),
            restarts: 0,
            age_ms: self.started.elapsed().as_millis() as u64,
            counters: none.clone(),
            last_exit: Text::new(""),
            jit: false,
        }];
        for (index, spec) in self.specs.iter().enumerate() {
            let slot = &self.slots[index];
            let mut line = |pid, state: &str, age_ms, counters| {
                lines.push(LauncherToAdmin::Process {
                    ticket,
                    role: spec.role,
                    name: Text::new(spec.name.as_str()),
                    pid,
                    uid: spec.identity.map_or(rustix::process::getuid().as_raw(), jail::Identity::id),
                    state: Text::new(state),
                    restarts: slot.restarts,
                    age_ms,
                    counters,
                    last_exit: Text::new(slot.last_exit.as_str()),
                    jit: self.context.guest(spec).is_some_and(|service| service.jit),
                });
            };
            let mut filled = false;
            for process in self.processes.values().filter(|process| process.slot == index) {
                let age_ms = process.since.elapsed().as_millis() as u64;
                line(process.child.pid, process.stage.word(), age_ms, process.counters.clone());
                filled = true;
            }
            if !filled {
                line(0, if slot.broken.is_some() { "broken" } else { "waiting" }, 0, none.clone());
            }
        }
        lines
    }

    /// Starts a successor for every process of a target; the old ones go when the new ones are ready.
    pub(crate) fn begin_relaunch(&mut self, admin: u64, ticket: u32, target: u16) {
        let Some((_, specs)) = self.admin_commands.targets.get(usize::from(target)) else {
            return self.protocol_violation(admin);
        };
        let specs = specs.clone();
        if specs.iter().any(|&slot| self.specs[slot].role == Role::Filter) {
            self.admin_commands.relaunches.insert(ticket, (admin, 0, vec![]));
            return self.relaunch_chain(ticket);
        }
        let busy = specs.iter().any(|&slot| self.slots[slot].next.is_some());
        if busy || self.admin_commands.relaunches.len() >= RELAUNCHES_MAX {
            self.admin_commands.relaunches.insert(ticket, (admin, 0, vec![]));
            return self.answer(ticket, Outcome::Busy, "it is being relaunched already");
        }
        self.admin_commands.relaunches.insert(ticket, (admin, specs.len(), vec![]));
        for slot in specs {
            if let Err(reason) = self.relaunch_one(slot, ticket) {
                self.relaunched(ticket, Err(reason));
            }
        }
    }

    fn relaunch_one(&mut self, slot: usize, ticket: u32) -> Result<(), String> {
        self.slots[slot].backoff.forgive();
        let deadline = Duration::from_millis(self.context.config.limits.start_timeout_ms.into());
        let serial = match self.slots[slot].current {
            Some(_) => {
                let serial = self.spawn(slot).map_err(|error| error.to_string())?;
                self.slots[slot].next = Some(serial);
                serial
            }
            None => {
                self.clear_broken(slot);
                self.slots[slot].current.ok_or_else(|| self.slots[slot].last_exit.clone())?
            }
        };
        if let Some(process) = self.processes.get_mut(&serial) {
            process.ticket = Some(ticket);
            process.deadline = Some(Instant::now() + deadline);
        }
        Ok(())
    }

    /// One process of a relaunch has come up, or failed to.
    pub(crate) fn relaunched(&mut self, ticket: u32, result: Result<(), String>) {
        let Some((_, left, failures)) = self.admin_commands.relaunches.get_mut(&ticket) else {
            return;
        };
        *left = left.saturating_sub(1);
        failures.extend(result.err());
        if *left > 0 {
            return;
        }
        let reason = failures.join("; ");
        let outcome = if reason.is_empty() { Outcome::Done } else { Outcome::Failed };
        self.answer(ticket, outcome, &reason);
    }

    /// Answers an order.
    pub(crate) fn answer(&mut self, ticket: u32, outcome: Outcome, reason: &str) {
        let asked = self.admin_commands.relaunches.remove(&ticket).map(|(admin, ..)| admin);
        let answer = LauncherToAdmin::Answer { ticket, outcome, reason: Text::new(reason) };
        let current = self.specs.iter().position(|spec| spec.role == Role::Admin);
        let current = current.and_then(|slot| self.slots[slot].current);
        if let Some(admin) = asked.or(current) {
            self.send(admin, &answer, None);
        }
    }
}
