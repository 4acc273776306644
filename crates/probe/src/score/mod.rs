//! The exposure score: the checks of `systemd-analyze security`, filled by trying from inside.
//!
//! Runs in: the probe. Never: reads a unit file or a configuration. An attempt that was not tried counts as bad.
//!
//! Names, weights, ranges and the formula are those of systemd 252, so that figures can be compared; what each
//! check means for a process that systemd did not start is in its `means` and `how`.

mod calls;
mod capabilities;
mod check;
mod own;
mod table;

use serde_json::{Value, json};
use sys::attempt::{Arg, calls as kernel};

pub use check::{Check, CheckResult, How, ScoreFacts, exposure_tenths, level, weighed};

use crate::attempts::{ambient_set, bounding_set};
use crate::hints::Hints;
use crate::run;

/// Every check.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    table::CHECKS.iter().chain(capabilities::CHECKS)
}

/// The filled table.
#[derive(Debug)]
pub struct Score {
    /// Each check and what it found.
    pub rows: Vec<(&'static Check, CheckResult)>,
    kind: &'static str,
}

/// Makes the attempts and fills the table.
pub fn score(hints: &Hints) -> Score {
    let report = run::attempts(hints);
    Score { kind: hints.kind.word(), ..from_report(&report) }
}

/// Fills the table from attempts that have been made in this process.
pub fn from_report(report: &run::ProbeReport) -> Score {
    let facts = facts(report);
    let rows = checks().map(|check| (check, check.fill(&facts))).collect();
    Score { rows, kind: report.kind.word() }
}

fn facts(report: &run::ProbeReport) -> ScoreFacts {
    let results =
        report.entries.iter().map(|entry| (entry.attempt.id, (entry.result(), entry.detail()))).collect();
    let reached = report.entries.iter().find(|entry| entry.attempt.id == "sweep");
    let none = || Arg::Int(0);
    // PR_GET_SECCOMP; a filter may refuse the question, and is one.
    let mode = kernel::PRCTL_GET.make(&mut [Arg::Int(21), none(), none(), none(), none()]);
    let bounding = bounding_set().unwrap_or(u64::MAX) | ambient_set().unwrap_or(0);
    ScoreFacts {
        results,
        reached: reached.map(|entry| entry.outcome.calls.clone()).unwrap_or_default(),
        filtered: mode != Ok(0),
        bounding,
    }
}

impl Score {
    /// The exposure in tenths: 0 is best, 100 is worst.
    pub fn tenths(&self) -> u64 {
        let weighed = self.rows.iter().filter_map(|(check, found)| Some(weighed(check, found.badness?)));
        let (badness, weight) = weighed.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        exposure_tenths(badness, weight)
    }

    /// The document.
    pub fn to_json(&self) -> Value {
        let tenths = self.tenths();
        let weight_sum: u64 = self
            .rows
            .iter()
            .filter(|(_, found)| found.badness.is_some())
            .map(|(check, _)| check.weight)
            .sum();
        let row = |(check, found): &(&Check, CheckResult)| {
            let share = found.badness.map(|badness| exposure_tenths(weighed(check, badness).0, weight_sum));
            json!({
                "id": check.id,
                "description": check.means,
                "weight": check.weight,
                "range": check.range,
                "badness": found.badness,
                "exposure": share.map(|share| share as f64 / 10.0),
                "how": check.how(),
                "found": found.words,
            })
        };
        json!({
            "format": 1,
            "kind": self.kind,
            "uid": rustix::process::getuid().as_raw(),
            "exposure": tenths as f64 / 10.0,
            "level": level(tenths),
            "checks": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests;
