//! A gate or a filter of the guard, and when it is started again.
//!
//! Runs in: the guard. Sees: exits.

use std::time::{Duration, Instant};

use sys::process::Child;

use crate::stderr_relay::StderrRelay;
use supervisor::backoff::{Backoff, Rule, Verdict};
use supervisor::error::{Error, during};
use supervisor::spawn;
use supervisor::spawn::process_spec::ProcessSpec;

/// A child of the guard with its standard error.
#[derive(Debug)]
pub struct ChildProcess {
    /// The child.
    pub child: Child,
    /// Its standard error.
    pub stderr: StderrRelay,
    /// When it was started.
    pub since: Instant,
}

impl ChildProcess {
    /// The child of `spec` that was started; its control group, which there is none of, ends here.
    pub fn new(spec: &ProcessSpec, started: spawn::Started) -> Result<Self, Error> {
        let stderr = StderrRelay::new(spec.title(), started.stderr.reading.into());
        Ok(Self {
            child: started.jailed.child,
            stderr: stderr.map_err(during("read a pipe"))?,
            since: Instant::now(),
        })
    }
}

/// When something that ended is started again.
#[derive(Debug)]
pub struct Again {
    backoff: Backoff,
    rule: Rule,
    /// When it is to be started, if it is to be.
    pub at: Option<Instant>,
}

impl Again {
    /// By the rule of `[restart]`.
    pub fn new(restart: &config::Restart) -> Self {
        Self { backoff: Backoff::default(), rule: Rule::of(restart), at: None }
    }

    /// It has ended, or could not be started; returns false if it is given up.
    pub fn ended(&mut self, lived: Duration, now: Instant) -> bool {
        match self.backoff.exited(&self.rule, false, lived, now) {
            Verdict::Restart(delay) => self.at = Some(now + delay),
            Verdict::Broken => self.at = None,
        }
        self.at.is_some()
    }

    /// Whether now is the time; asked once.
    pub fn is_due(&mut self, now: Instant) -> bool {
        self.at.take_if(|at| *at <= now).is_some()
    }
}
