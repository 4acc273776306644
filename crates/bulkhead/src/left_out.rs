//! Files of sites that are left out: as a server says, or as this command finds when it reads a configuration.
//!
//! Runs in: the `bulkhead` command. Sees: answers of the admin role, which may be compromised: its words are printed
//! with control characters escaped; and the operator's files, with copies of those that were good last, as far as this
//! user may read them. Never: has one site's file keep a command from answering for another site.

use std::path::Path;
use std::process::ExitCode;

use config::Config;
use serde::{Deserialize, Serialize};
use wire::{LEFT_OUT_MAX, Text};

use crate::admin::printable;
use crate::explain::site_of;
use crate::fault::Fault;
use crate::locate;

/// The exit code if files of sites were left out, and all else is done.
pub const LEFT_OUT: u8 = 3;
/// LIMIT: files that are said by a command which reads a configuration; there may be thousands, and `bulkhead check`
/// says all.
const SAID_MAX: usize = 20;

/// A file of sites that was left out.
#[derive(Clone, Debug, Deserialize, Serialize)]
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

/// All that were left out of a configuration.
#[derive(Debug)]
pub struct LeftOutFiles(pub Vec<LeftOut>);

/// Reads a configuration as a start would take it in. If a command is about sites that it names (as SITE, or
/// SITE/SOMETHING), only what was left out of these sites is said.
pub fn read<N: AsRef<str>>(path: &Path, names: &[N]) -> Result<(Config, LeftOutFiles), Fault> {
    let judged = locate::load_good(path)?;
    let left_out = LeftOutFiles(judged.left_out.iter().map(LeftOut::from).collect());
    let sites: Vec<&str> = names.iter().map(|name| site_of(name.as_ref())).collect();
    let has_site = |name: &str| judged.config.sites.iter().any(|site| site.name == name);
    // Any other name is that of a role, or of something that may be in a file which nobody can read.
    let are_sites = sites.iter().all(|name| has_site(name) || left_out.of_site(name).is_some());
    let left_out = if are_sites { left_out.about(&sites) } else { left_out };
    Ok((judged.config, left_out))
}

impl LeftOutFiles {
    /// Says which files were left out, on standard error; the exit code of a command that has done all else.
    pub fn say(&self) -> ExitCode {
        self.lines().iter().for_each(|line| eprintln!("{line}"));
        self.code()
    }

    /// The exit code of a command that has done all else.
    pub fn code(&self) -> ExitCode {
        if self.0.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(LEFT_OUT) }
    }

    /// The fault of a name that nobody has, with what was left out: the name may be there.
    pub fn beside(&self, fault: Fault) -> Fault {
        match fault {
            Fault::Usage(text) if !self.0.is_empty() => {
                Fault::Usage(format!("{text}\n{}", self.lines().join("\n")))
            }
            other => other,
        }
    }

    /// Those of these sites; all of them, if none is named.
    pub fn about(&self, sites: &[&str]) -> Self {
        let is_meant = |left: &&LeftOut| sites.is_empty() || sites.iter().any(|site| left.has(site));
        Self(self.0.iter().filter(is_meant).cloned().collect())
    }

    /// What has become of a site's file, if that was left out.
    pub fn of_site(&self, site: &str) -> Option<&LeftOut> {
        self.0.iter().find(|left| left.has(site))
    }

    fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.0.iter().take(SAID_MAX).map(LeftOut::text).collect();
        let more = self.0.len().saturating_sub(SAID_MAX);
        lines.extend((more > 0).then(|| format!("left out: {more} more files, which `bulkhead check` says")));
        lines
    }
}

/// The files that were left out, by an answer; a server of an earlier version says nothing.
pub fn of_answer(answer: &mut serde_json::Value) -> Result<LeftOutFiles, Fault> {
    let left_out: Option<Vec<LeftOut>> = serde_json::from_value(answer["left_out"].take())
        .map_err(|error| Fault::Failed(format!("the answer has no list of files: {error}")))?;
    Ok(LeftOutFiles(left_out.unwrap_or_default()))
}

impl From<&config::LeftOut> for LeftOut {
    fn from(left: &config::LeftOut) -> Self {
        Self {
            file: left.file.display().to_string(),
            instead: left.stand_in.word().to_owned(),
            sites: left.sites.clone(),
            hosts: left.hosts.clone(),
            hosts_known: left.is_whole,
            // As much as a server says.
            reason: Text::<LEFT_OUT_MAX>::new(left.reason.as_str()).as_str().to_owned(),
        }
    }
}

impl LeftOut {
    /// Whether it has a site, or would have one by the name of the file.
    fn has(&self, site: &str) -> bool {
        let stem = Path::new(&self.file).file_stem().and_then(|stem| stem.to_str());
        self.sites.iter().any(|name| name == site) || stem == Some(site)
    }

    /// What has become of it, and why, for people.
    pub fn text(&self) -> String {
        let Self { file, instead, hosts, hosts_known, reason, .. } = self;
        let hosts = printable(&hosts.join(", "));
        let instead = match (instead.as_str(), hosts_known) {
            ("running", _) => "its sites go on as they run".to_owned(),
            ("last good copy", _) => "its sites are those of the last good copy".to_owned(),
            ("503", true) => format!("its hosts get 503: {hosts}"),
            ("503", false) => format!("the hosts that could be read get 503: {hosts}"),
            ("no certificate", _) => {
                format!("handshakes with these hosts fail until the file is right: {hosts}")
            }
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
        assert!(left.has("a") && !left.has("b"));
    }

    #[test]
    fn of_thousands_some_are_said_and_the_rest_is_counted() {
        let left = |number: usize| config::LeftOut {
            file: format!("/sites/{number}.toml").into(),
            stand_in: config::StandIn::Nothing,
            sites: Vec::new(),
            hosts: Vec::new(),
            is_whole: false,
            reason: "x".repeat(100_000),
        };
        let all = LeftOutFiles((0..5000).map(|number| LeftOut::from(&left(number))).collect());
        let lines = all.lines();
        assert_eq!((lines.len(), lines[0].len() < 3000), (SAID_MAX + 1, true));
        assert_eq!(lines[SAID_MAX], "left out: 4980 more files, which `bulkhead check` says");
        // By the name of the file, as nothing in it could be read.
        assert_eq!(all.of_site("4999").map(|left| &*left.file), Some("/sites/4999.toml"));
    }
}
