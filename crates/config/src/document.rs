//! The file as a whole: TOML syntax, then the tables at the top level; and the files of sites that it includes.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: the texts of the operator's files. Must
//! never: decode what the parser had to guess at.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use toml::de::{DeTable, DeValue, Error};

use crate::decode::Table;
use crate::diagnostic::{Problems, escape};
use crate::known::{Content, ReadFile, SiteFile};
use crate::place::At;
use crate::raw::site::RawSite;
use crate::raw::{ListedSite, RawConfig, RawInclude};
use crate::readers::TableSource;
use crate::rules::{CONDITIONING, INCLUDED, LIMITS, LOG, RESTART, ROOT, SERVER, TLS};
use crate::schema::{Limits, Restart};
use crate::{conditioning, foreign, include, sections, sites, tls};

/// LIMIT: after one broken line the parser may call every line broken; nobody reads past these.
const SYNTAX_ERRORS_MAX: usize = 10;

/// Reads the files of sites in a folder.
pub(crate) type ReadFolder<'c> = &'c dyn Fn(&At<PathBuf>, &mut Problems) -> Vec<SiteFile>;

/// A text with what the parser makes of it.
struct ParsedText<'t> {
    text: &'t str,
    /// What the offsets of this text begin with.
    base: usize,
    document: toml::Spanned<DeTable<'t>>,
}

/// Parses a text; `None` if the syntax left nothing to decode.
fn parse<'t>(text: &'t str, base: usize, problems: &mut Problems) -> Option<ParsedText<'t>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let parsed = ParsedText { text, base, document };
    parsed.report_syntax(&errors, problems);
    problems.settle();
    errors.iter().all(leaves_the_rest_sound).then_some(parsed)
}

/// Decodes the text of the file in `dir`, and the files that it includes. Mistakes are in `problems`; `None` if the
/// syntax left nothing to decode.
pub(crate) fn read(
    text: &str,
    dir: &Path,
    read_folder: ReadFolder<'_>,
    problems: &mut Problems,
) -> Option<RawConfig> {
    let parsed = parse(text, 0, problems)?;
    let mut root = Table::of_file(parsed.document.get_ref(), parsed.base, ROOT.0);
    root.check_keys(ROOT, problems);
    let section = |header: (&'static str, &'static [&'static str]), key, problems: &mut Problems| {
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
    let server = sections::server(&section(SERVER, "server", problems), dir, problems);
    let tls = tls::tls(&section(TLS, "tls", problems), problems);
    let restart = Restart::read(TableSource { table: &section(RESTART, "restart", problems), dir }, problems);
    let limits = Limits { head_timeout_ms, ..Limits::read(TableSource { table: &limits, dir }, problems) };
    let conditioning = conditioning::conditioning(&policies, dir, problems);
    let least = if root.lacks("include") { sites::Least::One } else { sites::Least::None };
    let sites = sites::sites(&root, least, dir, problems).into_iter();
    let mut sites: Vec<_> = sites.map(|site| ListedSite::new(Rc::new(site), None)).collect();
    let folder =
        root.get("include").and_then(|entry| entry.parsed(|text| include::folder(text, dir), problems));
    let files = folder.as_ref().map_or_else(Vec::new, |folder| read_folder(folder, problems));
    let (included, more) = include_sites(files, problems)?;
    sites.extend(more);
    Some(RawConfig {
        server,
        listeners,
        listeners_known,
        tls,
        log,
        error_file,
        restart,
        limits,
        conditioning,
        include: folder.map(|folder| RawInclude { folder, files: included }),
        sites,
    })
}

/// The folder that `include` names, whatever else is in the text.
pub(crate) fn include_of(text: &str, dir: &Path, problems: &mut Problems) -> Option<PathBuf> {
    let parsed = parse(text, 0, problems)?;
    let root = Table::of_file(parsed.document.get_ref(), parsed.base, ROOT.0);
    let entry = root.get("include")?;
    entry.parsed(|text| include::folder(text, dir), problems).map(|folder| folder.value)
}

/// The folder that `state_dir` names, or means if it is not there, whatever else is in the text.
pub(crate) fn state_dir_of(text: &str, dir: &Path, problems: &mut Problems) -> Option<PathBuf> {
    let parsed = parse(text, 0, problems)?;
    let root = Table::of_file(parsed.document.get_ref(), parsed.base, ROOT.0);
    let server = root.get("server").and_then(|entry| entry.table(SERVER.0, problems));
    let entry = server.as_ref().and_then(|server| server.get("state_dir"));
    match entry {
        Some(entry) => entry.path(dir, problems).map(|folder| folder.value),
        None => Some(dir.join(sections::STATE_DIR)),
    }
}

/// Decodes files of sites; the files, and all their sites. `None` if the syntax of one left nothing to decode.
pub(crate) fn include_sites(
    files: Vec<SiteFile>,
    problems: &mut Problems,
) -> Option<(Vec<ReadFile>, Vec<ListedSite>)> {
    let (mut read, mut sites, mut is_sound) = (Vec::new(), Vec::new(), true);
    for SiteFile { path, stamp, is_seen, content } in files {
        let is_running = matches!(content, Content::Running(_));
        let (text, found, known) = match content {
            Content::Known(known) => {
                problems.adopt(&known.text);
                let found = known.sites.iter().map(|(raw, site)| (raw.clone(), Some(site.clone())));
                (known.text.clone(), found.collect(), Some(known))
            }
            Content::Text(written) | Content::Running(written) => {
                let text = problems.add(&path.display().to_string(), &written);
                let found = included(&path, &written, text.base(), problems);
                is_sound &= found.is_some();
                let found = found.into_iter().flatten().map(|raw| {
                    let raw = Rc::new(raw);
                    let known = is_running.then(|| raw.finished()).flatten();
                    (raw, known)
                });
                (text, found.collect::<Vec<_>>(), None)
            }
        };
        let raw = found.iter().map(|(raw, _)| raw.clone()).collect();
        read.push(ReadFile { path, stamp, is_seen, text, sites: raw, known });
        sites.extend(found.into_iter().map(|(raw, site)| ListedSite::new(raw, site)));
    }
    is_sound.then_some((read, sites))
}

/// Decodes a file of sites.
pub(crate) fn included(
    path: &Path,
    text: &str,
    base: usize,
    problems: &mut Problems,
) -> Option<Vec<RawSite>> {
    let parsed = parse(text, base, problems)?;
    let mut root = Table::of_file(parsed.document.get_ref(), base, INCLUDED.0);
    root.check_keys(INCLUDED, problems);
    let dir = path.parent().unwrap_or(Path::new("/"));
    Some(sites::sites(&root, sites::Least::One, dir, problems))
}

/// The sites of a file as far as it can be read, whatever is wrong with it; and whether all of it could be.
pub(crate) fn readable(path: &Path, text: &str) -> (Vec<RawSite>, bool) {
    let mut problems = Problems::new(&path.display().to_string(), text);
    let (document, errors) = DeTable::parse_recoverable(text);
    let root = Table::of_file(document.get_ref(), 0, INCLUDED.0);
    let dir = path.parent().unwrap_or(Path::new("/"));
    let sites = sites::sites(&root, sites::Least::None, dir, &mut problems);
    (sites, errors.iter().all(leaves_the_rest_sound))
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

impl ParsedText<'_> {
    /// One message a line: the first tells what is wrong, the others are its echo.
    fn report_syntax(&self, errors: &[Error], problems: &mut Problems) {
        let Self { text, base, .. } = *self;
        let mut errors: Vec<_> = errors.iter().map(|error| (error.span().unwrap_or(0..0), error)).collect();
        errors.sort_by_key(|(span, _)| span.start);
        errors.dedup_by_key(|(span, _)| problems.line(base + span.start));
        for (span, error) in errors.into_iter().take(SYNTAX_ERRORS_MAX) {
            let key = text.get(span.clone()).unwrap_or("");
            if is_duplicate(error) {
                self.report_duplicate((key, span.start), problems);
            } else if !is_unquoted(error) {
                let message = format!("TOML syntax: {}", error.message());
                let unclosed = error.message().contains("array elements");
                let unclosed = unclosed.then(|| "is a `]` missing in a line above?".to_owned());
                // A line that was copied from another server's configuration.
                match unclosed.or_else(|| foreign::help(first_word(text, span.start))) {
                    Some(help) => problems.report_help(base + span.start, message, help),
                    None => problems.report(base + span.start, message),
                }
            } else if key.is_empty() {
                problems.report(base + span.start, "there is no value after the `=`");
            } else {
                let help = format!("write `\"{}\"`", escape(key));
                problems.report_help(
                    base + span.start,
                    format!("a string without quotes: {}", escape(key)),
                    help,
                );
            }
        }
    }

    fn report_duplicate(&self, (name, offset): (&str, usize), problems: &mut Problems) {
        let Self { text, base, .. } = *self;
        let line = text.get(..offset).and_then(|before| before.rsplit('\n').next()).unwrap_or("");
        // The parser keeps the first of two keys but the second of two headers, so only a key's first is known.
        let is_header = line.trim_start().starts_with('[');
        let first = if is_header { None } else { last_before(self.document.get_ref(), name, offset) };
        let first =
            first.map(|first| format!(" (first at {})", problems.place(base + first))).unwrap_or_default();
        let message = format!("`{}` is given twice{first}", escape(name));
        problems.report_help(base + offset, message, "remove one of the two");
    }
}

/// The first word of the line that has this offset.
fn first_word(text: &str, offset: usize) -> &str {
    let start = text.get(..offset).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1);
    let line = text.get(start..).unwrap_or_default().trim_start();
    line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().unwrap_or_default()
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
