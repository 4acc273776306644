//! Files of sites that a server has left out, as it says.
//!
//! Runs in: the `bulkhead` command. Sees: answers of the admin role, which may be compromised: its words are printed with control
//! characters escaped. Never: reads these files.

use serde::Deserialize;

use crate::admin::printable;

/// A file of sites that was left out.
#[derive(Debug, Deserialize)]
pub struct LeftOut {
    /// The file.
    pub file: String,
    /// What there is instead.
    pub instead: String,
    /// The names of its sites, as far as they are known.
    pub sites: Vec<String>,
    hosts: Vec<String>,
    hosts_known: bool,
    /// Why, a line for each mistake.
    pub reason: String,
}

impl LeftOut {
    /// What has become of it, and why, for people.
    pub fn text(&self) -> String {
        let Self { file, instead, hosts, hosts_known, reason, .. } = self;
        let hosts = printable(&hosts.join(", "));
        let instead = match (instead.as_str(), hosts_known) {
            ("running", _) => "its sites go on as they run".to_owned(),
            ("last good copy", _) => "its sites are those of the last good copy".to_owned(),
            ("503", true) => format!("its hosts get 503: {hosts}"),
            ("503", false) => format!("the hosts that could be read get 503: {hosts}"),
            (_, true) => "its sites are not there".to_owned(),
            (_, false) => "its sites are not there; which hosts they have is not known".to_owned(),
        };
        let reason: Vec<String> = reason.lines().map(|line| format!("  {}", printable(line))).collect();
        format!("left out: {}: {instead}\n{}", printable(file), reason.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_has_a_line_and_drives_no_terminal() {
        let left: LeftOut = serde_json::from_value(serde_json::json!({
            "file": "/etc/b/sites/a.toml", "instead": "503", "sites": ["a"], "hosts": ["a.test", "b.test"],
            "hosts_known": false, "reason": "a.toml:1:1: error: no\u{1b}\n   = help: yes",
        }))
        .unwrap();
        let wanted = "left out: /etc/b/sites/a.toml: the hosts that could be read get 503: a.test, b.test\n  a.toml:1:1: \
                      error: no\\u{1b}\n     = help: yes";
        assert_eq!(left.text(), wanted);
    }
}
