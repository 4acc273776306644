//! `bulkhead upgrade`: other programs in the place of those that run.
//!
//! Runs in: the `bulkhead` command, as root or the server's owner. Sees: answers of the admin role. Never: gives a path
//! to the admin role, which the launcher would not take from it: the path is a link in the run directory, which is the
//! owner's alone.

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;
use supervisor::upgrade::WANTED;

use crate::admin::{UNANSWERED, give, give_for, printable};
use crate::fault::Fault;
use crate::left_out;
use crate::table::{align, print};

/// How long an upgrade may take; above the time after which the admin role gives up.
const WAIT: Duration = Duration::from_secs(610);

/// How often the status is asked for, when the answer was lost.
const LOST_POLL: Duration = Duration::from_millis(200);
/// What is said of answers that do not come.
const LOST: [&str; 3] = ["the admin process is ending", "the answer is cut off", UNANSWERED];
/// What to do about an upgrade that has ended half.
const HALF_REMEDY: &str = "`bulkhead status` says which processes are of which version, and `error.log` why their successors did not come \
                           up; put that right, and run `bulkhead upgrade` again, which replaces them";

/// What has become of the processes of a role.
#[derive(Debug, Deserialize)]
struct Role {
    role: String,
    from: String,
    to: String,
    replaced: u32,
    kept: u32,
}

/// Has the server upgraded to the programs that are installed, or to those of `to`.
pub fn upgrade(run_dir: &Path, to: Option<&Path>, dry_run: bool, as_json: bool) -> Result<ExitCode, Fault> {
    let before = Instant::now();
    let link = run_dir.join(WANTED);
    remove(&link).map_err(Fault::io(link.display()))?;
    if let Some(to) = to {
        let real = to.canonicalize().map_err(Fault::io(to.display()))?;
        std::os::unix::fs::symlink(real, &link).map_err(Fault::io(link.display()))?;
    }
    let answer = give_for(run_dir, &json!({ "command": "upgrade", "dry_run": dry_run }), WAIT);
    // One that the launcher has not taken is of no use to the next order.
    let _ = remove(&link);
    let mut answer = match answer {
        Err(Fault::Failed(reason)) if is_lost(&reason) => return Err(unknown_end(run_dir, &reason)),
        answer => answer?,
    };
    let (roles, half) = (answer["roles"].take(), answer["half"].as_str().map(half));
    let left_out = left_out::of_answer(&mut answer)?;
    if as_json {
        let ended = if half.is_some() { "half" } else { "whole" };
        let error = half.as_ref().map(Fault::to_string);
        let mut said = json!({ "dry_run": dry_run, "ended": ended, "roles": roles, "error": error });
        said["left_out"] = json!(left_out.0);
        print(&format!("{said:#}"))?;
        return Ok(half.map_or_else(|| left_out.code(), |half| half.code()));
    }
    let roles: Vec<Role> = serde_json::from_value(roles)
        .map_err(|error| Fault::Failed(format!("the answer is no list of roles: {error}")))?;
    print(&text(&roles, dry_run, before.elapsed(), half.is_some()))?;
    let code = left_out.say();
    half.map_or(Ok(code), Err)
}

/// What is said of an upgrade that has left some processes of before.
fn half(reason: &str) -> Fault {
    Fault::Partly(format!("the upgrade ended half: {}\n{HALF_REMEDY}", printable(reason)))
}

/// Whether a reason says that the order was taken, and how it ended was not heard of.
fn is_lost(reason: &str) -> bool {
    LOST.iter().any(|lost| reason.contains(lost))
}

/// What the status says of an upgrade whose answer was lost: the process that passes answers on has ended.
fn unknown_end(run_dir: &Path, reason: &str) -> Fault {
    let deadline = Instant::now() + WAIT;
    loop {
        let before = give(run_dir, &json!({ "command": "status", "role": "admin" }))
            .map(|status| status["before"].clone());
        match before {
            Ok(before) if before["is_upgrading"] != true => {
                let text = format!("the answer was lost ({reason})");
                return match before["processes"].as_u64() {
                    Some(0) => Fault::Failed(format!(
                        "{text}; all processes are of the launcher that runs now: `error.log` says whether that is the new one, or whether \
                         nothing has changed"
                    )),
                    _ => half(&format!("{text}, and some processes are of a launcher before")),
                };
            }
            Err(Fault::Unreachable(reason)) => return Fault::Unreachable(reason),
            _ if Instant::now() >= deadline => {
                return Fault::Failed(format!(
                    "the answer was lost ({reason}); `bulkhead status` says how the upgrade ends"
                ));
            }
            _ => std::thread::sleep(LOST_POLL),
        }
    }
}

fn remove(link: &Path) -> io::Result<()> {
    match std::fs::remove_file(link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn text(roles: &[Role], dry_run: bool, took: Duration, is_half: bool) -> String {
    let (from, to) = roles.first().map_or(("?", "?"), |role| (&role.from, &role.to));
    let (from, to) = (printable(from), printable(to));
    if dry_run {
        return format!("version {to} can take over from {from}");
    }
    let row = |role: &Role| {
        let kept = if role.kept == 0 { String::new() } else { format!("{} go on", role.kept) };
        vec![printable(&role.role), role.replaced.to_string(), kept]
    };
    let head = ["role", "replaced", ""].map(String::from).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(roles.iter().map(row)).collect();
    let word = if is_half { "upgraded half" } else { "upgraded" };
    format!("{}\n\n{word} from {from} to {to} in {:.2} s", align(&rows, &[1]), took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_has_a_line() {
        let role = |role: &str, replaced, kept| Role {
            role: role.into(),
            from: "1.0".into(),
            to: "1.1".into(),
            replaced,
            kept,
        };
        let roles = [role("bulkheadd", 1, 0), role("site", 12, 1)];
        let wanted = "role       replaced\nbulkheadd         1\nsite             12  1 go on\n\nupgraded from 1.0 to 1.1 in \
                      0.50 s";
        assert_eq!(text(&roles, false, Duration::from_millis(500), false), wanted);
        let half_way = text(&roles, false, Duration::from_millis(500), true);
        assert_eq!(half_way, wanted.replace("upgraded from", "upgraded half from"));
        assert_eq!(text(&roles[..1], true, Duration::ZERO, false), "version 1.1 can take over from 1.0");
    }

    #[test]
    fn one_that_ends_half_has_an_exit_code_of_its_own() {
        let fault = half("the launcher is new\u{1b}, and a site is not");
        assert_eq!(fault.code(), ExitCode::from(3));
        assert!(
            fault.to_string().contains("is new\\u{1b}, and a site is not\n`bulkhead status` says"),
            "{fault}"
        );
        assert!(
            is_lost("/run/admin.sock: the answer is cut off or not JSON") && !is_lost("the server stops")
        );
    }
}
