//! One attempt: what it is, what is expected of it, and what came of it.
//!
//! Runs in: the probe. Never: takes an attempt that could not be made for one that was refused.

use std::fmt::Display;

use serde_json::{Value, json};
use sys::attempt::Errno;

use crate::errno;
use crate::hints::{Hints, ProbedKind};

/// An entry of the table.
#[derive(Debug)]
pub struct Attempt {
    /// Its name for machines; never changes its meaning.
    pub id: &'static str,
    /// The letter of the list that it belongs to: A inherited, B processes, C files, D network and IPC, E kernel,
    /// F resources, G identity.
    pub group: char,
    /// The gain of an attacker, in words.
    pub name: &'static str,
    /// The layer of the jail that is to close it.
    pub closed_by: &'static str,
    /// The right result.
    pub expected: ExpectedResult,
    /// Where it is refused outside of any jail as well, and why; empty if nowhere.
    pub refused_anyway: &'static str,
    pub(crate) run_in: RunIn,
    pub(crate) number: i64,
    pub(crate) run: fn(&Cx<'_>) -> AttemptOutcome,
}

/// The right result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedResult {
    /// No process of the server may succeed.
    Refused,
    /// A service may succeed, a role must not.
    ServicesMay,
    /// Both are right: it hurts nobody but the process itself; what came of it is only told.
    Either,
}

/// In which process an attempt is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunIn {
    /// In a child, if there can be one, else in this process.
    Child,
    /// In this process: a child would differ.
    Here,
    /// In a child only: it may end or change the process.
    ChildOnly,
}

/// A new entry.
pub(crate) const fn attempt(
    group: char,
    id: &'static str,
    name: &'static str,
    closed_by: &'static str,
    run: fn(&Cx<'_>) -> AttemptOutcome,
) -> Attempt {
    let (run_in, expected) = (RunIn::Child, ExpectedResult::Refused);
    Attempt { id, group, name, closed_by, expected, refused_anyway: "", run_in, number: 0, run }
}

impl Attempt {
    pub(crate) const fn here(mut self) -> Self {
        self.run_in = RunIn::Here;
        self
    }

    pub(crate) const fn in_child(mut self) -> Self {
        self.run_in = RunIn::ChildOnly;
        self
    }

    pub(crate) const fn number(mut self, number: i64) -> Self {
        self.number = number;
        self
    }

    pub(crate) const fn services_may(mut self) -> Self {
        self.expected = ExpectedResult::ServicesMay;
        self
    }

    pub(crate) const fn either(mut self) -> Self {
        self.expected = ExpectedResult::Either;
        self
    }

    pub(crate) const fn refused_anyway(mut self, why: &'static str) -> Self {
        self.refused_anyway = why;
        self
    }

    /// The right result for a process of this kind, as a word.
    pub fn expected_of(&self, kind: ProbedKind) -> &'static str {
        match (self.expected, kind) {
            (ExpectedResult::Refused, _) | (ExpectedResult::ServicesMay, ProbedKind::Role) => "refused",
            (ExpectedResult::ServicesMay, ProbedKind::Service) | (ExpectedResult::Either, _) => "either",
        }
    }
}

/// The input of an attempt.
#[derive(Debug)]
pub struct Cx<'h> {
    /// The hints about the world outside.
    pub hints: &'h Hints,
    /// The number of the process that is probed, as it sees itself.
    pub own: i32,
    /// Whether this is a child made for the attempt.
    pub aside: bool,
    /// The attempt's own number: a flag, a family.
    pub number: i64,
}

/// The outcome of an attempt.
#[derive(Clone, Debug)]
pub struct AttemptOutcome {
    pub(crate) result: Result,
    /// The error's name.
    pub(crate) errno: Option<String>,
    pub(crate) detail: String,
    /// The system calls that came through (`sweep` only).
    pub(crate) calls: Vec<i64>,
}

/// The three ways in which an attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Result {
    /// It was made, and nothing was got.
    Refused,
    /// The attacker got it.
    Succeeded,
    /// It was not made.
    NotApplicable,
}

impl Result {
    /// Its words in JSON.
    pub fn words(self) -> &'static str {
        match self {
            Result::Refused => "refused",
            Result::Succeeded => "succeeded",
            Result::NotApplicable => "not applicable",
        }
    }
}

pub(crate) fn succeeded(detail: impl Display) -> AttemptOutcome {
    outcome(Result::Succeeded, None, detail)
}

pub(crate) fn refused(detail: impl Display) -> AttemptOutcome {
    outcome(Result::Refused, None, detail)
}

pub(crate) fn not_applicable(detail: impl Display) -> AttemptOutcome {
    outcome(Result::NotApplicable, None, detail)
}

pub(crate) fn denied(errno: Errno, detail: impl Display) -> AttemptOutcome {
    outcome(Result::Refused, Some(errno::name(errno)), detail)
}

fn outcome(result: Result, errno: Option<String>, detail: impl Display) -> AttemptOutcome {
    AttemptOutcome { result, errno, detail: detail.to_string(), calls: Vec::new() }
}

/// Succeeded if the call did.
pub(crate) fn tried<T, E: Into<AttemptError>>(result: std::result::Result<T, E>) -> AttemptOutcome {
    match result {
        Ok(_) => succeeded(""),
        Err(error) => denied(error.into().0, ""),
    }
}

/// Succeeded if the call got as far as looking at its arguments, which are wrong on purpose.
pub(crate) fn reached<T, E: Into<AttemptError>>(result: std::result::Result<T, E>) -> AttemptOutcome {
    match result.map_err(|error| error.into().0) {
        Ok(_) => succeeded(""),
        Err(errno) if is_refusal(errno) => denied(errno, ""),
        Err(errno) => succeeded(format!("allowed: the kernel went on to {}", errno::name(errno))),
    }
}

/// Whether this error says that the caller may not, or that there is no such thing.
pub(crate) fn is_refusal(errno: Errno) -> bool {
    [Errno::PERM, Errno::ACCESS, Errno::NOSYS, Errno::SRCH, Errno::OPNOTSUPP].contains(&errno)
}

/// Makes the attempt on each target: succeeded if one did, else what the last one said.
pub(crate) fn any<T: Display>(
    targets: impl IntoIterator<Item = T>,
    mut one: impl FnMut(&T) -> AttemptOutcome,
) -> AttemptOutcome {
    let (mut got, mut count, mut last) = (Vec::new(), 0, not_applicable("nothing to try it on"));
    for target in targets {
        count += 1;
        let outcome = one(&target);
        match outcome.result {
            Result::Succeeded if outcome.detail.is_empty() => got.push(target.to_string()),
            Result::Succeeded => got.push(format!("{target} ({})", outcome.detail)),
            Result::Refused => last = outcome,
            Result::NotApplicable if last.result == Result::NotApplicable => last = outcome,
            Result::NotApplicable => {}
        }
    }
    if got.is_empty() {
        if last.result == Result::Refused && last.detail.is_empty() {
            last.detail = format!("on each of {count}");
        }
        return last;
    }
    succeeded(format!("{} of {count}: {}", got.len(), short(&got)))
}

/// At most eight of a list, in one line.
pub(crate) fn short<T: Display>(items: &[T]) -> String {
    let more = if items.len() > 8 { " ..." } else { "" };
    items.iter().take(8).map(ToString::to_string).collect::<Vec<_>>().join(", ") + more
}

/// An error of any of the libraries, as the kernel's number.
pub(crate) struct AttemptError(pub Errno);

impl From<Errno> for AttemptError {
    fn from(errno: Errno) -> Self {
        Self(errno)
    }
}

impl From<std::io::Error> for AttemptError {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))
    }
}

impl AttemptOutcome {
    /// With these words if there were none.
    pub(crate) fn or_detail(mut self, detail: impl Display) -> Self {
        if self.detail.is_empty() {
            self.detail = detail.to_string();
        }
        self
    }

    pub(crate) fn has_succeeded(&self) -> bool {
        self.result == Result::Succeeded
    }

    /// For the way from the child to the probe.
    pub(crate) fn pack(&self) -> Vec<u8> {
        json!([self.result as u8, self.errno, self.detail, self.calls]).to_string().into_bytes()
    }

    pub(crate) fn unpack(bytes: &[u8]) -> Option<Self> {
        let parts: Value = serde_json::from_slice(bytes).ok()?;
        let result = match parts[0].as_u64()? {
            0 => Result::Refused,
            1 => Result::Succeeded,
            _ => Result::NotApplicable,
        };
        let errno = parts[1].as_str().map(str::to_owned);
        let calls = parts[3].as_array()?.iter().filter_map(Value::as_i64).collect();
        Some(Self { result, errno, detail: parts[2].as_str()?.into(), calls })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_survive_the_pipe() {
        for outcome in [succeeded("x"), denied(Errno::PERM, ""), not_applicable("none")] {
            let back = AttemptOutcome::unpack(&outcome.pack()).unwrap();
            assert_eq!(
                (back.result, back.errno, back.detail),
                (outcome.result, outcome.errno, outcome.detail)
            );
        }
        assert!(AttemptOutcome::unpack(b"").is_none());
    }

    #[test]
    fn one_success_is_enough() {
        let outcome = any([1, 2, 3], |n| if *n == 2 { succeeded("") } else { denied(Errno::PERM, "") });
        assert_eq!((outcome.result, outcome.detail.as_str()), (Result::Succeeded, "1 of 3: 2"));
        let outcome = any([1, 3], |_| denied(Errno::PERM, ""));
        assert_eq!(outcome.errno.as_deref(), Some("EPERM"));
        assert_eq!(any(Vec::<i32>::new(), |_| succeeded("")).result, Result::NotApplicable);
    }

    #[test]
    fn a_wrong_argument_that_was_looked_at_is_a_success() {
        assert!(reached::<(), _>(Err(Errno::INVAL)).has_succeeded());
        assert!(!reached::<(), _>(Err(Errno::PERM)).has_succeeded());
        assert!(!tried::<(), _>(Err(Errno::INVAL)).has_succeeded());
    }
}
