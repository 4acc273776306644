//! A gate or a filter of the guard: started in its jail, looked after, started again.
//!
//! Runs in: the guard. Sees: exits. Never: gives a child a descriptor that is not in this file.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use sys::inherit::CONTROL;
use sys::process::{Child, Program};

use crate::error::{Error, during};
use crate::guard::voice::Voice;
use crate::history::{History, Rule, Verdict};
use crate::launch::{Ground, Jailed, duplicate};
use crate::roster::Post;

/// A child of the guard with its standard error.
#[derive(Debug)]
pub struct Started {
    /// The child.
    pub child: Child,
    /// What it says.
    pub voice: Voice,
    /// When it was started.
    pub since: Instant,
}

/// Starts `program` in the jail of `post`, with its control channel.
pub fn start(ground: &Ground, post: &Post, program: &Program, control: OwnedFd) -> Result<Started, Error> {
    let (stderr, its_stderr) = io::pipe().map_err(during("make a pipe"))?;
    let descriptors = vec![
        (duplicate(&ground.null)?, 0),
        (duplicate(&ground.null)?, 1),
        (its_stderr.into(), 2),
        (control, CONTROL),
    ];
    // Its control group, which there is none of, ends with the value.
    let Jailed { child, .. } = ground.start_in_jail(post, program, &descriptors)?;
    let voice = Voice::new(post.title(), stderr).map_err(during("read a pipe"))?;
    Ok(Started { child, voice, since: Instant::now() })
}

/// When something that ended is started again.
#[derive(Debug)]
pub struct Again {
    history: History,
    rule: Rule,
    at: Option<Instant>,
}

impl Again {
    /// By the rule of `[restart]`.
    pub fn new(restart: &config::Restart) -> Self {
        let rule = Rule {
            broken_after: restart.broken_after as usize,
            within: Duration::from_millis(restart.within_ms.into()),
            backoff_max: Duration::from_millis(restart.backoff_max_ms.into()),
        };
        Self { history: History::default(), rule, at: None }
    }

    /// It has ended, or could not be started; returns false if it is given up.
    pub fn ended(&mut self, lived: Duration, now: Instant) -> bool {
        match self.history.exited(&self.rule, false, lived, now) {
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
