//! What children print, where the logger leaves it unread: thrown away, so that nobody waits for a logger.
//!
//! Runs in: the launcher, as root. Sees: whether pipes are full. Never: reads a byte of what a child prints; the kernel
//! moves it from the pipe to `/dev/null`.
//!
//! A child's standard error is a pipe, as every program expects, and who writes into one that is full stands still. The
//! logger reads within milliseconds. One that hangs, or that was taken over, could stop whoever prints 64 KiB; so the
//! launcher, which holds both ends of each pipe, makes room. It looks only at pipes in which something was written.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use wire::Role;

use crate::components::Component;
use supervisor::Supervisor;
use supervisor::error::{Error, during};
use supervisor::process::Stage;
use supervisor::restart::Ended;
use supervisor::spawn::stderr::Stderr;

/// When a pipe into which something was written is looked at first.
const FIRST_LOOK: Duration = Duration::from_millis(500);
/// How often one that is full is looked at.
const NEXT_LOOK: Duration = Duration::from_millis(100);
/// LIMIT: how long a pipe may be full, at every look, before room is made; so long may a child stand still, once.
const FULL_MAX: Duration = Duration::from_secs(1);
/// LIMIT: how often room is made after that: a child may print 64 KiB in this time, 3 MiB/s, before it waits again.
const SPILL_PAUSE: Duration = Duration::from_millis(20);
/// How long a pipe must not have been full until its child is believed to have a logger again.
const CALM: Duration = Duration::from_secs(5);
/// How often it is said of one child.
const SAY_AGAIN: Duration = Duration::from_secs(60);
/// LIMIT: how long a logger that leaves pipes full may take to answer; then it hangs, and the next one reads them.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// What is known of one pipe into which something was written.
#[derive(Debug, Default)]
struct Watch {
    /// When it is looked at; never: it waits for something to be written.
    look_at: Option<Instant>,
    full_since: Option<Instant>,
    /// Room is made for as long as it fills again before this.
    spills_until: Option<Instant>,
    lost: usize,
    said: Option<Instant>,
}

/// The pipes of all children.
#[derive(Debug)]
pub struct StderrDrain {
    /// Tells once of each pipe into which something is written.
    pub epoll: OwnedFd,
    watches: BTreeMap<u64, Watch>,
    /// Those that are looked at, which are few of thousands.
    looked_at: BTreeSet<u64>,
    /// Which logger was asked whether it is there, and when.
    asked: Option<(u64, Instant)>,
}

const ONCE: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::ONESHOT);

impl StderrDrain {
    /// None yet.
    pub fn new() -> Result<Self, Error> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC);
        let epoll = epoll.map_err(during("make an epoll"))?;
        Ok(Self { epoll, watches: BTreeMap::new(), looked_at: BTreeSet::new(), asked: None })
    }

    /// Watches the pipe of a new child.
    pub fn add(&mut self, serial: u64, stderr: &Stderr) -> Result<(), Error> {
        epoll::add(&self.epoll, &stderr.reading, epoll::EventData::new_u64(serial), ONCE)
            .map_err(during("watch a pipe"))?;
        self.watches.insert(serial, Watch::default());
        Ok(())
    }

    /// Notes into which pipes something was written.
    pub fn written(&mut self, now: Instant) {
        let mut events = Vec::with_capacity(64);
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let buffer = rustix::buffer::spare_capacity(&mut events);
        // What does not fit is told of at the next turn.
        let _ = epoll::wait(&self.epoll, buffer, Some(&at_once));
        for event in events {
            let serial = event.data.u64();
            if let Some(watch) = self.watches.get_mut(&serial) {
                watch.look_at = Some(now + FIRST_LOOK);
                self.looked_at.insert(serial);
            }
        }
    }

    fn due(&self, now: Instant) -> Vec<u64> {
        let due = |serial: &u64| self.look_at(*serial).is_some_and(|at| at <= now);
        self.looked_at.iter().copied().filter(due).collect()
    }

    fn look_at(&self, serial: u64) -> Option<Instant> {
        self.watches.get(&serial)?.look_at
    }
}

impl Watch {
    /// Looks at the pipe, makes room if it has been full for long, and says whether to wait for the next byte.
    fn look(&mut self, stderr: &Stderr, null: BorrowedFd<'_>, now: Instant) -> bool {
        let spills = self.spills_until.is_some_and(|until| now < until);
        if !stderr.is_full() {
            self.full_since = None;
            self.look_at = spills.then_some(now + SPILL_PAUSE);
            return !spills;
        }
        let since = *self.full_since.get_or_insert(now);
        if spills || now >= since + FULL_MAX {
            self.lost += stderr.spill(null);
            self.spills_until = Some(now + CALM);
            self.look_at = Some(now + SPILL_PAUSE);
        } else {
            self.look_at = Some(now + NEXT_LOOK);
        }
        false
    }

    /// How much was lost, when that is to be said.
    fn due_to_be_said(&mut self, now: Instant) -> Option<usize> {
        let due = self.lost > 0 && self.said.is_none_or(|said| now >= said + SAY_AGAIN);
        due.then(|| {
            self.said = Some(now);
            std::mem::take(&mut self.lost)
        })
    }
}

/// Logs that what a child printed was thrown away.
fn say_lost(supervisor: &mut Supervisor, slot: usize, lost: usize) {
    let title = supervisor.spec(slot).title();
    supervisor.warn(format!(
        "the logger does not keep up with what {title} prints: {lost} bytes are lost, so that {title} does not wait"
    ));
}

impl Component for StderrDrain {
    fn deadline(&self) -> Option<Instant> {
        let looks = self.looked_at.iter().filter_map(|&serial| self.look_at(serial));
        looks.chain(self.asked.map(|(_, at)| at + ANSWER_WAIT)).min()
    }

    /// Looks at the pipes that are due.
    fn on_time(&mut self, supervisor: &mut Supervisor, now: Instant) {
        self.judge_logger(supervisor, now);
        for serial in self.due(now) {
            let (Some(process), Some(watch)) = (supervisor.process(serial), self.watches.get_mut(&serial))
            else {
                continue;
            };
            let Some(stderr) = &process.stderr else { continue };
            if watch.look(stderr, supervisor.context().null.as_fd(), now) {
                let data = epoll::EventData::new_u64(serial);
                let _ = epoll::modify(&self.epoll, &stderr.reading, data, ONCE);
                self.looked_at.remove(&serial);
            }
            let (spills, lost) =
                (watch.spills_until.is_some_and(|until| now < until), watch.due_to_be_said(now));
            let slot = process.slot;
            if let Some(lost) = lost {
                say_lost(supervisor, slot, lost);
            }
            if spills && self.asked.is_none() {
                self.ask_logger(supervisor, now);
            }
        }
    }

    /// What the child had printed is for the next logger.
    fn on_exit(&mut self, supervisor: &mut Supervisor, ended: &mut Ended) {
        if let Some(stderr) = &ended.process.stderr {
            // The logger has the pipe as well, so that it would stay where it is.
            let _ = epoll::delete(&self.epoll, &stderr.reading);
        }
        self.looked_at.remove(&ended.serial);
        let watch = self.watches.remove(&ended.serial);
        if let Some(lost) = watch.map(|watch| watch.lost).filter(|&lost| lost > 0) {
            say_lost(supervisor, ended.process.slot, lost);
        }
    }
}

impl StderrDrain {
    /// Asks the logger whether it is there.
    fn ask_logger(&mut self, supervisor: &mut Supervisor, now: Instant) {
        let logger = supervisor.active(Role::Logger, None).into_iter().next_back();
        let serves = |&logger: &u64| supervisor.processes()[&logger].stage == Stage::Serving;
        if let Some(logger) = logger.filter(serves) {
            supervisor.ask_for_report(logger);
            self.asked = Some((logger, now));
        }
    }

    /// Ends a logger that has not answered.
    fn judge_logger(&mut self, supervisor: &mut Supervisor, now: Instant) {
        let Some((logger, _)) = self.asked.take_if(|(_, at)| *at + ANSWER_WAIT <= now) else {
            return;
        };
        if let Some(process) = supervisor.process(logger).filter(|process| process.owes_report) {
            process.child.kill();
            let (pid, wait) = (process.child.pid, ANSWER_WAIT.as_secs());
            supervisor.warn(format!(
                "logger (pid {pid}) left what others print unread, and has not answered for {wait} s; it was ended"
            ));
        }
    }
}
