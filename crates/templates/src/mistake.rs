//! A mistake in a template: its place, and the text there.

use std::fmt;

/// LIMIT: characters of a line that are shown.
const EXCERPT_MAX: usize = 120;

/// A mistake in a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateMistake {
    /// The template's path below the folder of templates.
    pub file: String,
    /// The line, from 1 on; 0 where it is about the whole file.
    pub line: usize,
    /// The rule that is broken.
    pub rule: String,
    /// The line's text; empty where there is none.
    pub excerpt: String,
}

impl TemplateMistake {
    /// The mistake that minijinja has found in a source.
    pub(crate) fn new(file: &str, source: &str, error: &minijinja::Error) -> Self {
        let rule = match error.detail() {
            Some(detail) => format!("{}: {detail}", error.kind()),
            None => error.kind().to_string(),
        };
        Self::at(file, source, error.line().unwrap_or_default(), rule)
    }

    /// A mistake in a line of a source.
    pub(crate) fn at(file: &str, source: &str, line: usize, rule: String) -> Self {
        let text = line.checked_sub(1).and_then(|before| source.lines().nth(before)).unwrap_or_default();
        let excerpt: String = text.trim().chars().take(EXCERPT_MAX).collect();
        Self { file: file.to_owned(), line, rule, excerpt }
    }

    /// A mistake that is about a whole file.
    pub(crate) fn of_file(file: &str, rule: String) -> Self {
        Self { file: file.to_owned(), line: 0, rule, excerpt: String::new() }
    }
}

impl fmt::Display for TemplateMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, rule, excerpt } = self;
        match line {
            0 => write!(f, "{file}: {rule}"),
            _ => write!(f, "{file}:{line}: {rule}: `{excerpt}`"),
        }
    }
}
