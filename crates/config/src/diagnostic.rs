//! What is wrong with a file, where, and what to do: collecting it and rendering it.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: pieces of the operator's file, quoted in
//! messages. Must never: print a control character out of the file to a terminal, or drop a mistake without a word.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::rc::Rc;

/// LIMIT: mistakes of one file that are said, and warnings: nobody corrects more at a time. A file of 1 MiB can have
/// hundreds of thousands, and it may be one tenant's among those of thousands: whoever reads all files is not to wait
/// for these.
pub(crate) const SAID_MAX: usize = 100;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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

/// A mistake, and what says which file is to blame.
struct BlamedMistake {
    offset: usize,
    diagnostic: Diagnostic,
    /// The file, if the mistake is told at another place than in it.
    of: Option<String>,
    /// The other place of a conflict, and what both places want to have.
    conflict: Option<(usize, String)>,
}

/// A mistake, with the file that has it.
#[derive(Clone, Debug)]
pub(crate) struct Blame {
    pub(crate) file: String,
    pub(crate) diagnostic: Diagnostic,
    /// The other place of a conflict.
    pub(crate) conflict: Option<Rival>,
}

/// The other place of a conflict.
#[derive(Clone, Debug)]
pub(crate) struct Rival {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) column: usize,
    /// What both want to have.
    pub(crate) what: String,
}

impl Blame {
    /// What is wrong at the other place, if that is the one which does not get what both want.
    pub(crate) fn of_rival(&self, rival: &Rival) -> Diagnostic {
        let Diagnostic { severity, file, line, column, helps, .. } = &self.diagnostic;
        let message = format!("{} is already another site's (at {file}:{line}:{column})", quote(&rival.what));
        let (file, helps) = (rival.file.clone(), helps.clone());
        Diagnostic { severity: *severity, file, line: rival.line, column: rival.column, message, helps }
    }
}

/// Mistakes found so far in the files of one configuration.
pub(crate) struct Problems {
    /// In the order in which they were read.
    texts: Vec<Rc<Text>>,
    /// The number of each text by the offset of its first byte.
    numbers: BTreeMap<usize, usize>,
    /// The offset of the first byte of the next text.
    next: usize,
    found: Vec<BlamedMistake>,
    /// How many of these there were before the last text.
    found_before: usize,
    warnings: Vec<(usize, Diagnostic)>,
    /// How many mistakes each text has, by its number; and how many warnings.
    counts: BTreeMap<usize, usize>,
    warning_counts: BTreeMap<usize, usize>,
    /// How many conflicts two texts have.
    conflict_counts: BTreeMap<(usize, usize), usize>,
    /// Lines of which all has been said: what the parser made of a broken value is not the operator's.
    settled: BTreeSet<LineRef>,
}

/// The text of a file. The offsets of all texts are one range of numbers, so that a place is a number.
pub(crate) struct Text {
    file: String,
    text: String,
    /// The offset of its first byte.
    base: usize,
    /// Where each line begins, so that a place costs a search and not a scan.
    lines: Vec<usize>,
}

impl Text {
    /// The offset of its first byte.
    pub(crate) fn base(&self) -> usize {
        self.base
    }

    /// The text itself.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }
}

/// A line: the number of its text, and its number there, from 1.
pub(crate) type LineRef = (usize, usize);

impl Problems {
    pub(crate) fn new(file: &str, text: &str) -> Problems {
        let mut problems = Problems {
            texts: Vec::new(),
            numbers: BTreeMap::new(),
            next: 0,
            found: Vec::new(),
            found_before: 0,
            warnings: Vec::new(),
            counts: BTreeMap::new(),
            warning_counts: BTreeMap::new(),
            conflict_counts: BTreeMap::new(),
            settled: BTreeSet::new(),
        };
        problems.add(file, text);
        problems
    }

    /// Takes one more file.
    pub(crate) fn add(&mut self, file: &str, text: &str) -> Rc<Text> {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        let base = self.next;
        // The place behind a text is still its own.
        self.next += text.len() + 1;
        let text = Rc::new(Text { file: file.to_owned(), text: text.to_owned(), base, lines });
        self.adopt(&text);
        text
    }

    /// Takes a file with the offsets that it has had before.
    pub(crate) fn adopt(&mut self, text: &Rc<Text>) {
        self.numbers.insert(text.base, self.texts.len());
        self.texts.push(text.clone());
        self.found_before = self.found.len();
    }

    /// The offset of the first byte of the next text.
    pub(crate) fn next(&self) -> usize {
        self.next
    }

    /// Leaves offsets out that are those of texts which are kept.
    pub(crate) fn go_on_at(&mut self, next: usize) {
        self.next = self.next.max(next);
    }

    /// Notes a mistake at an offset.
    pub(crate) fn report(&mut self, offset: usize, message: impl Into<String>) {
        self.push_counted(offset, message.into(), Vec::new());
    }

    /// Whether no more mistakes are said of the file that has an offset.
    pub(crate) fn has_enough(&self, offset: usize) -> bool {
        self.counts.get(&self.number(offset)).is_some_and(|count| *count > SAID_MAX)
    }

    /// The same of a file about which is told where another one names it.
    pub(crate) fn report_of(
        &mut self,
        file: &Path,
        offset: usize,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let count = self.found.len();
        self.push(offset, message.into(), vec![help.into()]);
        let new = self.found.get_mut(count).into_iter();
        new.for_each(|found| found.of = Some(file.display().to_string()));
    }

    /// Forgets what was noted so of these files.
    pub(crate) fn forget_of(&mut self, is_it: &dyn Fn(&str) -> bool) {
        self.found.retain(|found| !found.of.as_deref().is_some_and(is_it));
    }

    /// Notes a mistake of which either of two places may be the cause, as both want to have `what`, with its remedy.
    pub(crate) fn report_conflict(
        &mut self,
        (offset, other): (usize, usize),
        what: &str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let pair = (self.number(offset), self.number(other));
        if pair.0 == pair.1 {
            return self.push_counted(offset, message.into(), vec![help.into()]);
        }
        // One conflict says which of the two files does not get what both want.
        let between = self.conflict_counts.entry(pair).or_default();
        *between += 1;
        let Some((message, helps)) = enough(*between - 1, "mistakes", message.into(), vec![help.into()])
        else {
            return;
        };
        let count = self.found.len();
        self.push(offset, message, helps);
        let new = self.found.get_mut(count).into_iter();
        new.for_each(|found| found.conflict = Some((other, what.to_owned())));
    }

    /// Notes a mistake at an offset, and its remedy.
    pub(crate) fn report_help(&mut self, offset: usize, message: impl Into<String>, help: impl Into<String>) {
        self.push_counted(offset, message.into(), vec![help.into()]);
    }

    /// Notes what is no mistake and perhaps not meant, and its remedy.
    pub(crate) fn warn(&mut self, offset: usize, message: impl Into<String>, help: impl Into<String>) {
        let number = self.number(offset);
        let count = self.warning_counts.entry(number).or_default();
        *count += 1;
        let Some((message, helps)) = enough(*count - 1, "warnings", message.into(), vec![help.into()]) else {
            return;
        };
        let warning = self.diagnostic(Severity::Warning, offset, message, helps);
        self.warnings.push((offset, warning));
    }

    /// `file:line:column` of an offset, for the other place of a conflict.
    pub(crate) fn place(&self, offset: usize) -> String {
        let ((text, line), column) = self.position(offset);
        format!("{}:{line}:{column}", self.texts[text].file)
    }

    /// The line of an offset.
    pub(crate) fn line(&self, offset: usize) -> LineRef {
        let text = self.number(offset);
        let Text { base, lines, .. } = &*self.texts[text];
        (text, lines.partition_point(|start| base + start <= offset).max(1))
    }

    /// Which text has an offset.
    fn number(&self, offset: usize) -> usize {
        self.numbers.range(..=offset).next_back().map_or(0, |(_, number)| *number)
    }

    /// Takes no more mistakes on the lines of the last file that have one so far.
    pub(crate) fn settle(&mut self) {
        let last = self.texts.len() - 1;
        // There may be thousands of files, and in those before nothing was found of the last one.
        let lines = self.found.iter().skip(self.found_before).map(|found| self.line(found.offset));
        let lines: Vec<LineRef> = lines.filter(|line| line.0 == last).collect();
        self.settled.extend(lines);
    }

    /// The names of the files, in the order in which they were read.
    pub(crate) fn files(&self) -> Vec<&str> {
        self.texts.iter().map(|text| text.file.as_str()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// All that is perhaps not meant, sorted by place.
    pub(crate) fn into_warnings(mut self) -> Vec<Diagnostic> {
        let warnings = std::mem::take(&mut self.warnings);
        self.sorted(warnings)
    }

    /// All mistakes, sorted by place.
    pub(crate) fn into_diagnostics(mut self) -> Diagnostics {
        let found = std::mem::take(&mut self.found);
        let found = found.into_iter().map(|found| (found.offset, found.diagnostic)).collect();
        Diagnostics(self.sorted(found))
    }

    /// Which file has which mistake, in the order in which they were found.
    pub(crate) fn blames(&self) -> Vec<Blame> {
        let file = |offset| self.texts[self.number(offset)].file.clone();
        let blame = |found: &BlamedMistake| Blame {
            file: found.of.clone().unwrap_or_else(|| file(found.offset)),
            diagnostic: found.diagnostic.clone(),
            conflict: found.conflict.as_ref().map(|(other, what)| {
                let ((_, line), column) = self.position(*other);
                Rival { file: file(*other), line, column, what: what.clone() }
            }),
        };
        self.found.iter().map(blame).collect()
    }

    /// Notes a mistake, unless enough are said of its file.
    fn push_counted(&mut self, offset: usize, message: String, helps: Vec<String>) {
        let before = self.found.len();
        let number = self.number(offset);
        let count = self.counts.get(&number).copied().unwrap_or_default();
        let Some((message, helps)) = enough(count, "mistakes", message, helps) else { return };
        self.push(offset, message, helps);
        // One on a settled line is none.
        *self.counts.entry(number).or_default() += self.found.len() - before;
    }

    fn push(&mut self, offset: usize, message: String, helps: Vec<String>) {
        if !self.settled.contains(&self.line(offset)) {
            let mistake = self.diagnostic(Severity::Error, offset, message, helps);
            self.found.push(BlamedMistake { offset, diagnostic: mistake, of: None, conflict: None });
        }
    }

    fn diagnostic(
        &self,
        severity: Severity,
        offset: usize,
        message: String,
        helps: Vec<String>,
    ) -> Diagnostic {
        let ((text, line), column) = self.position(offset);
        Diagnostic { severity, file: self.texts[text].file.clone(), line, column, message, helps }
    }

    fn sorted(&self, mut found: Vec<(usize, Diagnostic)>) -> Vec<Diagnostic> {
        found.sort_by_key(|(offset, _)| (self.number(*offset), *offset));
        found.into_iter().map(|(_, diagnostic)| diagnostic).collect()
    }

    fn position(&self, offset: usize) -> (LineRef, usize) {
        let (number, line) = self.line(offset);
        let text = &self.texts[number];
        let start = text.lines.get(line - 1).copied().unwrap_or(0);
        let before = text.text.get(start..offset.saturating_sub(text.base));
        ((number, line), before.map_or(0, |before| before.chars().count()) + 1)
    }
}

/// What is said of a mistake, or warning, before which so many were noted of its file: it, or in the place of all
/// further ones that there are more, or nothing.
fn enough(before: usize, what: &str, message: String, helps: Vec<String>) -> Option<(String, Vec<String>)> {
    match before.cmp(&SAID_MAX) {
        Ordering::Less => Some((message, helps)),
        Ordering::Equal => {
            let message = format!("the file has more {what}; {SAID_MAX} of them are said");
            Some((message, vec!["correct these first, and look again".to_owned()]))
        }
        Ordering::Greater => None,
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
