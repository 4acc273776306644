//! What falls with each process, as a table; and the same for other servers, one line each.
//!
//! Runs in: the `bulkhead` command; pure. Sees: text that is fit for a terminal. Never: cuts a number off.

use std::collections::HashMap;

use crate::table::align;

use super::draw::wrap;
use super::model::{AssetKind, Blast, Loss, Reach};
use super::ours::connections;
use super::{Explanation, Extent};

/// The longest list of names in a cell, in characters; a longer one is counted.
const NAMES_CHARS_MAX: usize = 24;

/// How long lines of prose are, in characters.
const PROSE_CHARS: usize = 110;

const LEGEND: &str = "ALL, PART: how many of them are lost altogether, and in part. SITES, SERVICES: whose process \
    falls, with what its program knows. FILES: folders that it reads. USERS: of how many sites and services it sees \
    requests and answers, and may change them. LOGS: `adds to` is by false lines. CONNS: which connections of \
    clients it holds.";

const MORE_LEGEND: &str = " TABLES: those that statements name; `part of` is by statements that are granted. KEYS: private keys \
    of certificates, passwords of databases, and tokens by which data proxies know services.";

/// The whole table, and the comparison.
pub fn all(report: &Explanation) -> String {
    let mut text = heading(report, Extent::Whole);
    text += "\n\nIf a process falls into an attacker's hands, this falls with it:\n\n";
    let more = more_columns(report);
    let header = ["PROCESS", "UID", "ALL", "PART", "SITES", "SERVICES", "FILES", "USERS", "LOGS", "CONNS"];
    let header = header.into_iter().chain(more.iter().map(|(head, _)| *head)).map(str::to_owned).collect();
    // Processes of one uid lose the same.
    let mut known: HashMap<usize, LossRow> = HashMap::new();
    let rows = (0..report.posts.len()).map(|number| {
        let lost = known.entry(report.ours.alike(number));
        row(report, number, lost.or_insert_with_key(|&number| LossRow::new(report, number, &more)))
    });
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    text += &align(&rows, &[1, 2, 3]);
    let total = report.ours.assets.len();
    let more = if more.is_empty() { "" } else { MORE_LEGEND };
    text += &format!("\n\n{}\n\n", prose("", &format!("There are {total} assets. {LEGEND}{more}")));
    text + &comparison(report)
}

/// Where all this comes from, and what is wrong with it.
pub fn heading(report: &Explanation, extent: Extent) -> String {
    let mut text = match (&report.server, extent) {
        (Ok(_), Extent::OfSite) => format!("{}, and the server that runs", report.file),
        (Ok(running), Extent::Whole) => {
            let count = running.processes.iter().filter(|live| live.pid != 0).count();
            format!("{}, and the server that runs: {count} processes", report.file)
        }
        (Err(why), _) => format!("{}, alone: {why}", report.file),
    };
    for note in &report.notes {
        text += &format!("\nnote: {note}");
    }
    text
}

/// What is lost with a process: the cells before those that say which connections it holds, and behind.
struct LossRow {
    before: Vec<String>,
    behind: Vec<String>,
}

impl LossRow {
    fn new(report: &Explanation, number: usize, more: &[More]) -> Self {
        let losses = report.ours.losses(number);
        let blast = report.ours.blast_of(&losses);
        let before = vec![
            blast.whole.to_string(),
            blast.part.to_string(),
            names(report, &losses, AssetKind::Site),
            names(report, &losses, AssetKind::Service),
            names(report, &losses, AssetKind::Files),
            count(report, &losses, &[AssetKind::Users], "part of "),
            count(report, &losses, &[AssetKind::Log], "adds to "),
        ];
        let behind = more.iter().map(|(_, kinds)| count(report, &losses, kinds, "part of "));
        Self { before, behind: behind.collect() }
    }
}

fn row(report: &Explanation, number: usize, lost: &LossRow) -> Vec<String> {
    let post = &report.posts[number];
    let uid = report.server.as_ref().ok().and_then(|running| running.of(&post.name).next());
    let mut row = vec![post.name.clone(), uid.map_or("-".into(), |live| live.uid.to_string())];
    row.extend_from_slice(&lost.before);
    row.push(connections(&report.config, post).0.into());
    row.extend_from_slice(&lost.behind);
    row
}

/// A column that not every configuration needs, with the kinds of assets that are counted in it.
type More = (&'static str, &'static [AssetKind]);

fn more_columns(report: &Explanation) -> Vec<More> {
    let columns: [More; 2] = [
        ("TABLES", &[AssetKind::Table]),
        ("KEYS", &[AssetKind::Keys, AssetKind::Password, AssetKind::ClientKey, AssetKind::Token]),
    ];
    let is_used = |(_, kinds): &More| report.ours.assets.count(kinds) > 0;
    columns.into_iter().filter(is_used).collect()
}

/// The assets of a kind that are lost altogether, by name if that is short.
fn names(report: &Explanation, losses: &[Reach], kind: AssetKind) -> String {
    let assets = &report.ours.assets;
    let all = assets.count(&[kind]);
    let of = |reach: &&Reach| assets[reach.asset].kind == kind && reach.loss == Loss::Whole;
    let found: Vec<&str> = losses.iter().filter(of).map(|reach| assets[reach.asset].name.as_str()).collect();
    let text = found.join(", ");
    match found.len() {
        0 => "-".into(),
        count if count == all && count > 1 => format!("all {all}"),
        count if text.chars().count() > NAMES_CHARS_MAX && count > 1 => format!("{count} of {all}"),
        _ => text,
    }
}

/// How many assets of some kinds are lost altogether, and how many in part.
fn count(report: &Explanation, losses: &[Reach], kinds: &[AssetKind], part: &str) -> String {
    let assets = &report.ours.assets;
    let all = assets.count(kinds);
    let of = |loss: Loss| {
        let fits = |reach: &&Reach| kinds.contains(&assets[reach.asset].kind) && reach.loss == loss;
        losses.iter().filter(fits).count()
    };
    let shown = |count: usize| if count == all { format!("all {all}") } else { count.to_string() };
    match (of(Loss::Whole), of(Loss::Part)) {
        (0, 0) => "-".into(),
        (0, some) => format!("{part}{}", shown(some)),
        (whole, 0) => shown(whole),
        (whole, some) => format!("{whole}, {part}{some}"),
    }
}

/// What one process costs, with us and with others.
fn comparison(report: &Explanation) -> String {
    let mut text =
        "The same sites and services under other servers, each kind of process that is not root:\n\n"
            .to_owned();
    let header = ["SERVER", "KINDS", "MOST FALLS WITH", "ALL", "PART", "MEAN ALL", "MEAN ALL OR PART"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for (name, _, model) in report.servers() {
        let summary = model.summary();
        let worst = summary.worst.map_or("-", |(process, _)| &process.name).to_owned();
        let blast = summary.worst.map_or(Blast { whole: 0, part: 0, total: 0 }, |(_, blast)| blast);
        rows.push(vec![
            name.into(),
            summary.processes.to_string(),
            worst,
            format!("{} ({})", blast.whole, percent(blast.lost())),
            blast.part.to_string(),
            percent(summary.lost),
            percent(summary.touched),
        ]);
    }
    text += &align(&rows, &[1, 3, 4, 5, 6]);
    text += "\n\nThis takes for granted:";
    for (name, assumed, _) in report.servers() {
        text += &format!("\n{}", prose("- ", &format!("{name}: {assumed}")));
    }
    text
}

/// Text in lines, the first one behind `mark` and all others below it.
fn prose(mark: &str, words: &str) -> String {
    let indent = " ".repeat(mark.len());
    format!("{mark}{}", wrap(words, PROSE_CHARS).join(&format!("\n{indent}")))
}

/// A share in hundredths.
pub fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::super::{running::RunningProcesses, running::tests::whole, tests::demo};
    use super::*;

    fn line<'t>(text: &'t str, begin: &str) -> Vec<&'t str> {
        let mut lines = text.lines();
        lines
            .find(|line| line.split("  ").next() == Some(begin))
            .unwrap()
            .split("  ")
            .map(str::trim)
            .collect()
    }

    fn cells(text: &str, begin: &str) -> Vec<String> {
        line(text, begin).into_iter().filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    }

    #[test]
    fn a_row_for_every_process() {
        let text = all(&demo(None));
        assert!(text.starts_with("demo.toml, alone: no server is running\n"), "{text}");
        let root = ["bulkheadd", "-", "19", "0", "all 2", "all 3", "all 3", "all 5", "all 4", "all"];
        assert_eq!(cells(&text, "bulkheadd"), root);
        let gate = ["gate", "-", "0", "9", "-", "-", "-", "part of all 5", "adds to all 4", "new"];
        assert_eq!(cells(&text, "gate"), gate);
        let site =
            ["packages", "-", "5", "3", "packages", "-", "public", "3, part of 1", "adds to 2", "live"];
        assert_eq!(cells(&text, "packages"), site);
        let search =
            ["packages/search", "-", "3", "2", "-", "packages/search", "data", "1", "adds to 2", "none"];
        assert_eq!(cells(&text, "packages/search"), search);
        assert_eq!(cells(&text, "logger"), ["logger", "-", "4", "0", "-", "-", "-", "-", "all 4", "none"]);
    }

    #[test]
    fn databases_have_columns_where_there_are_any() {
        let (config, granted) = super::super::granted::tests::shop("postgresql");
        let text = all(&Explanation::new("shop.toml".into(), config, granted, Err("none".into())));
        let last = |name| cells(&text, name).split_off(10);
        assert_eq!(last("PROCESS"), ["TABLES", "KEYS"]);
        assert_eq!(last("bulkheadd"), ["all 3", "all 3"]);
        assert_eq!(last("a/shop"), ["part of all 3", "1"]);
        assert_eq!(last("a/search"), ["part of 2", "1"]);
        assert_eq!(last("a/catalog:data"), ["all 3", "all 3"]);
        assert_eq!(last("a/catalog:data:connector"), ["all 3", "part of 1"]);
        assert_eq!(last("a"), ["-", "-"]);
        assert!(!all(&demo(None)).contains("TABLES"));
    }

    #[test]
    fn a_running_server_gives_uids_and_notes() {
        let mut running = whole();
        running.processes.retain(|live| live.name != "other");
        let running = RunningProcesses::new(running.processes, running.missing);
        let text = all(&demo(Some(running)));
        assert!(
            text.starts_with("demo.toml, and the server that runs: 9 processes\nnote: other does not run")
        );
        assert_eq!(cells(&text, "bulkheadd")[1], "0");
        assert_eq!(cells(&text, "gate")[1], "51001");
    }

    #[test]
    fn the_comparison_has_a_line_for_each_server() {
        let text = all(&demo(None));
        assert_eq!(cells(&text, "Bulkhead")[..3], ["Bulkhead", "8", "packages"]);
        assert_eq!(cells(&text, "one process")[1..4], ["1", "server", "18 (95%)"]);
        assert_eq!(cells(&text, "Apache prefork")[2], "httpd child");
        assert!(text.contains("\n- nginx + php-fpm: "), "{text}");
    }
}
