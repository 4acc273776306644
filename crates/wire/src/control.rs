//! Messages between the launcher and each role.
//!
//! Runs in: the launcher (root) and every role. Sees: in the launcher, bytes from every child, each of which
//! may be compromised. Never: a string on the way to the launcher; children send enumerations and integers.
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 4.1 (the
//! launcher "responds only to signals").

use std::net::{IpAddr, Ipv6Addr};

use crate::codec::{DecodeError, Field, Reader, Text, choice, counters, messages, record};
use crate::data::{NAME_MAX, Token};
use crate::roles::Role;
use crate::stapler::Staple;
use crate::tls::{Holding, Verdict};

/// Where authorities look for what proves that a host is ours (RFC 8555 8.3), over plain HTTP.
pub const CHALLENGES: &str = "/.well-known/acme-challenge/";

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
        /// After how long without a connection the worker says that it is `Idle`; 0 for never.
        idle_stop_ms: u32,
    }
}

record! {
    /// What a role says of itself when asked.
    #[derive(Default)]
    pub struct Counters {
        /// Connections that it holds now.
        connections_now: u32,
        /// Connections that it has had.
        connections: u64,
        /// Requests that it has answered.
        requests: u64,
    }
}

counters! {
    /// What was shed since the process started, by reason, and what waits now.
    pub struct Shed {
        /// Requests (in a gate: first requests of a hand-over) that were passed on or answered.
        admitted: u64,
        /// Connections on which nothing came in time.
        late_first_byte: u64 = "silent",
        /// Heads that did not become whole in time.
        late_head: u64 = "slow head",
        /// Heads that were refused as malformed, ambiguous, too long or strange.
        malformed: u64 = "malformed",
        /// Incomplete or idle connections that were closed to make room, from the heaviest range.
        evicted: u64 = "evicted",
        /// Requests that had to wait because their range held its share of the connections.
        delayed: u64,
        /// Requests that were refused after that wait.
        over_share: u64 = "over share",
        /// Requests above a client's rate.
        over_rate: u64 = "over rate",
        /// Connections of banned clients.
        banned: u64 = "banned",
        /// Bans that were spoken.
        bans: u64,
        /// Requests that no worker took in time.
        unavailable: u64 = "no worker",
        /// Bodies that came too slowly.
        slow_body: u64 = "slow body",
        /// Responses that were taken too slowly.
        slow_response: u64 = "slow response",
        /// Connections that were ended for abuse of HTTP/2.
        abusive: u64 = "HTTP/2 abuse",
        /// Connections that a filter dropped.
        filtered: u64 = "dropped by a filter",
        /// Connections without a whole request, now.
        incomplete_now: u32,
        /// Requests that wait for a worker, now.
        waiting_now: u32,
        /// Clients that are banned, now.
        banned_now: u32,
    }
}

choice! {
    /// Which requests are refused for how they look, as `conditioning::checks::Setting` has it.
    pub enum Checks {
        /// Those that do harm.
        0 => Lenient,
        /// Those as well that are read in several ways.
        1 => Standard,
        /// Those as well that are unusual.
        2 => Strict,
    }
}

record! {
    /// The policies of conditioning, as configured. Shares are thousandths of `connections`.
    pub struct Conditioning {
        /// How long a connection may send nothing at all.
        first_byte_timeout_ms: u32,
        /// Bytes a second below which a body is given up.
        body_min_rate: u32,
        /// Bytes a second below which a response is given up.
        response_min_rate: u32,
        /// Whether waiting requests are served by recency; otherwise in order.
        recency: bool,
        /// Which requests are refused for how they look.
        checks: Checks,
        /// The share of an IPv4 /8.
        share_8: u16,
        /// The share of an IPv4 /16.
        share_16: u16,
        /// The share of an IPv4 /24.
        share_24: u16,
        /// The share of an IPv6 /32.
        share_v6_32: u16,
        /// The share of an IPv6 /48.
        share_v6_48: u16,
        /// The share of an IPv6 /56.
        share_v6_56: u16,
        /// Requests a second that one client (an IPv6 /64) may make; 0 for any number.
        rate_max: u32,
        /// How many of them may come at once.
        rate_burst: u32,
        /// Offences within a minute after which a client is banned; 0 for never.
        ban_after: u32,
        /// How long a ban lasts.
        ban_time_ms: u32,
    }
}

/// An address as messages carry it: its 16 bytes as IPv6, with IPv4 mapped, in two halves.
pub fn halves(address: IpAddr) -> (u64, u64) {
    let bits = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    };
    ((bits >> 64) as u64, bits as u64)
}

/// The address that two halves make.
pub fn address_of(high: u64, low: u64) -> Ipv6Addr {
    Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low))
}

/// An address range of `TopRange`, as people write it: the first `bits` of an address of IPv6; of IPv4 if that is
/// mapped.
pub fn range_text(address_high: u64, address_low: u64, bits: u8) -> String {
    let address = address_of(address_high, address_low);
    match (address.to_ipv4_mapped(), bits.checked_sub(96)) {
        (Some(mapped), Some(bits)) => format!("{mapped}/{bits}"),
        _ => format!("{address}/{bits}"),
    }
}

messages! {
    /// From any role to the launcher.
    pub enum ChildToLauncher {
        /// Set-up is complete.
        1 => Ready {},
        /// The answer to `Report`.
        2 => Counters { counters: Counters },
        /// Part of the answer to `ReportShed`: an address range that holds many connections or requests; the first
        /// `bits` of `address` (16 bytes of IPv6, IPv4 mapped: `bits` then begins at 96) are the range.
        3 => TopRange { address_high: u64, address_low: u64, bits: u8, held: u32, waiting: u32 },
        /// The answer to `ReportShed` is complete.
        4 => Shed { shed: Shed },
        /// From the signer: what became of a certificate that it was given, and what it holds in its place now.
        20 => Certificate { site: u16, number: u16, verdict: Verdict, holding: Holding },
        /// From a site: a client's records fail to decrypt; its address, as in `TopRange`.
        21 => Tampered { address_high: u64, address_low: u64 },
        /// From the stapler, part of the answer to `ReportStaples`: how it is with certificate `number` of `site`.
        22 => Staple { site: u16, number: u16, staple: Staple },
        /// From the stapler: the answer to `ReportStaples` is complete.
        23 => StaplesEnd {},
        /// From a gate: the last filter of this chain sends nonsense; nothing that comes from there is taken any more.
        24 => ChainCut { chain: u32 },
        /// From a gate or a site: what has followed `Update` holds.
        25 => Committed {},
        /// From a gate or a site: something waits for a worker of this partition, and there is none; or none that there
        /// is keeps up with what it is sent, and then again for as long as that lasts, a second later.
        26 => Wanted { partition: u16 },
        /// From a gate or a site: it has sent something to a worker of this partition, the first thing for a while.
        28 => Used { partition: u16 },
        /// From a site or a service: it has had no connection for `idle_stop_ms`; again whenever as much time has
        /// passed.
        27 => Idle {},
        /// From a gate or a site, before `Ready`: it is to be told by `Retire` when it is to finish, and hears the
        /// launcher until it ends. Others are told by the end of their channel.
        29 => TakesRetire {},
        /// From the logger: it writes to the files that came before `Confirm`, and to no earlier one.
        50 => Confirmed { ticket: u32 },
        /// From the logger: a line is for the access log of this site, which is not open.
        51 => LogWanted { site: u16 },
    }
}

messages! {
    /// From the launcher to a gate.
    pub enum LauncherToGate {
        /// First of all: the limits. Times in milliseconds.
        1 => Limits { head_bytes: u32, head_timeout_ms: u32, start_timeout_ms: u32, connections: u32, flush_ms: u32 },
        /// A listening socket comes along; `index` is its number until the next `Update`. In an `Update`, the gate goes
        /// on accepting on an address that it accepts on already, and closes the socket of an address that is not
        /// named.
        2 => Listen { index: u16 },
        /// Requests on listener `listener` for `host` whose path is at or below `path` belong
        /// to `partition`, and are logged as site `site`.
        3 => Route { listener: u16, host: Text<255>, path: Text<1024>, partition: u16, site: u16 },
        /// The listeners, and what is said of them, are complete, and hold from here on. The first time: accept.
        4 => Commit {},
        /// A channel to a worker of `partition` comes along.
        5 => Attach { partition: u16 },
        /// Whether `partition` is broken: it is answered with 500.
        6 => Broken { partition: u16, broken: bool },
        /// Asks for `Counters`.
        7 => Report {},
        /// After the limits, before the first `Commit`: the policies.
        8 => Conditioning { conditioning: Conditioning },
        /// After the policies: a network (`127.0.0.0/8`) whose clients have no shares, rates and bans.
        9 => Exempt { network: Text<64> },
        /// The users of several clients may share one connection on listener `listener`: a request is answered
        /// through the gate, and the address of the peer says nothing.
        10 => SharedConnections { listener: u16 },
        /// The channel to the first filter of the chain comes along. A new pair replaces the old one.
        11 => ChainFirst {},
        /// The channel from the last filter comes along, of the chain that is called `chain`.
        12 => ChainLast { chain: u32 },
        /// A channel comes along that all processes of a guarded server share, for `partition`: no credits.
        13 => AttachShared { partition: u16 },
        /// The own channel of one process of a guarded server comes along, which says what it holds.
        14 => AttachProcess { partition: u16 },
        /// Asks for `TopRange` and `Shed`.
        15 => ReportShed {},
        /// The guarded server behind `partition` can serve so many connections at once: it is sent no more, and
        /// shares are of them.
        16 => Capacity { partition: u16, connections: u32 },
        /// What is spoken on listener `listener`.
        20 => Protocol { listener: u16, tls: bool, h2c: bool },
        /// Requests on listener `listener` for `host` whose path is at or below `path` are redirected to https at
        /// `port`; not at all, if it is 0.
        21 => Redirect { listener: u16, host: Text<255>, path: Text<1024>, port: u16 },
        /// Connections of this client, as in `TopRange`, are not for `partition` for so long; 0 makes an end of it.
        22 => Ban { partition: u16, address_high: u64, address_low: u64, seconds: u32 },
        /// After the policies: a network whose clients have no such bans.
        23 => TamperExempt { network: Text<64> },
        /// Connections on listener `listener` from this network begin with a header of the PROXY protocol, and there
        /// are
        /// no others on it.
        40 => ProxyTrusted { listener: u16, network: Text<64> },
        /// With filters: connections on listener `listener` under TLS, or of HTTP/2, may pass them by; otherwise they
        /// are
        /// refused, as no filter can see the requests on them.
        41 => Unfiltered { listener: u16 },
        /// After the first `Commit`: the listeners follow anew, with all that is said of them. What was said before
        /// holds until `Commit`; another `Update` instead discards what has followed.
        42 => Update {},
        /// There is no such partition any more: requests that wait for its workers are answered as those for a site
        /// that there is not. Connections that its workers hold go on.
        43 => RemovePartition { partition: u16 },
        /// In an `Update`: there are no filters any more. What is in them comes back from them. `ChainFirst` and
        /// `ChainLast` in an `Update` hold from its `Commit` on, as all that it says.
        44 => NoChain {},
        /// Before the end of the channel: other gates take what comes from the filters, and this one nothing more.
        45 => LeaveChain {},
        /// What `partition` is called in the log, as `site blog`; before its routes.
        46 => Name { partition: u16, name: Text<128> },
        /// After the first `Commit`, in place of `Update`: what is said of routes follows and changes those that there
        /// are, which are as they were until `Commit`.
        47 => Change {},
        /// In a `Change`: nothing is anybody's any more of what is asked of `host` on listener `listener`, until it is
        /// said anew.
        48 => Forget { listener: u16, host: Text<255> },
        /// Accept nothing more, pass on what is here, and end. What this needs is said as before: workers, routes,
        /// filters.
        49 => Retire {},
        /// There is no room for a worker of `partition`: it is answered with 503 until the channel to one comes along.
        50 => NoRoom { partition: u16 },
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
        /// keep a client's connection after the first request; and whether others of its uid, such as its broker, may
        /// look into it, so that it may leave a core file when it dies.
        1 => Limits { limits: WorkerLimits, site: u16, owns_host: bool, dumps: bool, jit: bool },
        /// All of the above has been said: initialise, then serve.
        2 => Begin {},
        /// A channel from `source` comes along.
        3 => Attach { source: Source },
        /// Asks for `Counters`.
        4 => Report {},
        /// Before `Begin`: the service may have the data source of this name.
        5 => DataSource { name: Text<NAME_MAX> },
        /// A channel to the data source's proxy comes along, which takes the place of an earlier one; the proxy knows
        /// the service by this token.
        6 => DataProxy { name: Text<NAME_MAX>, token: Token },
        /// Before `Begin`: the service may have its site's templates.
        7 => Templates {},
        /// A channel to its site's publisher comes along, which takes the place of an earlier one.
        8 => Publisher {},
        /// A channel from the admin role comes along, with one order.
        9 => Orders {},
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
        /// The access log's format: 0 common, 1 combined, 2 JSON; and how long a line may wait in memory. Again when it
        /// has changed.
        1 => Format { format: u8, flush_ms: u32, access_bytes: u64 },
        /// The access log of a site comes along, opened for appending; `name` is the site's, for messages.
        2 => AccessLog { site: u16, name: Text<63> },
        /// The error log comes along, opened for appending.
        3 => ErrorLog {},
        /// The channel of a client comes along. It may write to the access logs that `right` names; what it says
        /// in the error log is marked with `label`.
        4 => Client { label: Text<128>, right: AccessRight },
        /// The standard error of a process comes along: lines for the error log, marked with `label`.
        5 => Stderr { label: Text<128> },
        /// All of the above has been said.
        6 => Begin {},
        /// Asks for `Counters`.
        7 => Report {},
        /// A socket to which lines of the error log are sent for syslog as well comes along.
        8 => Syslog {},
        /// Asks for `Confirmed`.
        9 => Confirm { ticket: u32 },
        /// Lines of the error log are not sent to syslog any more.
        10 => NoSyslog {},
        /// Before `Begin`, what the launcher prints to comes along, if that is a terminal or a pipe: for `LastLines`.
        11 => Terminal {},
        /// The process that is called `label` could not start: its last lines are for the terminal, too.
        12 => LastLines { label: Text<128> },
        /// After `Begin`: no other logger is there, read what clients and processes say.
        13 => Read {},
        /// The access log of a site is not open: batches with a line for it stay where they are until it comes along,
        /// for which `LogWanted` asks. An earlier one is closed.
        14 => AccessLogLater { site: u16, name: Text<63> },
        /// No other logger follows this one: what is for a log that is not open goes to that of no site.
        15 => Last {},
    }
}

impl Field for Role {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let number = u8::take(reader)?;
        Self::ALL.iter().copied().find(|role| *role as u8 == number).ok_or(DecodeError::Value("role"))
    }
}
