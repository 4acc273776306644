//! `bulkhead status --isolation --score`: how exposed each process is, tried from inside one more jail like its own.
//!
//! Runs in: the `bulkhead` command, as root or the server's owner. Sees: reports of a program in a jail, by way of
//! the admin role, which may be compromised: their words are printed with control characters escaped. Never: leaves
//! out a check that costs points.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::admin::printable;
use crate::fault::Fault;
use crate::layers::{LANDLOCK, Layers, Mark};
use crate::probe;
use crate::status::{LAUNCHER, SeenProcess};
use crate::table::align;

/// What came of probing one jail.
#[derive(Debug)]
pub struct JailScore {
    /// A site, a service or a role.
    pub name: String,
    /// The probe's report, or why there is none.
    pub report: Result<ProbeReport, String>,
}

/// The report of a probe.
#[derive(Debug)]
pub struct ProbeReport {
    sum: Sum,
    whole: Value,
}

/// What is printed of a report.
#[derive(Debug, Deserialize)]
struct Sum {
    exposure: f64,
    level: String,
    checks: Vec<Check>,
}

/// One check.
#[derive(Debug, Deserialize)]
struct Check {
    id: String,
    weight: u64,
    /// From 0 to the check's range; none if it says nothing of this process.
    badness: Option<u64>,
    /// What it adds to the exposure.
    exposure: Option<f64>,
    found: String,
}

impl Check {
    fn is_fulfilled(&self) -> bool {
        self.badness.is_none_or(|badness| badness == 0)
    }
}

impl JailScore {
    /// The whole report, or the error.
    pub fn json(&self) -> Value {
        match &self.report {
            Ok(report) => json!({ "name": self.name, "report": report.whole }),
            Err(error) => json!({ "name": self.name, "error": error }),
        }
    }
}

/// Probes the jail of each process once, however many share it, and notes what only a probe can tell of layers.
pub fn of_all(run_dir: &Path, seen: &mut [SeenProcess]) -> Vec<JailScore> {
    let mut names: Vec<String> = Vec::new();
    for process in seen.iter().map(|seen| &seen.process).filter(|process| process.role != LAUNCHER) {
        if !names.contains(&process.name) {
            names.push(process.name.clone());
        }
    }
    let count = names.len();
    let mut scores = Vec::new();
    for (index, name) in names.into_iter().enumerate() {
        eprintln!("probing {} of {count}: {}", index + 1, printable(&name));
        let report =
            probe::command(run_dir, &name, "score").and_then(read).map_err(|fault| fault.to_string());
        if let Ok(attempts) = probe::command(run_dir, &name, "attempts") {
            note_landlock(&name, &attempts, seen);
        }
        scores.push(JailScore { name, report });
    }
    scores
}

fn read(report: Value) -> Result<ProbeReport, Fault> {
    let sum = Sum::deserialize(&report)
        .map_err(|error| Fault::Failed(format!("the probe's report is not a score: {error}")))?;
    Ok(ProbeReport { sum, whole: report })
}

fn note_landlock(name: &str, attempts: &Value, seen: &mut [SeenProcess]) {
    for seen in seen.iter_mut().filter(|seen| seen.process.name == name) {
        seen.layers = seen.layers.take().map(|layers| {
            let mark = landlock(&layers, attempts);
            layers.with(LANDLOCK, mark)
        });
    }
}

/// Whether Landlock is what kept the probe from listing its root directory: everybody may do that, so that nothing
/// else answers EACCES. Where the filter of system calls refuses first (EPERM), it cannot be told.
fn landlock(layers: &Layers, report: &Value) -> Mark {
    let attempts = report["attempts"].as_array().map_or(&[][..], Vec::as_slice);
    let listed = attempts.iter().find(|attempt| attempt["id"] == "root-list");
    match listed.map(|listed| (listed["result"].as_str(), listed["errno"].as_str())) {
        Some((Some("refused"), Some("EACCES"))) if layers.open_root == Some(true) => Mark::Applied,
        // It was listed: there was something in it, or nothing of the machine's.
        Some((Some("succeeded"), _) | (Some("refused"), None)) => Mark::Missing,
        _ => Mark::Unread,
    }
}

/// The exposure of each, and below what it is made of.
pub fn render(scores: &[JailScore]) -> String {
    let header = ["PROCESS", "EXPOSURE", "LEVEL", "FULFILLED"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(scores.iter().map(row)).collect();
    let mut text = format!("\n\n{}", align(&rows, &[1]));
    text += "\n\nExposure is from 0 (best) to 10, by the checks and weights of `systemd-analyze security`.";
    for JailScore { name, report } in scores {
        let Ok(report) = report else { continue };
        let lacking: Vec<&Check> = report.sum.checks.iter().filter(|check| !check.is_fulfilled()).collect();
        if lacking.is_empty() {
            continue;
        }
        let header = ["  WEIGHT", "ADDS", "NOT FULFILLED", "FOUND"].map(str::to_owned).to_vec();
        let rows: Vec<Vec<String>> =
            std::iter::once(header).chain(lacking.into_iter().map(Check::row)).collect();
        text += &format!("\n\n{}:\n{}", printable(name), align(&rows, &[0, 1]));
    }
    text
}

impl Check {
    fn row(&self) -> Vec<String> {
        let adds = self.exposure.map_or_else(|| "-".into(), |adds| format!("{adds:.1}"));
        vec![self.weight.to_string(), adds, printable(&self.id), printable(&self.found)]
    }
}

fn row(scored: &JailScore) -> Vec<String> {
    let name = printable(&scored.name);
    match &scored.report {
        Ok(ProbeReport { sum, .. }) => {
            let fulfilled = sum.checks.iter().filter(|check| check.is_fulfilled()).count();
            let fulfilled = format!("{fulfilled} of {}", sum.checks.len());
            vec![name, format!("{:.1}", sum.exposure), printable(&sum.level), fulfilled]
        }
        Err(error) => vec![name, "?".into(), "-".into(), error.clone()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::process;

    fn scored() -> Vec<JailScore> {
        let check = |id: &str, badness: Value, adds: Value| json!({ "id": id, "weight": 1000, "badness": badness, "exposure": adds, "found": "x\u{1b}" });
        let report = json!({ "exposure": 0.3, "level": "SAFE", "checks": [
            check("User=", 0.into(), 0.0.into()),
            check("PrivateTmp=", 1.into(), 0.2.into()),
            check("Groups=", Value::Null, Value::Null),
        ] });
        vec![
            JailScore { name: "packages/search".into(), report: Ok(read(report).unwrap()) },
            JailScore { name: "gate".into(), report: Err("the probe was ended".into()) },
        ]
    }

    #[test]
    fn scores_with_what_they_are_made_of() {
        let text = render(&scored());
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(lines[1], "packages/search       0.3  SAFE   2 of 3", "{text}");
        assert_eq!(lines[2], "gate                    ?  -      the probe was ended", "{text}");
        assert_eq!(lines[6], "packages/search:", "{text}");
        assert_eq!(lines[8], "    1000   0.2  PrivateTmp=    x\\u{1b}", "{text}");
        assert_eq!(lines.len(), 9, "{text}");
        assert!(read(json!({ "exposure": "low" })).is_err());
        let json = scored()[0].json();
        assert_eq!(json["report"]["checks"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn landlock_is_told_by_a_directory_that_all_may_list() {
        let mut seen = [process("service", "packages/search", std::process::id(), "serving")];
        let mut mark = |result: &str, errno: Value| {
            let attempt = json!({ "id": "root-list", "result": result, "errno": errno });
            note_landlock("packages/search", &json!({ "attempts": [attempt] }), &mut seen);
            seen[0].layers.as_ref().unwrap().mark(LANDLOCK)
        };
        assert_eq!(mark("refused", "EACCES".into()), Mark::Applied);
        assert_eq!(mark("refused", "EPERM".into()), Mark::Unread);
        assert_eq!(mark("succeeded", Value::Null), Mark::Missing);
        assert_eq!(mark("refused", Value::Null), Mark::Missing);
        assert_eq!(mark("not applicable", Value::Null), Mark::Unread);
        note_landlock("packages/search", &Value::Null, &mut seen);
        assert_eq!(seen[0].layers.as_ref().unwrap().mark(LANDLOCK), Mark::Unread);
    }
}
