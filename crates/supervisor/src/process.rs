//! One running child: its pidfd, its channels, and what waits to be told to it.
//!
//! Runs in: the launcher. Sees: fixed-size messages of children. Never: blocks on a child.

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use sys::control::ControlEnd;
use sys::notify::Listener;
use sys::process::Child;
use wire::{Counters, Message};

use crate::foreign::Foreign;
use crate::outbox::{Outbox, Passed};
use crate::spawn::beginning::Beginning;
use crate::spawn::cgroup::Group;
use crate::spawn::stderr::Stderr;

/// How far a process has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It has not said that it is ready.
    Starting,
    /// It works.
    Serving,
    /// It was asked to finish and exit.
    Retiring,
}

impl Stage {
    /// The word for it in `bulkhead status`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Serving => "serving",
            Self::Retiring => "retiring",
        }
    }
}

/// Why a child cannot be told something.
#[derive(Debug)]
pub enum Untold {
    /// It does not read.
    Slow,
    /// The kernel did not take the message.
    Refused(io::Error),
    /// What it is to be told could not be made ready.
    Unmade(String),
}

impl fmt::Display for Untold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slow => write!(f, "does not read what it is told"),
            Self::Refused(error) => write!(f, "could not be told of a change ({error})"),
            Self::Unmade(reason) => write!(f, "could not be told of a change ({reason})"),
        }
    }
}

/// A child of the launcher.
#[derive(Debug)]
pub struct Process {
    /// Which slot it fills, as an index into the process_table.
    pub slot: usize,
    /// The child itself.
    pub child: Child,
    /// How far it has come.
    pub stage: Stage,
    /// Whether it served before it was retired.
    pub(crate) has_served: bool,
    /// When it was started.
    pub since: Instant,
    /// By when it must be ready, or gone; see [`crate::Supervisor`]'s `set_deadline`.
    pub(crate) deadline: Option<Instant>,
    /// What it last said of itself.
    pub counters: Counters,
    /// Whether it still owes an answer to `Report`.
    pub owes_report: bool,
    /// Whether it was asked a second time since, and may answer twice.
    pub was_reminded: bool,
    /// Whether it still owes an answer to `ReportShed`.
    pub owes_shed: bool,
    /// Whether it still owes an answer to `ReportStaples`.
    pub owes_staples: bool,
    /// The slots of sites that it relays requests to.
    pub relays_to: Vec<usize>,
    /// How often it still owes `Committed`.
    pub owes_commits: u32,
    /// The logger's ends of its log channel and of its standard error, kept so that a new logger finds what
    /// the old one had not read.
    pub log: Option<Foreign>,
    /// See `log`.
    pub stderr: Option<Stderr>,
    /// Its control group, which is removed when it has ended.
    pub group: Option<Group>,
    /// Where its calls arrive that a broker answers, kept for the next broker.
    pub calls: Option<Listener>,
    /// Where it may write a core file, to be looked at when it has ended.
    pub core_folder: Option<OwnedFd>,
    /// Memory in which it keeps what its successor is to go on with.
    pub(crate) memory: Option<OwnedFd>,
    /// The version of the launcher that has started it, if that was one before this one.
    pub before: Option<Rc<str>>,
    /// The transaction that it is part of.
    pub ticket: Option<u32>,
    /// How much nonsense it has sent.
    pub protocol_violations: u32,
    /// What it has yet to say before it executes its program.
    pub(crate) beginning: Option<Beginning>,
    /// Whether it was sent its set-up, and others were told of it.
    pub is_configured: bool,
    /// Whether it takes `Retire`, and hears the launcher until it ends.
    pub(crate) takes_retire: bool,
    /// Whether this launcher has started it, and not the one before, which may have been of another version.
    pub(crate) is_ours: bool,
    pub(crate) control: Option<ControlEnd>,
    pub(crate) outbox: Outbox,
}

impl Process {
    /// A child that was just started; a filter has no control channel.
    pub fn new(slot: usize, child: Child, control: Option<ControlEnd>, now: Instant) -> Self {
        Self {
            slot,
            child,
            stage: Stage::Starting,
            has_served: false,
            since: now,
            deadline: None,
            counters: Counters::default(),
            owes_report: false,
            was_reminded: false,
            owes_shed: false,
            owes_staples: false,
            relays_to: Vec::new(),
            owes_commits: 0,
            log: None,
            stderr: None,
            group: None,
            core_folder: None,
            calls: None,
            memory: None,
            before: None,
            ticket: None,
            protocol_violations: 0,
            beginning: None,
            is_configured: false,
            takes_retire: false,
            is_ours: false,
            control,
            outbox: Outbox::default(),
        }
    }

    /// Its control channel, for as long as it is told anything.
    pub fn control(&self) -> Option<&ControlEnd> {
        self.control.as_ref()
    }

    /// Tells it something, now or as soon as its channel has room.
    ///
    /// # Errors
    /// It cannot be told, and is ended for it: without one of several messages, it would go on with half a change.
    pub fn send(&mut self, message: &impl Message, descriptor: Option<Passed>) -> Result<(), Untold> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        self.outbox.push(bytes, descriptor, self.stage == Stage::Starting);
        self.flush()?;
        if self.outbox.is_over() {
            self.cut_off();
            return Err(Untold::Slow);
        }
        Ok(())
    }

    /// Sends what waits, as far as there is room. A child that is gone is dealt with when its exit is seen.
    ///
    /// # Errors
    /// As for [`Process::send`].
    pub fn flush(&mut self) -> Result<(), Untold> {
        use io::ErrorKind::{BrokenPipe, ConnectionReset};
        match self.control.as_ref().map(|control| self.outbox.flush(control.socket().as_fd())) {
            Some(Ok(())) => return Ok(()),
            Some(Err(error)) if !matches!(error.kind(), BrokenPipe | ConnectionReset) => {
                self.cut_off();
                return Err(Untold::Refused(error));
            }
            _ => self.outbox.clear(),
        }
        Ok(())
    }

    /// Ends it at once, and tells it nothing more.
    pub(crate) fn cut_off(&mut self) {
        self.child.kill();
        self.close();
    }

    /// Tells it nothing more.
    pub(crate) fn close(&mut self) {
        self.outbox.clear();
        self.control = None;
    }

    /// Whether something waits for room.
    pub fn has_waiting(&self) -> bool {
        self.outbox.has_waiting()
    }

    /// Whether it has never been ready.
    pub fn never_served(&self) -> bool {
        self.stage != Stage::Serving && !self.has_served
    }

    /// Gives it until `deadline` to finish. The end of its control channel says so to it; one that serves and takes
    /// `Retire` is yet to be sent that, and told what it needs meanwhile.
    pub fn retire(&mut self, deadline: Instant) {
        let hears_on = self.takes_retire && self.stage == Stage::Serving;
        self.has_served |= self.stage == Stage::Serving;
        self.stage = Stage::Retiring;
        self.deadline = Some(deadline);
        if !hears_on {
            self.close();
        }
    }

    /// Whether it is told what is new: it was sent its set-up, and does not retire without a channel.
    pub(crate) fn hears(&self) -> bool {
        self.is_configured && (self.stage != Stage::Retiring || self.control.is_some())
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use sys::control::ChildEnds;

    use super::*;

    /// A process of this stage, and its end of the channel; it is this process, which nothing is done to.
    fn process(stage: Stage, takes_retire: bool) -> (Process, ChildEnds) {
        let pid = std::process::id();
        let pidfd = pidfd_open(Pid::from_raw(pid as i32).unwrap(), PidfdFlags::empty()).unwrap();
        let (control, other) = ControlEnd::pair().unwrap();
        let process = Process::new(0, Child::known(pid, pidfd), Some(control), Instant::now());
        (Process { stage, takes_retire, is_configured: true, ..process }, other)
    }

    #[test]
    fn only_one_that_serves_and_takes_it_is_told_that_it_retires() {
        for (stage, takes, hears) in [
            (Stage::Serving, true, true),
            (Stage::Serving, false, false),
            // It has no connection yet, and may wait for its set-up.
            (Stage::Starting, true, false),
        ] {
            let (mut process, other) = process(stage, takes);
            process.retire(Instant::now());
            assert_eq!((process.hears(), process.stage), (hears, Stage::Retiring), "{stage:?} {takes}");
            let mut buffer = [0; 8];
            assert_eq!(matches!(sys::seqpacket::receive(&other.control, &mut buffer), Ok(None)), !hears);
        }
    }

    #[test]
    fn one_that_was_closed_hears_nothing_more() {
        let (mut process, _other) = process(Stage::Serving, true);
        process.retire(Instant::now());
        process.close();
        assert!(!process.hears());
    }
}
