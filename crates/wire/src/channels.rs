//! The topology: every channel between two roles. A line that is missing is a guarantee.
//!
//! Runs in: nothing; it is read by tests, which render it into docs/internals/roles.md, and by people.
//!
//! CONTRIBUTING.md, "Messages": a new edge is a new line here.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::roles::{OOM_STEP_HELPER, OOM_STEP_REAPER, Role};

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

/// The facts about each role, as Markdown.
pub fn render_processes() -> String {
    let mut out = String::from(
        "| program | how many | runs as | what it sees | what it never has |\n| --- | --- | --- | --- | --- |\n",
    );
    for role in Role::ALL {
        let facts = role.facts();
        let user = match (role, facts.uid_of) {
            (Role::Launcher, _) => "root",
            (_, "site") => "the site's uid",
            (_, "service") => "the service's uid",
            _ => "a uid of its own",
        };
        let _ =
            writeln!(out, "| {} | {} | {user} | {} | {} |", facts.name, facts.count, facts.sees, facts.lacks);
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
