//! `bulkhead check`: every mistake of a configuration, and what is perhaps not meant, for people or as JSON.
//!
//! Runs in: the `bulkhead` command. Sees: the operator's file. Never: runs or changes anything.

use std::path::Path;
use std::process::ExitCode;

use config::{Config, Diagnostic};
use serde::Serialize;
use supervisor::examine::{Depth, Examiner};
use supervisor::need;

use crate::fault::Fault;
use crate::table::print;
use crate::templates;

/// A mistake as JSON.
#[derive(Debug, Serialize)]
struct Mistake<'d> {
    severity: &'d str,
    file: &'d str,
    line: usize,
    column: usize,
    message: &'d str,
    helps: &'d [String],
}

impl<'d> From<&'d Diagnostic> for Mistake<'d> {
    fn from(diagnostic: &'d Diagnostic) -> Self {
        Self {
            severity: diagnostic.severity.word(),
            file: &diagnostic.file,
            line: diagnostic.line,
            column: diagnostic.column,
            message: &diagnostic.message,
            helps: &diagnostic.helps,
        }
    }
}

/// What a warning is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warnings {
    /// Something that is said.
    Said,
    /// As bad as a mistake (`--strict`).
    Mistakes,
}

/// Checks a configuration and says what is wrong with it.
pub fn check(path: &Path, json: bool, warnings: Warnings) -> Result<ExitCode, Fault> {
    let mut checked = Config::load_with(path, &Examiner::new(Depth::Check));
    if let Ok(config) = &mut checked {
        let mistakes = templates::mistakes(config);
        config.warnings.extend(mistakes);
    }
    if json {
        let mistakes = match &checked {
            Ok(config) => &config.warnings,
            Err(found) => &found.0,
        };
        let mistakes: Vec<Mistake<'_>> = mistakes.iter().map(Mistake::from).collect();
        let text =
            serde_json::to_string_pretty(&mistakes).map_err(|error| Fault::Failed(error.to_string()))?;
        print(&text)?;
    }
    let refused = |config: &Config| warnings == Warnings::Mistakes && !config.warnings.is_empty();
    match checked {
        Ok(config) if json => Ok(if refused(&config) { ExitCode::from(2) } else { ExitCode::SUCCESS }),
        Ok(config) => {
            config.warnings.iter().for_each(|warning| eprintln!("{warning}"));
            let lack = need::lack_from_here(&config).map_err(|error| Fault::Failed(error.to_string()))?;
            lack.iter().for_each(|lack| eprintln!("{}: warning: {lack}", path.display()));
            if refused(&config) {
                let found = count(config.warnings.len(), "warning");
                return Err(Fault::Usage(format!("{}: {found}, and `--strict`", path.display())));
            }
            print(&format!("{}: ok: {}", path.display(), summary(&config))).map(|()| ExitCode::SUCCESS)
        }
        Err(_) if json => Ok(ExitCode::from(2)),
        Err(diagnostics) => Err(Fault::Usage(diagnostics.to_string())),
    }
}

fn summary(config: &Config) -> String {
    let services = config.sites.iter().map(|site| site.services.len()).sum();
    format!(
        "{}, {}, {}",
        count(config.sites.len(), "site"),
        count(services, "service"),
        count(config.listeners.len(), "listener")
    )
}

fn count(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_agree_with_their_nouns() {
        assert_eq!(count(0, "site"), "0 sites");
        assert_eq!(count(1, "site"), "1 site");
        assert_eq!(count(2, "site"), "2 sites");
    }
}
