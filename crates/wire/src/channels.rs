//! The topology: every channel between two roles. A line that is missing is a guarantee.
//!
//! Runs in: nothing; it is read by tests, which render it into docs/internals/roles.md, and by people.
//!
//! CONTRIBUTING.md, "Messages": a new edge is a new line here.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A kind of process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// `bulkheadd`, the only root process.
    Launcher = 0,
    /// Accepts connections and finds their partition.
    Gate = 1,
    /// Serves one site.
    Site = 2,
    /// Runs one service.
    Service = 3,
    /// Writes the logs.
    Logger = 4,
    /// Passes the administrator's orders on.
    Admin = 5,
    /// A filter of the operator's, any program: gets requests from the gates, and passes them on or drops them.
    Filter = 6,
    /// Holds the private keys of all sites, and signs with them.
    Signer = 7,
    /// Makes one site's connections to its upstreams and FastCGI servers, or those that one service was granted.
    Connector = 8,
    /// Asks the responders of authorities about sites' certificates.
    Stapler = 9,
    /// Answers the calls by which one service asks for sockets and connections.
    Broker = 10,
    /// Carries out named statements on one of a site's databases.
    DataProxy = 11,
    /// Reads one site's templates, and publishes them to the site's services.
    Publisher = 12,
}

impl Role {
    /// Every role.
    pub const ALL: &'static [Self] = &[
        Self::Launcher,
        Self::Gate,
        Self::Site,
        Self::Service,
        Self::Logger,
        Self::Admin,
        Self::Filter,
        Self::Signer,
        Self::Connector,
        Self::Stapler,
        Self::Broker,
        Self::DataProxy,
        Self::Publisher,
    ];

    /// Whether commands know its processes by the name of the role, and not by that of a site or a service: no site may be
    /// called so.
    pub const fn is_named_by_itself(self) -> bool {
        match self {
            Self::Launcher
            | Self::Gate
            | Self::Logger
            | Self::Admin
            | Self::Filter
            | Self::Signer
            | Self::Stapler => true,
            Self::Site
            | Self::Service
            | Self::Connector
            | Self::Broker
            | Self::DataProxy
            | Self::Publisher => false,
        }
    }

    /// The name of the crate, the program and the process.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Launcher => "bulkheadd",
            Self::Gate => "gate",
            Self::Site => "site",
            Self::Service => "service",
            Self::Logger => "logger",
            Self::Admin => "admin",
            Self::Filter => "filter",
            Self::Signer => "signer",
            Self::Connector => "connector",
            Self::Stapler => "stapler",
            Self::Broker => "broker",
            Self::DataProxy => "dataproxy",
            Self::Publisher => "publisher",
        }
    }

    /// How much sooner than the launcher the kernel kills its processes when memory runs out: what their `oom_score_adj` is
    /// above the launcher's, where one is a thousandth of all memory.
    ///
    /// Programs of others come first; then what works for one site; then what works for all, without which no site is served.
    pub const fn oom_step(self) -> u16 {
        match self {
            Self::Launcher => 0,
            Self::Gate | Self::Logger | Self::Admin | Self::Signer | Self::Stapler => 200,
            Self::Filter => 300,
            Self::Site | Self::Connector | Self::Broker | Self::DataProxy | Self::Publisher => 400,
            Self::Service => OOM_STEP_MAX,
        }
    }
}

/// The same of the reaper and of the closer, without which nothing is served worse.
pub const OOM_STEP_REAPER: u16 = 100;
/// The same of what works for the launcher for a moment. What it does can be done again.
pub const OOM_STEP_HELPER: u16 = 300;
/// The largest step.
pub const OOM_STEP_MAX: u16 = 500;

/// When the launcher asks a process whether it is there, by `Report`. One that does not answer, and is not merely starved, is
/// replaced as one that has crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heartbeat {
    /// Several times a second while connections come: those in its accept queue are served by nobody else.
    Short,
    /// While it is in use itself, as those say that give it connections.
    InUse,
    /// While a process of its site is in use.
    SiteInUse,
    /// Always; more often while anything is in use.
    Always,
    /// Never: it has no control channel, or it is the launcher.
    Never,
}

impl Role {
    /// When its processes are asked whether they are there.
    pub const fn heartbeat(self) -> Heartbeat {
        match self {
            Self::Gate => Heartbeat::Short,
            Self::Site | Self::Service => Heartbeat::InUse,
            Self::Connector | Self::Broker | Self::DataProxy | Self::Publisher => Heartbeat::SiteInUse,
            Self::Logger | Self::Admin | Self::Signer | Self::Stapler => Heartbeat::Always,
            Self::Launcher | Self::Filter => Heartbeat::Never,
        }
    }
}

/// One direction of a channel.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// Who sends.
    pub from: Role,
    /// Who receives.
    pub to: Role,
    /// The message type.
    pub message: &'static str,
    /// Which descriptors come along; `None`: the launcher has the kernel refuse them on the way to the receiver's end.
    pub descriptors: Option<&'static str>,
}

/// An edge on which descriptors come along.
const fn edge(from: Role, to: Role, message: &'static str, descriptors: &'static str) -> Edge {
    Edge { from, to, message, descriptors: Some(descriptors) }
}

/// An edge of bytes alone.
const fn bytes(from: Role, to: Role, message: &'static str) -> Edge {
    Edge { from, to, message, descriptors: None }
}

/// Whether descriptors may come along with this message, from this role to that.
pub fn carries(from: Role, to: Role, message: &str) -> bool {
    let is_meant = |edge: &&Edge| edge.from == from && edge.to == to && edge.message == message;
    CHANNELS.iter().find(is_meant).is_some_and(|edge| edge.descriptors.is_some())
}

/// Whether descriptors may come along with any message from this role to that.
pub fn carries_any(from: Role, to: Role) -> bool {
    CHANNELS.iter().any(|edge| edge.from == from && edge.to == to && edge.descriptors.is_some())
}

/// Every directed edge there is.
pub const CHANNELS: &[Edge] = &[
    edge(Role::Launcher, Role::Gate, "LauncherToGate", "listening sockets, channels to workers and filters"),
    edge(
        Role::Launcher,
        Role::Site,
        "LauncherToSite",
        "its root directory and the folders beside it, the file in which bodies wait, channels from gates, to services and the signer, from the stapler, \
         to or from sites of its host",
    ),
    edge(
        Role::Launcher,
        Role::Service,
        "LauncherToService",
        "channels from gates and its site's worker, to data proxies and its site's publisher, and from admin for an order",
    ),
    edge(
        Role::Launcher,
        Role::Logger,
        "LauncherToLogger",
        "log files, syslog's socket, the terminal, clients' channels",
    ),
    edge(
        Role::Launcher,
        Role::Admin,
        "LauncherToAdmin",
        "the administration socket, what a probe or a publisher says, channels to services",
    ),
    edge(
        Role::Launcher,
        Role::Signer,
        "LauncherToSigner",
        "files with keys and certificates, sites' and the stapler's channels",
    ),
    edge(
        Role::Launcher,
        Role::Connector,
        "LauncherToConnector",
        "directories of Unix sockets, `resolv.conf` and `hosts`, channels from its site's worker, its service's broker or its data proxy",
    ),
    edge(
        Role::Launcher,
        Role::Stapler,
        "LauncherToStapler",
        "`resolv.conf` and `hosts`, channels from the signer and to sites",
    ),
    edge(
        Role::Launcher,
        Role::Broker,
        "LauncherToBroker",
        "listeners of the service's calls, the channel to its connector",
    ),
    edge(
        Role::Launcher,
        Role::DataProxy,
        "LauncherToDataProxy",
        "files of statements, of a schema, of a password, of authorities, and of a certificate with its key, channels from services and to its connector",
    ),
    edge(
        Role::Launcher,
        Role::Publisher,
        "LauncherToPublisher",
        "a folder of templates, memory for versions, channels from services, a socket to admin for a report",
    ),
    bytes(Role::Gate, Role::Launcher, "ChildToLauncher"),
    bytes(Role::Site, Role::Launcher, "ChildToLauncher"),
    bytes(Role::Service, Role::Launcher, "ChildToLauncher"),
    bytes(Role::Logger, Role::Launcher, "ChildToLauncher"),
    bytes(Role::Signer, Role::Launcher, "ChildToLauncher"),
    bytes(Role::Connector, Role::Launcher, "ChildToLauncher"),
    bytes(Role::Stapler, Role::Launcher, "ChildToLauncher"),
    bytes(Role::Broker, Role::Launcher, "ChildToLauncher"),
    bytes(Role::DataProxy, Role::Launcher, "ChildToLauncher"),
    bytes(Role::Publisher, Role::Launcher, "ChildToLauncher"),
    bytes(Role::Admin, Role::Launcher, "AdminToLauncher"),
    edge(Role::Gate, Role::Site, "ToWorker", "a client's connection"),
    edge(Role::Gate, Role::Service, "ToWorker", "a client's connection (`takes_connections` only)"),
    edge(Role::Gate, Role::Filter, "ToWorker", "a client's connection, with the head that was read from it"),
    edge(Role::Filter, Role::Filter, "ToWorker", "the same, to the next one of the chain"),
    edge(Role::Filter, Role::Gate, "ToWorker", "the same, from the last one"),
    edge(Role::Site, Role::Service, "ToWorker", "one end of a pair on which requests are relayed"),
    edge(
        Role::Site,
        Role::Site,
        "ToWorker",
        "one end of a pair with a request under TLS, from the site with the host's certificate to one with a `path`",
    ),
    bytes(Role::Site, Role::Site, "FromWorker"),
    edge(Role::Site, Role::Gate, "FromWorker", "a client's connection, handed back"),
    edge(Role::Service, Role::Gate, "FromWorker", "a client's connection, handed back"),
    bytes(Role::Service, Role::Site, "FromWorker"),
    bytes(Role::Site, Role::Signer, "SiteToSigner"),
    bytes(Role::Signer, Role::Site, "SignerToSite"),
    bytes(Role::Signer, Role::Stapler, "SignerToStapler"),
    bytes(Role::Stapler, Role::Site, "StaplerToSite"),
    bytes(Role::Site, Role::Connector, "ToConnector"),
    edge(Role::Connector, Role::Site, "FromConnector", "a connection to an upstream or a FastCGI server"),
    edge(Role::Broker, Role::Connector, "BrokerToConnector", "the socket that is to be connected"),
    edge(Role::Connector, Role::Broker, "ConnectorToBroker", "a new socket"),
    bytes(Role::Service, Role::DataProxy, "ServiceToDataProxy"),
    bytes(Role::DataProxy, Role::Service, "DataProxyToService"),
    bytes(Role::DataProxy, Role::Connector, "ToConnector"),
    edge(Role::Connector, Role::DataProxy, "FromConnector", "a connection to a database"),
    bytes(Role::Publisher, Role::Service, "PublisherToService"),
    bytes(Role::Service, Role::Publisher, "ServiceToPublisher"),
    bytes(Role::Admin, Role::Service, "AdminToService"),
    bytes(Role::Service, Role::Admin, "ServiceToAdmin"),
    bytes(Role::Gate, Role::Logger, "log batch"),
    bytes(Role::Site, Role::Logger, "log batch"),
    bytes(Role::Service, Role::Logger, "log batch"),
    bytes(Role::Connector, Role::Logger, "log batch"),
    bytes(Role::Admin, Role::Logger, "log batch"),
    bytes(Role::Signer, Role::Logger, "log batch"),
    bytes(Role::Stapler, Role::Logger, "log batch"),
    bytes(Role::Broker, Role::Logger, "log batch"),
    bytes(Role::DataProxy, Role::Logger, "log batch"),
    bytes(Role::Publisher, Role::Logger, "log batch"),
];

/// The steps of [`Role::oom_step`] as Markdown, the smallest first.
pub fn render_oom_steps() -> String {
    let of_roles = Role::ALL.iter().map(|role| (role.oom_step(), role.name()));
    let others = [
        (OOM_STEP_REAPER, "reaper"),
        (OOM_STEP_REAPER, "closer"),
        (OOM_STEP_HELPER, "a helper, or a copy of the launcher"),
    ];
    let mut names: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    of_roles.chain(others).for_each(|(step, name)| names.entry(step).or_default().push(name));
    let mut out = String::from("| `oom_score_adj` above the launcher's | processes |\n| --- | --- |\n");
    for (step, names) in names {
        let _ = writeln!(out, "| {step} | {} |", names.join(", "));
    }
    out
}

/// The table as Markdown.
pub fn render() -> String {
    let mut out =
        String::from("| from | to | messages | descriptors that come along |\n| --- | --- | --- | --- |\n");
    for edge in CHANNELS {
        let _ = writeln!(
            out,
            "| {} | {} | `{}` | {} |",
            edge.from.name(),
            edge.to.name(),
            edge.message,
            edge.descriptors.unwrap_or("none")
        );
    }
    out
}
