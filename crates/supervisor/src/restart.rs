//! Looking after the processes: who is ready, who has ended, when each is started again or given up.
//!
//! Runs in: the launcher, as root. Sees: exits of children and the clock. Never: ends because a child did.
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 4.1.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use config::DOOR;
use sys::process::Exit;
use wire::{LauncherToGate, LauncherToLogger, Role, Text};

use crate::Supervisor;
use crate::admission::Claim;
use crate::backoff::Verdict;
use crate::error::Error;
use crate::life::Life;
use crate::process::{Process, Stage};
use crate::publisher_end;
use crate::spawn::BegunProcess;
use crate::spawn::cgroup::CpuWeight;
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::program;
use sys::file_version::FileVersion;

/// LIMIT: processes that are gone whose log waits for a logger; two descriptors each.
const UNREAD_MAX: usize = 1000;

/// A process that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its serial number.
    pub serial: u64,
    /// What the launcher had of it.
    pub process: Process,
    /// How it ended.
    pub exit: Exit,
    /// Whether the kernel has killed it for what all processes take of memory, which is no fault of its program.
    pub is_victim: bool,
}

impl Supervisor {
    /// Starts a process for a slot that has none.
    pub fn start(&mut self, slot: usize) {
        if self.specs[slot].role == Role::Filter {
            return self.start_filters(slot);
        }
        if self.waits_for_room(slot, Instant::now()) {
            return;
        }
        self.wake_helpers(slot);
        let started = self.spawn(slot);
        self.on_start(slot, started);
    }

    /// Waits until a process for a slot that had none executes its program, but not beyond a time: from then on it is
    /// one on its way.
    pub fn finish_start(&mut self, slot: usize, begun: Result<BegunProcess, Error>, until: Instant) {
        let begin = |context: &SpawnContext, spec: &ProcessSpec| context.begin(spec);
        let started = begun.and_then(|begun| self.go_on_with(slot, begun, &begin, until));
        self.on_start(slot, started);
    }

    /// What was found out of a slot's program, and opened for it, is used up.
    pub(crate) fn use_up(&mut self, slot: usize) {
        self.examinations.use_up(slot);
        self.openings.forget(slot);
    }

    fn on_start(&mut self, slot: usize, started: Result<u64, Error>) {
        self.starts.remove(&slot);
        self.use_up(slot);
        match started {
            Ok(serial) => {
                self.slots[slot].current = Some(serial);
                self.slots[slot].unready_since.get_or_insert(Instant::now());
                self.set_deadline(serial, Some(Instant::now() + self.first_start_max()));
            }
            Err(error) => self.not_started(slot, &error),
        }
    }

    /// Takes notice of a slot that could not be filled.
    pub fn not_started(&mut self, slot: usize, error: &Error) {
        let text = error.to_string();
        if let Some(lack) = error.lack() {
            return self.refused_room(slot, lack, &text);
        }
        self.note_failed_start(slot);
        let line = format!("{}: {text}", self.specs[slot].title());
        self.decide_restart(slot, Exit::Status(127), Duration::ZERO, text, line);
    }

    /// Takes notice that a process is ready; returns the transaction that it is part of.
    pub fn on_ready(&mut self, serial: u64) -> Option<u32> {
        let process = self.processes.get_mut(&serial)?;
        if process.stage != Stage::Starting {
            self.protocol_violation(serial);
            return None;
        }
        process.stage = Stage::Serving;
        let (slot, ticket) = (process.slot, process.ticket);
        self.room.forget(slot);
        (self.slots[slot].failed_starts, self.slots[slot].unready_since) = (0, None);
        // Those who need what a publisher publishes first wait for it, and nobody for what follows: tenants decide how
        // much that is.
        if self.specs[slot].role == Role::Publisher
            && let Some(group) = self.processes.get(&serial).and_then(|process| process.group.as_ref())
        {
            group.set_cpu_weight(CpuWeight::BACKGROUND);
        }
        // A successor in a transaction may yet have to give way.
        if self.slots[slot].current == Some(serial) {
            self.slots[slot].memory = None;
        }
        self.set_deadline(serial, None);
        self.announce();
        ticket
    }

    /// Has a successor that is ready take the place of the process before it; its transaction has ended. Whether it is
    /// there to do so.
    pub fn take_over(&mut self, serial: u64) -> bool {
        let Some(process) = self.processes.get_mut(&serial) else { return false };
        let slot = process.slot;
        process.ticket = None;
        if self.slots[slot].life == Life::Serving {
            self.log.info(format!("{} relaunched", self.specs[slot].title()));
        }
        if self.slots[slot].next.take_if(|next| *next == serial).is_some()
            && let Some(old) = self.slots[slot].current.replace(serial)
        {
            self.leave_chain_to_others(old);
            self.retire(old);
        }
        true
    }

    /// Has a gate that goes, while others stay, take nothing more from the filters.
    fn leave_chain_to_others(&mut self, gate: u64) {
        if self.spec_of(gate).role == Role::Gate && self.filters.chain.is_some() {
            self.send(gate, &LauncherToGate::LeaveChain {}, None);
        }
    }

    /// Ends a successor whose transaction has failed. One that serves already finishes what it has begun.
    pub fn abandon(&mut self, serial: u64) {
        let Some(process) = self.processes.get_mut(&serial) else { return };
        let (slot, stage) = (process.slot, process.stage);
        process.ticket = None;
        self.slots[slot].next.take_if(|next| *next == serial);
        match stage {
            Stage::Serving => {
                self.leave_chain_to_others(serial);
                self.retire(serial);
            }
            _ => self.give_up(serial),
        }
    }

    /// How a child has ended, if it has.
    pub fn exit_of(&self, serial: u64) -> Option<Exit> {
        self.processes.get(&serial)?.child.try_wait().ok().flatten()
    }

    /// Lets go of a process that has ended.
    pub fn remove(&mut self, serial: u64, exit: Exit) -> Option<Ended> {
        self.set_deadline(serial, None);
        let process = self.processes.remove(&serial)?;
        self.watched.remove(&serial);
        self.has_begun(serial);
        self.unsent.remove(&serial);
        let now = Instant::now();
        let is_victim = self.look_for_oom_kill(&process, exit);
        self.memory_reclaim.forget(serial);
        if let Some(took) = self.pace.gone(serial, now) {
            let room = self.memory.room(now);
            self.pace.pause(took, room, now);
        }
        self.index.remove(&self.specs[process.slot], serial);
        self.end_rest(process.slot, &process);
        Some(Ended { serial, process, exit, is_victim })
    }

    /// Decides what follows from the end of a process; returns the command that waited for the process, and why it
    /// failed.
    pub fn on_end(&mut self, ended: Ended) -> Option<(u32, String)> {
        let Ended { serial, mut process, exit, is_victim } = ended;
        let slot = process.slot;
        let judged = if is_victim { Exit::Clean } else { exit };
        self.keep_unread_log(slot, &mut process);
        let lived = process.since.elapsed();
        let title = self.specs[slot].title();
        if self.slots[slot].current == Some(serial) && !process.never_served() {
            self.slots[slot].memory = process.memory.take();
        }
        let mut failed = None;
        if self.slots[slot].next == Some(serial) {
            self.slots[slot].next = None;
            let reason = format!("the new process ended with {exit}; error.log has what it said");
            self.log.warning(format!("{title}: {reason}"));
            failed = process.ticket.map(|ticket| (ticket, format!("{title}: {reason}")));
        } else if self.slots[slot].current == Some(serial) && self.slots[slot].life == Life::Removed {
            self.slots[slot].current = None;
            let line = format!("{title} (pid {}) ended with {exit}", process.child.pid);
            // Workers of a site that has changed or gone may need it until they have finished.
            match self.departing.contains(&slot) && self.stopping.is_none() {
                true => self.decide_restart(slot, judged, lived, exit.to_string(), line),
                false => self.log.warning(line),
            }
        } else if self.slots[slot].current == Some(serial) && self.is_pending_filter(slot) {
            self.slots[slot].current = None;
            let reason = format!("it ended with {exit}; error.log has what it said");
            self.log.warning(format!("{title}: {reason}"));
            failed = process.ticket.map(|ticket| (ticket, format!("{title}: {reason}")));
        } else if self.slots[slot].current == Some(serial) {
            // A filter of another chain is of no use in this one.
            let is_filter = self.specs[slot].role == Role::Filter;
            self.slots[slot].current = if is_filter { None } else { self.slots[slot].next.take() };
            if self.stopping.is_none() {
                let early = if process.never_served() {
                    " before it was ready; error.log has what it said"
                } else {
                    ""
                };
                let line = format!("{title} (pid {}) ended with {exit}{early}", process.child.pid);
                let line = line + &self.remedy(slot, exit);
                let reason = || format!("{title}: it ended with {exit}; error.log has what it said");
                failed = process.ticket.map(|ticket| (ticket, reason()));
                self.decide_restart(slot, judged, lived, exit.to_string(), line);
                if process.never_served() {
                    self.note_failed_start(slot);
                    self.show_last_lines(slot);
                }
                if is_filter {
                    self.break_chain();
                }
            }
        } else if exit != Exit::Clean && self.stopping.is_none() && process.is_configured {
            self.log.warning(format!("{title} (pid {}) retired with {exit}", process.child.pid));
        }
        self.retire_departing();
        self.let_helpers_rest(slot);
        if self.specs[slot].role == Role::Logger {
            self.let_logger_read();
        }
        failed
    }

    /// Has the oldest logger read what others say. A successor waits until it is the oldest: a record leaves its
    /// channel when it is written, so that two could not read at once.
    pub fn let_logger_read(&mut self) {
        // One that is on its way reads when it has its files.
        let is_there = |logger: &u64| self.processes[logger].is_configured;
        let oldest = self.index.of_role(Role::Logger).find(is_there);
        oldest.into_iter().for_each(|logger| self.send(logger, &LauncherToLogger::Read {}, None));
    }

    /// Whether a slot is for a filter that no gate knows yet.
    fn is_pending_filter(&self, slot: usize) -> bool {
        self.specs[slot].role == Role::Filter && self.slots[slot].life == Life::Pending
    }

    /// Ends a process whose set-up failed, which would wait for ever for what could not be sent; returns the command
    /// that waits for the process.
    pub fn not_configured(&mut self, serial: u64, error: &Error) -> Option<u32> {
        self.give_up(serial);
        let process = self.processes.get_mut(&serial)?;
        let (slot, ticket) = (process.slot, process.ticket.take());
        if self.slots[slot].next == Some(serial) {
            self.slots[slot].next = None;
        } else if self.slots[slot].current == Some(serial) {
            self.slots[slot].current = None;
            if !self.is_pending_filter(slot) {
                if self.specs[slot].role == Role::Filter {
                    self.break_chain();
                }
                self.not_started(slot, error);
            }
        }
        ticket
    }

    /// Forgets what was wrong with the program of a slot, which somebody has asked for, and which file systems have not
    /// answered.
    pub fn forgive(&mut self, slot: usize) {
        self.context.forgive(&self.specs[slot]);
        self.openings.forgive(slot);
    }

    /// Starts a successor for the process of a slot, or a process for a slot that has none, as part of a transaction.
    pub fn relaunch(&mut self, slot: usize, ticket: u32) -> Result<u64, String> {
        self.slots[slot].backoff.forgive();
        self.use_up(slot);
        let deadline = Duration::from_millis(self.context.config.limits.start_timeout_ms.into());
        let serial = match self.slots[slot].current {
            Some(_) => {
                if let Some((_, why)) = self.lack_of_room(slot, Claim::Successor, Instant::now()) {
                    return Err(format!("there is no room for another process: {why}"));
                }
                let serial = self.spawn(slot).map_err(|error| error.to_string())?;
                self.slots[slot].next = Some(serial);
                serial
            }
            None => {
                self.clear_broken(slot);
                self.slots[slot].current.ok_or_else(|| self.slots[slot].last_exit.clone())?
            }
        };
        self.processes.get_mut(&serial).into_iter().for_each(|process| process.ticket = Some(ticket));
        self.set_deadline(serial, Some(Instant::now() + deadline));
        Ok(serial)
    }

    /// Keeps what a process had logged until a logger has read it: the present one may be about to die too.
    fn keep_unread_log(&mut self, slot: usize, process: &mut Process) {
        if let Some(stderr) = process.stderr.take() {
            self.unread_logs.push_back((slot, process.log.take(), stderr.reading));
        }
        if self.unread_logs.len() > UNREAD_MAX {
            self.unread_logs.pop_front();
        }
    }

    /// What follows a line that says how a process of a slot has ended.
    fn remedy(&self, slot: usize, exit: Exit) -> String {
        match self.specs[slot].role {
            Role::Publisher => {
                format!("; {}; services keep the pages that they have", publisher_end::reason(exit))
            }
            _ => String::new(),
        }
    }

    /// Has the logger show the last lines of a program that could not start on the terminal, too.
    fn show_last_lines(&mut self, slot: usize) {
        if matches!(self.specs[slot].role, Role::Site | Role::Service | Role::Filter) {
            let label = Text::new(self.specs[slot].title());
            for logger in self.active(Role::Logger, None) {
                self.send(logger, &LauncherToLogger::LastLines { label: label.clone() }, None);
            }
        }
    }

    /// Decides whether and when a slot is filled again, and says so after `line`, which says what happened.
    pub fn decide_restart(&mut self, slot: usize, exit: Exit, lived: Duration, why: String, line: String) {
        let now = Instant::now();
        let state = &mut self.slots[slot];
        state.last_exit = why;
        state.restarts += 1;
        let verdict = state.backoff.exited(&self.rule, exit == Exit::Clean, lived, now);
        let failures = state.backoff.unclean();
        let pace = match verdict {
            Verdict::Restart(delay) if failures > 1 && state.current.is_none() => format!(
                "; starting it again in {delay:?} (unclean exit {failures} of {} within {:?})",
                self.rule.broken_after, self.rule.within
            ),
            _ => String::new(),
        };
        self.log.warning(format!("{line}{pace}"));
        if self.slots[slot].current.is_some() {
            return;
        }
        let partition = self.specs[slot].role.is_worker();
        match verdict {
            Verdict::Restart(delay) => {
                self.starts.insert(slot, now + delay);
            }
            Verdict::Broken if partition => {
                let name = self.specs[slot].name.clone();
                self.log.warning(format!(
                    "{} is broken: {} unclean exits within {:?}; its requests are answered with 500 until \
                     `bulkhead relaunch {name}` or a changed program file",
                    self.specs[slot].title(),
                    self.rule.broken_after,
                    self.rule.within
                ));
                let version = self.version(slot);
                self.set_broken(slot, Some(version));
                self.announce();
            }
            // Without its roles nothing works; they are tried for ever.
            Verdict::Broken => {
                self.starts.insert(slot, now + self.rule.backoff_max);
            }
        }
    }

    /// The version of the program that fills a slot, if the file can be read.
    pub fn version(&self, slot: usize) -> Option<FileVersion> {
        program::version(&self.program_of(slot)?)
    }

    /// Where the program is that fills a slot.
    fn program_of(&self, slot: usize) -> Option<PathBuf> {
        let spec = self.specs.get(slot)?;
        if let Some((_, path)) = self.context.worker(spec) {
            return Some(path.clone());
        }
        Some(match self.context.guest(spec) {
            Some(service) if service.remote => self.context.roles_folder.join(DOOR),
            Some(service) => service.program.clone(),
            None => self.context.roles_folder.join(spec.role.name()),
        })
    }

    /// Whether two slots execute one file under different uids. It is given to one of them at a time
    /// (`spawn::program`), so the one must execute it before it is given to the other.
    pub fn share_program(&self, one: usize, other: usize) -> bool {
        let given_to = |slot: usize| {
            let spec = &self.specs[slot];
            let is_guests = self.context.guest(spec).is_some_and(|service| !service.remote);
            let is_given = self.context.worker(spec).is_some() || is_guests;
            spec.identity.filter(|_| is_given).map(|identity| identity.id())
        };
        let differ = given_to(one).zip(given_to(other)).is_some_and(|(one, other)| one != other);
        differ && self.version(one).is_some_and(|version| Some(version) == self.version(other))
    }

    /// Whether a slot is to be started again in a while.
    pub fn is_start_due(&self, slot: usize) -> bool {
        self.starts.contains_key(&slot)
    }
}
