//! Messages between the launcher and each role.
//!
//! Runs in: the launcher (root) and every role. Sees: in the launcher, bytes from every child, each of which
//! may be compromised. Never: a string on the way to the launcher; children send enumerations and integers.
//!
//! Source: seed 000, 4.1 (the launcher "responds only to signals"); architecture.md, table of roles.

use crate::channels::Role;
use crate::codec::{DecodeError, Field, Reader, Text, choice, messages, record};

/// Stands for "no partition": a request whose Host names no site.
pub const NO_PARTITION: u16 = u16::MAX;

record! {
    /// The limits of a worker; times in milliseconds, sizes in bytes.
    pub struct WorkerLimits {
        /// The longest request head.
        head_bytes: u32,
        /// How long a started head may take to arrive.
        head_timeout_ms: u32,
        /// The longest request body.
        body_bytes: u64,
        /// How long a kept-alive connection may be idle.
        idle_timeout_ms: u32,
        /// How long a request waits for a service's worker.
        start_timeout_ms: u32,
        /// How many connections the worker holds at once.
        connections: u32,
        /// How often buffered log records are handed to the logger.
        flush_ms: u32,
    }
}

record! {
    /// What a role says of itself when asked.
    pub struct Counters {
        /// Connections that it holds now.
        connections_now: u32,
        /// Connections that it has had.
        connections: u64,
        /// Requests that it has answered.
        requests: u64,
    }
}

messages! {
    /// From any role to the launcher.
    pub enum ChildToLauncher {
        /// Set-up is complete.
        1 => Ready {},
        /// The answer to `Report`.
        2 => Counters { counters: Counters },
    }
}

messages! {
    /// From the launcher to a gate.
    pub enum LauncherToGate {
        /// First of all: the limits. Times in milliseconds.
        1 => Limits { head_bytes: u32, head_timeout_ms: u32, start_timeout_ms: u32, connections: u32, flush_ms: u32 },
        /// A listening socket comes along; `index` is its place in the configuration.
        2 => Listen { index: u16 },
        /// Requests on listener `listener` for `host` whose path is at or below `path` belong
        /// to `partition`, and are logged as site `site`.
        3 => Route { listener: u16, host: Text<255>, path: Text<1024>, partition: u16, site: u16 },
        /// All of the above has been said: accept.
        4 => Begin {},
        /// A channel to a worker of `partition` comes along.
        5 => Attach { partition: u16 },
        /// Whether `partition` is broken: it is answered with 500.
        6 => Broken { partition: u16, broken: bool },
        /// Asks for `Counters`.
        7 => Report {},
    }
}

choice! {
    /// Whose a path below a site's host is.
    pub enum RouteTarget {
        /// The site's own, to be answered from its files.
        0 => Files,
        /// A service of the site.
        1 => Service,
        /// Another site's: a connection whose next request goes there is handed back.
        2 => Elsewhere,
    }
}

messages! {
    /// From the launcher to a site worker.
    pub enum LauncherToSite {
        /// First of all: the limits.
        1 => Limits { limits: WorkerLimits, site: u16 },
        /// The descriptor of the directory of static files comes along.
        2 => Root {},
        /// A name to try in a directory; in order of preference.
        3 => Index { name: Text<255> },
        /// Requests for `host` whose path begins with `path` go to `target`; `partition` is the service's.
        4 => Route { host: Text<255>, path: Text<1024>, target: RouteTarget, partition: u16 },
        /// All of the above has been said: serve.
        5 => Begin {},
        /// A channel from a gate comes along.
        6 => Attach {},
        /// A channel to a worker of the service `partition` comes along.
        7 => AttachService { partition: u16 },
        /// Whether the service `partition` is broken.
        8 => Broken { partition: u16, broken: bool },
        /// Asks for `Counters`.
        9 => Report {},
    }
}

choice! {
    /// Who sends connections on a channel.
    pub enum Source {
        /// A gate: clients' own connections.
        0 => Gate,
        /// The site's worker: one end of a pair, on which it relays requests.
        1 => Site,
    }
}

messages! {
    /// From the launcher to a service worker.
    pub enum LauncherToService {
        /// First of all: the limits, and whether every path of its hosts is this service's, so that it may
        /// keep a client's connection after the first request; and whether it is to leave a core file when it dies.
        1 => Limits { limits: WorkerLimits, site: u16, owns_host: bool, dumps: bool },
        /// All of the above has been said: initialise, then serve.
        2 => Begin {},
        /// A channel from `source` comes along.
        3 => Attach { source: Source },
        /// Asks for `Counters`.
        4 => Report {},
    }
}

/// Whose access logs a client of the logger may write to; to the error log, under its label, every client may.
///
/// SECURITY: who answers no requests has no such right: a process of no site must not pass for one of every site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessRight {
    /// Nobody's.
    None,
    /// Those of this site.
    Site(u16),
    /// Those of every site, and that of requests for no site.
    Every,
}

impl Field for AccessRight {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::None => out.push(0),
            Self::Site(site) => {
                out.push(1);
                site.put(out);
            }
            Self::Every => out.push(2),
        }
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::take(reader)? {
            0 => Ok(Self::None),
            1 => u16::take(reader).map(Self::Site),
            2 => Ok(Self::Every),
            _ => Err(DecodeError::Value("access right")),
        }
    }
}

messages! {
    /// From the launcher to the logger.
    pub enum LauncherToLogger {
        /// The access log's format: 0 common, 1 combined, 2 JSON; and how long a line may wait in memory.
        1 => Format { format: u8, flush_ms: u32 },
        /// The access log of a site comes along, opened for appending.
        2 => AccessLog { site: u16 },
        /// The error log comes along, opened for appending.
        3 => ErrorLog {},
        /// The channel of a client comes along. It may write to the access logs that `right` names; what it says
        /// in the error log is marked with `label`.
        4 => Client { label: Text<128>, right: AccessRight },
        /// The standard error of a process comes along: lines for the error log, marked with `label`.
        5 => Stderr { label: Text<128> },
        /// All of the above has been said: write.
        6 => Begin {},
        /// Asks for `Counters`.
        7 => Report {},
    }
}

impl Field for Role {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let number = u8::take(reader)?;
        Self::ALL.into_iter().find(|role| *role as u8 == number).ok_or(DecodeError::Value("role"))
    }
}

choice! {
    /// How an order of the administrator ended.
    pub enum Outcome {
        /// It is done.
        0 => Done,
        /// The new process did not come up; the old one, if any, goes on.
        1 => Failed,
        /// It cannot be done now: another of the kind is under way.
        2 => Busy,
    }
}

choice! {
    /// What a probe is to find out.
    pub enum ProbeKind {
        /// Which ways out of the jail there are.
        0 => Attempts,
        /// How much of the machine the jail exposes.
        1 => Score,
        /// Whether system calls of 32-bit programs come through; where they do not, the probe is ended.
        2 => Foreign,
    }
}

messages! {
    /// From the launcher to the admin role.
    pub enum LauncherToAdmin {
        /// The listening administration socket comes along.
        1 => Socket {},
        /// The name of what can be relaunched under this number.
        2 => Target { target: u16, name: Text<128> },
        /// The uid, besides root, whose processes may give orders.
        3 => Owner { uid: u32 },
        /// All of the above has been said: serve.
        4 => Begin {},
        /// One process, in answer to `Status`.
        5 => Process {
            ticket: u32, role: Role, name: Text<128>, pid: u32, uid: u32, state: Text<32>, restarts: u32,
            age_ms: u64, counters: Counters, last_exit: Text<64>,
        },
        /// The answer to `Status` is complete; `missing` names layers that could not be applied.
        6 => StatusEnd { ticket: u32, missing: Text<1024> },
        /// The answer to `Relaunch` or `Stop`.
        7 => Answer { ticket: u32, outcome: Outcome, reason: Text<512> },
        /// Asks for `Counters`.
        8 => Report {},
        /// In answer to `Probe`: what the probe says comes along, to be read to its end.
        9 => ProbeOutput { ticket: u32 },
    }
}

messages! {
    /// From the admin role to the launcher: the whole of what it may ask for.
    pub enum AdminToLauncher {
        /// Set-up is complete.
        1 => Ready {},
        /// The answer to `Report`.
        2 => Counters { counters: Counters },
        /// List every process.
        3 => Status { ticket: u32 },
        /// Start a new process of `target`, then retire the old one.
        4 => Relaunch { ticket: u32, target: u16 },
        /// End everything in order.
        5 => Stop { ticket: u32 },
        /// Start a probe in the jail of `target`.
        6 => Probe { ticket: u32, target: u16, kind: ProbeKind },
    }
}
