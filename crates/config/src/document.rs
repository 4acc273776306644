//! The file as a whole: TOML syntax, then the tables at the top level.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: the text of the operator's file. Must
//! never: decode what the parser had to guess at.

use std::path::Path;

use toml::de::{DeTable, DeValue, Error};

use crate::decode::Table;
use crate::diagnostic::{Problems, escape};
use crate::raw::RawConfig;
use crate::rules::{CONDITIONING, LIMITS, LOG, RESTART, ROOT, SERVER, TLS};
use crate::{conditioning, foreign, sections, sites, tls};

/// LIMIT: after one broken line the parser may call every line broken; nobody reads past these.
const SYNTAX_ERRORS_MAX: usize = 10;

/// Decodes the text. Mistakes are in `problems`; `None` if the syntax left nothing to decode.
pub(crate) fn read(text: &str, dir: &Path, problems: &mut Problems<'_>) -> Option<RawConfig> {
    let (document, errors) = DeTable::parse_recoverable(text);
    report_syntax(text, document.get_ref(), &errors, problems);
    problems.settle();
    if !errors.iter().all(leaves_the_rest_sound) {
        return None;
    }
    let mut root = Table::new(document.get_ref(), 0, ROOT.0.to_owned());
    root.check_keys(ROOT, problems);
    let section = |header: (&'static str, &'static [&'static str]), key, problems: &mut Problems<'_>| {
        let entry = root.get(key);
        let table = entry.and_then(|entry| entry.table(header.0, problems));
        let mut table = table.unwrap_or_else(|| Table::absent(header.0));
        table.check_keys(header, problems);
        table
    };
    let (listeners, listeners_known) = sections::listeners(&root, problems);
    let (limits, policies) =
        (section(LIMITS, "limits", problems), section(CONDITIONING, "conditioning", problems));
    let head_timeout_ms = conditioning::head_timeout_ms(&policies, &limits, problems);
    let (log, error_file) = sections::log(&section(LOG, "log", problems), dir, problems);
    Some(RawConfig {
        server: sections::server(&section(SERVER, "server", problems), dir, problems),
        listeners,
        listeners_known,
        tls: tls::tls(&section(TLS, "tls", problems), problems),
        log,
        error_file,
        restart: sections::restart(&section(RESTART, "restart", problems), problems),
        limits: sections::limits(&limits, head_timeout_ms, problems),
        conditioning: conditioning::conditioning(&policies, dir, problems),
        sites: sites::sites(&root, dir, problems),
    })
}

/// After these the parser still has every table and key right, so that the other mistakes can be told too.
fn leaves_the_rest_sound(error: &Error) -> bool {
    is_duplicate(error) || is_unquoted(error) || error.message().starts_with("invalid float")
}

fn is_unquoted(error: &Error) -> bool {
    error.message().starts_with("string values must be quoted")
}

fn is_duplicate(error: &Error) -> bool {
    error.message() == "duplicate key"
}

/// One message a line: the first tells what is wrong, the others are its echo.
fn report_syntax(text: &str, document: &DeTable<'_>, errors: &[Error], problems: &mut Problems<'_>) {
    let mut errors: Vec<_> = errors.iter().map(|error| (error.span().unwrap_or(0..0), error)).collect();
    errors.sort_by_key(|(span, _)| span.start);
    errors.dedup_by_key(|(span, _)| problems.line(span.start));
    for (span, error) in errors.into_iter().take(SYNTAX_ERRORS_MAX) {
        let key = text.get(span.clone()).unwrap_or("");
        if is_duplicate(error) {
            report_duplicate(text, document, (key, span.start), problems);
        } else if !is_unquoted(error) {
            let message = format!("TOML syntax: {}", error.message());
            let unclosed = error.message().contains("array elements");
            let unclosed = unclosed.then(|| "is a `]` missing in a line above?".to_owned());
            // A line that was copied from another server's configuration.
            match unclosed.or_else(|| foreign::help(first_word(text, span.start))) {
                Some(help) => problems.report_help(span.start, message, help),
                None => problems.report(span.start, message),
            }
        } else if key.is_empty() {
            problems.report(span.start, "there is no value after the `=`");
        } else {
            let help = format!("write `\"{}\"`", escape(key));
            problems.report_help(span.start, format!("a string without quotes: {}", escape(key)), help);
        }
    }
}

/// The first word of the line that has this offset.
fn first_word(text: &str, offset: usize) -> &str {
    let start = text.get(..offset).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1);
    let line = text.get(start..).unwrap_or_default().trim_start();
    line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().unwrap_or_default()
}

fn report_duplicate(text: &str, document: &DeTable<'_>, key: (&str, usize), problems: &mut Problems<'_>) {
    let (name, offset) = key;
    let line = text.get(..offset).and_then(|before| before.rsplit('\n').next()).unwrap_or("");
    // The parser keeps the first of two keys but the second of two headers, so only a key's first is known.
    let is_header = line.trim_start().starts_with('[');
    let first = if is_header { None } else { last_before(document, name, offset) };
    let first = first.map(|first| format!(" (first at {})", problems.place(first))).unwrap_or_default();
    let message = format!("`{}` is given twice{first}", escape(name));
    problems.report_help(offset, message, "remove one of the two");
}

/// Where the nearest key of this name before `offset` stands: keys of one table stand together.
fn last_before(table: &DeTable<'_>, name: &str, offset: usize) -> Option<usize> {
    let own = table.get_key_value(name).map(|(key, _)| key.span().start);
    let below = table.iter().flat_map(|(_, value)| tables_of(value.get_ref()));
    let below = below.filter_map(|table| last_before(table, name, offset));
    own.into_iter().chain(below).filter(|at| *at < offset).max()
}

fn tables_of<'v>(value: &'v DeValue<'v>) -> Vec<&'v DeTable<'v>> {
    match value {
        DeValue::Table(table) => vec![table],
        DeValue::Array(array) => array.iter().flat_map(|value| tables_of(value.get_ref())).collect(),
        _ => Vec::new(),
    }
}
