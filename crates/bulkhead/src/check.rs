//! `bulkhead check`: every mistake of a configuration, and what is perhaps not meant, for people or as JSON.
//!
//! Runs in: the `bulkhead` command. Sees: the operator's file. Never: runs or changes anything.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use config::{Config, Diagnostic, Diagnostics, Judged, LeftOut, StandIn};
use serde::Serialize;
use supervisor::examine::{Depth, Examiner};
use supervisor::need::{self, Need, Needed, Resource};

use crate::fault::Fault;
use crate::locate;
use crate::table::{align, print, size};
use crate::templates;

/// What is needed of a resource, as JSON.
#[derive(Debug, Serialize)]
struct NeededJson<'n> {
    resource: &'n str,
    needed: u64,
    /// The limit that is reached first, if there is one.
    limit: Option<LimitJson<'n>>,
}

/// A limit as JSON.
#[derive(Debug, Serialize)]
struct LimitJson<'n> {
    most: u64,
    from: &'n str,
    remedy: &'n str,
}

impl<'n> NeededJson<'n> {
    fn new(Needed { resource, amount, bound }: &'n Needed) -> Self {
        let limit = bound.as_ref().map(|bound| LimitJson {
            most: bound.most,
            from: &bound.from,
            remedy: &bound.remedy,
        });
        Self { resource: resource.word(), needed: *amount, limit }
    }
}

/// A mistake as JSON.
#[derive(Debug, Serialize)]
struct Mistake<'d> {
    severity: &'d str,
    file: &'d str,
    line: usize,
    column: usize,
    message: &'d str,
    helps: &'d [String],
    /// The file of sites that is left out for it; without one, nothing is taken in.
    leaves_out: Option<&'d Path>,
}

impl<'d> Mistake<'d> {
    fn new((diagnostic, leaves_out): &'d (Diagnostic, Option<PathBuf>)) -> Self {
        Self {
            severity: diagnostic.severity.word(),
            file: &diagnostic.file,
            line: diagnostic.line,
            column: diagnostic.column,
            message: &diagnostic.message,
            helps: &diagnostic.helps,
            leaves_out: leaves_out.as_deref(),
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

/// Checks a configuration and says what is wrong with it, and which files of sites would be left out for that.
pub fn check(path: &Path, json: bool, warnings: Warnings) -> Result<ExitCode, Fault> {
    let mut checked = locate::judged(path, &Examiner::new(Depth::Check));
    if let Ok(judged) = &mut checked {
        let mistakes = templates::mistakes(&judged.config);
        judged.config.warnings.extend(mistakes);
    }
    let is_bad = match &checked {
        Ok(judged) if judged.left_out.is_empty() => {
            warnings == Warnings::Mistakes && !judged.config.warnings.is_empty()
        }
        _ => true,
    };
    if json {
        print_json(&checked)?;
        return Ok(if is_bad { ExitCode::from(2) } else { ExitCode::SUCCESS });
    }
    let judged = checked.map_err(|diagnostics| Fault::Usage(diagnostics.to_string()))?;
    if !judged.left_out.is_empty() {
        let mistakes = judged.mistakes.iter().map(|(mistake, _)| mistake.clone()).collect();
        return Err(Fault::Usage(format!("{}\n{}", Diagnostics(mistakes), said_of(&judged.left_out))));
    }
    judged.config.warnings.iter().for_each(|warning| eprintln!("{warning}"));
    let lack = need_from_here(&judged)?.lack();
    lack.iter().for_each(|lack| eprintln!("{}: warning: {lack}", path.display()));
    if is_bad {
        let found = count(judged.config.warnings.len(), "warning");
        return Err(Fault::Usage(format!("{}: {found}, and `--strict`", path.display())));
    }
    print(&format!("{}: ok: {}", path.display(), summary(&judged.config))).map(|()| ExitCode::SUCCESS)
}

fn need_from_here(judged: &Judged) -> Result<Need, Fault> {
    need::from_here(&judged.config).map_err(|error| Fault::Failed(error.to_string()))
}

/// Says what a server with a configuration needs that is started from here, and which limit of each is reached first.
pub fn need(path: &Path, json: bool) -> Result<ExitCode, Fault> {
    let judged = locate::judged(path, &Examiner::new(Depth::Check))
        .map_err(|diagnostics| Fault::Usage(diagnostics.to_string()))?;
    let need = need_from_here(&judged)?;
    let text = if json {
        let each: Vec<NeededJson<'_>> = need.each.iter().map(NeededJson::new).collect();
        serde_json::to_string_pretty(&each).map_err(|error| Fault::Failed(error.to_string()))?
    } else {
        let heading = ["RESOURCE", "NEEDED", "AT MOST", "BY"].map(str::to_owned).to_vec();
        let rows: Vec<Vec<String>> = [heading].into_iter().chain(need.each.iter().map(row)).collect();
        align(&rows, &[1, 2])
    };
    print(&text).map(|()| ExitCode::SUCCESS)
}

fn row(Needed { resource, amount, bound }: &Needed) -> Vec<String> {
    let shown = |amount: u64| match resource {
        Resource::Memory => size(amount),
        _ => amount.to_string(),
    };
    let (most, from) =
        bound.as_ref().map_or(("-".into(), "-"), |bound| (shown(bound.most), bound.from.as_str()));
    vec![resource.word().replace('_', " "), shown(*amount), most, from.into()]
}

fn print_json(checked: &Result<Judged, Diagnostics>) -> Result<(), Fault> {
    let mistakes: Vec<(Diagnostic, Option<PathBuf>)> = match checked {
        Ok(judged) => {
            let warnings = judged.config.warnings.iter().map(|warning| (warning.clone(), None));
            judged.mistakes.iter().cloned().chain(warnings).collect()
        }
        Err(found) => found.0.iter().map(|mistake| (mistake.clone(), None)).collect(),
    };
    let mistakes: Vec<Mistake<'_>> = mistakes.iter().map(Mistake::new).collect();
    let text = serde_json::to_string_pretty(&mistakes).map_err(|error| Fault::Failed(error.to_string()))?;
    print(&text)
}

/// Which files a reload, and a start, would leave out.
fn said_of(left_out: &[LeftOut]) -> String {
    let line = |left: &LeftOut| {
        let hosts = left.hosts.join(", ");
        let start = match left.stand_in {
            StandIn::Running | StandIn::LastGood => "has the copy that was good last".to_owned(),
            StandIn::Unavailable => format!("answers 503 for {hosts}"),
            StandIn::Nothing | StandIn::NoCertificate => "has nothing of it".to_owned(),
        };
        let file = left.file.display();
        format!("{file}: would be left out: a reload leaves its sites as they run, a start {start}")
    };
    left_out.iter().map(line).collect::<Vec<_>>().join("\n")
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
