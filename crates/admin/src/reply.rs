//! Answers as they leave: one line of JSON each.
//!
//! Runs in: the admin role. Sees: the launcher's messages (trusted), and text of clients quoted in errors.
//! Never: writes a control character of theirs; JSON escapes it.

use serde::Serialize;
use wire::{LauncherToAdmin, Verb};

use crate::certified::Certificate;
use crate::conditioned::ConditioningRow;

/// One process, as `bulkhead status` gets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ProcessStatus {
    role: &'static str,
    name: String,
    pid: u32,
    uid: u32,
    state: String,
    restarts: u32,
    age_ms: u64,
    connections_now: u32,
    connections: u64,
    requests: u64,
    last_exit: String,
    jit: bool,
    oom_kills: u32,
    /// That of the launcher which has started it.
    version: String,
    /// Whether that was one before the one that runs.
    is_before: bool,
}

impl ProcessStatus {
    /// Takes the launcher's line about a process; `None` if the message is another.
    pub(crate) fn from_message(message: LauncherToAdmin) -> Option<Self> {
        let LauncherToAdmin::Process {
            ticket: _,
            role,
            name,
            pid,
            uid,
            state,
            restarts,
            age_ms,
            counters,
            last_exit,
            jit,
            oom_kills,
            version,
            is_before,
        } = message
        else {
            return None;
        };
        Some(Self {
            role: role.name(),
            name: name.as_str().to_owned(),
            pid,
            uid,
            state: state.as_str().to_owned(),
            restarts,
            age_ms,
            connections_now: counters.connections_now,
            connections: counters.connections,
            requests: counters.requests,
            last_exit: last_exit.as_str().to_owned(),
            jit,
            oom_kills,
            version: version.as_str().to_owned(),
            is_before,
        })
    }
}

/// How much of the range of uids is given out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct UidUsage {
    pub(crate) range: String,
    pub(crate) taken: u32,
    pub(crate) size: u64,
    /// How many of those that are taken the configuration does not have.
    pub(crate) left: u32,
    pub(crate) is_scarce: bool,
}

/// Processes that a launcher before has started, and that work on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Before {
    pub(crate) processes: u32,
    /// Whether they are being replaced.
    pub(crate) is_upgrading: bool,
}

/// The part of a status about all processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct StatusSummary {
    /// The layers that the machine lacks.
    pub(crate) missing: String,
    pub(crate) longest_step_us: u64,
    pub(crate) longest_step: String,
    pub(crate) longest_lately_us: u64,
    pub(crate) longest_lately: String,
    /// `None` without root.
    pub(crate) uids: Option<UidUsage>,
    pub(crate) before: Before,
    /// Files of sites that were left out of what runs.
    pub(crate) left_out: Vec<LeftOutFile>,
}

/// A client that a site refuses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Ban {
    pub(crate) site: String,
    pub(crate) address: String,
    pub(crate) seconds: u32,
}

/// Something that a reload changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ChangedItem {
    pub(crate) change: &'static str,
    pub(crate) what: String,
    pub(crate) keys: Vec<String>,
}

impl ChangedItem {
    pub(crate) fn new(verb: Verb, what: &str, keys: &str) -> Self {
        let keys = keys.split(", ").filter(|key| !key.is_empty()).map(str::to_owned).collect();
        Self { change: verb.word(), what: what.to_owned(), keys }
    }
}

/// The effect of a reload on a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct AffectedProcess {
    pub(crate) action: &'static str,
    pub(crate) process: String,
    pub(crate) why: String,
}

/// A file of sites that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LeftOutFile {
    pub(crate) file: String,
    /// The configuration in its place.
    pub(crate) instead: &'static str,
    pub(crate) sites: Vec<String>,
    pub(crate) hosts: Vec<String>,
    /// Whether these are all hosts of the file.
    pub(crate) hosts_known: bool,
    pub(crate) reason: String,
}

impl LeftOutFile {
    /// Takes the launcher's line; `None` if the message is another.
    pub(crate) fn from_message(message: LauncherToAdmin) -> Option<Self> {
        let LauncherToAdmin::LeftOut { ticket: _, file, stand_in, sites, hosts, is_whole, reason } = message
        else {
            return None;
        };
        let list = |text: &str| text.split(", ").filter(|one| !one.is_empty()).map(str::to_owned).collect();
        Some(Self {
            file: file.as_str().to_owned(),
            instead: stand_in.word(),
            sites: list(sites.as_str()),
            hosts: list(hosts.as_str()),
            hosts_known: is_whole,
            reason: reason.as_str().to_owned(),
        })
    }
}

/// The effect of an upgrade on the processes of a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct UpgradedRole {
    pub(crate) role: &'static str,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) replaced: u32,
    pub(crate) kept: u32,
}

/// The outcome of publishing a site's templates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RepublishedSite {
    pub(crate) site: String,
    /// The publisher's report; `null` if it says nothing.
    pub(crate) report: serde_json::Value,
    /// Why there is no report.
    pub(crate) error: Option<String>,
}

/// The answer of a service's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ProcessAnswer {
    pub(crate) process: String,
    pub(crate) answer: Option<String>,
    /// Why there is none.
    pub(crate) error: Option<String>,
}

/// The answer to an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum OrderReply {
    /// Every process, and what is to be said of all of them.
    Status {
        ok: bool,
        /// Boxed: it would enlarge every reply.
        #[serde(flatten)]
        summary: Box<StatusSummary>,
        processes: Vec<ProcessStatus>,
        /// Where the next page begins, if this one has an end.
        next: Option<u32>,
    },
    /// The connections and requests that each gate and site has dropped.
    Conditioning { ok: bool, processes: Vec<ConditioningRow> },
    /// Clients that sites refuse.
    Bans { ok: bool, bans: Vec<Ban> },
    /// Certificates of sites.
    Certificates { ok: bool, certificates: Vec<Certificate> },
    /// The changes that a reload has made, or would make.
    Reloaded {
        ok: bool,
        changes: Vec<ChangedItem>,
        processes: Vec<AffectedProcess>,
        left_out: Vec<LeftOutFile>,
    },
    /// The effects of an upgrade, or the versions of the new programs; `half` says why some processes are those of
    /// before, and `left_out` without which certificates the new signer serves.
    Upgraded { ok: bool, roles: Vec<UpgradedRole>, half: Option<String>, left_out: Vec<LeftOutFile> },
    /// The reports of publishers, by sites.
    Republished { ok: bool, sites: Vec<RepublishedSite> },
    /// The answers of a service's processes.
    Sent { ok: bool, answers: Vec<ProcessAnswer> },
    /// The report of a publisher.
    Reported { ok: bool, report: serde_json::Value },
    /// The report of a probe.
    Probed { ok: bool, report: serde_json::Value },
    /// It is done.
    Done { ok: bool },
    /// It is not done, and why; `usage` if that is for the client to put right, `busy` if it can be tried again.
    Failed { ok: bool, usage: bool, busy: bool, error: String },
    /// Nothing was begun, or nothing that changes anything: it can be asked once more.
    NotBegun { ok: bool, again: bool, error: String },
}

impl OrderReply {
    pub(crate) fn status(summary: StatusSummary, processes: Vec<ProcessStatus>, next: Option<u32>) -> Self {
        Self::Status { ok: true, summary: Box::new(summary), processes, next }
    }

    pub(crate) fn conditioning(processes: Vec<ConditioningRow>) -> Self {
        Self::Conditioning { ok: true, processes }
    }

    /// A probe is less trusted than this process: what it says is passed on only if it is JSON.
    pub(crate) fn probed(text: &[u8]) -> Self {
        match serde_json::from_slice(text) {
            Err(_) if text.is_empty() => Self::failed("the probe was ended before it said anything"),
            Ok(report) => Self::Probed { ok: true, report },
            Err(error) => Self::failed(format!("the probe was ended, or did not report in JSON: {error}")),
        }
    }

    /// A publisher is less trusted than this process, too.
    pub(crate) fn reported(text: &[u8]) -> Self {
        match serde_json::from_slice(text) {
            Err(_) if text.is_empty() => Self::failed(
                "the publisher has ended, `bulkhead status` says how and `error.log` why; all processes will hold the \
                 version of before, or this one: run it again",
            ),
            Ok(report) => Self::Reported { ok: true, report },
            Err(error) => Self::failed(format!("the publisher did not report in JSON: {error}")),
        }
    }

    pub(crate) fn done() -> Self {
        Self::Done { ok: true }
    }

    pub(crate) fn failed(error: impl Into<String>) -> Self {
        Self::Failed { ok: false, usage: false, busy: false, error: error.into() }
    }

    /// Not begun, or without an effect, because this process ends or has no room: its successor may be asked.
    pub(crate) fn not_begun(error: impl Into<String>) -> Self {
        Self::NotBegun { ok: false, again: true, error: error.into() }
    }

    /// The answer to an order of several steps, of which the last one was not begun.
    pub(crate) fn of_several(self) -> Self {
        match self {
            Self::NotBegun { error, .. } => Self::failed(error),
            reply => reply,
        }
    }

    /// Not tried, because of something else that goes on.
    pub(crate) fn busy(error: impl Into<String>) -> Self {
        Self::Failed { ok: false, usage: false, busy: true, error: error.into() }
    }

    /// Not tried, because the request itself is wrong.
    pub(crate) fn wrong(error: impl Into<String>) -> Self {
        Self::Failed { ok: false, usage: true, busy: false, error: error.into() }
    }

    /// The line to be sent.
    pub(crate) fn line(&self) -> Vec<u8> {
        // Neither of the reasons for which this can fail (keys that are not text, a failing writer) exists here.
        let mut line = serde_json::to_vec(self)
            .unwrap_or_else(|_| br#"{"ok":false,"error":"the answer could not be written"}"#.to_vec());
        line.push(b'\n');
        line
    }
}
