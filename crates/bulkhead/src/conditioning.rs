//! `bulkhead status --conditioning`: what gates and sites have shed, why, and which address ranges weigh most.
//!
//! Runs in: the `bulkhead` command, as root or the server's owner. Sees: answers of the admin role, which may be
//! compromised: its words are printed with control characters escaped. Never: asks the processes itself.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use serde::Deserialize;

use crate::admin::{self, printable};
use crate::fault::Fault;
use crate::table::align;

const HEADER: [&str; 8] =
    ["PROCESS", "ADMITTED", "DELAYED", "SHED", "INCOMPLETE", "WAITING", "BANNED", "WHY"];
const NUMBERS: [usize; 6] = [1, 2, 3, 4, 5, 6];
const RANGES: [&str; 4] = ["RANGE", "HELD", "WAITING", "PROCESS"];

/// LIMIT: a screen of ranges; `--json` has all.
const RANGES_SHOWN: usize = 20;

/// A gate or a site.
#[derive(Debug, Deserialize)]
struct ConditionedProcess {
    name: String,
    shed: BTreeMap<String, u64>,
    top_ranges: Vec<TopRange>,
}

/// An address range that a process holds much of.
#[derive(Debug, Deserialize)]
struct TopRange {
    range: String,
    held: u32,
    waiting: u32,
}

/// Asks the server at `run_dir` and prints what it says.
pub fn conditioning(run_dir: &Path, json: bool) -> Result<ExitCode, Fault> {
    admin::list(run_dir, "conditioning", "processes", json, render)
}

fn render(processes: &[ConditionedProcess]) -> String {
    let mut rows = vec![HEADER.map(str::to_owned).to_vec()];
    rows.extend(processes.iter().map(|process| row(&printable(&process.name), &process.shed)));
    if processes.len() > 1 {
        rows.push(row("all", &sum(processes)));
    }
    let mut text = align(&rows, &NUMBERS);
    let mut top_ranges: Vec<(&ConditionedProcess, &TopRange)> = processes
        .iter()
        .flat_map(|process| process.top_ranges.iter().map(move |range| (process, range)))
        .collect();
    top_ranges.sort_by_key(|(_, range)| Reverse(u64::from(range.held) + u64::from(range.waiting)));
    if !top_ranges.is_empty() {
        let mut rows = vec![RANGES.map(str::to_owned).to_vec()];
        rows.extend(top_ranges.iter().take(RANGES_SHOWN).map(|(process, top)| {
            let (range, name) = (printable(&top.range), printable(&process.name));
            vec![range, top.held.to_string(), top.waiting.to_string(), name]
        }));
        text += &format!("\n\n{}", align(&rows, &[1, 2]));
    }
    if top_ranges.len() > RANGES_SHOWN {
        text += &format!("\n{} more ranges; `--json` has all", top_ranges.len() - RANGES_SHOWN);
    }
    text
}

fn row(name: &str, shed: &BTreeMap<String, u64>) -> Vec<String> {
    let count = |reason: &str| shed.get(reason).copied().unwrap_or(0);
    let known = wire::Shed::default();
    let reasons = known.reasons().map(|(reason, word, _)| (count(reason), word));
    let mut reasons: Vec<(u64, &str)> = reasons.filter(|(count, _)| *count > 0).collect();
    reasons.sort_by_key(|(count, _)| Reverse(*count));
    let why: Vec<String> = reasons.iter().map(|(count, words)| format!("{words} {count}")).collect();
    let total = reasons.iter().fold(0, |total: u64, (count, _)| total.saturating_add(*count));
    let numbers = [
        count("admitted"),
        count("delayed"),
        total,
        count("incomplete_now"),
        count("waiting_now"),
        count("banned_now"),
    ];
    let why = if why.is_empty() { "-".to_owned() } else { why.join(", ") };
    std::iter::once(name.to_owned()).chain(numbers.map(|number| number.to_string())).chain([why]).collect()
}

fn sum(processes: &[ConditionedProcess]) -> BTreeMap<String, u64> {
    let mut sum: BTreeMap<String, u64> = BTreeMap::new();
    for (reason, count) in processes.iter().flat_map(|process| &process.shed) {
        let entry = sum.entry(reason.clone()).or_default();
        *entry = entry.saturating_add(*count);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(name: &str, counts: &[(&str, u64)], top_ranges: &[(&str, u32, u32)]) -> ConditionedProcess {
        let top_ranges = top_ranges.iter().map(|(range, held, waiting)| TopRange {
            range: (*range).to_owned(),
            held: *held,
            waiting: *waiting,
        });
        ConditionedProcess {
            name: name.to_owned(),
            shed: counts.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect(),
            top_ranges: top_ranges.collect(),
        }
    }

    #[test]
    fn the_table_says_how_many_and_why() {
        let processes = [
            process(
                "gate 0",
                &[("admitted", 1200), ("delayed", 7), ("late_head", 2), ("evicted", 40), ("banned_now", 1)],
                &[("10.1.0.0/16", 5, 3), ("2001:db8::/32", 90, 0)],
            ),
            process("site main\u{1b}", &[("admitted", 3), ("slow_body", u64::MAX)], &[]),
        ];
        let expected = "\
PROCESS          ADMITTED  DELAYED                  SHED  INCOMPLETE  WAITING  BANNED  WHY
gate 0               1200        7                    42           0        0       1  evicted 40, slow head 2
site main\\u{1b}         3        0  18446744073709551615           0        0       0  slow body 18446744073709551615
all                  1203        7  18446744073709551615           0        0       1  \
slow body 18446744073709551615, evicted 40, slow head 2

RANGE          HELD  WAITING  PROCESS
2001:db8::/32    90        0  gate 0
10.1.0.0/16       5        3  gate 0";
        assert_eq!(render(&processes), expected);
    }

    #[test]
    fn nothing_shed_is_said_as_well_and_many_ranges_are_cut() {
        let one = render(&[process("gate 0", &[], &[])]);
        assert_eq!(one.lines().count(), 2, "{one}");
        assert!(one.ends_with("0  -"), "{one}");
        let many: Vec<(&str, u32, u32)> = vec![("10.0.0.0/24", 1, 0); RANGES_SHOWN + 2];
        assert!(render(&[process("gate 0", &[], &many)]).ends_with("\n2 more ranges; `--json` has all"));
    }
}
