//! `bulkhead reload`: what it has changed, or would change.
//!
//! Runs in: the `bulkhead` command, as root or the server's owner. Sees: answers of the admin role. Never: reads the
//! configuration itself: the launcher compares its file with what runs.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::admin::{give, printable};
use crate::fault::Fault;
use crate::left_out::{LEFT_OUT, LeftOut};
use crate::table::print;

/// What has changed in the configuration, and what that means.
#[derive(Debug, Default, Deserialize)]
struct Changes {
    #[serde(default)]
    changes: Vec<ReportedChange>,
    #[serde(default)]
    processes: Vec<Effect>,
    #[serde(default)]
    left_out: Vec<LeftOut>,
}

#[derive(Debug, Deserialize)]
struct ReportedChange {
    change: String,
    what: String,
    keys: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Effect {
    action: String,
    process: String,
    why: String,
}

/// What is to be read again, and how.
#[derive(Debug)]
pub struct Order {
    /// The site whose file alone is taken in.
    pub site: Option<String>,
    /// Whether one file of a site that is wrong refuses everything.
    pub all_or_nothing: bool,
    /// Whether it is only said what would change.
    pub dry_run: bool,
}

impl Order {
    /// As the admin role takes it; a server of an earlier version takes what it knows.
    fn json(&self) -> Value {
        let mut order = json!({ "command": "reload", "dry_run": self.dry_run });
        if self.all_or_nothing {
            order["all_or_nothing"] = true.into();
        }
        if let Some(site) = &self.site {
            order["site"] = site.as_str().into();
        }
        order
    }
}

/// Has the configuration read again, and changes what has changed; or only says what would change.
pub fn reload(run_dir: &Path, order: &Order, as_json: bool) -> Result<ExitCode, Fault> {
    let (before, dry_run) = (Instant::now(), order.dry_run);
    let mut answer = give(run_dir, &order.json())?;
    let is_whole = answer["left_out"].as_array().is_none_or(Vec::is_empty);
    let code = if is_whole { ExitCode::SUCCESS } else { ExitCode::from(LEFT_OUT) };
    if as_json {
        let list = |value: Value| if value.is_null() { json!([]) } else { value };
        let (changes, processes) = (list(answer["changes"].take()), list(answer["processes"].take()));
        let left_out = list(answer["left_out"].take());
        let plan =
            json!({ "dry_run": dry_run, "changes": changes, "processes": processes, "left_out": left_out });
        print(&format!("{plan:#}"))?;
        return Ok(code);
    }
    let changes: Changes = serde_json::from_value(answer)
        .map_err(|error| Fault::Failed(format!("the answer is no list of changes: {error}")))?;
    let mut text = changes.text(dry_run);
    if !dry_run {
        let _ = write!(text, "reloaded in {:.2} s", before.elapsed().as_secs_f64());
    }
    print(text.trim_end())?;
    changes.left_out.iter().for_each(|left| eprintln!("{}", left.text()));
    Ok(code)
}

impl Changes {
    fn text(&self, dry_run: bool) -> String {
        if self.changes.is_empty() {
            return "nothing has changed\n".into();
        }
        let mut text = String::new();
        for ReportedChange { change, what, keys } in &self.changes {
            let keys = if keys.is_empty() { String::new() } else { format!(" ({})", keys.join(", ")) };
            let _ = writeln!(text, "{}: {}{}", printable(what), printable(change), printable(&keys));
        }
        text.push_str(match (dry_run, self.processes.is_empty()) {
            (_, true) => "",
            (true, _) => "\nprocesses, if this is carried out:\n",
            (false, _) => "\nprocesses:\n",
        });
        let width = self.processes.iter().map(|one| one.process.chars().count()).max().unwrap_or_default();
        for Effect { action, process, why } in &self.processes {
            let (action, process, why) = (printable(action), printable(process), printable(why));
            let _ = writeln!(text, "  {action:<7}  {process:<width$}  {why}");
        }
        text + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_a_list_of_changes_and_one_of_processes() {
        let changes: Changes = serde_json::from_value(json!({
            "ok": true,
            "changes": [
                { "change": "changed", "what": "site a", "keys": ["root", "index"] },
                { "change": "removed", "what": "filter x", "keys": [] },
            ],
            "processes": [
                { "action": "replace", "process": "site a", "why": "site a: root, index" },
                { "action": "stop", "process": "filter 0", "why": "filter x removed" },
            ],
        }))
        .unwrap();
        let wanted = "site a: changed (root, index)\nfilter x: removed\n\nprocesses:\n  replace  site a    site a: \
                      root, index\n  stop     filter 0  filter x removed\n\n";
        assert_eq!(changes.text(false), wanted);
        assert_eq!(Changes::default().text(true), "nothing has changed\n");
    }
}
