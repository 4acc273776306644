//! Looking after the processes: who is ready, who has ended, when each is started again or given up.
//!
//! Runs in: the launcher, as root. Sees: exits of children and the clock. Never: ends because a child did.
//!
//! Source: seed 000, 4.1 (rows B1 to B3).

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime};

use sys::process::Exit;
use wire::Role;

use crate::error::Error;
use crate::spawn::program::{self, Version};
use crate::supervisor::backoff::Verdict;
use crate::supervisor::process::{Process, Stage};
use crate::supervisor::unread::FIRST_START;
use crate::supervisor::{BROKEN_CHECK, Launcher, Slot};

/// LIMIT: processes that are gone whose log waits for a logger; two descriptors each.
const UNREAD_MAX: usize = 1000;

impl Launcher {
    /// Starts a process for a slot that has none.
    pub(crate) fn start(&mut self, slot: usize) {
        if self.specs[slot].role == Role::Filter {
            return self.start_filters(slot);
        }
        self.slots[slot].start_at = None;
        match self.spawn(slot) {
            Ok(serial) => {
                self.slots[slot].current = Some(serial);
                let timeout = Duration::from_millis(self.context.config.limits.start_timeout_ms.into());
                if let Some(process) = self.processes.get_mut(&serial) {
                    process.deadline = Some(Instant::now() + timeout * FIRST_START);
                }
            }
            Err(error) => self.not_started(slot, &error),
        }
    }

    /// Takes notice of a slot that could not be filled.
    pub(crate) fn not_started(&mut self, slot: usize, error: &Error) {
        let text = error.to_string();
        self.log.warning(format!("{}: {text}", self.specs[slot].title()));
        self.decide_restart(slot, Exit::Status(127), Duration::ZERO, text);
    }

    pub(crate) fn set_broken(&mut self, slot: usize, broken: Option<Option<Version>>) {
        let now = broken.is_some();
        if self.slots[slot].broken.is_some() != now {
            for serial in self.processes.keys().copied().collect::<Vec<_>>() {
                self.send_broken(serial, slot, now);
            }
        }
        self.slots[slot].broken = broken;
    }

    pub(crate) fn on_ready(&mut self, serial: u64) {
        let Some(process) = self.processes.get_mut(&serial) else {
            return;
        };
        if process.stage != Stage::Starting {
            return self.protocol_violation(serial);
        }
        process.stage = Stage::Serving;
        process.deadline = None;
        let (slot, ticket) = (process.slot, process.ticket.take());
        // Before the old one retires: it may be the admin role, which is to pass the answer on.
        if let Some(ticket) = ticket {
            self.log.info(format!("{} relaunched", self.specs[slot].title()));
            self.relaunched(ticket, Ok(()));
        }
        if self.slots[slot].next == Some(serial) {
            self.slots[slot].next = None;
            if let Some(old) = self.slots[slot].current.replace(serial) {
                self.retire(old);
            }
        }
        self.announce();
    }

    /// Says once that everything is up.
    pub(crate) fn announce(&mut self) {
        let up = |state: &Slot| {
            state.broken.is_some()
                || state.current.is_some_and(|serial| self.processes[&serial].stage == Stage::Serving)
        };
        if self.announced || !self.slots.iter().all(up) {
            return;
        }
        self.announced = true;
        let config = &self.context.config;
        let addresses: Vec<String> = config
            .listeners
            .iter()
            .map(|l| format!("{}://{}", if l.tls { "https" } else { "http" }, l.address))
            .collect();
        let services: usize = config.sites.iter().map(|site| site.services.len()).sum();
        let (sites, processes) = (config.sites.len(), self.processes.len());
        self.log.info(format!(
            "serving on {}; sites: {sites}, services: {services}, processes: {processes}",
            addresses.join(", ")
        ));
    }

    /// Takes notice of a child's end.
    pub(crate) fn on_exit(&mut self, serial: u64) {
        if self.probe_ended(serial) || self.keeper_ended(serial) {
            return;
        }
        let Some(exit) =
            self.processes.get(&serial).and_then(|process| process.child.try_wait().ok().flatten())
        else {
            return;
        };
        // What it said last, such as that it was ready, is still in its channel.
        self.on_message(serial);
        self.spill_without(serial);
        let Some(mut process) = self.processes.remove(&serial) else {
            return;
        };
        self.watched.remove(&serial);
        let slot = process.slot;
        self.end_rest(slot, &process);
        self.keep_unread_log(slot, &mut process);
        self.report_from(serial);
        self.survey_without(serial);
        self.rotation_without(serial);
        self.verdicts_without(serial);
        self.staples_without();
        self.keep_core(&mut process, exit);
        let lived = process.since.elapsed();
        let title = self.specs[slot].title();
        if self.slots[slot].next == Some(serial) {
            self.slots[slot].next = None;
            let reason = format!("the new process ended with {exit}; error.log has what it said");
            self.log.warning(format!("{title}: {reason}"));
            if let Some(ticket) = process.ticket {
                self.relaunched(ticket, Err(reason));
            }
        } else if self.slots[slot].current == Some(serial) {
            self.slots[slot].current = self.slots[slot].next.take();
            if self.stopping.is_none() {
                self.log.warning(format!("{title} (pid {}) ended with {exit}", process.child.pid));
                if let Some(ticket) = process.ticket {
                    self.relaunched(ticket, Err(format!("it ended with {exit}; error.log has what it said")));
                }
                self.decide_restart(slot, exit, lived, exit.to_string());
                if self.specs[slot].role == Role::Filter {
                    self.break_chain();
                }
            }
        } else if exit != Exit::Clean && self.stopping.is_none() {
            self.log.warning(format!("{title} (pid {}) retired with {exit}", process.child.pid));
        }
        self.go_on_stopping();
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

    /// Lets go of what has been read. How many bytes wait is all that is looked at.
    fn forget_read_logs(&mut self) {
        let read =
            |descriptor: &OwnedFd| rustix::io::ioctl_fionread(descriptor).is_ok_and(|waiting| waiting == 0);
        self.unread_logs
            .retain(|(_, log, stderr)| log.as_ref().is_some_and(|log| !read(log)) || !read(stderr));
    }

    /// Decides whether and when a slot is filled again.
    pub(crate) fn decide_restart(&mut self, slot: usize, exit: Exit, lived: Duration, why: String) {
        let now = Instant::now();
        let state = &mut self.slots[slot];
        state.last_exit = why;
        state.restarts += 1;
        let verdict = state.backoff.exited(&self.rule, exit == Exit::Clean, lived, now);
        if state.current.is_some() {
            return;
        }
        let partition = matches!(self.specs[slot].role, Role::Site | Role::Service);
        match verdict {
            Verdict::Restart(delay) => state.start_at = Some(now + delay),
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
            Verdict::Broken => state.start_at = Some(now + self.rule.backoff_max),
        }
    }

    pub(crate) fn version(&self, slot: usize) -> Option<Version> {
        let spec = &self.specs[slot];
        if let Some((_, path)) = self.context.worker(spec) {
            return program::version(path);
        }
        match self.context.guest(spec) {
            Some(service) => program::version(&service.program),
            None => program::version(&self.context.roles_folder.join(spec.role.name())),
        }
    }

    /// Makes a broken partition whole again and starts it.
    pub(crate) fn clear_broken(&mut self, slot: usize) {
        self.slots[slot].backoff.forgive();
        self.set_broken(slot, None);
        self.start(slot);
    }

    pub(crate) fn until_next_timer(&self) -> Option<Duration> {
        let now = Instant::now();
        let starts = self.slots.iter().filter_map(|state| state.start_at);
        let deadlines = self.processes.values().filter_map(|process| process.deadline);
        let check = (self.slots.iter().any(|state| state.broken.is_some()) || !self.unread_logs.is_empty())
            .then(|| now + BROKEN_CHECK);
        starts
            .chain(deadlines)
            .chain(check)
            .chain(self.admin_commands.deadline())
            .chain(self.file_reload.deadline())
            .chain(self.ticket_keys.deadline())
            .chain(self.conditioning_report.deadline())
            .chain(self.certificates.deadline())
            .chain(self.chain_deadline())
            .chain(self.probe_deadline())
            .chain(self.keeper_deadline())
            .chain(self.log_rotation.deadline())
            .chain(self.stderr_drain.deadline())
            .chain(self.logs.pause(SystemTime::now()).map(|left| now + left))
            .min()
            .map(|at| at.saturating_duration_since(now))
    }

    pub(crate) fn on_time(&mut self, now: Instant) {
        for slot in 0..self.specs.len() {
            if self.slots[slot].start_at.is_some_and(|at| at <= now) {
                self.start(slot);
            }
            if let Some(failed) = self.slots[slot].broken
                && self.stopping.is_none()
                && self.version(slot).is_some_and(|version| Some(version) != failed)
            {
                self.log.info(format!("{}: its program has changed", self.specs[slot].title()));
                self.clear_broken(slot);
            }
        }
        let late = |process: &Process| process.deadline.is_some_and(|at| at <= now);
        let late: Vec<u64> =
            self.processes.iter().filter(|(_, p)| late(p)).map(|(&serial, _)| serial).collect();
        for serial in late {
            self.overdue(serial);
        }
        self.forget_read_logs();
        self.orders_on_time(now);
        self.reread_on_time(now);
        self.tickets_on_time(now);
        self.survey_on_time(now);
        self.certificates_on_time(now);
        self.chain_on_time(now);
        self.probes_on_time(now);
        self.keepers_on_time(now);
        self.logs_on_time(now);
        self.spill_on_time(now);
    }

    /// Ends a process that was not ready, or not gone, in time.
    pub(crate) fn overdue(&mut self, serial: u64) {
        let Some(process) = self.processes.get_mut(&serial) else {
            return;
        };
        process.deadline = None;
        process.child.kill();
        let (title, stage) = (self.specs[process.slot].title(), process.stage.word());
        self.log
            .warning(format!("{title} (pid {}) was {stage} for too long and was ended", process.child.pid));
    }
}
