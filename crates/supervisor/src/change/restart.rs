//! The keys of `[server]` that a reload cannot change, each with its reason.
//!
//! Runs in: the launcher, as root. Sees: two checked configurations. docs/guide/operating.md has the table, which a
//! test compares.

use config::{Isolation, Server};

/// A key that takes a restart.
#[derive(Debug)]
pub struct Fixed {
    /// The key of `[server]`.
    pub key: &'static str,
    /// Why it cannot change while the server runs.
    pub reason: &'static str,
    /// Its value, as an operator would write it.
    value: fn(&Server) -> String,
}

/// All of them.
pub const FIXED: &[Fixed] = &[
    Fixed {
        key: "state_dir",
        reason: "the table of uids and the record of control groups are there, and are written while the server runs",
        value: |server| server.state_dir.display().to_string(),
    },
    Fixed {
        key: "run_dir",
        reason: "its lock, the administration socket and the root of our own processes are there",
        value: |server| server.run_dir.display().to_string(),
    },
    Fixed {
        key: "gates",
        reason: "each gate has listening sockets of its own, and the kernel resets what waits in one that is closed",
        value: |server| server.gates.map_or_else(|| "one per core".into(), |gates| gates.to_string()),
    },
    Fixed {
        key: "isolation",
        reason: "every process that runs was started with, or without, the layers that it asks for",
        value: |server| match server.isolation {
            Isolation::Strict => "strict".into(),
            Isolation::Degraded => "degraded".into(),
        },
    },
    Fixed {
        key: "danger_without",
        reason: "every process that runs was started without these layers",
        value: |server| format!("[{}]", server.danger_without.join(", ")),
    },
];

/// What a reload from `old` to `new` cannot do: each key that differs, with both values and the reason.
pub fn refusals(old: &Server, new: &Server) -> Vec<String> {
    let values = |fixed: &Fixed| ((fixed.value)(old), (fixed.value)(new));
    let differ = FIXED.iter().filter(|fixed| values(fixed).0 != values(fixed).1);
    let line = |fixed: &Fixed| {
        let ((old, new), Fixed { key, reason, .. }) = (values(fixed), fixed);
        format!("`{key}` of [server] cannot change from {old} to {new} while the server runs: {reason}")
    };
    differ.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const BEGIN: &str = "<!-- keys that take a restart -->\n";
    const END: &str = "<!-- end -->";

    fn server(text: &str) -> Server {
        let site = "[[listen]]\naddress = '127.0.0.1:1'\n[[site]]\nname = 'a'\nhost = ['a']\nroot = 'a'\n";
        config::Config::parse(&format!("[server]\n{text}\n{site}"), "f", Path::new("/srv")).unwrap().server
    }

    #[test]
    fn both_values_and_the_reason_are_said() {
        let (old, new) = (server("gates = 2\nlog_dir = 'log'"), server("gates = 3\nlog_dir = 'other'"));
        let said = refusals(&old, &new);
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("`gates` of [server] cannot change from 2 to 3"), "{said:?}");
        assert_eq!(refusals(&old, &old), [""; 0]);
    }

    /// `BLESS=1` writes the table.
    #[test]
    fn the_guide_has_the_table() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/operating.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let (before, rest) = page.split_once(BEGIN).unwrap();
        let (found, after) = rest.split_once(END).unwrap();
        let rows = FIXED.iter().map(|fixed| format!("| `{}` | {} |\n", fixed.key, fixed.reason));
        let table = format!(
            "| key of `[server]` | why it takes a restart |\n| --- | --- |\n{}",
            rows.collect::<String>()
        );
        if std::env::var_os("BLESS").is_some() {
            return std::fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        }
        assert_eq!(found, table, "BLESS=1 cargo test -p supervisor renews the page");
    }
}
