//! A line of a table of docs/configuration.md.
//!
//! Runs in: `cargo test`. Input: none.

use crate::rules::Bounds;

/// How the value of a key is written.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    Count,
    Duration,
    Size,
    Rate,
}

/// The type and the default of a key.
pub(super) enum Value {
    /// A number: its bounds and its default, if it has a fixed one.
    Number(Unit, &'static Bounds),
    /// Anything else, in words.
    Other(&'static str),
}

/// A line of a table of the page: one key, or several that share a description.
pub(super) struct Row {
    /// A key, or text that has several of them in backquotes.
    pub(super) keys: &'static str,
    pub(super) value: Value,
    /// What holds where the key is absent; empty if the bounds say so.
    pub(super) default: &'static str,
    pub(super) rule: &'static str,
}

impl Row {
    pub(super) const fn number(
        keys: &'static str,
        unit: Unit,
        bounds: &'static Bounds,
        rule: &'static str,
    ) -> Self {
        Self { keys, value: Value::Number(unit, bounds), default: "", rule }
    }

    pub(super) const fn other(
        keys: &'static str,
        kind: &'static str,
        default: &'static str,
        rule: &'static str,
    ) -> Self {
        Self { keys, value: Value::Other(kind), default, rule }
    }

    /// What holds where the key is absent, for a number without a fixed default.
    pub(super) const fn absent(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    pub(super) fn first_cell(&self) -> String {
        if self.keys.contains('`') { self.keys.to_owned() } else { format!("`{}`", self.keys) }
    }

    pub(super) fn text(&self) -> String {
        let (kind, default) = match self.value {
            Value::Number(unit, bounds) => (unit.kind(bounds), unit.default(bounds)),
            Value::Other(kind) => (kind.to_owned(), None),
        };
        // A site's limit has the bounds of that of all sites, and this by default.
        let default = default.filter(|_| self.default.is_empty()).unwrap_or_else(|| self.default.to_owned());
        assert!(!default.is_empty(), "no default for {}", self.keys);
        format!("| {} | {kind} | {default} | {} |\n", self.first_cell(), self.rule)
    }
}

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
