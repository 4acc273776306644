//! A gate or a filter of the guard: started in its jail, looked after, started again.
//!
//! Runs in: the guard. Sees: exits. Never: gives a child a descriptor that is not in this file.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use sys::inherit::CONTROL;
use sys::process::{Child, Program};

use crate::stderr_relay::StderrRelay;
use bulkheadd::error::{Error, during};
use bulkheadd::spawn::Jailed;
use bulkheadd::spawn::context::{SpawnContext, duplicate};
use bulkheadd::spawn::process_spec::ProcessSpec;
use bulkheadd::supervisor::backoff::{Backoff, Rule, Verdict};

/// A child of the guard with its standard error.
#[derive(Debug)]
pub struct Started {
    /// The child.
    pub child: Child,
    /// What it says.
    pub stderr: StderrRelay,
    /// When it was started.
    pub since: Instant,
}

/// Starts `program` in the jail of `spec`, with its control channel.
pub fn start(
    context: &SpawnContext,
    spec: &ProcessSpec,
    program: &Program,
    control: OwnedFd,
) -> Result<Started, Error> {
    let (stderr, its_stderr) = io::pipe().map_err(during("make a pipe"))?;
    let descriptors = vec![
        (duplicate(&context.null)?, 0),
        (duplicate(&context.null)?, 1),
        (its_stderr.into(), 2),
        (control, CONTROL),
    ];
    // Its control group, which there is none of, ends with the value.
    let Jailed { child, .. } = context.start_in_jail(spec, program, &descriptors)?;
    let stderr = StderrRelay::new(spec.title(), stderr).map_err(during("read a pipe"))?;
    Ok(Started { child, stderr, since: Instant::now() })
}

/// When something that ended is started again.
#[derive(Debug)]
pub struct Again {
    backoff: Backoff,
    rule: Rule,
    at: Option<Instant>,
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

    /// When it is to be started, if it is to be.
    pub fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Whether now is the time; asked once.
    pub fn is_due(&mut self, now: Instant) -> bool {
        self.at.take_if(|at| *at <= now).is_some()
    }
}
