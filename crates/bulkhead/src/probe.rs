//! `bulkhead probe`: what an attacker who owns a process gets, tried from inside one more jail like its own.
//!
//! Runs in: the `bulkhead` command, as root or the server's owner. Sees: the report of a program in a jail, by way
//! of the admin role, which may be compromised: its words are printed with control characters escaped. Never: takes
//! an attempt that was not made for one that was refused.

use std::path::Path;
use std::process::ExitCode;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::admin::{give, printable};
use crate::fault::Fault;
use crate::table::{align, print};

/// The groups of attempts, by their letters.
const GROUPS: [(&str, &str); 7] = [
    ("A", "what it inherited"),
    ("B", "other processes"),
    ("C", "files of others, and ways out of its root"),
    ("D", "network and communication"),
    ("E", "the kernel, devices and privileged calls"),
    ("F", "the machine's resources"),
    ("G", "identity"),
];

/// One attempt, as the probe describes it.
#[derive(Debug, Deserialize)]
struct Attempt {
    id: String,
    group: String,
    name: String,
    result: String,
    errno: Option<String>,
    detail: String,
    closed_by: String,
    expected: String,
}

impl Attempt {
    fn succeeded(&self) -> bool {
        self.result == "succeeded"
    }

    /// Whether the attacker got what nobody is to get.
    fn escaped(&self) -> bool {
        self.succeeded() && self.expected == "refused"
    }

    fn row(&self) -> Vec<String> {
        let result = match (self.escaped(), self.result.as_str()) {
            (true, _) => "SUCCEEDED",
            (false, "not applicable") => "n/a",
            (false, other) => other,
        };
        let words = [self.errno.as_deref().unwrap_or(""), self.detail.as_str()];
        let mut detail = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ");
        if self.escaped() {
            detail += &format!(" (to be closed by: {})", self.closed_by);
        }
        vec![
            format!("  {}", printable(result)),
            printable(&self.id),
            printable(&self.name),
            printable(&detail),
        ]
    }
}

/// Has the jail of `name` probed.
pub fn command(run_dir: &Path, name: &str, what: &str) -> Result<Value, Fault> {
    let mut answer = give(run_dir, &json!({ "command": "probe", "name": name, "what": what }))?;
    Ok(answer["report"].take())
}

/// Probes the jail of `name` and prints what got out of it.
pub fn probe(run_dir: &Path, name: &str, as_json: bool) -> Result<ExitCode, Fault> {
    let report = command(run_dir, name, "attempts")?;
    let attempts = read(&report)?;
    let text = if as_json { format!("{report:#}") } else { render(name, &attempts) };
    print(&text)?;
    Ok(if attempts.iter().any(Attempt::escaped) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn read(report: &Value) -> Result<Vec<Attempt>, Fault> {
    Vec::deserialize(&report["attempts"])
        .map_err(|error| Fault::Failed(format!("the probe's report is not a list of attempts: {error}")))
}

fn render(name: &str, attempts: &[Attempt]) -> String {
    let groups = by_group(attempts);
    // Aligned all together, so that columns are at the same place in every group.
    let rows: Vec<Vec<String>> =
        groups.iter().flat_map(|(_, group)| group.iter().map(|attempt| attempt.row())).collect();
    let aligned = align(&rows, &[]);
    let mut lines = aligned.lines();
    let mut text = format!("What an attacker gets who owns {}:\n", printable(name));
    for (title, group) in groups {
        text += &format!("\n{title}: {}\n", counts(&group));
        for line in lines.by_ref().take(group.len()) {
            text += &format!("{line}\n");
        }
    }
    text + "\n" + &summary(attempts)
}

/// The attempts of each group that has any, with its title; those of a group that is not known come last.
fn by_group(attempts: &[Attempt]) -> Vec<(String, Vec<&Attempt>)> {
    let group = |title: String, wanted: &dyn Fn(&Attempt) -> bool| {
        (title, attempts.iter().filter(|attempt| wanted(attempt)).collect::<Vec<_>>())
    };
    let known =
        GROUPS.map(|(letter, about)| group(format!("{letter}  {about}"), &|attempt| attempt.group == letter));
    let others = group("others".into(), &|attempt| GROUPS.iter().all(|(letter, _)| *letter != attempt.group));
    known.into_iter().chain([others]).filter(|(_, group)| !group.is_empty()).collect()
}

fn counts(attempts: &[&Attempt]) -> String {
    let count = |result: &str| attempts.iter().filter(|attempt| attempt.result == result).count();
    format!(
        "{} refused, {} succeeded, {} not applicable",
        count("refused"),
        count("succeeded"),
        count("not applicable")
    )
}

fn summary(attempts: &[Attempt]) -> String {
    let escaped: Vec<String> =
        attempts.iter().filter(|attempt| attempt.escaped()).map(|attempt| printable(&attempt.id)).collect();
    let all: Vec<&Attempt> = attempts.iter().collect();
    let verdict = if escaped.is_empty() {
        "nothing succeeded that should be refused".into()
    } else {
        format!("{} should have been refused: {}", escaped.len(), escaped.join(", "))
    };
    format!("{} attempts: {}; {verdict}", attempts.len(), counts(&all))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(result: &str, expected: &str) -> Vec<Attempt> {
        let attempt = |id: &str, group: &str, result: &str, errno: Value, expected: &str| {
            json!({
                "id": id, "group": group, "name": "a name", "result": result, "errno": errno,
                "detail": "some\u{1b} detail", "closed_by": "seccomp", "expected": expected,
            })
        };
        read(&json!({ "attempts": [
            attempt("mount", "C", "refused", "EPERM".into(), "refused"),
            attempt("fork", "B", result, Value::Null, expected),
            attempt("new", "Z", "not applicable", Value::Null, "refused"),
        ] }))
        .unwrap()
    }

    #[test]
    fn groups_are_in_order_and_the_sum_is_at_the_end() {
        let text = render("main/probe", &report("succeeded", "either"));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "What an attacker gets who owns main/probe:");
        assert_eq!(lines[2], "B  other processes: 0 refused, 1 succeeded, 0 not applicable");
        assert_eq!(lines[3], "  succeeded  fork   a name  some\\u{1b} detail");
        assert!(
            lines[5].starts_with("C  files") && lines[6].ends_with("EPERM, some\\u{1b} detail"),
            "{text}"
        );
        assert!(lines[8].starts_with("others: ") && lines[9].starts_with("  n/a "), "{text}");
        let sum =
            "3 attempts: 1 refused, 1 succeeded, 1 not applicable; nothing succeeded that should be refused";
        assert_eq!(lines[11], sum);
    }

    #[test]
    fn an_escape_stands_out() {
        let attempts = report("succeeded", "refused");
        assert!(attempts[1].escaped());
        let text = render("gate", &attempts);
        assert!(text.contains("  SUCCEEDED  fork "), "{text}");
        assert!(text.contains("(to be closed by: seccomp)"), "{text}");
        assert!(text.ends_with("; 1 should have been refused: fork"), "{text}");
        assert!(!report("refused", "refused")[1].escaped());
    }

    #[test]
    fn what_is_no_report_is_refused() {
        assert!(read(&json!({ "attempts": [{ "id": 1 }] })).is_err());
        assert!(read(&Value::Null).is_err());
    }
}
