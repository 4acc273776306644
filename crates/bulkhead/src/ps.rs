//! `bulkhead ps`: this user's servers, and those that have died without saying so.
//!
//! Runs in: the `bulkhead` command, as whoever types it. Sees: what that user's servers have written down. Never: shows
//! the servers of other users, or asks a server anything.

use std::path::PathBuf;
use std::process::ExitCode;

use instances::FoundInstance;
use serde_json::{Value, json};

use crate::admin::printable;
use crate::fault::Fault;
use crate::find::about;
use crate::table::{age, align, print};

const HEADER: [&str; 5] = ["PID", "STATE", "AGE", "LISTENS", "SERVER"];

/// Lists the servers, and removes the files of those that have died.
pub fn ps(json: bool) -> Result<ExitCode, Fault> {
    let listing = instances::list();
    for fault in &listing.refused {
        eprintln!("warning: {fault}; it is not looked at");
    }
    let text = if json {
        format!("{:#}", json!({ "servers": listing.servers.iter().map(object).collect::<Vec<_>>() }))
    } else {
        render(&listing.servers)
    };
    print(&text)?;
    listing.clean();
    Ok(ExitCode::SUCCESS)
}

fn state(found: &FoundInstance) -> &'static str {
    if found.lives { found.entry.state.word() } else { "dead" }
}

fn age_ms(found: &FoundInstance) -> Option<u64> {
    let age = found.entry.process.age().filter(|_| found.lives)?;
    u64::try_from(age.as_millis()).ok()
}

fn object(found: &FoundInstance) -> Value {
    let entry = &found.entry;
    let path = |path: &PathBuf| path.to_string_lossy().into_owned();
    json!({
        "pid": entry.process.pid,
        "kind": entry.kind.word(),
        "state": state(found),
        "age_ms": age_ms(found),
        "listen": entry.listeners,
        "config": entry.config.as_ref().map(path),
        "folders": entry.folders.iter().map(path).collect::<Vec<_>>(),
        "command": entry.command.as_ref().map(|command| command.to_string_lossy()),
        "run_dir": entry.run_dir.as_ref().map(path),
    })
}

fn render(servers: &[FoundInstance]) -> String {
    if servers.is_empty() {
        return "no server of this user is running".to_owned();
    }
    let mut rows = vec![HEADER.map(str::to_owned).to_vec()];
    rows.extend(servers.iter().map(|found| {
        let listeners = found.entry.listeners.iter().map(|listener| printable(listener));
        let listeners = listeners.collect::<Vec<_>>().join(" ");
        vec![
            found.entry.process.pid.to_string(),
            state(found).to_owned(),
            age_ms(found).map_or_else(|| "-".to_owned(), age),
            if listeners.is_empty() { "-".to_owned() } else { listeners },
            about(&found.entry),
        ]
    }));
    align(&rows, &[0, 2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use instances::{InstanceEntry, InstanceKind, InstanceState, ProcessIdentity};

    #[test]
    fn a_line_for_each_server() {
        let process = ProcessIdentity { pid: 7, started: 1, boot: "b".into(), namespace: 1 };
        let entry = InstanceEntry {
            config: Some("/srv/a\u{1b}.toml".into()),
            listeners: vec!["http://127.0.0.1:80".into(), "https://127.0.0.1:443".into()],
            state: InstanceState::Serving,
            ..InstanceEntry::new(process, InstanceKind::Run)
        };
        let text = render(&[
            FoundInstance { entry: entry.clone(), lives: false },
            FoundInstance { entry, lives: true },
        ]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("PID  STATE"), "{text}");
        assert!(lines[1].starts_with("  7  dead ") && lines[1].contains("  -  "), "{text}");
        assert!(lines[2].starts_with("  7  serving "), "{text}");
        assert!(
            lines[2].ends_with("http://127.0.0.1:80 https://127.0.0.1:443  run /srv/a\\u{1b}.toml"),
            "{text}"
        );
        assert_eq!(render(&[]), "no server of this user is running");
    }
}
