//! Every message of every edge: there and back, and every way in which its bytes can be wrong.
//!
//! Runs in: `cargo test`. The peers of Bulkhead's processes are assumed to be compromised, so what is refused
//! matters as much as what is understood.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::net::SocketAddr;

use wire::data::{
    CallFault, DataProxyToService, Engine, LauncherToDataProxy, PART_MAX, ServiceToDataProxy, TOKEN_BYTES,
    Token,
};
use wire::orders::{AdminToService, ORDER_ANSWER_MAX, ORDER_ARGUMENT_MAX, ORDER_NAME_MAX, ServiceToAdmin};
use wire::stapler::{
    HASH_BYTES, LauncherToStapler, STAPLE_MAX, SignerToStapler, Staple, Stapled, StaplerToSite, Trouble,
};
use wire::successor::{LauncherToSuccessor, Lock, NO_DESCRIPTOR, NONE, Progress, Stay};
use wire::templates::{
    LauncherToPublisher, PublicValue, PublisherToService, SOURCE_PART_MAX, ServiceToPublisher,
    TEMPLATE_NAME_MAX, VALUE_TEXT_MAX,
};
use wire::tls::{
    CERTIFICATE_MAX, ClientAuth, Holding, KeyKind, LauncherToSigner, Resume, SIGNATURE_MAX, SIGNED_MAX,
    SignerToSite, SiteToSigner, TICKET_KEY_BYTES, Verdict,
};
use wire::{
    AccessRight, Act, AdminToLauncher, BUNDLES_MAX, Backend, BrokerToConnector, Bundle, Bundles, Bytes,
    Checks, ChildToLauncher, Conditioning, ConnectorToBroker, Counters, DecodeError, FromConnector,
    FromGuarded, FromWorker, HeaderOf, Kind, LauncherToAdmin, LauncherToBroker, LauncherToConnector,
    LauncherToGate, LauncherToLogger, LauncherToService, LauncherToSite, MESSAGE_MAX, Message, NO_PARTITION,
    Outcome, PREREAD_MAX, ProbeKind, ProxyHeader, Role, RouteTarget, RuleAction, Shed, Source, Speech, Text,
    ToConnector, ToGuard, ToGuarded, ToWorker, Unreachable, Verb, WorkerLimits,
};

/// Values for the messages of one edge.
trait Samples: Message + Debug + PartialEq {
    /// At least one of every variant, the extremes of every field among them.
    fn samples() -> Vec<Self>;
}

impl Samples for LauncherToSuccessor {
    fn samples() -> Vec<Self> {
        let launcher = |serial, version| Self::Launcher {
            version: text(version),
            age_ms: serial,
            serial,
            chains: 1,
            groups: serial,
            admin: NONE,
            ticket: u32::MAX,
        };
        let slot = |role, stay| Self::Slot {
            role,
            name: text(1024),
            partition: NO_PARTITION,
            site: 1,
            index: 2,
            worker: u16::MAX,
            generation: 3,
            uid: u32::MAX,
            gid: 0,
            stay,
        };
        let state = |rests, unclean: usize| Self::SlotState {
            slot: 1,
            rests,
            wanted: !rests,
            broken: rests,
            restarts: u32::MAX,
            last_exit: text(unclean),
            failures: 4,
            unclean: vec![u64::MAX; unclean],
            start_ms: NONE,
            current: 5,
        };
        let process = |progress, descriptor| Self::Process {
            serial: 1,
            slot: 2,
            pid: 3,
            pidfd: 5,
            control: descriptor,
            log: descriptor,
            stderr_reading: 6,
            stderr_writing: 7,
            calls: descriptor,
            core_folder: descriptor,
            progress,
            age_ms: u64::MAX,
            deadline_ms: 0,
        };
        let owes = |owes| Self::ProcessState {
            serial: 1,
            owes_report: owes,
            owes_shed: !owes,
            owes_staples: owes,
            owes_commits: u32::MAX,
            protocol_violations: 99,
            relays_to: vec![0, u64::MAX],
        };
        let stages = [Progress::Starting, Progress::Serving, Progress::RetiringUnserved, Progress::Retiring];
        let mut all: Vec<Self> = stages.map(|progress| process(progress, NO_DESCRIPTOR)).into();
        all.extend([Lock::Run, Lock::Uids, Lock::Groups].map(|lock| Self::Locked { lock, descriptor: 9 }));
        all.extend(Role::ALL.iter().map(|&role| slot(role, Stay::Serving)));
        all.extend([
            launcher(0, 0),
            launcher(u64::MAX, 64),
            slot(Role::Site, Stay::Removed),
            slot(Role::Site, Stay::Free),
            state(true, 0),
            state(false, 1024),
            process(Progress::Serving, 8),
            owes(true),
            owes(false),
            Self::UidRange { first: 0, last: u32::MAX },
            Self::Source { path: text(4096), text: bytes(1000) },
            Self::Site { name: text(0), serves: false },
            Self::Site { name: text(1024), serves: true },
            Self::Listening { listener: u16::MAX, gate: 0, descriptor: 10 },
            Self::Group { serial: 1, path: text(4096) },
            Self::Waiting { serial: 1, message: bytes(1000), descriptor: NO_DESCRIPTOR, counts: true },
            Self::Waiting { serial: 1, message: bytes(0), descriptor: 11, counts: false },
            Self::Unread { slot: 1, log: NO_DESCRIPTOR, stderr: 12 },
            Self::Chain { number: 1, first: 13, last: 14, age_ms: 0 },
            Self::ChainUnread { descriptor: 15 },
            Self::ErrorLog { descriptor: 16, day: 20_778 },
            Self::AccessLog { descriptor: 17 },
            Self::AdminSocket { descriptor: 18, secret: text(64) },
            Self::Reaper { pid: 1, pidfd: 19, channel: 20 },
            Self::Hierarchy { top: text(4096), controllers: text(256), unified: true },
            Self::Without { layer: text(64) },
            Self::Target { name: text(1024) },
            Self::Unnamed { count: u32::MAX },
            Self::Passed { name: text(1024), descriptor: 21 },
            Self::Ban { partition: 0, address_high: u64::MAX, address_low: 1, left_ms: 2 },
            Self::Tickets { generation: u64::MAX, next_ms: NONE },
            Self::TicketKey { site: 1, generation: 2, secret: bytes(TICKET_KEY_BYTES) },
            Self::Used { slot: u32::MAX },
            Self::Heard { serial: u64::MAX, descriptor: 0 },
            Self::TakesRetire { serial: u64::MAX },
            Self::Certificate {
                site: u16::MAX,
                number: 1,
                path: text(4096),
                key: text(0),
                given: vec![u64::MAX; 10],
                is_settled: true,
                verdict: Verdict::Mismatch,
                holding: Holding { kind: KeyKind::Rsa, not_before: 1, not_after: u64::MAX, named: true },
                owed: vec![],
                objected_at: NONE,
            },
            Self::Memory { serial: u64::MAX, descriptor: 22 },
            Self::LeftMemory { slot: u32::MAX, descriptor: 23 },
            Self::OomKills { slot: u32::MAX, count: 2 },
            Self::AllOomKills { count: 3 },
            Self::OfVersion { serial: 4, version: text(64) },
        ]);
        all
    }
}

fn text<const MAX: usize>(length: usize) -> Text<MAX> {
    Text::new("x".repeat(length))
}

fn bytes<const MAX: usize>(length: usize) -> Bytes<MAX> {
    Bytes((0..length).map(|at| at as u8).collect())
}

fn counters() -> Vec<Counters> {
    let counters =
        |connections_now, connections, requests| Counters { connections_now, connections, requests };
    vec![counters(0, 0, 0), counters(1, 2, 3), counters(u32::MAX, u64::MAX, u64::MAX)]
}

fn staples() -> impl Iterator<Item = Staple> {
    let troubles = [
        Trouble::None,
        Trouble::NoResponder,
        Trouble::Unaskable,
        Trouble::Awaited,
        Trouble::Unanswered,
        Trouble::Refused,
        Trouble::Unknown,
        Trouble::Off,
        Trouble::Unsaid,
    ];
    let stapled = [Stapled::Nothing, Stapled::Good, Stapled::Revoked];
    troubles.into_iter().zip(stapled.into_iter().cycle()).map(|(trouble, stapled)| Staple {
        stapled,
        trouble,
        until: u64::MAX,
        asked: 1,
    })
}

fn conditioning() -> Vec<Conditioning> {
    let some = Conditioning {
        first_byte_timeout_ms: 1,
        body_min_rate: 2,
        response_min_rate: 3,
        recency: true,
        checks: Checks::Lenient,
        share_8: 4,
        share_16: 5,
        share_24: 6,
        share_v6_32: 7,
        share_v6_48: 8,
        share_v6_56: 9,
        rate_max: 10,
        rate_burst: 11,
        ban_after: 12,
        ban_time_ms: u32::MAX,
    };
    let standard = Conditioning { checks: Checks::Standard, ..some.clone() };
    let strict = Conditioning { recency: false, checks: Checks::Strict, share_8: u16::MAX, ..some.clone() };
    vec![strict, standard, some]
}

fn worker_limits() -> WorkerLimits {
    WorkerLimits {
        head_bytes: 1,
        head_timeout_ms: 2,
        body_bytes: u64::MAX,
        idle_timeout_ms: 3,
        start_timeout_ms: 4,
        connections: 5,
        flush_ms: u32::MAX,
        idle_stop_ms: u32::MAX,
    }
}

fn addresses() -> Vec<SocketAddr> {
    ["0.0.0.0:0", "192.0.2.1:65535", "[::]:0", "[::1]:80", "[2001:db8::1]:443", "[ffff:ffff::ffff]:65535"]
        .map(|address| address.parse().expect("an address"))
        .to_vec()
}

impl Samples for ToWorker {
    fn samples() -> Vec<Self> {
        let connection = |peer, local, kind, preread| {
            let bundle = Bundle { id: u64::MAX - 1, peer, local, kind, preread: bytes(preread) };
            Self::Connection { bundle }
        };
        let mut all = Vec::new();
        for peer in addresses() {
            for local in addresses() {
                all.push(connection(peer, local, Kind::Plain, 0));
                all.push(connection(peer, local, Kind::Relayed, 1));
            }
        }
        all.push(connection(addresses()[1], addresses()[4], Kind::Tls, PREREAD_MAX));
        all.push(connection(addresses()[1], addresses()[4], Kind::Http2, 24));
        for kind in [Kind::RelayedTls10, Kind::RelayedTls11, Kind::RelayedTls2] {
            all.push(connection(addresses()[1], addresses()[4], kind, 0));
        }
        for count in [0, 1, BUNDLES_MAX] {
            let bundle = |id| Bundle {
                id,
                peer: addresses()[1],
                local: addresses()[4],
                kind: Kind::Plain,
                preread: bytes(id as usize % 2),
            };
            let bundles = Bundles((0..count as u64).map(bundle).collect());
            all.push(Self::Connections { bundles });
        }
        all
    }
}

impl Samples for FromWorker {
    fn samples() -> Vec<Self> {
        vec![
            Self::Returns { credits: 0, done: vec![] },
            Self::Returns { credits: u16::MAX, done: vec![0, 1, u64::MAX] },
            Self::Returns { credits: 1, done: (0..wire::NUMBERS_MAX as u64).collect() },
            Self::Back { id: 0, preread: bytes(0) },
            Self::Back { id: u64::MAX, preread: bytes(PREREAD_MAX) },
            Self::Drain {},
            Self::Rate { address_high: 0, address_low: 0xffff_c000_0201, used_ms: 0 },
            Self::Rate { address_high: u64::MAX, address_low: u64::MAX, used_ms: u32::MAX },
            Self::Offence { address_high: 0, address_low: u64::MAX },
        ]
    }
}

impl Samples for ToGuarded {
    fn samples() -> Vec<Self> {
        vec![
            Self::Keep { connections: 0, head_bytes: 0 },
            Self::Keep { connections: u32::MAX, head_bytes: u32::MAX },
        ]
    }
}

impl Samples for FromGuarded {
    fn samples() -> Vec<Self> {
        let mut all = vec![Self::Done { id: 0 }, Self::Back { id: u64::MAX, preread: bytes(PREREAD_MAX) }];
        all.extend(addresses().into_iter().map(|peer| Self::Took { id: 1, peer }));
        all.extend([Self::Keeps {}, Self::Served { requests: u32::MAX }]);
        all.push(Self::Batch { took: vec![0, u64::MAX], done: vec![u64::MAX] });
        all
    }
}

/// What a gate is told of proxies.
fn proxy_trusted() -> LauncherToGate {
    LauncherToGate::ProxyTrusted { listener: u16::MAX, network: text(64) }
}

impl Samples for LauncherToConnector {
    fn samples() -> Vec<Self> {
        let last = SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], u16::MAX));
        vec![
            Self::Limits { connect_timeout_ms: 1, waiting_max: u32::MAX, flush_ms: 3 },
            Self::Tcp { target: 0, address: SocketAddr::from(([127, 0, 0, 1], 1)) },
            Self::Tcp { target: u16::MAX, address: last },
            Self::Unix { target: 1, name: text(0) },
            Self::Unix { target: 1, name: text(wire::SOCKET_NAME_MAX) },
            Self::Begin {},
            Self::Attach {},
            Self::Report {},
            Self::Grant { network: text(0), port: 0 },
            Self::Grant { network: text(64), port: u16::MAX },
            Self::GrantUdp {},
            Self::AttachBroker {},
            Self::Name { target: 0, name: text(0), port: 0 },
            Self::Name { target: u16::MAX, name: text(wire::SERVER_NAME_MAX), port: u16::MAX },
            Self::Resolver {},
            Self::Hosts {},
        ]
    }
}

impl Samples for LauncherToDataProxy {
    fn samples() -> Vec<Self> {
        vec![
            Self::Limits { flush_ms: u32::MAX },
            Self::Sqlite { path: text(0), heap_bytes: 0 },
            Self::Sqlite { path: text(4096), heap_bytes: u64::MAX },
            Self::Statements {},
            Self::Service { name: text(63) },
            Self::Begin {},
            Self::Attach { service: text(63), token: Token([255; TOKEN_BYTES]) },
            Self::Report {},
            Self::Schema {},
            Self::Server { engine: Engine::Postgresql, database: text(0), user: text(63), connections: 0 },
            Self::Server { engine: Engine::Mysql, database: text(63), user: text(0), connections: u16::MAX },
            Self::Server { engine: Engine::Redis, database: text(1), user: text(7), connections: 1 },
            Self::Password {},
            Self::Connector {},
            Self::Authorities { name: text(0) },
            Self::Authorities { name: text(253) },
            Self::Remote { source: text(0), authority: text(0) },
            Self::Remote { source: text(63), authority: text(259) },
            Self::Certificate {},
            Self::Key {},
        ]
    }
}

impl Samples for ServiceToDataProxy {
    fn samples() -> Vec<Self> {
        let values = |length| Bytes(vec![7; length]);
        vec![
            Self::Login { token: Token([0; TOKEN_BYTES]) },
            Self::Call { id: 0, name: text(0), complete: true, values: values(0) },
            Self::Call { id: u32::MAX, name: text(63), complete: false, values: values(PART_MAX) },
            Self::More { id: 1, complete: true, values: values(PART_MAX) },
            Self::Cancel { id: u32::MAX },
            Self::Pause { id: u32::MAX },
            Self::Resume { id: 0 },
            Self::Timeouts {},
        ]
    }
}

impl Samples for DataProxyToService {
    fn samples() -> Vec<Self> {
        use CallFault::{Busy, Constraint, Database, Late, Lost, Parameters, Refused, TooLarge};
        let results = |length| Bytes(vec![7; length]);
        let faults = [Refused, Parameters, TooLarge, Busy, Late, Constraint, Database, Lost];
        let failed = faults.map(|fault| Self::Failed { id: 3, fault, reason: text(512) });
        let mut all = vec![
            Self::Welcome {},
            Self::Part { id: u32::MAX, results: results(PART_MAX) },
            Self::Done { id: 0, results: results(0) },
            Self::Timeouts { usual_ms: u32::MAX },
            Self::Timeout { name: text(63), timeout_ms: 0 },
        ];
        all.extend(failed);
        all
    }
}

impl Samples for LauncherToPublisher {
    fn samples() -> Vec<Self> {
        let value = |value| Self::Value { name: text(63), value };
        vec![
            Self::Limits { flush_ms: u32::MAX },
            Self::Folder {},
            value(PublicValue::Text(text(0))),
            value(PublicValue::Text(text(VALUE_TEXT_MAX))),
            value(PublicValue::Int(i64::MIN)),
            value(PublicValue::Bool(true)),
            Self::Begin {},
            Self::Attach { service: text(63) },
            Self::Report {},
            Self::Republish {},
            Self::Memory {},
            Self::Kept {},
        ]
    }
}

impl Samples for PublisherToService {
    fn samples() -> Vec<Self> {
        let source = |length| Bytes(vec![b'a'; length]);
        vec![
            Self::Version { version: u64::MAX },
            Self::Value { name: text(0), value: PublicValue::Bool(false) },
            Self::Template { name: text(0), complete: true, source: source(0) },
            Self::Template {
                name: text(TEMPLATE_NAME_MAX),
                complete: false,
                source: source(SOURCE_PART_MAX),
            },
            Self::More { complete: false, source: source(SOURCE_PART_MAX) },
            Self::Stage { version: 1 },
            Self::Activate { version: 2 },
            Self::Discard { version: 3 },
            Self::Go {},
        ]
    }
}

impl Samples for ServiceToPublisher {
    fn samples() -> Vec<Self> {
        vec![
            Self::Staged { version: 0 },
            Self::Refused { version: u64::MAX, reason: text(512) },
            Self::Active { version: 1 },
            Self::Serving {},
        ]
    }
}

impl Samples for AdminToService {
    fn samples() -> Vec<Self> {
        let order = |name, argument| Self::Order { name: text(name), argument: text(argument) };
        vec![Self::Diagnostics {}, order(0, 0), order(ORDER_NAME_MAX, ORDER_ARGUMENT_MAX)]
    }
}

impl Samples for ServiceToAdmin {
    fn samples() -> Vec<Self> {
        vec![
            Self::Done { text: text(0) },
            Self::Done { text: text(ORDER_ANSWER_MAX) },
            Self::Failed { reason: text(ORDER_ANSWER_MAX) },
        ]
    }
}

impl Samples for LauncherToBroker {
    fn samples() -> Vec<Self> {
        let limits = Self::Limits { waiting_max: u32::MAX, connect_timeout_ms: 1, flush_ms: 2 };
        let listener = Self::Listener { leader: u32::MAX };
        vec![limits, Self::Begin {}, Self::Connector {}, listener, Self::Report {}]
    }
}

impl Samples for BrokerToConnector {
    fn samples() -> Vec<Self> {
        let connect = |address| Self::Connect { id: 1, address, scope: u32::MAX, waits: true };
        let mut all: Vec<Self> = addresses().into_iter().map(connect).collect();
        all.extend([
            Self::Socket { id: u64::MAX, v6: true, datagram: false },
            Self::Socket { id: 0, v6: false, datagram: true },
            Self::Disconnect { id: 2 },
            Self::Cancel { id: u64::MAX },
        ]);
        all
    }
}

impl Samples for ConnectorToBroker {
    fn samples() -> Vec<Self> {
        vec![
            Self::Made { id: u64::MAX },
            Self::Ended { id: 0, errno: 0 },
            Self::Ended { id: 1, errno: u16::MAX },
        ]
    }
}

impl Samples for ToConnector {
    fn samples() -> Vec<Self> {
        vec![
            Self::Connect { id: u64::MAX, target: u16::MAX },
            Self::Cancel { id: 0 },
            Self::Aim { target: 7 },
            Self::Silent { id: u64::MAX },
        ]
    }
}

impl Samples for FromConnector {
    fn samples() -> Vec<Self> {
        let failed = |why| Self::Failed { id: 7, why };
        let mut all = vec![Self::Connected { id: u64::MAX }];
        all.extend([Unreachable::Refused, Unreachable::Late, Unreachable::Crowded].map(failed));
        all.extend([Unreachable::Unknown, Unreachable::Forbidden, Unreachable::Unresolved].map(failed));
        all.extend([0, u16::MAX].map(|target| Self::Moved { target }));
        all.extend([0, u16::MAX].map(|target| Self::Aimed { target }));
        all
    }
}

impl Samples for ToGuard {
    fn samples() -> Vec<Self> {
        vec![Self::Listening { number: 0 }, Self::Accepting { number: u64::MAX }, Self::Process {}]
    }
}

impl Samples for ChildToLauncher {
    fn samples() -> Vec<Self> {
        let heavy =
            |bits, held| Self::TopRange { address_high: 0, address_low: u64::MAX, bits, held, waiting: 2 };
        let mut all = vec![
            Self::Ready {},
            Self::Committed {},
            heavy(0, 0),
            heavy(128, u32::MAX),
            Self::Shed { shed: Shed::numbered() },
        ];
        all.push(Self::Confirmed { ticket: u32::MAX });
        all.push(Self::LogWanted { site: u16::MAX });
        let holding = Holding { kind: KeyKind::Rsa, not_before: 1, not_after: u64::MAX, named: true };
        all.push(Self::Certificate { site: 1, number: u16::MAX, verdict: Verdict::Good, holding });
        let holding = Holding::NOTHING;
        all.push(Self::Certificate { site: 1, number: 0, verdict: Verdict::Mismatch, holding });
        all.extend(staples().map(|staple| Self::Staple { site: 1, number: u16::MAX, staple }));
        all.push(Self::StaplesEnd {});
        all.push(Self::Tampered { address_high: u64::MAX, address_low: 1 });
        all.push(Self::ChainCut { chain: u32::MAX });
        all.push(Self::Wanted { partition: u16::MAX });
        all.push(Self::Used { partition: 1 });
        all.push(Self::Idle {});
        all.push(Self::TakesRetire {});
        all.extend(counters().into_iter().map(|counters| Self::Counters { counters }));
        all
    }
}

impl Samples for AdminToLauncher {
    fn samples() -> Vec<Self> {
        let mut all = vec![
            Self::Ready {},
            Self::Status { ticket: 0 },
            Self::Relaunch { ticket: u32::MAX, target: u32::MAX },
            Self::RelaunchLeavingOut { ticket: u32::MAX, target: u32::MAX },
            Self::Stop { ticket: 7 },
            Self::Probe { ticket: 1, target: u32::MAX, kind: ProbeKind::Attempts },
            Self::Probe { ticket: u32::MAX, target: 0, kind: ProbeKind::Score },
            Self::Probe { ticket: 0, target: 1, kind: ProbeKind::Foreign },
            Self::Conditioning { ticket: 3 },
            Self::Reopen { ticket: 4 },
            Self::TakeUidsBack { ticket: u32::MAX },
            Self::ReloadOf {
                ticket: 8,
                dry_run: true,
                all_or_nothing: true,
                extent: wire::Extent::Seen,
                site: u64::MAX,
            },
            Self::Bans { ticket: 5 },
            Self::Certificates { ticket: 6 },
            Self::Reload { ticket: 8, dry_run: true },
            Self::ReloadSites { ticket: 8 },
            Self::Republish { ticket: 9, target: u32::MAX },
            Self::Send { ticket: 10, target: 0 },
            Self::StatusOf {
                ticket: 11,
                by_role: true,
                role: Role::Service,
                by_site: false,
                site: u32::MAX,
                from: 1,
                limit: 0,
            },
            Self::StatusAlike { ticket: 12, site: u32::MAX },
            Self::Upgrade { ticket: 9, dry_run: false },
            Self::Unban { ticket: 6, address_high: 0, address_low: u64::MAX },
        ];
        all.extend(counters().into_iter().map(|counters| Self::Counters { counters }));
        all
    }
}

impl Samples for LauncherToGate {
    fn samples() -> Vec<Self> {
        let policies = conditioning().into_iter().map(|conditioning| Self::Conditioning { conditioning });
        let mut all = vec![
            Self::Limits {
                head_bytes: 1,
                head_timeout_ms: 2,
                start_timeout_ms: 3,
                connections: 4,
                flush_ms: 5,
            },
            Self::Listen { index: 0 },
            Self::Route { listener: 0, host: text(0), path: text(0), partition: 0, site: 0 },
            Self::Route {
                listener: u16::MAX,
                host: text(255),
                path: text(1024),
                partition: NO_PARTITION,
                site: NO_PARTITION,
            },
            Self::Route {
                listener: 1,
                host: Text::new("bücher.example"),
                path: Text::new("/€/𝄞\0"),
                partition: 2,
                site: 3,
            },
            Self::Commit {},
            Self::Attach { partition: 1 },
            Self::Broken { partition: 1, broken: false },
            Self::Broken { partition: 1, broken: true },
            Self::NoRoom { partition: u16::MAX },
            Self::Report {},
            Self::Exempt { network: text(64) },
            Self::SharedConnections { listener: 1 },
            Self::ChainFirst {},
            Self::ChainLast { chain: u32::MAX },
            Self::AttachShared { partition: 1 },
            Self::AttachProcess { partition: u16::MAX },
            proxy_trusted(),
            Self::Unfiltered { listener: 1 },
            Self::ReportShed {},
            Self::Capacity { partition: 1, connections: u32::MAX },
            Self::Update {},
            Self::RemovePartition { partition: 1 },
            Self::NoChain {},
            Self::Change {},
            Self::Forget { listener: u16::MAX, host: text(255) },
            Self::LeaveChain {},
            Self::Retire {},
            Self::Name { partition: 1, name: text(128) },
            Self::Protocol { listener: 1, tls: true, h2c: false },
            Self::Redirect { listener: 1, host: text(255), path: text(1024), port: 443 },
            Self::Ban { partition: 1, address_high: u64::MAX, address_low: 0, seconds: u32::MAX },
            Self::TamperExempt { network: text(64) },
        ];
        all.extend(policies);
        all
    }
}

impl Samples for LauncherToSite {
    fn samples() -> Vec<Self> {
        let route = |target| Self::Route { host: text(255), path: text(1024), target, partition: 9 };
        let policies = conditioning().into_iter().map(|conditioning| Self::Conditioning { conditioning });
        let mut all = vec![
            Self::Limits { limits: worker_limits(), site: 1 },
            Self::Root {},
            Self::Index { name: text(0) },
            Self::Index { name: text(255) },
            route(RouteTarget::Files),
            route(RouteTarget::Service),
            route(RouteTarget::Elsewhere),
            route(RouteTarget::Relayed),
            Self::Begin {},
            Self::Update {},
            Self::Commit {},
            Self::Retire {},
            Self::Attach {},
            Self::AttachService { partition: u16::MAX },
            Self::AttachSite { partition: u16::MAX },
            Self::AttachRelay {},
            Self::Broken { partition: 0, broken: true },
            Self::NoRoom { partition: 1 },
            Self::Report {},
            Self::Filtered {},
            Self::ReportShed {},
            Self::Statics {
                cache_control: u32::MAX,
                stat_interval_ms: 1,
                listing: true,
                br: 1,
                zstd: 2,
                gzip: 3,
                static_level: 9,
                dynamic_level: 2,
                max_bytes: u64::MAX,
            },
            Self::ErrorPage { status: 404, page: text(512) },
            Self::RuleHeader { rule: 1, of: HeaderOf::Answer, name: text(64), value: text(2048) },
            Self::RuleHeader { rule: 1, of: HeaderOf::Request, name: text(64), value: text(2048) },
            Self::RuleHeader { rule: 1, of: HeaderOf::Backend, name: text(64), value: text(0) },
            Self::RuleTry { rule: u16::MAX, to: text(1024) },
            Self::MediaType { suffix: text(64), media: text(128) },
            Self::RuleNetwork { rule: 2, network: text(64), allow: true },
            Self::RuleUsers { rule: 3, realm: text(128), path: text(4096) },
            Self::Vhosts {},
            Self::SendHidden { name: text(255) },
            Self::SendSource { suffix: text(64) },
            Self::TicketKey { generation: u64::MAX, secret: bytes(TICKET_KEY_BYTES) },
            Self::Signer {},
            Self::ClientAuthorities { path: text(4096) },
            Self::ClientRevoked { number: u16::MAX, path: text(4096) },
            Self::Stapler {},
            Self::Tls {
                version_min: 0x0303,
                resume: Resume::Tickets,
                client_auth: ClientAuth::Require,
                tamper: true,
                hsts: text(256),
            },
            Self::Tls {
                version_min: 0x0304,
                resume: Resume::Off,
                client_auth: ClientAuth::None,
                tamper: false,
                hsts: text(0),
            },
        ];
        let actions = [
            RuleAction::Terms,
            RuleAction::Redirect,
            RuleAction::Rewrite,
            RuleAction::Upstream,
            RuleAction::Fastcgi,
            RuleAction::Hook,
            RuleAction::TryFiles,
        ];
        all.extend(actions.map(|action| Self::Rule {
            rule: u16::MAX,
            path: text(512),
            suffix: text(64),
            pattern: text(512),
            action,
            status: 308,
            to: text(1024),
            fallback: true,
            internal: true,
            strip_prefix: true,
            body_bytes: u64::MAX,
        }));
        all.push(Self::Requests { partition: u16::MAX, requests: u32::MAX });
        all.extend([Self::Exempt { network: text(64) }, Self::SharedConnections { port: u16::MAX }]);
        all.push(Self::Spool { bytes: u64::MAX });
        all.extend([Self::Connector {}, Self::RootPath { path: text(4096) }]);
        all.push(Self::RuleFolder { rule: u16::MAX, folder: text(4096) });
        all.push(Self::LinkFolder { folder: text(4096) });
        for speech in [Speech::Http, Speech::FastCgi] {
            for proxy_header in [ProxyHeader::None, ProxyHeader::Version1, ProxyHeader::Version2] {
                let (answer_timeout_ms, requests, buffer, script) = (u32::MAX, u32::MAX, true, text(1024));
                let backend = Backend { speech, proxy_header, answer_timeout_ms, requests, buffer, script };
                all.push(Self::Backend { target: u16::MAX, backend });
            }
        }
        all.extend(policies);
        all
    }
}

impl Samples for LauncherToSigner {
    fn samples() -> Vec<Self> {
        let certificate = Self::Certificate { site: 1, number: u16::MAX };
        vec![
            certificate,
            Self::Client { site: NO_PARTITION },
            Self::Begin {},
            Self::Report {},
            Self::Stapler {},
            Self::Host { site: 1, host: Text::new("a".repeat(255)) },
            Self::Key { site: 1, number: u16::MAX },
            Self::Name { site: 1, name: Text::new("a".repeat(63)) },
            Self::Confirm { ticket: u32::MAX },
            Self::Forget { site: 1 },
        ]
    }
}

impl Samples for SiteToSigner {
    fn samples() -> Vec<Self> {
        let sign =
            |size| Self::Sign { ticket: 1, number: 2, version: 3, scheme: 0x0403, message: bytes(size) };
        vec![sign(0), sign(SIGNED_MAX)]
    }
}

impl Samples for SignerToSite {
    fn samples() -> Vec<Self> {
        let part = |kind, size| {
            let (index, count, der) = (1, u8::MAX, bytes(size));
            Self::Certificate { number: 1, version: 2, kind, index, count, der }
        };
        vec![
            part(KeyKind::P256, 0),
            part(KeyKind::Rsa, CERTIFICATE_MAX),
            Self::Signed { ticket: 1, signature: bytes(SIGNATURE_MAX) },
            Self::Refused { ticket: u32::MAX },
        ]
    }
}

impl Samples for LauncherToStapler {
    fn samples() -> Vec<Self> {
        vec![
            Self::Limits { flush_ms: u32::MAX },
            Self::Port { port: u16::MAX },
            Self::Certificate { site: 1, number: u16::MAX, name: text(512) },
            Self::Resolver {},
            Self::Hosts {},
            Self::Begin {},
            Self::Signer {},
            Self::Client { site: 7 },
            Self::Report {},
            Self::ReportStaples {},
            Self::Forget { site: 1 },
        ]
    }
}

impl Samples for SignerToStapler {
    fn samples() -> Vec<Self> {
        let part =
            |size| Self::Certificate { site: 1, number: 2, index: 3, count: u8::MAX, der: bytes(size) };
        vec![part(0), part(CERTIFICATE_MAX)]
    }
}

impl Samples for StaplerToSite {
    fn samples() -> Vec<Self> {
        let staple = |size| {
            let (certificate, response) = (bytes(HASH_BYTES), bytes(size));
            Self::Staple { number: 1, certificate, until: u64::MAX, response }
        };
        vec![staple(0), staple(STAPLE_MAX)]
    }
}

impl Samples for LauncherToService {
    fn samples() -> Vec<Self> {
        vec![
            Self::Limits { limits: worker_limits(), site: 1, owns_host: false, dumps: true, jit: false },
            Self::Limits {
                limits: worker_limits(),
                site: u16::MAX,
                owns_host: true,
                dumps: false,
                jit: true,
            },
            Self::Begin {},
            Self::Attach { source: Source::Gate },
            Self::Attach { source: Source::Site },
            Self::Report {},
            Self::DataSource { name: text(63) },
            Self::DataProxy { name: text(0), token: Token([1; TOKEN_BYTES]) },
            Self::Templates {},
            Self::Publisher {},
            Self::Orders {},
        ]
    }
}

impl Samples for LauncherToLogger {
    fn samples() -> Vec<Self> {
        vec![
            Self::Format { format: 2, flush_ms: 1000, access_bytes: u64::MAX },
            Self::AccessLog { site: 0, name: text(63) },
            Self::ErrorLog {},
            Self::Client { label: text(0), right: AccessRight::None },
            Self::Client { label: text(1), right: AccessRight::Site(0) },
            Self::Client { label: text(128), right: AccessRight::Site(NO_PARTITION) },
            Self::Client { label: text(128), right: AccessRight::Every },
            Self::Stderr { label: text(128) },
            Self::Begin {},
            Self::Report {},
            Self::Syslog {},
            Self::NoSyslog {},
            Self::Terminal {},
            Self::LastLines { label: text(0) },
            Self::LastLines { label: text(128) },
            Self::Read {},
            Self::Confirm { ticket: u32::MAX },
            Self::AccessLogLater { site: u16::MAX, name: text(63) },
            Self::Last {},
        ]
    }
}

impl Samples for LauncherToAdmin {
    fn samples() -> Vec<Self> {
        let answer = |outcome| Self::Answer { ticket: 1, outcome, reason: text(512) };
        let process = |role, counters| Self::Process {
            ticket: 1,
            role,
            name: text(128),
            pid: 2,
            uid: u32::MAX,
            state: text(32),
            restarts: 3,
            age_ms: u64::MAX,
            counters,
            last_exit: text(64),
            jit: true,
            oom_kills: u32::MAX,
            version: text(64),
            is_before: true,
        };
        let mut all = vec![
            Self::Socket {},
            Self::Target { target: 1, name: text(128) },
            Self::Secret { secret: text(64) },
            Self::Begin {},
            Self::StatusEnd {
                ticket: 1,
                missing: text(1024),
                longest_step_us: u64::MAX,
                longest_step: text(32),
                longest_lately_us: 1,
                longest_lately: text(0),
            },
            answer(Outcome::Done),
            answer(Outcome::Failed),
            answer(Outcome::Busy),
            answer(Outcome::Partly),
            Self::UidShare { ticket: 1, first: 1, last: u32::MAX, taken: 2, left: 3, is_scarce: true },
            Self::Before { ticket: 1, processes: u32::MAX, is_upgrading: true },
            Self::LeftOut {
                ticket: 9,
                file: text(4096),
                stand_in: wire::StandIn::LastGood,
                sites: text(512),
                hosts: text(1024),
                is_whole: false,
                reason: text(wire::LEFT_OUT_MAX),
            },
            Self::Report {},
            Self::ProbeOutput { ticket: 9 },
            Self::PublisherOutput { ticket: 10 },
            Self::ServiceChannel { ticket: 11, worker: u16::MAX },
            Self::Forget { target: u32::MAX },
            Self::StatusNext { ticket: 12, next: 1 },
            Self::TopRange {
                ticket: 1,
                name: text(128),
                address_high: u64::MAX,
                address_low: 0,
                bits: 56,
                held: 2,
                waiting: 3,
            },
            Self::ConditioningEnd { ticket: u32::MAX },
            Self::Ban { ticket: 1, name: text(128), address_high: u64::MAX, address_low: 0, seconds: 1 },
            Self::BansEnd { ticket: 2 },
            Self::CertificatesEnd { ticket: 3 },
            Self::Changed { ticket: 4, verb: Verb::Removed, what: text(256), keys: text(512) },
            Self::Affected { ticket: 5, act: Act::Stop, process: text(128), why: text(0) },
            Self::Upgraded {
                ticket: 6,
                role: Role::Gate,
                from: text(0),
                to: text(64),
                replaced: 7,
                kept: u32::MAX,
            },
        ];
        all.extend(staples().map(|staple| Self::Certificate {
            ticket: 4,
            name: text(128),
            file: text(4096),
            verdict: Verdict::NoKey,
            holding: Holding {
                kind: KeyKind::Ed25519,
                not_before: u64::MAX,
                not_after: u64::MAX,
                named: false,
            },
            staple,
        }));
        for &role in Role::ALL {
            all.push(Self::Shed { ticket: 1, role, name: text(128), shed: Shed::numbered() });
            all.extend(counters().into_iter().map(|counters| process(role, counters)));
        }
        all
    }
}

/// Calls `$check` for the messages of every edge.
macro_rules! every_edge {
    ($check:ident) => {
        $check::<ToWorker>();
        $check::<FromWorker>();
        $check::<FromGuarded>();
        $check::<ToGuarded>();
        $check::<ToGuard>();
        $check::<ChildToLauncher>();
        $check::<AdminToLauncher>();
        $check::<LauncherToSuccessor>();
        $check::<LauncherToGate>();
        $check::<LauncherToSite>();
        $check::<LauncherToService>();
        $check::<LauncherToLogger>();
        $check::<LauncherToAdmin>();
        $check::<LauncherToSigner>();
        $check::<SiteToSigner>();
        $check::<SignerToSite>();
        $check::<LauncherToConnector>();
        $check::<ToConnector>();
        $check::<FromConnector>();
        $check::<LauncherToBroker>();
        $check::<BrokerToConnector>();
        $check::<ConnectorToBroker>();
        $check::<LauncherToStapler>();
        $check::<SignerToStapler>();
        $check::<StaplerToSite>();
        $check::<LauncherToDataProxy>();
        $check::<ServiceToDataProxy>();
        $check::<DataProxyToService>();
        $check::<LauncherToPublisher>();
        $check::<PublisherToService>();
        $check::<ServiceToPublisher>();
        $check::<AdminToService>();
        $check::<ServiceToAdmin>();
    };
}

fn encoded(message: &impl Message) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(&mut out);
    out
}

/// The numbers of the messages that `M` has.
fn kinds<M: Message>() -> BTreeSet<u8> {
    (0..=u8::MAX).filter(|&kind| M::decode(&[1, kind]).err() != Some(DecodeError::Type(kind))).collect()
}

#[test]
fn samples_have_every_variant() {
    fn check<M: Samples>() {
        let sampled: BTreeSet<u8> = M::samples().iter().map(|message| encoded(message)[1]).collect();
        assert_eq!(sampled, kinds::<M>(), "{}", std::any::type_name::<M>());
        assert_eq!(sampled.first(), Some(&1));
        // Numbers are given out in tens: from 20 on to TLS.
        for (one, next) in sampled.iter().zip(sampled.iter().skip(1)) {
            assert!(next - one == 1 || next % 10 == 0, "a gap between {one} and {next}");
        }
    }
    every_edge!(check);
}

#[test]
fn there_and_back() {
    fn check<M: Samples>() {
        for message in M::samples() {
            let bytes = encoded(&message);
            assert_eq!(M::decode(&bytes).as_ref(), Ok(&message));
            assert!(bytes.len() <= MESSAGE_MAX, "{} bytes of {message:?}", bytes.len());
        }
    }
    every_edge!(check);
}

#[test]
fn encoding_appends() {
    let mut out = vec![0xaa];
    ChildToLauncher::Ready {}.encode(&mut out);
    assert_eq!(out, [0xaa, 1, 1]);
}

#[test]
fn every_truncation_is_refused() {
    fn check<M: Samples>() {
        for message in M::samples() {
            let bytes = encoded(&message);
            for end in 0..bytes.len() {
                assert_eq!(M::decode(&bytes[..end]), Err(DecodeError::Short), "{end} of {message:?}");
            }
        }
    }
    every_edge!(check);
}

#[test]
fn one_byte_more_is_refused() {
    fn check<M: Samples>() {
        for message in M::samples() {
            for extra in [0, 1, 0xff] {
                let mut bytes = encoded(&message);
                bytes.push(extra);
                assert_eq!(M::decode(&bytes), Err(DecodeError::Long), "{message:?}");
            }
        }
    }
    every_edge!(check);
}

#[test]
fn another_version_is_refused() {
    fn check<M: Samples>() {
        for message in M::samples() {
            let mut bytes = encoded(&message);
            for version in (0..=u8::MAX).filter(|&version| version != 1) {
                bytes[0] = version;
                assert_eq!(M::decode(&bytes), Err(DecodeError::Version(version)));
            }
        }
    }
    every_edge!(check);
}

#[test]
fn another_type_is_refused() {
    fn check<M: Samples>() {
        let known = kinds::<M>();
        for message in M::samples() {
            let mut bytes = encoded(&message);
            for kind in (0..=u8::MAX).filter(|kind| !known.contains(kind)) {
                bytes[1] = kind;
                assert_eq!(M::decode(&bytes), Err(DecodeError::Type(kind)));
            }
        }
    }
    every_edge!(check);
}

/// Two encodings of one message would be two things to think of where messages are compared or counted.
#[test]
fn a_changed_byte_is_refused_or_means_what_it_says() {
    fn check<M: Samples>() {
        for message in M::samples() {
            let bytes = encoded(&message);
            for at in 0..bytes.len().min(200) {
                for change in [0x01, 0x02, 0x40, 0x80, 0xff] {
                    let mut bytes = bytes.clone();
                    bytes[at] ^= change;
                    if let Ok(other) = M::decode(&bytes) {
                        assert_ne!(other, message, "byte {at} ^ {change:#x}");
                        assert_eq!(encoded(&other), bytes, "byte {at} ^ {change:#x} of {message:?}");
                    }
                }
            }
        }
    }
    every_edge!(check);
}

/// Nothing follows the length here: had the decoder wanted the bytes (or the room for them) before it looked at
/// the limit, it would have said that they are missing. Room in the heap is checked by `fuzz/run`, which gives
/// the decoders a limit for one allocation.
#[test]
fn a_length_over_its_limit_is_refused_first() {
    fn refused<M: Message + Debug + PartialEq>(start: &[u8], length: &[u8], limit: usize) {
        let bytes = [&[1], start, length].concat();
        assert_eq!(M::decode(&bytes), Err(DecodeError::Limit(limit)));
    }
    let no_text: &[u8] = &[0; 2];
    let over = |limit: u16| (limit + 1).to_le_bytes();
    for length in [PREREAD_MAX as u32 + 1, 1 << 31, u32::MAX] {
        refused::<ToWorker>(&[&[1][..], &[0; 8 + 18 + 18 + 1]].concat(), &length.to_le_bytes(), PREREAD_MAX);
        refused::<FromWorker>(&[&[2][..], &[0; 8]].concat(), &length.to_le_bytes(), PREREAD_MAX);
    }
    refused::<ToWorker>(&[2], &over(BUNDLES_MAX as u16), BUNDLES_MAX);
    refused::<LauncherToGate>(&[3, 0, 0], &over(255), 255);
    refused::<LauncherToGate>(&[&[3, 0, 0], no_text].concat(), &over(1024), 1024);
    refused::<LauncherToGate>(&[3, 0, 0], &u16::MAX.to_le_bytes(), 255);
    refused::<LauncherToSite>(&[3], &over(255), 255);
    refused::<LauncherToSite>(&[4], &over(255), 255);
    refused::<LauncherToSite>(&[&[4], no_text].concat(), &over(1024), 1024);
    refused::<LauncherToLogger>(&[4], &over(128), 128);
    refused::<LauncherToLogger>(&[5], &over(128), 128);
    refused::<LauncherToAdmin>(&[2, 0, 0, 0, 0], &over(128), 128);
    refused::<LauncherToAdmin>(&[5, 0, 0, 0, 0, 0], &over(128), 128);
    refused::<LauncherToAdmin>(&[6, 0, 0, 0, 0], &over(1024), 1024);
    refused::<LauncherToAdmin>(&[7, 0, 0, 0, 0, 0], &over(wire::REASON_MAX as u16), wire::REASON_MAX);
}

#[test]
fn a_reason_may_be_long() {
    let reason = Text::new("x".repeat(wire::REASON_MAX));
    let answer = LauncherToAdmin::Answer { ticket: 1, outcome: Outcome::Failed, reason };
    assert_eq!(LauncherToAdmin::decode(&encoded(&answer)), Ok(answer));
}

#[test]
fn a_list_longer_than_its_message_is_refused() {
    let count = (wire::NUMBERS_MAX as u16).to_le_bytes();
    for missing in 1..=8 {
        let mut bytes = vec![1, 1, 0, 0, count[0], count[1]];
        bytes.resize(bytes.len() + wire::NUMBERS_MAX * 8 - missing, 0);
        assert_eq!(FromWorker::decode(&bytes), Err(DecodeError::Short));
    }
}

#[test]
fn a_list_over_its_limit_is_refused() {
    let count = (wire::NUMBERS_MAX as u16 + 1).to_le_bytes();
    let mut bytes = vec![1, 1, 0, 0, count[0], count[1]];
    assert_eq!(FromWorker::decode(&bytes), Err(DecodeError::Limit(wire::NUMBERS_MAX)));
    bytes.resize(bytes.len() + (wire::NUMBERS_MAX + 1) * 8, 0);
    assert_eq!(FromWorker::decode(&bytes), Err(DecodeError::Limit(wire::NUMBERS_MAX)));
}

#[test]
fn values_that_a_field_does_not_have_are_refused() {
    for flag in 2..=u8::MAX {
        assert_eq!(LauncherToGate::decode(&[1, 6, 0, 0, flag]), Err(DecodeError::Value("flag")));
    }
    for source in 2..=u8::MAX {
        assert_eq!(LauncherToService::decode(&[1, 3, source]), Err(DecodeError::Value("Source")));
    }
    for target in 4..=u8::MAX {
        let bytes = [1, 4, 0, 0, 0, 0, target, 0, 0];
        assert_eq!(LauncherToSite::decode(&bytes), Err(DecodeError::Value("RouteTarget")));
    }
    for outcome in 4..=u8::MAX {
        let bytes = [1, 7, 0, 0, 0, 0, outcome, 0, 0];
        assert_eq!(LauncherToAdmin::decode(&bytes), Err(DecodeError::Value("Outcome")));
    }
    for role in Role::ALL.len() as u8..=u8::MAX {
        assert_eq!(LauncherToAdmin::decode(&[1, 5, 0, 0, 0, 0, role]), Err(DecodeError::Value("role")));
    }
    for not_utf8 in [&b"\xff"[..], b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf"] {
        let bytes = [&[1, 3, not_utf8.len() as u8, 0], not_utf8].concat();
        assert_eq!(LauncherToSite::decode(&bytes), Err(DecodeError::Value("text")));
    }
}

#[test]
fn text_is_cut_between_characters() {
    assert_eq!(Text::<4>::new("abcde").as_str(), "abcd");
    assert_eq!(Text::<4>::new("abc€").as_str(), "abc");
    assert_eq!(Text::<2>::new("€").as_str(), "");
    assert_eq!(Text::<255>::new("é".repeat(200)).as_str().len(), 254);
}

/// One client has one name in every log: an IPv4 address that arrives at an IPv6 socket is an IPv4 address.
#[test]
fn a_mapped_address_is_an_ipv4_address() {
    let mapped: SocketAddr = "[::ffff:192.0.2.1]:80".parse().unwrap();
    let bundle = Bundle { id: 0, peer: mapped, local: mapped, kind: Kind::Plain, preread: Bytes(vec![]) };
    let decoded = ToWorker::decode(&encoded(&ToWorker::Connection { bundle })).unwrap();
    let ToWorker::Connection { bundle } = decoded else {
        panic!("{decoded:?}");
    };
    assert_eq!(bundle.peer, "192.0.2.1:80".parse().unwrap());
}

/// What a compromised child can make the launcher hold or read: integers, of a size known beforehand.
#[test]
fn messages_to_the_launcher_have_a_fixed_size() {
    fn check<M: Samples>(bytes_max: usize) {
        for message in M::samples() {
            assert!(encoded(&message).len() <= bytes_max, "{message:?}");
        }
        for kind in kinds::<M>() {
            for filling in [0, 1, 0xff] {
                let accepted: Vec<usize> = (0..200)
                    .filter(|&length| M::decode(&[&[1, kind], &vec![filling; length][..]].concat()).is_ok())
                    .collect();
                // An enumeration has no value for some bytes, whatever their number.
                let some = filling == 0xff && accepted.is_empty();
                assert!(some || accepted.len() == 1, "type {kind} has the sizes {accepted:?}");
            }
        }
    }
    check::<ChildToLauncher>(134);
    check::<AdminToLauncher>(22);
}

#[test]
fn counts_of_what_was_shed_have_their_names() {
    let shed = Shed::numbered();
    let debug = format!("{shed:?}");
    for (at, (name, count)) in shed.counts().enumerate() {
        assert_eq!(count, at as u64 + 1, "{name}");
        assert!(debug.contains(&format!("{name}: {count}")), "{debug}");
    }
}

#[test]
fn refusals_say_what_was_wrong() {
    let said = [
        (DecodeError::Short, "message ends in the middle of a field"),
        (DecodeError::Long, "message has bytes after its last field"),
        (DecodeError::Version(9), "message has version 9; this is version 1"),
        (DecodeError::Type(9), "no message of type 9 on this channel"),
        (DecodeError::Value("flag"), "flag out of its range"),
        (DecodeError::Limit(128), "field over its limit of 128 bytes"),
    ];
    for (error, text) in said {
        assert_eq!(error.to_string(), text);
    }
}
