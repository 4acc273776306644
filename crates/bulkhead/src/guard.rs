//! `bulkhead guard`: somebody else's server behind a gate of ours.
//!
//! Runs in: the `bulkhead` command, as whoever types it, and becomes the guard (`bulkhead-guard`). Sees: that person's
//! words and configuration. Never: returns if all is well.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Args, ValueEnum};
use config::Config;

use crate::address;
use crate::fault::Fault;
use crate::locate;
use crate::serve::text::quoted;

/// LIMIT: bytes of a configuration that are handed on as one argument, of which the kernel takes 128 KiB.
const TEXT_MAX: usize = 120 * 1024;

/// The policies, by the names that the C library has for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// Only whole requests reach the server: deadlines, eviction. Always on: it is what the gate is.
    #[value(name = "flt_request")]
    Request,
    /// Kept-alive connections return to the gate between requests.
    #[value(name = "flt_persist")]
    Persist,
    /// Waiting requests are served by recency of their address ranges.
    #[value(name = "flt_prior")]
    Prior,
    /// Shares of the connections for each range of addresses.
    #[value(name = "flt_slowread")]
    Slowread,
    /// Requests that are unusual are refused, too.
    #[value(name = "flt_check")]
    Check,
}

/// How the server is brought to take its connections from the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// As the program asks for.
    Auto,
    /// By a preloaded library: programs that accept through the C library.
    Preload,
    /// By answers to its system calls: Go, static programs; connections do not return between requests.
    Notify,
}

/// How to guard a command.
#[derive(Debug, Args)]
pub struct Guard {
    /// Listen at this address (PORT, :PORT or IP:PORT) in the place of the server's own, which then stays unused.
    #[arg(long, value_name = "ADDR", value_parser = address::parse)]
    pub listen: Vec<SocketAddr>,
    /// Use [conditioning], [limits] and the like of this file; sites and listeners in it are not used.
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "filters", "filter_read", "policies", "connections", "head_timeout", "first_byte_timeout", "shares_8",
        "shares_16", "shares_24", "exempt", "isolation", "user_range",
    ])]
    pub config: Option<PathBuf>,
    /// Send every request through this program first: its path and arguments, split at blanks; may be repeated.
    #[arg(long = "filter", value_name = "PROGRAM ARGS")]
    pub filters: Vec<String>,
    /// With filters: also serve connections on which they see no requests, those under TLS. Without this they are
    /// refused.
    #[arg(long)]
    pub unfiltered: bool,
    /// Let filters read this folder; may be repeated.
    #[arg(long, value_name = "FOLDER", requires = "filters")]
    pub filter_read: Vec<PathBuf>,
    /// Apply this policy, and only those that are named [default: all]
    #[arg(long = "policy", value_name = "NAME")]
    pub policies: Vec<Policy>,
    /// How many connections the gate holds at most [default: 8192]
    #[arg(long, value_name = "N")]
    pub connections: Option<u32>,
    /// How many connections the server serves at once: Apache's MaxRequestWorkers, or its threads or workers. It is
    /// sent no more, the others wait in the gate's order; shares are of these [default: as many as the gate holds]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub capacity: Option<u32>,
    /// How long a request's head may take, such as 10s or 500ms [default: 10s]
    #[arg(long, value_name = "TIME")]
    pub head_timeout: Option<String>,
    /// How long a connection may send nothing at all [default: 10s]
    #[arg(long, value_name = "TIME")]
    pub first_byte_timeout: Option<String>,
    /// The share of all connections that one IPv4 /8 (IPv6 /32) may have [default: 0.25]
    #[arg(long = "share-of-8", value_name = "SHARE")]
    pub shares_8: Option<f64>,
    /// The same for a /16 (/48) [default: 0.15]
    #[arg(long = "share-of-16", value_name = "SHARE")]
    pub shares_16: Option<f64>,
    /// The same for a /24 (/56) [default: 0.1]
    #[arg(long = "share-of-24", value_name = "SHARE")]
    pub shares_24: Option<f64>,
    /// A network without shares, rates and bans; may be repeated [default: 127.0.0.0/8]
    #[arg(long, value_name = "NETWORK")]
    pub exempt: Vec<String>,
    /// Say every so many seconds what was shed, and which ranges of addresses hold most.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub report: Option<u64>,
    /// How the server is brought to take its connections from the gate.
    #[arg(long, value_enum, default_value = "auto")]
    pub by: By,
    /// As root: `degraded` starts the gate also without layers of its jail that this machine cannot apply.
    #[arg(long, value_name = "KIND", value_parser = ["strict", "degraded"])]
    pub isolation: Option<String>,
    /// As root: the uids of which the gate and each filter get one [default: 52001-52999]
    #[arg(long, value_name = "FROM-TO")]
    pub user_range: Option<String>,
    /// Guard the program that has this end of a channel, in the place of a command; for the C library.
    #[arg(long, value_name = "FD", conflicts_with_all = ["command", "listen", "by"])]
    pub control: Option<RawFd>,
    /// The server and its arguments, in the foreground.
    #[arg(last = true, required_unless_present = "control", value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Becomes the guard.
pub fn guard(options: &Guard) -> Result<ExitCode, Fault> {
    let folder = std::env::current_dir().map_err(Fault::io("cannot find the current folder"))?;
    let (text, folder) = match &options.config {
        Some(path) => read(path)?,
        None => (options.configuration(), folder),
    };
    Config::parse(&text, "options", &folder).map_err(|problems| Fault::Usage(problems.to_string()))?;
    let guard = locate::guard()?;
    // exec returns only if it failed.
    let error = Command::new(&guard).args(options.words(text, &folder)).exec();
    Err(Fault::Failed(format!("{}: {error}", guard.display())))
}

/// The policies of a whole configuration, or of one that has nothing else.
fn read(path: &Path) -> Result<(String, PathBuf), Fault> {
    let mut text = std::fs::read_to_string(path).map_err(Fault::io(path.display()))?;
    if text.len() > TEXT_MAX {
        return Err(Fault::Usage(format!(
            "{} has {} bytes; a guard reads at most {TEXT_MAX}",
            path.display(),
            text.len()
        )));
    }
    let path = std::path::absolute(path).map_err(Fault::io(path.display()))?;
    let has = |table: &str| text.lines().any(|line| line.trim_start().starts_with(table));
    let missing = [("[[listen]]", LISTEN), ("[[site]]", SITE)].into_iter().filter(|(table, _)| !has(table));
    let missing: String = missing.map(|(_, lines)| lines).collect();
    text.push_str(&missing);
    Ok((text, path.parent().unwrap_or(Path::new("/")).to_owned()))
}

/// What every configuration needs, and no guard looks at.
const LISTEN: &str = "\n[[listen]]\naddress = \"127.0.0.1:1\"\n";
const SITE: &str = "\n[[site]]\nname = \"guarded\"\nhost = [\"*\"]\nroot = \"/dev/null\"\n";
/// Clear of the uids that `bulkhead run` gives to its partitions by default.
const USER_RANGE: &str = "52001-52999";

impl Guard {
    fn configuration(&self) -> String {
        let mut text =
            format!("[server]\nuser_range = {}\n", quoted(self.user_range.as_deref().unwrap_or(USER_RANGE)));
        if let Some(kind) = &self.isolation {
            text.push_str(&format!("isolation = {}\n", quoted(kind)));
        }
        if let Some(connections) = self.connections {
            text.push_str(&format!("[limits]\nconnections = {connections}\n"));
        }
        text.push_str("[conditioning]\n");
        self.policies_into(&mut text);
        let timeouts =
            [("head_timeout", &self.head_timeout), ("first_byte_timeout", &self.first_byte_timeout)];
        for (key, time) in timeouts {
            if let Some(time) = time {
                text.push_str(&format!("{key} = {}\n", quoted(time)));
            }
        }
        if !self.exempt.is_empty() {
            text.push_str(&format!("exempt = {}\n", list(self.exempt.iter().map(String::as_str))));
        }
        let read: Vec<String> = self.filter_read.iter().map(|path| path.to_string_lossy().into()).collect();
        let filters = self.filters.iter().map(|filter| {
            let command = list(filter.split_whitespace());
            format!("{{ command = {command}, read = {} }}", list(read.iter().map(String::as_str)))
        });
        let filters: Vec<String> = filters.collect();
        text.push_str(&format!("filters = [{}]\n", filters.join(", ")));
        text + LISTEN + SITE
    }

    /// The policies, and the shares.
    fn policies_into(&self, text: &mut String) {
        if !self.applies(Policy::Prior) {
            text.push_str("priority = \"fifo\"\n");
        }
        if !self.applies(Policy::Check) {
            text.push_str("checks = \"lenient\"\n");
        }
        let limits = self.applies(Policy::Slowread);
        let shares = [(self.shares_8, 0.25), (self.shares_16, 0.15), (self.shares_24, 0.1)];
        let [a, b, c] = shares.map(|(share, usual)| share.unwrap_or(if limits { usual } else { 1.0 }));
        text.push_str(&format!("share_max = {{ \"/8\" = {a:?}, \"/16\" = {b:?}, \"/24\" = {c:?} }}\n"));
        text.push_str(&format!("share_max_v6 = {{ \"/32\" = {a:?}, \"/48\" = {b:?}, \"/56\" = {c:?} }}\n"));
    }

    fn applies(&self, policy: Policy) -> bool {
        self.policies.is_empty() || self.policies.contains(&policy)
    }

    /// What the guard is told; every option has a value.
    fn words(&self, text: String, folder: &Path) -> Vec<OsString> {
        let mut words: Vec<OsString> =
            vec!["--config-text".into(), text.into(), "--config-folder".into(), folder.into()];
        let mut option = |name: &str, value: String| words.extend([name.into(), value.into()]);
        for address in &self.listen {
            option("--listen", address.to_string());
        }
        if let Some(seconds) = self.report {
            option("--report", seconds.to_string());
        }
        if let Some(capacity) = self.capacity {
            option("--capacity", capacity.to_string());
        }
        if !self.applies(Policy::Persist) {
            option("--persist", "no".into());
        }
        if self.unfiltered {
            option("--unfiltered", "yes".into());
        }
        match self.by {
            By::Auto => {}
            By::Preload => option("--by", "preload".into()),
            By::Notify => option("--by", "notify".into()),
        }
        match self.control {
            Some(number) => option("--control", number.to_string()),
            None => {
                words.push("--".into());
                words.extend(self.command.iter().cloned());
            }
        }
        words
    }
}

fn list<'a>(words: impl Iterator<Item = &'a str>) -> String {
    format!("[{}]", words.map(quoted).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn options(words: &[&str]) -> Guard {
        let words = ["bulkhead", "guard"].iter().chain(words).chain(&["--", "server", "-x"]);
        match Cli::try_parse_from(words).unwrap().command {
            Command::Guard(options) => *options,
            other => panic!("{other:?}"),
        }
    }

    fn configured(words: &[&str]) -> Config {
        Config::parse(&options(words).configuration(), "options", Path::new("/srv")).unwrap()
    }

    #[test]
    fn options_become_a_configuration() {
        let config = configured(&[]);
        assert_eq!(config.conditioning.share_max, [250, 150, 100]);
        assert_eq!(config.server.user_range, 52001..=52999);
        let config = configured(&[
            "--connections=5000",
            "--head-timeout=3s",
            "--share-of-24=0.5",
            "--exempt=10.0.0.0/8",
            "--filter=bin/one --with \"x",
            "--filter-read=/usr/lib",
        ]);
        assert_eq!((config.limits.connections, config.limits.head_timeout_ms), (5000, 3000));
        assert_eq!(config.conditioning.share_max, [250, 150, 500]);
        assert_eq!(config.conditioning.exempt, ["10.0.0.0/8"]);
        let filter = &config.conditioning.filters[0];
        assert_eq!(filter.program, Path::new("/srv/bin/one"));
        assert_eq!(filter.command[1..], ["--with", "\"x"]);
        assert_eq!(filter.read, [PathBuf::from("/usr/lib")]);
    }

    #[test]
    fn policies_that_are_not_named_are_off() {
        let config = configured(&["--policy=flt_request"]);
        assert_eq!(config.conditioning.priority, config::Priority::Fifo);
        assert_eq!(config.conditioning.checks, config::Checks::Lenient);
        assert_eq!(config.conditioning.share_max, [1000, 1000, 1000]);
        let words = options(&["--policy=flt_prior", "--policy=flt_slowread"]);
        let words = words.words(String::new(), Path::new("/"));
        assert!(words.windows(2).any(|two| two == ["--persist", "no"]));
        assert!(words.ends_with(&["--".into(), "server".into(), "-x".into()]));
        let words = options(&["--capacity=20"]).words(String::new(), Path::new("/"));
        assert!(words.windows(2).any(|two| two == ["--capacity", "20"]));
        let config = configured(&["--policy=flt_prior", "--policy=flt_slowread"]);
        assert_eq!(config.conditioning.priority, config::Priority::Recency);
        assert_eq!(config.conditioning.share_max, [250, 150, 100]);
    }

    #[test]
    fn a_command_or_a_channel_is_needed() {
        let parse = |words: &[&str]| Cli::try_parse_from(["bulkhead", "guard"].iter().chain(words)).is_ok();
        assert!(!parse(&[]));
        assert!(parse(&["--control", "7"]));
        assert!(!parse(&["--control", "7", "--", "server"]));
        assert!(!parse(&["--config", "f", "--connections", "9", "--", "server"]));
        assert!(!parse(&["--capacity", "0", "--", "server"]));
        assert!(!parse(&["--by", "magic", "--", "server"]));
        assert!(!parse(&["--policy", "flt_nothing", "--", "server"]));
    }

    #[test]
    fn a_file_needs_no_site() {
        let path = std::env::temp_dir().join(format!("bulkhead-guard-{}.toml", std::process::id()));
        std::fs::write(&path, "[conditioning]\nban_after = 7\n").unwrap();
        let (text, folder) = read(&path).unwrap();
        let config = Config::parse(&text, "f", &folder).unwrap();
        assert_eq!(config.conditioning.ban_after, 7);
        std::fs::remove_file(&path).unwrap();
        assert!(read(&path).is_err());
    }
}
