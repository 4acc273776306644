//! Decoding of `[conditioning]`.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: that table of the operator's file. Must never:
//! take a network or a share that means something else than what is written.

use std::path::Path;

use crate::decode::{Entry, Table, narrow};
use crate::diagnostic::{Problems, quote};
use crate::parse::{KeyFault, networks, one_of, units};
use crate::place::At;
use crate::programs;
use crate::raw::{RawConditioning, RawFilter};
use crate::rules;
use crate::schema::{Checks, Conditioning, Priority};

pub(crate) fn conditioning(table: &Table<'_>, dir: &Path, problems: &mut Problems) -> RawConditioning {
    let priority = table.get("priority").and_then(|entry| entry.parsed(priority, problems));
    let checks = table.get("checks").and_then(|entry| entry.parsed(checks, problems));
    let (rate_max, rate_burst) = rates(table, problems);
    let policies = Conditioning {
        first_byte_timeout_ms: table.duration_ms(
            "first_byte_timeout",
            &rules::FIRST_BYTE_TIMEOUT_MS,
            problems,
        ),
        body_min_rate: table.byte_rate("body_min_rate", &rules::MIN_RATE, problems),
        response_min_rate: table.byte_rate("response_min_rate", &rules::MIN_RATE, problems),
        priority: priority.map_or(Priority::Recency, |priority| priority.value),
        share_max: shares(table, rules::SHARE_MAX, rules::SHARES, problems),
        share_max_v6: shares(table, rules::SHARE_MAX_V6, rules::SHARES, problems),
        checks: checks.map_or(Checks::Standard, |checks| checks.value),
        exempt: exempt(table, problems),
        rate_max,
        rate_burst,
        ban_after: table.count("ban_after", &rules::BAN_AFTER, problems),
        ban_time_ms: table.duration_ms("ban_time", &rules::BAN_TIME_MS, problems),
        filters: Vec::new(),
    };
    RawConditioning { policies, filters: filters(table, dir, problems) }
}

/// How long a head may take, which has a key in two tables: as a policy, and, from before there were policies, as a
/// limit.
pub(crate) fn head_timeout_ms(policies: &Table<'_>, limits: &Table<'_>, problems: &mut Problems) -> u32 {
    let mut read = |table: &Table<'_>| {
        let entry = table.get("head_timeout")?;
        Some(At::new(entry.duration_ms(&rules::HEAD_TIMEOUT_MS, problems)?, entry.offset))
    };
    let (policy, limit) = (read(policies), read(limits));
    if let (Some(policy), Some(limit)) = (&policy, &limit)
        && policy.value != limit.value
    {
        let (place, one) = (problems.place(policy.offset), units::show_duration(policy.value));
        let other = units::show_duration(limit.value);
        let message =
            format!("`head_timeout` is {other} in [limits], but {one} in [conditioning] (at {place})");
        problems.report_help(limit.offset, message, "remove the one in [limits]");
    }
    narrow(policy.or(limit).map(|at| at.value).or(rules::HEAD_TIMEOUT_MS.default))
}

fn priority(text: &str) -> Result<Priority, KeyFault> {
    match text {
        "recency" => Ok(Priority::Recency),
        "fifo" => Ok(Priority::Fifo),
        _ => Err(one_of("the priorities are", text, &["recency", "fifo"])),
    }
}

fn checks(text: &str) -> Result<Checks, KeyFault> {
    match text {
        "strict" => Ok(Checks::Strict),
        "standard" => Ok(Checks::Standard),
        "lenient" => Ok(Checks::Lenient),
        _ => Err(one_of("the checks are", text, &["strict", "standard", "lenient"])),
    }
}

/// A client's rate, if it has one, and how much of it may come at once: a second's worth, unless the file says more.
fn rates(table: &Table<'_>, problems: &mut Problems) -> (Option<u32>, u32) {
    let max = table.get("rate_max").and_then(|entry| entry.request_rate(&rules::RATE_MAX, problems));
    let burst = table.get("rate_burst");
    if let Some(burst) = &burst
        && table.lacks("rate_max")
    {
        let message = "`rate_burst` is without a `rate_max`, and so without effect";
        problems.report_help(burst.offset, message, "add for example `rate_max = \"100/s\"`, or remove it");
    }
    let burst = burst.and_then(|entry| entry.count(&rules::RATE_BURST, problems));
    (max.map(|max| narrow(Some(max))), narrow(burst.or(max)))
}

/// The shares of the three kinds of range, in thousandths. A kind that is left out has its default.
fn shares(table: &Table<'_>, keys: rules::Keys, default: [u16; 3], problems: &mut Problems) -> [u16; 3] {
    let (key, ranges) = keys;
    let label = format!("`{key}`");
    let Some(mut shares) = table.get(key).and_then(|entry| entry.table(&label, problems)) else {
        return default;
    };
    shares.check_keys(keys, problems);
    let mut result = default;
    for (share, range) in result.iter_mut().zip(ranges) {
        let written = shares.get(range).and_then(|entry| entry.thousandths(problems));
        *share = written.unwrap_or(*share);
    }
    result
}

fn exempt(table: &Table<'_>, problems: &mut Problems) -> Vec<String> {
    let Some(entry) = table.get("exempt") else {
        return rules::EXEMPT.map(str::to_owned).to_vec();
    };
    let elements = entry.elements(problems).unwrap_or_default();
    at_most(rules::EXEMPT_MAX, elements.len(), "networks", &entry, problems);
    elements
        .iter()
        .filter_map(|element| element.parsed(networks::network, problems))
        .map(|at| at.value)
        .collect()
}

fn at_most(max: usize, count: usize, what: &str, entry: &Entry<'_>, problems: &mut Problems) {
    if count > max {
        problems.report(entry.offset, format!("`{}` has {count} {what}; it may have {max}", entry.key()));
    }
}

fn filters(table: &Table<'_>, dir: &Path, problems: &mut Problems) -> Vec<RawFilter> {
    let Some(entry) = table.get("filters") else {
        return Vec::new();
    };
    let elements = entry.is_array().then(|| entry.elements(problems)).flatten();
    let words: Vec<&str> = match &elements {
        Some(elements) => elements.iter().filter_map(Entry::plain).collect(),
        None => entry.plain().into_iter().collect(),
    };
    let elements = match elements {
        Some(elements) if words.is_empty() || words.len() < elements.len() => elements,
        // One command, where an array of commands is to be.
        _ => {
            let words: Vec<String> = words.into_iter().map(quote).collect();
            let help = format!("write `[[{}]]`, an array for each", words.join(", "));
            entry.wrong_type("an array of filters", (!words.is_empty()).then_some(help), problems);
            return Vec::new();
        }
    };
    at_most(rules::FILTERS_MAX, elements.len(), "filters", &entry, problems);
    elements.iter().filter_map(|entry| filter(entry, dir, problems)).collect()
}

/// A filter: its command, as an array of strings; or a table, in which it may be granted folders.
fn filter(entry: &Entry<'_>, dir: &Path, problems: &mut Problems) -> Option<RawFilter> {
    if !entry.is_array() && !entry.is_table() {
        let help = entry.plain().map(|text| format!("write `[{}]`", quote(text)));
        entry.wrong_type("an array of strings or a table", help, problems);
        return None;
    }
    if entry.is_array() {
        let (command, program) = programs::command_of(entry, dir, problems)?;
        return Some(RawFilter { command, program, read: Vec::new(), jit: false });
    }
    let mut table = entry.table(rules::FILTER.0, problems)?;
    table.check_keys(rules::FILTER, problems);
    let read = programs::folders("read", &table, dir, problems);
    let jit = programs::jit(&table, problems);
    let command = table.require("command", "[\"bin/filter\"]", problems)?;
    let (command, program) = programs::command_of(&command, dir, problems)?;
    Some(RawFilter { command, program, read, jit })
}
