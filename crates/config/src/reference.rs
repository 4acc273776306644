//! The tables of docs/configuration.md: every key, with the bounds and the default that `rules` has; and the table of
//! docs/guide/operating.md of what a reload replaces.
//!
//! Runs in: `cargo test`; with `BLESS=1` it writes the tables into the pages.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its page should panic")]

mod general;
mod row;
mod site;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use self::row::{KeyRow, Reload, Setter};
use crate::rules;

const BEGIN: &str = "<!-- keys of ";
const END: &str = "<!-- end -->";
const HEADER: &str = "| key | type | default | reload | by | rule |\n| --- | --- | --- | --- | --- | --- |\n";

/// A table of the page: its keys in `rules`, the columns of most of them, and the rows, which tables may share.
type PageTable = (rules::Keys, (Reload, Setter), &'static [&'static [KeyRow]]);

/// The tables of the page.
const PAGE: &[PageTable] = &[
    (rules::SERVER, (Reload::Nothing, Setter::Operator), &[general::SERVER]),
    (rules::LISTEN, (Reload::Listeners, Setter::Operator), &[general::LISTEN]),
    (rules::TLS, (Reload::Certified, Setter::Operator), &[general::TLS]),
    (rules::LOG, (Reload::Logger, Setter::Operator), &[general::LOG]),
    (rules::RESTART, (Reload::Nothing, Setter::Operator), &[general::RESTART]),
    (rules::LIMITS, (Reload::GatesAndSites, Setter::Operator), &[general::LIMITS]),
    (rules::CONDITIONING, (Reload::GatesAndSites, Setter::Operator), &[general::CONDITIONING]),
    (rules::SITE, (Reload::Site, Setter::SiteFile), &[site::SITE, site::PROCESSES]),
    (rules::COMPRESS, (Reload::Site, Setter::Tenant), &[site::COMPRESS]),
    (rules::ROUTE, (Reload::Site, Setter::SiteFile), &[site::ROUTE]),
    (rules::DATA, (Reload::Site, Setter::SiteFile), &[site::DATA]),
    (rules::TEMPLATES, (Reload::Site, Setter::SiteFile), &[site::TEMPLATES]),
    (rules::SERVICE, (Reload::Site, Setter::SiteFile), &[site::SERVICE]),
];

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md")
}

/// Every row with its table, and what holds for most keys of the table.
fn rows_of_page() -> impl Iterator<Item = (&'static str, (Reload, Setter), &'static KeyRow)> {
    let rows = |(table, of_table, rows): &'static PageTable| {
        rows.iter().copied().flatten().map(|row| (table.0, *of_table, row))
    };
    PAGE.iter().flat_map(rows)
}

/// The default of a key as the page has it.
fn default_of(rows: &[KeyRow], key: &str) -> &'static str {
    rows.iter().find(|row| row.keys == key).unwrap().default
}

#[test]
fn every_key_has_a_row_and_every_row_a_key() {
    let described: BTreeSet<&str> = PAGE.iter().map(|(table, ..)| table.0).collect();
    let tables = rules::TABLES.iter().map(|table| table.0).filter(|name| *name != rules::ROOT.0);
    assert_eq!(described, tables.collect());
    for (table, _, rows) in PAGE {
        let cells: Vec<String> = rows.iter().copied().flatten().map(KeyRow::first_cell).collect();
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
    for (table, of_table, rows) in PAGE {
        let lines: String = rows.iter().copied().flatten().map(|row| row.text(*of_table)).collect();
        put(&mut text, &format!("{BEGIN}{} -->\n", table.0), &format!("{HEADER}{lines}"));
    }
    keep(&page(), &written, &text);
}

/// Writes a table in the place of the one that begins so.
fn put(text: &mut String, begin: &str, table: &str) {
    let start = text.find(begin).unwrap_or_else(|| panic!("the page has no {begin}")) + begin.len();
    let end = start + text[start..].find(END).unwrap();
    text.replace_range(start..end, table);
}

/// Compares a page with what it should be, or writes it.
fn keep(path: &Path, written: &str, text: &str) {
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, text).unwrap();
    } else {
        assert!(written == text, "run `BLESS=1 cargo test -p config` to renew {}", path.display());
    }
}

/// The keys of which a reload does the same, by their tables; a table of which all keys are alike stands for them.
fn keys_of(reload: Reload) -> String {
    let is_so = |of_table: Reload, row: &KeyRow| row.reload.unwrap_or(of_table) == reload;
    let of_table = |(table, (of_table, _), rows): &PageTable| {
        let rows: Vec<&KeyRow> = rows.iter().copied().flatten().collect();
        let keys: Vec<String> =
            rows.iter().filter(|row| is_so(*of_table, row)).map(|row| row.first_cell()).collect();
        let header = if table.0.contains('`') { table.0.to_owned() } else { format!("`{}`", table.0) };
        match keys.len() {
            0 => None,
            all if all == rows.len() => Some(header),
            _ => Some(format!("{} of {header}", keys.join(", "))),
        }
    };
    PAGE.iter().filter_map(of_table).collect::<Vec<_>>().join("; ")
}

#[test]
fn the_page_of_operating_has_what_a_reload_replaces() {
    let path = page().with_file_name("guide").join("operating.md");
    let written = std::fs::read_to_string(&path).unwrap();
    let line = |(reload, word, replaced): &(Reload, &str, &str)| {
        format!("| {word} | {replaced} | {} |\n", keys_of(*reload))
    };
    let lines: String = Reload::ALL.iter().map(line).collect();
    let mut text = written.clone();
    let table = format!("| *reload* | what a reload replaces | keys |\n| --- | --- | --- |\n{lines}");
    put(&mut text, "<!-- what a reload replaces -->\n", &table);
    keep(&path, &written, &text);
}

/// A bar would begin another cell, and a line break another row.
#[test]
fn a_description_keeps_to_its_cell() {
    for (_, of_table, row) in rows_of_page() {
        let text = row.text(of_table);
        assert!(!text.trim_matches(['|', '\n', ' ']).contains('\n'), "{}", row.keys);
        assert_eq!(text.matches('|').count(), 7, "{}", row.keys);
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

/// A key with a path that is missing in the table would be opened by the strictest rule, and no test would plant a link
/// there.
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
    for (table, _, rows) in PAGE {
        for row in rows.iter().copied().flatten() {
            let row::KeyValue::Other(kind) = row.value else { continue };
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
