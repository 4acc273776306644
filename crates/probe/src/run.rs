//! Makes the attempts one by one, each in a child where there can be one, and reports.
//!
//! Runs in: the probe. Never: lets an attempt that ends its process end the report.

use std::time::Duration;

use serde_json::{Value, json};
use sys::attempt::child;

use crate::attempt::{Attempt, AttemptOutcome, Cx, Result, RunIn, not_applicable, refused};
use crate::attempts::all;
use crate::hints::{Hints, ProbedKind};
use crate::names::of_call;

/// How long one attempt may take.
///
/// LIMIT: the slowest (walking a whole file system, bounded) takes well under a second.
const TIME: Duration = Duration::from_secs(10);

/// Everything that was tried.
#[derive(Debug)]
pub struct ProbeReport {
    /// The kind of process that was probed.
    pub kind: ProbedKind,
    /// Whether attempts could be made in children.
    pub children: bool,
    /// Each attempt and what came of it.
    pub entries: Vec<ProbeEntry>,
}

/// One attempt and what came of it.
#[derive(Debug)]
pub struct ProbeEntry {
    /// The attempt.
    pub attempt: &'static Attempt,
    /// The outcome.
    pub outcome: AttemptOutcome,
}

/// Makes all attempts.
pub fn attempts(hints: &Hints) -> ProbeReport {
    let children = !hints.inline && child::isolated(TIME, Vec::new).is_ok();
    let wanted = |attempt: &&Attempt| hints.only.is_empty() || hints.only.iter().any(|id| id == attempt.id);
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let entries = all()
        .filter(wanted)
        .map(|attempt| {
            if hints.trace {
                eprintln!("{}", attempt.id);
            }
            ProbeEntry { attempt, outcome: one(attempt, hints, own, children) }
        })
        .collect();
    ProbeReport { kind: hints.kind, children, entries }
}

fn one(attempt: &Attempt, hints: &Hints, own: i32, children: bool) -> AttemptOutcome {
    if hints.known_refused.iter().any(|id| id == attempt.id) {
        return refused("as found in a process of its own");
    }
    let cx = |aside| Cx { hints, own, aside, number: attempt.number };
    match attempt.run_in {
        RunIn::Here => (attempt.run)(&cx(false)),
        RunIn::Child if !children => (attempt.run)(&cx(false)),
        RunIn::ChildOnly if hints.alone => (attempt.run)(&cx(false)),
        RunIn::ChildOnly if !children => {
            not_applicable("it may end the process, and no child can be made to try it in")
        }
        RunIn::Child | RunIn::ChildOnly => aside(|| (attempt.run)(&cx(true))),
    }
}

/// Runs `body` in a child.
pub(crate) fn aside(body: impl FnOnce() -> AttemptOutcome) -> AttemptOutcome {
    match child::isolated(TIME, || body().pack()) {
        Err(errno) => not_applicable(format!("no child: {}", crate::errno::name(errno))),
        Ok(ended) => match (AttemptOutcome::unpack(&ended.bytes), ended.signal) {
            (Some(outcome), _) => outcome,
            (None, Some(signal)) => refused(format!("the process was ended by signal {signal}")),
            (None, None) if ended.late => refused("it did not end by itself, and was ended"),
            (None, None) => not_applicable("the attempt itself failed"),
        },
    }
}

impl ProbeEntry {
    /// Whether the result is what is right for a process of this kind.
    pub fn as_expected(&self, kind: ProbedKind) -> bool {
        self.attempt.expected_of(kind) == "either" || self.outcome.result != Result::Succeeded
    }

    /// Whether the attacker got it.
    pub fn result(&self) -> Result {
        self.outcome.result
    }

    /// The error's name, if there was one, and the details.
    pub fn detail(&self) -> String {
        match (&self.outcome.errno, self.outcome.detail.as_str()) {
            (None, detail) => detail.into(),
            (Some(errno), "") => errno.clone(),
            (Some(errno), detail) => format!("{errno}, {detail}"),
        }
    }

    fn to_json(&self, kind: ProbedKind) -> Value {
        let Self { attempt, outcome } = self;
        let mut json = json!({
            "id": attempt.id,
            "group": attempt.group.to_string(),
            "name": attempt.name,
            "result": outcome.result.words(),
            "errno": outcome.errno,
            "detail": outcome.detail,
            "closed_by": attempt.closed_by,
            "expected": attempt.expected_of(kind),
            "as_expected": self.as_expected(kind),
        });
        if !attempt.refused_anyway.is_empty() {
            json["refused_anyway"] = attempt.refused_anyway.into();
        }
        if !outcome.calls.is_empty() {
            json["calls"] = outcome.calls.iter().map(|&call| json!([call, of_call(call)])).collect();
        }
        json
    }
}

impl ProbeReport {
    /// How many attempts ended so.
    pub fn count(&self, result: Result) -> usize {
        self.entries.iter().filter(|entry| entry.result() == result).count()
    }

    /// The ids of those that succeeded and should not have.
    pub fn unexpected(&self) -> Vec<&'static str> {
        let wrong = self.entries.iter().filter(|entry| !entry.as_expected(self.kind));
        wrong.map(|entry| entry.attempt.id).collect()
    }

    /// The document.
    pub fn to_json(&self) -> Value {
        json!({
            "format": 1,
            "kind": self.kind.word(),
            "pid": std::process::id(),
            "uid": rustix::process::getuid().as_raw(),
            "children": self.children,
            "summary": {
                "attempts": self.entries.len(),
                "refused": self.count(Result::Refused),
                "succeeded": self.count(Result::Succeeded),
                "not_applicable": self.count(Result::NotApplicable),
                "unexpected": self.unexpected(),
            },
            "attempts": self.entries.iter().map(|entry| entry.to_json(self.kind)).collect::<Vec<_>>(),
        })
    }
}

/// The table as JSON, with nothing tried.
pub fn list(kind: ProbedKind) -> Value {
    all()
        .map(|attempt| {
            json!({
                "id": attempt.id,
                "group": attempt.group.to_string(),
                "name": attempt.name,
                "closed_by": attempt.closed_by,
                "expected": attempt.expected_of(kind),
            })
        })
        .collect()
}
