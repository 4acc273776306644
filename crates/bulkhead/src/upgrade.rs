//! `bulkhead upgrade`: other programs in the place of those that run.
//!
//! Runs in: the `bulkhead` command, as root or the server's owner. Sees: answers of the admin role. Never: gives a path to the
//! admin role, which the launcher would not take from it: the path is a link in the run directory, which is the owner's alone.

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;
use supervisor::upgrade::WANTED;

use crate::admin::{give_for, printable};
use crate::fault::Fault;
use crate::table::{align, print};

/// How long an upgrade may take; above the time after which the admin role gives up.
const WAIT: Duration = Duration::from_secs(610);

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
    let roles = answer?["roles"].take();
    if as_json {
        print(&format!("{:#}", json!({ "dry_run": dry_run, "roles": roles })))?;
        return Ok(ExitCode::SUCCESS);
    }
    let roles: Vec<Role> = serde_json::from_value(roles)
        .map_err(|error| Fault::Failed(format!("the answer is no list of roles: {error}")))?;
    print(&text(&roles, dry_run, before.elapsed()))?;
    Ok(ExitCode::SUCCESS)
}

fn remove(link: &Path) -> io::Result<()> {
    match std::fs::remove_file(link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn text(roles: &[Role], dry_run: bool, took: Duration) -> String {
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
    format!("{}\n\nupgraded from {from} to {to} in {:.2} s", align(&rows, &[1]), took.as_secs_f64())
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
        assert_eq!(text(&roles, false, Duration::from_millis(500)), wanted);
        assert_eq!(text(&roles[..1], true, Duration::ZERO), "version 1.1 can take over from 1.0");
    }
}
