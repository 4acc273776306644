//! Tests: docs/configuration.md has every key, with the bounds and the default that `rules` has.
//!
//! Runs in: `cargo test`; with `BLESS=1` it writes bounds and defaults into the page. What a key does, and the type of a
//! key without bounds, is written on the page itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its page should panic")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::rules::*;

const END: &str = "<!-- end -->";

/// How the value of a key is written.
#[derive(Clone, Copy)]
enum Unit {
    Count,
    Duration,
    Size,
    Rate,
}

/// The keys with bounds, by the table that they are in.
const BOUNDED: &[(Keys, &str, Unit, &Bounds)] = &[
    (SERVER, "gates", Unit::Count, &GATES),
    (TLS, "tamper_ban", Unit::Duration, &TAMPER_BAN_MS),
    (TLS, "reread", Unit::Duration, &REREAD_MS),
    (LOG, "flush", Unit::Duration, &FLUSH_MS),
    (RESTART, "broken_after", Unit::Count, &BROKEN_AFTER),
    (RESTART, "within", Unit::Duration, &WITHIN_MS),
    (RESTART, "backoff_max", Unit::Duration, &BACKOFF_MAX_MS),
    (LIMITS, "head_bytes", Unit::Size, &HEAD_BYTES),
    (LIMITS, "head_timeout", Unit::Duration, &HEAD_TIMEOUT_MS),
    (LIMITS, "body_bytes", Unit::Size, &BODY_BYTES),
    (LIMITS, "idle_timeout", Unit::Duration, &IDLE_TIMEOUT_MS),
    (LIMITS, "start_timeout", Unit::Duration, &START_TIMEOUT_MS),
    (LIMITS, "drain_timeout", Unit::Duration, &DRAIN_TIMEOUT_MS),
    (LIMITS, "connections", Unit::Count, &CONNECTIONS),
    (CONDITIONING, "first_byte_timeout", Unit::Duration, &FIRST_BYTE_TIMEOUT_MS),
    (CONDITIONING, "head_timeout", Unit::Duration, &HEAD_TIMEOUT_MS),
    (CONDITIONING, "body_min_rate", Unit::Rate, &MIN_RATE),
    (CONDITIONING, "response_min_rate", Unit::Rate, &MIN_RATE),
    (CONDITIONING, "ban_after", Unit::Count, &BAN_AFTER),
    (CONDITIONING, "ban_time", Unit::Duration, &BAN_TIME_MS),
    (SITE, "stat_interval", Unit::Duration, &STAT_INTERVAL_MS),
    (COMPRESS, "static_level", Unit::Count, &STATIC_LEVEL),
    (COMPRESS, "dynamic_level", Unit::Count, &DYNAMIC_LEVEL),
    (COMPRESS, "max_bytes", Unit::Size, &COMPRESS_BYTES),
    (ROUTE, "answer_timeout", Unit::Duration, &ANSWER_TIMEOUT_MS),
    (ROUTE, "requests", Unit::Count, &REQUESTS),
    (SERVICE, "memory_max", Unit::Size, &MEMORY_MAX),
    (SERVICE, "memory_high", Unit::Size, &MEMORY_MAX),
    (SERVICE, "processes_max", Unit::Count, &PROCESSES_MAX),
    (SERVICE, "core_max", Unit::Size, &CORE_MAX),
    (SERVICE, "cpu_percent", Unit::Count, &CPU_PERCENT),
    (SERVICE, "requests", Unit::Count, &REQUESTS),
];

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Count => "integer",
            Unit::Duration => "duration",
            Unit::Size => "size",
            Unit::Rate => "rate",
        }
    }

    /// The units of a value, the largest first.
    fn units(self) -> &'static [(&'static str, u64)] {
        match self {
            Unit::Count => &[("", 1)],
            Unit::Duration => &[("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)],
            Unit::Size => &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)],
            Unit::Rate => &[("GiB/s", 1 << 30), ("MiB/s", 1 << 20), ("KiB/s", 1 << 10), ("B/s", 1)],
        }
    }

    /// A number in the largest unit in which it is whole.
    fn text(self, number: u64, between: &str) -> String {
        let fits = |(_, one): &&(&str, u64)| number != 0 && number.is_multiple_of(*one);
        match self.units().iter().find(fits) {
            Some((unit, one)) if !unit.is_empty() => format!("{}{between}{unit}", number / one),
            _ => number.to_string(),
        }
    }

    fn kind(self, bounds: &Bounds) -> String {
        format!("{}, {} to {}", self.name(), self.text(bounds.min, " "), self.text(bounds.max, " "))
    }

    fn default(self, bounds: &Bounds) -> Option<String> {
        bounds.default.map(|number| match self {
            Unit::Count => number.to_string(),
            _ => format!("`\"{}\"`", self.text(number, "")),
        })
    }
}

/// A row of a table: key, type, default, what it does.
fn cells(row: &str) -> Vec<String> {
    let row = row.trim().trim_start_matches('|').trim_end_matches('|');
    row.split(" | ").map(|cell| cell.trim().to_owned()).collect()
}

/// The keys that the first cell of a row names.
fn keys(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The rows with the bounds and defaults of the code.
fn renewed(table: Keys, rows: &str) -> String {
    let mut text = String::new();
    for (number, row) in rows.lines().enumerate() {
        let mut cells = cells(row);
        let key = keys(&cells[0]).next().unwrap_or_default().to_owned();
        let found = BOUNDED.iter().find(|(of, name, ..)| of.0 == table.0 && *name == key);
        if let Some((_, _, unit, bounds)) = found.filter(|_| number > 1) {
            cells[1] = unit.kind(bounds);
            cells[2] = unit.default(bounds).unwrap_or_else(|| cells[2].clone());
        }
        text += &format!("| {} |\n", cells.join(" | "));
    }
    text
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md")
}

#[test]
fn the_page_has_every_key_with_its_bounds_and_default() {
    let mut text = std::fs::read_to_string(page()).unwrap();
    let written = text.clone();
    for table in TABLES.into_iter().filter(|table| table.0 != ROOT.0) {
        let begin = format!("<!-- keys of {} -->\n", table.0);
        let start = text.find(&begin).unwrap_or_else(|| panic!("the page has no {begin}")) + begin.len();
        let end = start + text[start..].find(END).unwrap();
        let rows = text[start..end].to_owned();
        let first_cells: Vec<String> = rows.lines().skip(2).map(|row| cells(row)[0].clone()).collect();
        let named: BTreeSet<&str> = first_cells.iter().flat_map(|cell| keys(cell)).collect();
        assert_eq!(
            named,
            table.1.iter().copied().collect(),
            "the keys of {} on the page, and in the code",
            table.0
        );
        text.replace_range(start..end, &renewed(table, &rows));
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(page(), text).unwrap();
    } else {
        assert_eq!(written, text, "run `BLESS=1 cargo test -p config` to renew docs/configuration.md");
    }
}

/// A number without a unit would be read as another one.
#[test]
fn every_bound_belongs_to_a_key() {
    for (table, key, ..) in BOUNDED {
        assert!(table.1.contains(key), "{} has no {key}", table.0);
    }
}
