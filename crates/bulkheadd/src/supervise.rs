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
use crate::history::Verdict;
use crate::launcher::{BROKEN_CHECK, Duty, Launcher};
use crate::process::{Process, Stage};
use crate::program::{self, Version};

/// How many times `start_timeout` a process may take that nobody waits for: a service may have to read its data.
pub(crate) const FIRST_START: u32 = 9;

/// LIMIT: processes that are gone whose log waits for a logger; two descriptors each.
const UNREAD_MAX: usize = 1000;

impl Launcher {
    /// Starts a process for a post that has none.
    pub(crate) fn fill(&mut self, post: usize) {
        if self.posts[post].role == Role::Filter {
            return self.fill_chain(post);
        }
        self.duties[post].start_at = None;
        match self.spawn(post) {
            Ok(serial) => {
                self.duties[post].current = Some(serial);
                let patience = Duration::from_millis(self.ground.config.limits.start_timeout_ms.into());
                if let Some(process) = self.processes.get_mut(&serial) {
                    process.deadline = Some(Instant::now() + patience * FIRST_START);
                }
            }
            Err(error) => self.not_started(post, &error),
        }
    }

    /// Takes notice of a post that could not be filled.
    pub(crate) fn not_started(&mut self, post: usize, error: &Error) {
        let text = error.to_string();
        self.journal.warning(format!("{}: {text}", self.posts[post].title()));
        self.judge(post, Exit::Status(127), Duration::ZERO, text);
    }

    pub(crate) fn set_broken(&mut self, post: usize, broken: Option<Option<Version>>) {
        let now = broken.is_some();
        if self.duties[post].broken.is_some() != now {
            for serial in self.processes.keys().copied().collect::<Vec<_>>() {
                self.tell_broken(serial, post, now);
            }
        }
        self.duties[post].broken = broken;
    }

    pub(crate) fn on_ready(&mut self, serial: u64) {
        let Some(process) = self.processes.get_mut(&serial) else {
            return;
        };
        if process.stage != Stage::Starting {
            return self.nonsense(serial);
        }
        process.stage = Stage::Serving;
        process.deadline = None;
        let (post, ticket) = (process.post, process.ticket.take());
        // Before the old one retires: it may be the admin role, which is to pass the answer on.
        if let Some(ticket) = ticket {
            self.journal.info(format!("{} relaunched", self.posts[post].title()));
            self.relaunched(ticket, Ok(()));
        }
        if self.duties[post].next == Some(serial) {
            self.duties[post].next = None;
            if let Some(old) = self.duties[post].current.replace(serial) {
                self.retire(old);
            }
        }
        self.announce();
    }

    /// Says once that everything is up.
    pub(crate) fn announce(&mut self) {
        let up = |duty: &Duty| {
            duty.broken.is_some()
                || duty.current.is_some_and(|serial| self.processes[&serial].stage == Stage::Serving)
        };
        if self.announced || !self.duties.iter().all(up) {
            return;
        }
        self.announced = true;
        let config = &self.ground.config;
        let addresses: Vec<String> = config
            .listeners
            .iter()
            .map(|l| format!("{}://{}", if l.tls { "https" } else { "http" }, l.address))
            .collect();
        let services: usize = config.sites.iter().map(|site| site.services.len()).sum();
        let (sites, processes) = (config.sites.len(), self.processes.len());
        self.journal.info(format!(
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
        let post = process.post;
        self.end_rest(post, &process);
        self.keep_unread_log(post, &mut process);
        self.report_from(serial);
        self.survey_without(serial);
        self.rotation_without(serial);
        self.verdicts_without(serial);
        self.staples_without();
        self.keep_core(&mut process, exit);
        let lived = process.since.elapsed();
        let title = self.posts[post].title();
        if self.duties[post].next == Some(serial) {
            self.duties[post].next = None;
            let reason = format!("the new process ended with {exit}; error.log has what it said");
            self.journal.warning(format!("{title}: {reason}"));
            if let Some(ticket) = process.ticket {
                self.relaunched(ticket, Err(reason));
            }
        } else if self.duties[post].current == Some(serial) {
            self.duties[post].current = self.duties[post].next.take();
            if self.stopping.is_none() {
                self.journal.warning(format!("{title} (pid {}) ended with {exit}", process.child.pid));
                if let Some(ticket) = process.ticket {
                    self.relaunched(ticket, Err(format!("it ended with {exit}; error.log has what it said")));
                }
                self.judge(post, exit, lived, exit.to_string());
                if self.posts[post].role == Role::Filter {
                    self.break_chain();
                }
            }
        } else if exit != Exit::Clean && self.stopping.is_none() {
            self.journal.warning(format!("{title} (pid {}) retired with {exit}", process.child.pid));
        }
        self.go_on_stopping();
    }

    /// Keeps what a process had logged until a logger has read it: the present one may be about to die too.
    fn keep_unread_log(&mut self, post: usize, process: &mut Process) {
        if let Some(stderr) = process.stderr.take() {
            self.unread_logs.push_back((post, process.log.take(), stderr.reading));
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

    /// Decides whether and when a post is filled again.
    pub(crate) fn judge(&mut self, post: usize, exit: Exit, lived: Duration, why: String) {
        let now = Instant::now();
        let duty = &mut self.duties[post];
        duty.last_exit = why;
        duty.restarts += 1;
        let verdict = duty.history.exited(&self.rule, exit == Exit::Clean, lived, now);
        if duty.current.is_some() {
            return;
        }
        let partition = matches!(self.posts[post].role, Role::Site | Role::Service);
        match verdict {
            Verdict::Restart(delay) => duty.start_at = Some(now + delay),
            Verdict::Broken if partition => {
                let name = self.posts[post].name.clone();
                self.journal.warning(format!(
                    "{} is broken: {} unclean exits within {:?}; its requests are answered with 500 until \
                     `bulkhead relaunch {name}` or a changed program file",
                    self.posts[post].title(),
                    self.rule.broken_after,
                    self.rule.within
                ));
                let version = self.version(post);
                self.set_broken(post, Some(version));
                self.announce();
            }
            // Without its roles nothing works; they are tried for ever.
            Verdict::Broken => duty.start_at = Some(now + self.rule.backoff_max),
        }
    }

    pub(crate) fn version(&self, post: usize) -> Option<Version> {
        let post = &self.posts[post];
        if let Some((_, path)) = self.ground.worker(post) {
            return program::version(path);
        }
        match self.ground.guest(post) {
            Some(service) => program::version(&service.program),
            None => program::version(&self.ground.roles_folder.join(post.role.name())),
        }
    }

    /// Makes a broken partition whole again and starts it.
    pub(crate) fn mend(&mut self, post: usize) {
        self.duties[post].history.forgive();
        self.set_broken(post, None);
        self.fill(post);
    }

    pub(crate) fn until_next_timer(&self) -> Option<Duration> {
        let now = Instant::now();
        let starts = self.duties.iter().filter_map(|duty| duty.start_at);
        let deadlines = self.processes.values().filter_map(|process| process.deadline);
        let check = (self.duties.iter().any(|duty| duty.broken.is_some()) || !self.unread_logs.is_empty())
            .then(|| now + BROKEN_CHECK);
        starts
            .chain(deadlines)
            .chain(check)
            .chain(self.orders.deadline())
            .chain(self.rereading.deadline())
            .chain(self.tickets.deadline())
            .chain(self.survey.deadline())
            .chain(self.certificates.deadline())
            .chain(self.chain_deadline())
            .chain(self.probe_deadline())
            .chain(self.keeper_deadline())
            .chain(self.rotation.deadline())
            .chain(self.spill.deadline())
            .chain(self.logs.pause(SystemTime::now()).map(|left| now + left))
            .min()
            .map(|at| at.saturating_duration_since(now))
    }

    pub(crate) fn on_time(&mut self, now: Instant) {
        for post in 0..self.posts.len() {
            if self.duties[post].start_at.is_some_and(|at| at <= now) {
                self.fill(post);
            }
            if let Some(failed) = self.duties[post].broken
                && self.stopping.is_none()
                && self.version(post).is_some_and(|version| Some(version) != failed)
            {
                self.journal.info(format!("{}: its program has changed", self.posts[post].title()));
                self.mend(post);
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
        let (title, stage) = (self.posts[process.post].title(), process.stage.word());
        self.journal
            .warning(format!("{title} (pid {}) was {stage} for too long and was ended", process.child.pid));
    }
}
