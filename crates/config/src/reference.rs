//! The tables of docs/configuration.md: every key, with the bounds and the default that `rules` has.
//!
//! Runs in: `cargo test`; with `BLESS=1` it writes the tables into the page.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its page should panic")]

mod general;
mod row;
mod site;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use self::row::Row;
use crate::rules;

const BEGIN: &str = "<!-- keys of ";
const END: &str = "<!-- end -->";
const HEADER: &str = "| key | type | default | rule |\n| --- | --- | --- | --- |\n";

/// The tables of the page, each with its keys in `rules` and what the page says of them, which several may share.
const PAGE: &[(rules::Keys, &[&[Row]])] = &[
    (rules::SERVER, &[general::SERVER]),
    (rules::LISTEN, &[general::LISTEN]),
    (rules::TLS, &[general::TLS]),
    (rules::LOG, &[general::LOG]),
    (rules::RESTART, &[general::RESTART]),
    (rules::LIMITS, &[general::LIMITS]),
    (rules::CONDITIONING, &[general::CONDITIONING]),
    (rules::SITE, &[site::SITE, site::PROCESSES]),
    (rules::COMPRESS, &[site::COMPRESS]),
    (rules::ROUTE, &[site::ROUTE]),
    (rules::DATA, &[site::DATA]),
    (rules::TEMPLATES, &[site::TEMPLATES]),
    (rules::SERVICE, &[site::SERVICE, site::PROCESSES]),
];

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md")
}

/// The default of a key as the page has it.
fn default_of(rows: &[Row], key: &str) -> &'static str {
    rows.iter().find(|row| row.keys == key).unwrap().default
}

#[test]
fn every_key_has_a_row_and_every_row_a_key() {
    let described: BTreeSet<&str> = PAGE.iter().map(|(table, _)| table.0).collect();
    let tables = rules::TABLES.iter().map(|table| table.0).filter(|name| *name != rules::ROOT.0);
    assert_eq!(described, tables.collect());
    for (table, rows) in PAGE {
        let cells: Vec<String> = rows.iter().copied().flatten().map(Row::first_cell).collect();
        let mut named: Vec<&str> = cells.iter().flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
        let mut known = table.1.to_vec();
        named.sort_unstable();
        known.sort_unstable();
        assert_eq!(named, known, "the keys of {} in its rows, and in `rules`", table.0);
    }
}

#[test]
fn the_page_has_the_tables_of_the_code() {
    let written = std::fs::read_to_string(page()).unwrap();
    let mut text = written.clone();
    assert_eq!(text.matches(BEGIN).count(), PAGE.len(), "tables on the page");
    for (table, rows) in PAGE {
        let begin = format!("{BEGIN}{} -->\n", table.0);
        let start = text.find(&begin).unwrap_or_else(|| panic!("the page has no {begin}")) + begin.len();
        let end = start + text[start..].find(END).unwrap();
        let lines: String = rows.iter().copied().flatten().map(Row::text).collect();
        text.replace_range(start..end, &format!("{HEADER}{lines}"));
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(page(), text).unwrap();
    } else {
        assert_eq!(written, text, "run `BLESS=1 cargo test -p config` to renew docs/configuration.md");
    }
}

/// A bar would begin another cell, and a line break another row.
#[test]
fn a_description_keeps_to_its_cell() {
    for row in PAGE.iter().flat_map(|(_, rows)| rows.iter().copied().flatten()) {
        assert!(!row.text().trim_matches(['|', '\n', ' ']).contains('\n'), "{}", row.keys);
        assert_eq!(row.text().matches('|').count(), 5, "{}", row.keys);
    }
}

/// Defaults that are no numbers, where `rules` has them.
#[test]
fn defaults_in_words_are_those_of_the_code() {
    let range = rules::USER_RANGE;
    let same = [
        (default_of(general::SERVER, "user_range"), format!("`\"{}-{}\"`", range.start(), range.end())),
        (default_of(general::TLS, "hsts"), format!("`\"{}\"`", rules::HSTS)),
        (default_of(general::TLS, "ocsp_ports"), format!("`[{}]`", rules::OCSP_PORT)),
        (default_of(general::TLS, "tamper_exempt"), format!("`{:?}`", rules::EXEMPT)),
        (default_of(general::CONDITIONING, "exempt"), format!("`{:?}`", rules::EXEMPT)),
    ];
    for (page, code) in same {
        assert_eq!(page, code);
    }
}

/// Types of values that are no path of a file or folder, by their words.
const NO_PATHS: &[&str] = &[
    "array of `\"tcp:PORT\"`, `\"tcp:HOSTS:PORT\"`, `\"udp\"`",
    "array of `\"br\"`, `\"zstd\"`, `\"gzip\"`",
    "array of 1 to 16 ports",
    "array of 2 to 8 paths",
    "array of addresses",
    "array of file names",
    "array of layers",
    "array of names",
    "array of networks",
    "array of networks, 256 of them",
    "array of strings",
    "array of suffixes",
    "arrays of networks, or `\"all\"`",
    "boolean",
    "file name",
    "location, or `{ to, status }`",
    "name",
    "name of an account",
    "path",
    "regular expression",
    "strings",
    "table of strings, integers and booleans",
    "table, or boolean",
    "table of files",
    "table of numbers, 0 to 1",
    "table of strings",
];

/// A key with a path that is missing in the table would be opened by the strictest rule, and no test would plant a link there.
#[test]
fn every_key_with_a_path_has_a_class() {
    use crate::paths::PATH_KEYS;
    let is_path = |kind: &str| {
        let is_number = ["integer", "duration"].iter().any(|word| kind.starts_with(word));
        let is_word = kind.starts_with('`') && !kind.contains("PATH") && !kind.contains("users");
        !NO_PATHS.contains(&kind)
            && !is_word
            && !is_number
            && !kind.starts_with("string")
            && kind != "as of a site"
    };
    let mut found: BTreeSet<(&str, &str)> = [("", "include")].into();
    for (table, rows) in PAGE {
        for row in rows.iter().copied().flatten() {
            let row::Value::Other(kind) = row.value else { continue };
            if !is_path(kind) {
                continue;
            }
            let keys: Vec<&str> = match row.keys.contains('`') {
                true => row.keys.split('`').skip(1).step_by(2).collect(),
                false => vec![row.keys],
            };
            found.extend(keys.into_iter().map(|key| (table.0, if key == "auth" { "users" } else { key })));
        }
    }
    // A route has an `auth` of its own, of which the page says that it is as of a site.
    found.insert(("[[site.route]]", "users"));
    let listed: BTreeSet<(&str, &str)> = PATH_KEYS.iter().map(|row| (row.table, row.key)).collect();
    assert_eq!(found, listed);
}
