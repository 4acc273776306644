//! Orders as they arrive: one line of JSON each.
//!
//! Runs in: the admin role. Sees: the bytes of a client that has said the secret. Never: accepts a field
//! or an order that it does not know.

use std::net::IpAddr;

use serde::Deserialize;

/// The longest request, in bytes, with the secret and newlines.
///
/// LIMIT: a name is at most 127 bytes, so this leaves ample room, and 64 clients hold at most 256 KiB.
pub const REQUEST_MAX: usize = 4096;

/// An administrator's order.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub enum Command {
    /// List every process, or a selection of them.
    Status {
        /// The processes of this role.
        #[serde(default)]
        role: Option<String>,
        /// The processes of this site, with those of its services.
        #[serde(default)]
        site: Option<String>,
        /// The page that begins here, as the one before says.
        #[serde(default)]
        after: u32,
        /// So many lines.
        #[serde(default)]
        limit: Option<u32>,
        /// Besides the processes of a site the launcher, and all that have its uid or that of one of these.
        #[serde(default)]
        alike: bool,
    },
    /// Say what every gate and site has shed, and why.
    Conditioning {},
    /// Start a new process of `name`, then retire the old one.
    Relaunch {
        /// A site, a service as `site/service`, or a role.
        name: String,
        /// Whether a new signer goes on without certificates that it cannot use.
        #[serde(default)]
        leave_out: bool,
    },
    /// Try the jail of `name` from inside.
    Probe {
        /// A site, a service as `site/service`, or a role.
        name: String,
        /// The findings that are asked for.
        what: Findings,
    },
    /// List the clients that sites refuse since their records failed to decrypt.
    Bans {},
    /// List all certificates of sites.
    Certificates {},
    /// Make an end of a client's bans.
    Unban {
        /// Which client.
        address: IpAddr,
    },
    /// Open the logs anew.
    Reopen {},
    /// Read the templates of a site again, or those of all sites, and publish them.
    Republish {
        /// Which site.
        #[serde(default)]
        site: Option<String>,
    },
    /// Give all processes of a service an order.
    Send {
        /// The service, as `site/service`.
        name: String,
        /// A word of the service's own; without one, it says what it has done and is doing.
        #[serde(default)]
        order: Option<String>,
        /// The text after the word.
        #[serde(default)]
        argument: String,
    },
    /// Read the configuration again, and change what has changed.
    Reload {
        /// Only say what would change.
        #[serde(default)]
        dry_run: bool,
        /// Take in nothing if one file of sites is wrong.
        #[serde(default)]
        all_or_nothing: bool,
        /// Take in nothing but the file of this site.
        #[serde(default)]
        site: Option<String>,
    },
    /// The same, of the files of sites that have changed as far as the kernel has said so.
    #[serde(rename = "reload-sites")]
    ReloadSites {
        /// The site whose file was changed just now, and must be good.
        #[serde(default)]
        site: Option<String>,
    },
    /// Take back the uids that the operator has written down.
    #[serde(rename = "take-uids-back")]
    TakeUidsBack {},
    /// Put the programs that are installed now in the place of those that run.
    Upgrade {
        /// Only say whether that can be done.
        #[serde(default)]
        dry_run: bool,
    },
    /// End the server in order.
    Stop {},
}

/// The findings that a probe is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Findings {
    /// Which ways out of the jail there are.
    Attempts,
    /// How much of the machine it exposes.
    Score,
    /// Which calls, of all values of all arguments that a policy might look at, get past it.
    Sweep,
    /// Whether system calls of 32-bit programs come through; the answer is that the probe was ended, or its report.
    Foreign,
}

impl Command {
    /// Reads an order.
    ///
    /// # Errors
    /// The fault of the line, in words.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| format!("the request is not an order: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_command() {
        let status = |role: Option<&str>, site: Option<&str>, after, limit| {
            let [role, site] = [role, site].map(|name| name.map(str::to_owned));
            Ok(Command::Status { role, site, after, limit, alike: false })
        };
        assert_eq!(Command::parse(br#"{"command":"status"}"#), status(None, None, 0, None));
        let page = Command::parse(br#"{"command":"status","role":"site","after":7,"limit":100}"#);
        assert_eq!(page, status(Some("site"), None, 7, Some(100)));
        let alike = Command::parse(br#"{"command":"status","site":"shop","alike":true}"#);
        let site = Some("shop".to_owned());
        assert_eq!(alike, Ok(Command::Status { role: None, site, after: 0, limit: None, alike: true }));
        assert_eq!(Command::parse(br#"{"command":"conditioning"}"#), Ok(Command::Conditioning {}));
        assert_eq!(Command::parse(br#"{"command":"reopen"}"#), Ok(Command::Reopen {}));
        let reload = |dry_run, all_or_nothing, site: Option<&str>| {
            Ok(Command::Reload { dry_run, all_or_nothing, site: site.map(str::to_owned) })
        };
        assert_eq!(Command::parse(br#"{"command":"reload"}"#), reload(false, false, None));
        assert_eq!(Command::parse(br#"{"command":"take-uids-back"}"#), Ok(Command::TakeUidsBack {}));
        let dry = Command::parse(br#"{"command":"reload","dry_run":true}"#);
        assert_eq!(dry, reload(true, false, None));
        let one = Command::parse(br#"{"command":"reload","all_or_nothing":true,"site":"shop"}"#);
        assert_eq!(one, reload(false, true, Some("shop")));
        let sites = Command::parse(br#"{"command":"reload-sites"}"#);
        assert_eq!(sites, Ok(Command::ReloadSites { site: None }));
        let sites = Command::parse(br#"{"command":"reload-sites","site":"shop"}"#);
        assert_eq!(sites, Ok(Command::ReloadSites { site: Some("shop".into()) }));
        assert_eq!(Command::parse(br#"{"command":"upgrade"}"#), Ok(Command::Upgrade { dry_run: false }));
        let all = Command::parse(br#"{"command":"republish"}"#);
        assert_eq!(all, Ok(Command::Republish { site: None }));
        let one = Command::parse(br#"{"command":"republish","site":"shop"}"#);
        assert_eq!(one, Ok(Command::Republish { site: Some("shop".into()) }));
        let (name, argument) = ("shop/cart".to_owned(), String::new());
        let send = Command::parse(br#"{"command":"send","name":"shop/cart"}"#);
        assert_eq!(send, Ok(Command::Send { name, order: None, argument }));
        assert_eq!(Command::parse(br#"{"command":"bans"}"#), Ok(Command::Bans {}));
        assert_eq!(Command::parse(br#"{"command":"certificates"}"#), Ok(Command::Certificates {}));
        let address = "192.0.2.1".parse().unwrap();
        let unban = Command::parse(br#"{"command":"unban","address":"192.0.2.1"}"#);
        assert_eq!(unban, Ok(Command::Unban { address }));
        assert_eq!(Command::parse(b"{\"command\":\"stop\"}\r"), Ok(Command::Stop {}));
        let name = "packages/search".to_owned();
        let relaunch = Command::parse(br#"{"command":"relaunch","name":"packages/search"}"#);
        assert_eq!(relaunch, Ok(Command::Relaunch { name, leave_out: false }));
        let probe = Command::parse(br#"{"command":"probe","name":"gate","what":"foreign"}"#);
        assert_eq!(probe, Ok(Command::Probe { name: "gate".into(), what: Findings::Foreign }));
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        for text in [
            "",
            "status",
            r#"{"command":"exec"}"#,
            r#"{"command":"relaunch"}"#,
            r#"{"command":"status","limit":-1}"#,
            r#"{"command":"status","pages":1}"#,
            r#"{"command":"unban","address":"everybody"}"#,
            r#"{"command":"relaunch","name":1}"#,
            r#"{"command":"stop","now":true}"#,
            r#"{"command":"upgrade","to":"/tmp/x"}"#,
            r#"{"command":"take-uids-back","uid":51001}"#,
            r#"{"command":"stop"}{"command":"stop"}"#,
        ] {
            assert!(Command::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
