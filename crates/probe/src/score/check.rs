//! One check of the score, and how it is filled.
//!
//! Runs in: the probe. Never: takes the word of a configuration.

use std::collections::HashMap;

use crate::attempt::Result;

/// A check: what it is about, what it counts, and how it is tried.
#[derive(Debug)]
pub struct Check {
    /// The name that `systemd-analyze security` gives it.
    pub id: &'static str,
    /// The question.
    pub means: &'static str,
    /// The weight of the answer.
    pub weight: u64,
    /// The worst badness there is for it.
    pub range: u64,
    /// How it is tried.
    pub how: How,
}

/// How a check is tried.
#[derive(Debug)]
pub enum How {
    /// By these attempts: the worst badness if one succeeds, or if none could be made.
    Attempts(&'static [&'static str]),
    /// By asking for these capabilities in the bounding set, bit by bit.
    Bounding(u64),
    /// By making every system call of a group.
    Calls(&'static str),
    /// By a function of its own, in these words.
    Own(&'static str, fn(&ScoreFacts) -> CheckResult),
}

/// The findings before the checks.
#[derive(Debug)]
pub struct ScoreFacts {
    /// The result of each attempt.
    pub results: HashMap<&'static str, (Result, String)>,
    /// The system calls that come through.
    pub reached: Vec<i64>,
    /// Whether system calls are filtered at all.
    pub filtered: bool,
    /// The bounding set; everything, if it cannot be read.
    pub bounding: u64,
}

/// The result of a check: its badness from 0 to its range, none if it says nothing here; and in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// From 0 to the range.
    pub badness: Option<u64>,
    /// In words.
    pub words: String,
}

impl CheckResult {
    pub(super) fn new(badness: u64, words: impl Into<String>) -> Self {
        Self { badness: Some(badness), words: words.into() }
    }
}

impl ScoreFacts {
    /// Whether one of these attempts succeeded.
    pub fn any(&self, ids: &[&str]) -> bool {
        ids.iter().any(|id| self.results.get(id).is_some_and(|(result, _)| *result == Result::Succeeded))
    }

    /// The results of these attempts, as a check.
    fn of_attempts(&self, ids: &[&str], worst: u64) -> CheckResult {
        let of = |wanted: Result| {
            ids.iter().filter(move |id| self.results.get(**id).is_some_and(|(result, _)| *result == wanted))
        };
        if let Some(id) = of(Result::Succeeded).next() {
            let detail = self.results.get(id).map_or("", |(_, detail)| detail.as_str());
            return CheckResult::new(worst, format!("{id} succeeded {detail}").trim_end());
        }
        let refused: Vec<&str> = of(Result::Refused).copied().collect();
        if refused.is_empty() {
            // An attempt that was not tried proves nothing.
            return CheckResult::new(worst, "could not be tried");
        }
        CheckResult::new(0, format!("refused: {}", refused.join(", ")))
    }
}

impl Check {
    /// Fills the check.
    pub fn fill(&self, facts: &ScoreFacts) -> CheckResult {
        match &self.how {
            How::Attempts(ids) => facts.of_attempts(ids, self.range),
            How::Bounding(mask) if facts.bounding & mask == 0 => {
                CheckResult::new(0, "not in the bounding set")
            }
            How::Bounding(mask) => {
                CheckResult::new(self.range, format!("bounding set has {:#x}", facts.bounding & mask))
            }
            How::Calls(group) => super::calls::fill(group, facts),
            How::Own(_, fill) => fill(facts),
        }
    }

    /// How it is tried, in words.
    pub fn how(&self) -> String {
        match &self.how {
            How::Attempts(ids) => format!("attempts {}", ids.join(", ")),
            How::Bounding(_) => "PR_CAPBSET_READ of each capability".into(),
            How::Calls(group) => format!("every call of {group} with arguments that mean nothing"),
            How::Own(words, _) => (*words).into(),
        }
    }
}

/// The addends of a check: its weighted badness and its weight.
pub fn weighed(check: &Check, badness: u64) -> (u64, u64) {
    ((badness * check.weight).div_ceil(check.range), check.weight)
}

/// The whole exposure in tenths, from the sums.
pub fn exposure_tenths(badness_sum: u64, weight_sum: u64) -> u64 {
    (badness_sum * 100).div_ceil(weight_sum.max(1))
}

/// The word for an exposure.
pub fn level(tenths: u64) -> &'static str {
    match tenths {
        100.. => "DANGEROUS",
        90.. => "UNSAFE",
        75.. => "EXPOSED",
        50.. => "MEDIUM",
        10.. => "OK",
        1.. => "SAFE",
        0 => "PERFECT",
    }
}
