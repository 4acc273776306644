//! What was found, as a page and as text.
//!
//! Runs in: the service `breakout`. Sees: names and texts that the probe made, some with names of files. Never:
//! puts them out without escaping.

use std::fmt::Write as _;

use bulkhead_service::escape;
use probe::ProbeReport;
use probe::attempt::Result;
use probe::run::ProbeEntry;
use probe::score::{Score, level};

use crate::database::{self, Asked};

const STYLE: &str = include_str!("style.css");

/// The lists of the threat model.
const GROUPS: [(char, &str); 7] = [
    ('A', "What it inherited"),
    ('B', "Other processes"),
    ('C', "Files"),
    ('D', "Network and messages"),
    ('E', "The kernel"),
    ('F', "Resources"),
    ('G', "Identity"),
];

fn of_group(report: &ProbeReport, group: char) -> impl Iterator<Item = &ProbeEntry> {
    report.entries.iter().filter(move |entry| entry.attempt.group == group)
}

fn succeeded(report: &ProbeReport) -> impl Iterator<Item = &ProbeEntry> {
    report.entries.iter().filter(|entry| entry.result() == Result::Succeeded)
}

/// What became of an attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Refused,
    /// It succeeded, as it may: it reaches nobody else.
    Allowed,
    /// It succeeded, and a layer of the jail was to refuse it.
    GotOut,
    NotApplicable,
}

impl Outcome {
    /// In the order in which a group shows them.
    const ALL: [Self; 4] = [Self::GotOut, Self::Allowed, Self::Refused, Self::NotApplicable];

    fn of(report: &ProbeReport, entry: &ProbeEntry) -> Self {
        match entry.result() {
            Result::Refused => Self::Refused,
            Result::Succeeded if report.unexpected().contains(&entry.attempt.id) => Self::GotOut,
            Result::Succeeded => Self::Allowed,
            Result::NotApplicable => Self::NotApplicable,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Allowed => "allowed",
            Self::GotOut => "out",
            Self::NotApplicable => "none",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Allowed => "allowed",
            Self::GotOut => "got out",
            Self::NotApplicable => "not applicable",
        }
    }

    fn count(self, report: &ProbeReport) -> usize {
        report.entries.iter().filter(|entry| Self::of(report, entry) == self).count()
    }
}

/// What the attacker got, in one sentence.
fn summary(report: &ProbeReport) -> String {
    let got: Vec<&str> = succeeded(report).map(|entry| entry.attempt.name).collect();
    let count = report.entries.len();
    match got.as_slice() {
        [] => format!("nothing: {count} attempts, none succeeded."),
        [one] => format!("one thing in {count} attempts: {one}."),
        all if all.len() <= 16 => format!("{} things in {count} attempts: {}.", all.len(), all.join("; ")),
        all => format!("{} of {count} attempts succeeded.", all.len()),
    }
}

/// The page.
pub fn html(report: &ProbeReport, score: &Score, asked: Option<&[Asked]>) -> String {
    let mut groups = asked.map(database::section).unwrap_or_default();
    for (letter, title) in GROUPS {
        // Formatting into a String does not fail.
        let _ = write!(groups, "{}", group(report, letter, title));
    }
    let unexpected = report.unexpected();
    let verdict = if unexpected.is_empty() {
        "<p class=\"verdict good\">Nothing succeeded that should have been refused.</p>".to_owned()
    } else {
        let ids: Vec<String> = unexpected.iter().map(|id| format!("<a href=\"#{id}\">{id}</a>")).collect();
        format!(
            "<details class=\"verdict bad\"><summary>{} of these should have been refused.</summary>{}</details>",
            unexpected.len(),
            ids.join(", ")
        )
    };
    let tenths = score.tenths();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Breakout</title>\n\
         <link rel=\"icon\" href=\"/favicon.svg\">\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header><a href=\"/\">Packages</a><span>A service that tries to get out of its jail</span>\
         <a href=\"/breakout?json\">JSON</a><a href=\"/breakout?text\">Text</a></header>\n<main>\n\
         <h1>What an attacker who owns this process gets</h1>\n<p class=\"lead\">{}</p>\n{verdict}\n\
         <ul class=\"figures\">\n<li class=\"refused\"><b>{}</b> refused</li>\n\
         <li class=\"allowed\"><b>{}</b> allowed as intended</li>\n<li class=\"{}\"><b>{}</b> got out</li>\n\
         <li><b>{}</b> not applicable</li>\n\
         <li><b>{}.{}</b> exposure of 10 ({})</li>\n</ul>\n\
         <p class=\"note\">Tried in process {}{}, at most once a minute. Outside of a jail, the same attempts \
         succeed.</p>\n{groups}{}</main>\n</body>\n</html>\n",
        escape(&summary(report)),
        Outcome::Refused.count(report),
        Outcome::Allowed.count(report),
        if unexpected.is_empty() { Outcome::NotApplicable.class() } else { Outcome::GotOut.class() },
        Outcome::GotOut.count(report),
        Outcome::NotApplicable.count(report),
        tenths / 10,
        tenths % 10,
        level(tenths).to_lowercase(),
        std::process::id(),
        if report.children { ", each attempt in a child of it" } else { "" },
        exposure(score),
    )
}

/// The checks that the exposure consists of.
fn exposure(score: &Score) -> String {
    let mut rows = String::new();
    for (check, found) in &score.rows {
        let Some(badness) = found.badness.filter(|badness| *badness > 0) else { continue };
        // Formatting into a String does not fail.
        let _ = writeln!(
            rows,
            "<tr class=\"allowed\"><td title=\"{}\">{}</td><td><span>{badness} of {}</span></td><td>{}</td><td>{}</td></tr>",
            escape(check.id),
            escape(check.means),
            check.range,
            escape(&found.words),
            check.weight,
        );
    }
    let bad = score.rows.iter().filter(|(_, found)| found.badness.is_some_and(|badness| badness > 0)).count();
    format!(
        "<section>\n<h2>Exposure <small>{bad} of {} checks of systemd-analyze security, filled by the attempts \
         above, found something</small></h2>\n<table>\n<thead><tr><th>Check</th><th>Badness</th>\
         <th>What was found</th><th>Weight</th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</section>\n",
        score.rows.len(),
    )
}

fn group(report: &ProbeReport, letter: char, title: &str) -> String {
    let count =
        |wanted| of_group(report, letter).filter(|entry| Outcome::of(report, entry) == wanted).count();
    if of_group(report, letter).count() == 0 {
        return String::new();
    }
    let mut rows = String::new();
    for wanted in Outcome::ALL {
        for entry in of_group(report, letter).filter(|entry| Outcome::of(report, entry) == wanted) {
            // Formatting into a String does not fail.
            let _ = writeln!(rows, "{}", row(entry, wanted));
        }
    }
    format!(
        "<section>\n<h2>{letter}. {title} <small>{} refused, {} allowed, {} got out</small></h2>\n<table>\n\
         <thead><tr><th>Attempt</th><th>Result</th><th>What came of it</th><th>Closed by</th></tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table>\n</section>\n",
        count(Outcome::Refused),
        count(Outcome::Allowed),
        count(Outcome::GotOut),
    )
}

fn row(entry: &ProbeEntry, outcome: Outcome) -> String {
    format!(
        "<tr class=\"{}\" id=\"{id}\"><td title=\"{id}\">{}</td><td><span>{}</span></td><td>{}</td><td>{}</td></tr>",
        outcome.class(),
        escape(entry.attempt.name),
        outcome.words(),
        escape(&entry.detail()),
        escape(entry.attempt.closed_by),
        id = entry.attempt.id,
    )
}

/// The text: a line for each attempt.
pub fn text(report: &ProbeReport, score: &Score, asked: Option<&[Asked]>) -> String {
    let mut text = format!("What an attacker who owns this process gets: {}\n", summary(report));
    let tenths = score.tenths();
    for (letter, title) in GROUPS {
        if of_group(report, letter).count() == 0 {
            continue;
        }
        // Formatting into a String does not fail.
        let _ = writeln!(text, "\n{letter}. {title}");
        for entry in of_group(report, letter) {
            let mark = match Outcome::of(report, entry) {
                Outcome::GotOut => "GOT OUT",
                Outcome::NotApplicable => "-",
                other => other.words(),
            };
            let detail: String = entry.detail().chars().filter(|c| !c.is_control()).take(60).collect();
            let _ = writeln!(text, "  {:<22} {mark:<10} {detail}", entry.attempt.id);
        }
    }
    text.push_str(&asked.map(database::lines).unwrap_or_default());
    let _ = writeln!(
        text,
        "\n{} refused, {} allowed as intended, {} got out, {} not applicable; exposure {}.{} of 10 ({})",
        Outcome::Refused.count(report),
        Outcome::Allowed.count(report),
        Outcome::GotOut.count(report),
        Outcome::NotApplicable.count(report),
        tenths / 10,
        tenths % 10,
        level(tenths),
    );
    text
}
