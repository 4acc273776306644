//! The upgrade that is under way: what was ordered, and what has yet to be replaced.
//!
//! Runs in: the launcher. Sees: no input. Never: does anything by itself.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Instant;

use supervisor::upgrade::Predecessor;
use wire::Role;

/// LIMIT: names of which successors are started at a time.
const AT_ONCE: usize = 8;

/// The upgrade that is under way: before the other program runs, and after.
#[derive(Debug, Default)]
pub(crate) struct Upgrade {
    pub(crate) ordered: Option<Ordered>,
    pub(crate) replacing: Option<Replacing>,
}

/// A program that is to take the place of this one.
#[derive(Debug)]
pub(crate) struct Ordered {
    pub(crate) order: Option<(u64, u32)>,
    pub(crate) dry_run: bool,
    pub(crate) program: OwnedFd,
    pub(crate) path: PathBuf,
    pub(crate) until: Instant,
    /// Whether it waits until processes have finished what they have begun.
    pub(crate) is_patient: bool,
    pub(crate) step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Until nothing else is under way.
    Waiting,
    /// A child tries the program.
    Rehearsing,
    /// The program could take over.
    Rehearsed,
}

/// The processes of the launcher before, which get successors.
#[derive(Debug)]
pub(crate) struct Replacing {
    pub(crate) predecessor: Predecessor,
    pub(crate) begun: Instant,
    pub(crate) left: VecDeque<(Role, String)>,
    /// Names whose successors are on their way.
    pub(crate) under_way: Vec<(Role, String)>,
    pub(crate) failures: Failures,
}

/// LIMIT: failures of an upgrade that are said each; the others are counted.
const SAID_MAX: usize = 8;

/// What could not be replaced, and why.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    said: Vec<String>,
    others: usize,
}

impl Failures {
    /// Adds one; whether it is said.
    pub(crate) fn add(&mut self, failure: &str) -> bool {
        let is_said = self.said.len() < SAID_MAX;
        match is_said {
            true => self.said.push(failure.to_owned()),
            false => self.others += 1,
        }
        is_said
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.said.is_empty()
    }
}

impl std::fmt::Display for Failures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.said.join("; "))?;
        match self.others {
            0 => Ok(()),
            others => write!(f, "; and {others} others"),
        }
    }
}

impl Replacing {
    /// The next name, if it has not to wait for those that are under way.
    pub(crate) fn next(&mut self) -> Option<(Role, String)> {
        let (role, _) = self.left.front()?;
        let waits = self.under_way.len() >= AT_ONCE || self.under_way.iter().any(|(other, _)| other != role);
        if waits { None } else { self.left.pop_front() }
    }
}

impl Upgrade {
    /// When there is something to do, at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.ordered.as_ref().filter(|ordered| ordered.step != Step::Rehearsing).map(|ordered| ordered.until)
    }

    /// Whether one is under way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.ordered.is_some() || self.replacing.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_failures_some_are_said_and_the_others_counted() {
        let mut failures = Failures::default();
        assert!(failures.is_empty());
        assert_eq!((0..SAID_MAX + 3).filter(|number| failures.add(&format!("f{number}"))).count(), SAID_MAX);
        let text = failures.to_string();
        assert!(text.starts_with("f0; f1; ") && text.ends_with("f7; and 3 others"), "{text}");
    }
}
