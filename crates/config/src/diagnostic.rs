//! What is wrong with a file, where, and what to do: collecting it and rendering it.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: pieces of the operator's file, quoted in
//! messages. Must never: print a control character out of the file to a terminal, or drop a mistake.

use std::fmt;
use std::path::Path;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Nothing is started with it.
    Error,
    /// It is done as the file says, which is perhaps not what was meant.
    Warning,
}

impl Severity {
    /// As people and programs read it.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// The file's name as it was given.
    pub file: String,
    /// The line, from 1; 0 if the file as a whole is meant.
    pub line: usize,
    /// The column in characters, from 1; 0 if the file as a whole is meant.
    pub column: usize,
    /// The rule and the value that breaks it.
    pub message: String,
    /// What to do about it.
    pub helps: Vec<String>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: ", self.file)?,
            line => write!(f, "{}:{line}:{}: ", self.file, self.column)?,
        }
        write!(f, "{}: {}", self.severity.word(), self.message)?;
        self.helps.iter().try_for_each(|help| write!(f, "\n   = help: {help}"))
    }
}

/// Every mistake of a file, in the order of their places; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for diagnostic in &self.0 {
            writeln!(f, "{diagnostic}")?;
        }
        let file = self.0.first().map_or("", |first| first.file.as_str());
        let plural = if self.0.len() == 1 { "" } else { "s" };
        write!(f, "{file}: {} error{plural}", self.0.len())
    }
}

impl std::error::Error for Diagnostics {}

impl Diagnostics {
    /// A single mistake that concerns the file as a whole.
    pub(crate) fn of_file(file: &str, message: String, help: &str) -> Diagnostics {
        let helps = vec![help.to_owned()];
        let severity = Severity::Error;
        Diagnostics(vec![Diagnostic { severity, file: file.to_owned(), line: 0, column: 0, message, helps }])
    }
}

/// Mistakes found so far in one text.
pub(crate) struct Problems<'t> {
    file: &'t str,
    text: &'t str,
    /// The offset at which each line begins, so that a place costs a search and not a scan.
    lines: Vec<usize>,
    found: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
    /// Lines of which all has been said: what the parser made of a broken value is not the operator's.
    settled: Vec<usize>,
}

impl<'t> Problems<'t> {
    pub(crate) fn new(file: &'t str, text: &'t str) -> Problems<'t> {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        Problems { file, text, lines, found: Vec::new(), warnings: Vec::new(), settled: Vec::new() }
    }

    /// Notes a mistake at a byte offset.
    pub(crate) fn report(&mut self, offset: usize, message: impl Into<String>) {
        self.push(offset, message.into(), Vec::new());
    }

    /// Notes a mistake at a byte offset, and its remedy.
    pub(crate) fn report_help(&mut self, offset: usize, message: impl Into<String>, help: impl Into<String>) {
        self.push(offset, message.into(), vec![help.into()]);
    }

    /// Notes what is no mistake and perhaps not meant, and its remedy.
    pub(crate) fn warn(&mut self, offset: usize, message: impl Into<String>, help: impl Into<String>) {
        let warning = self.diagnostic(Severity::Warning, offset, message.into(), vec![help.into()]);
        self.warnings.push(warning);
    }

    /// `file:line:column` of an offset, for the other place of a conflict.
    pub(crate) fn place(&self, offset: usize) -> String {
        let (line, column) = self.position(offset);
        format!("{}:{line}:{column}", self.file)
    }

    /// The line of an offset, from 1.
    pub(crate) fn line(&self, offset: usize) -> usize {
        self.lines.partition_point(|start| *start <= offset).max(1)
    }

    /// Takes no more mistakes on the lines that have one so far.
    pub(crate) fn settle(&mut self) {
        self.settled = self.found.iter().map(|found| found.line).collect();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// All that is perhaps not meant, sorted by place.
    pub(crate) fn into_warnings(mut self) -> Vec<Diagnostic> {
        self.warnings.sort_by_key(|found| (found.line, found.column));
        self.warnings
    }

    /// All mistakes, sorted by place.
    pub(crate) fn into_diagnostics(mut self) -> Diagnostics {
        self.found.sort_by_key(|found| (found.line, found.column));
        Diagnostics(self.found)
    }

    fn push(&mut self, offset: usize, message: String, helps: Vec<String>) {
        let mistake = self.diagnostic(Severity::Error, offset, message, helps);
        if !self.settled.contains(&mistake.line) {
            self.found.push(mistake);
        }
    }

    fn diagnostic(
        &self,
        severity: Severity,
        offset: usize,
        message: String,
        helps: Vec<String>,
    ) -> Diagnostic {
        let (line, column) = self.position(offset);
        Diagnostic { severity, file: self.file.to_owned(), line, column, message, helps }
    }

    fn position(&self, offset: usize) -> (usize, usize) {
        let line = self.line(offset);
        let start = self.lines.get(line - 1).copied().unwrap_or(0);
        let column = self.text.get(start..offset).map_or(0, |before| before.chars().count());
        (line, column + 1)
    }
}

/// A path fit for a terminal, whole: a remedy may be copied from it.
pub(crate) fn show_path(path: &Path) -> String {
    path.display().to_string().escape_debug().to_string()
}

/// `text` in double quotes, fit for a terminal: escaped, and cut if it is long.
pub(crate) fn quote(text: &str) -> String {
    format!("\"{}\"", escape(text))
}

/// `text` escaped and cut as in [`quote`], without quotes.
pub(crate) fn escape(text: &str) -> String {
    /// LIMIT: two messages' worth of a terminal line.
    const SHOWN_CHARS: usize = 120;
    let mut shown = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == SHOWN_CHARS {
            shown.push_str("...");
            break;
        }
        match c {
            '\'' => shown.push(c),
            _ => shown.extend(c.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_characters_from_one() {
        let problems = Problems::new("f", "ab\nä = 1\n");
        assert_eq!(problems.place(0), "f:1:1");
        assert_eq!(problems.place(3), "f:2:1");
        assert_eq!(problems.place(6), "f:2:3");
        assert_eq!(problems.place(10), "f:3:1");
        assert_eq!(Problems::new("f", "").place(0), "f:1:1");
    }

    #[test]
    fn quoted_text_cannot_drive_a_terminal() {
        assert_eq!(quote("a\u{1b}[2J\"'"), "\"a\\u{1b}[2J\\\"'\"");
        assert_eq!(quote(&"x".repeat(200)).len(), 125);
    }
}
