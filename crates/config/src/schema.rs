//! What a valid configuration is: the types every other crate sees.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: none, these are results. Must never: be
//! built from anything but a file that passed all checks.

mod tls;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::data_schema::DataSource;
use crate::diagnostic::Diagnostic;
use crate::keys::{checked_form, limits_keys, restart_keys, service_keys};
use crate::shared_list::SharedList;
use crate::statics_schema::{Redirect, Route, Statics, Terms};
pub use tls::{CertificateFiles, ClientCertificates, Resumption, SiteTls, Tls, TlsVersion};

/// A whole configuration file, checked. Every path in it is absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The folder of the file; relative paths were joined to it.
    pub dir: PathBuf,
    /// `[server]`: what the machine as a whole needs.
    pub server: Server,
    /// `[[listen]]`: at least one, all different.
    pub listeners: Vec<Listener>,
    /// `[tls]`.
    pub tls: Tls,
    /// `[log]`.
    pub log: Log,
    /// `[restart]`.
    pub restart: Restart,
    /// `[limits]`.
    pub limits: Limits,
    /// `[conditioning]`.
    pub conditioning: Conditioning,
    /// `include`: the folder of files of sites.
    pub include: Option<Arc<Include>>,
    /// `[[site]]`, in the order of the file, and then of the files of the folder; at least one, unless there is such a
    /// folder.
    pub sites: SharedList<Arc<Site>>,
    /// What the file says that is perhaps not meant; nothing of it keeps anything from running.
    pub warnings: Vec<Diagnostic>,
}

/// `include`: a folder, each of whose files has sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Include {
    /// The folder; absolute.
    pub folder: PathBuf,
    /// Its files, in the order of their names.
    pub files: SharedList<Arc<SiteFile>>,
}

/// A file of `include`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteFile {
    /// Where the file is.
    pub path: PathBuf,
    /// The names of its sites.
    pub sites: Vec<String>,
}

/// `[server]`: uids, folders and the number of gates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The uids (and equal gids) given to partitions, one each; large enough for all of this file.
    pub user_range: RangeInclusive<u32>,
    /// Whether the file says so; if not, it is the default.
    pub user_range_given: bool,
    /// What must outlive a restart (the uid table).
    pub state_dir: PathBuf,
    /// Sockets and the pid file; short enough for the path of `admin.sock` in it.
    pub run_dir: PathBuf,
    /// Access and error logs.
    pub log_dir: PathBuf,
    /// Processes that accept connections, 1 to 64; `None`: one per core.
    pub gates: Option<u32>,
    /// What to do where a layer of the jail cannot be applied.
    pub isolation: Isolation,
    /// Names of layers that are left out on purpose; empty unless `isolation` is [`Isolation::Degraded`].
    pub danger_without: Vec<String>,
    /// When processes of sites start that do not say so themselves.
    pub start: Start,
    /// After how long without a connection processes go that start on demand, in milliseconds.
    pub idle_stop_ms: u32,
}

/// When the processes of a site start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the server.
    Always,
    /// With the first connection; they go when there has been none for a while.
    OnDemand,
}

/// What to do where a layer of the jail cannot be applied, as root; another user always runs degraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Refuse to start the process.
    Strict,
    /// Start it without, and say so.
    Degraded,
}

/// Where a service may connect to by TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpGrant {
    /// The hosts, as `ADDRESS/BITS`; `None`: any.
    pub network: Option<String>,
    /// Their port.
    pub port: u16,
}

/// What a service may do in the machine's network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Where it may connect to.
    pub tcp: Vec<TcpGrant>,
    /// Whether it may send and receive datagrams.
    pub udp: bool,
}

impl Network {
    /// Whether it is given any of it.
    pub fn is_granted(&self) -> bool {
        self.udp || !self.tcp.is_empty()
    }
}

/// `[[listen]]`: one address to accept connections at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Address and port; the port is never 0.
    pub address: SocketAddr,
    /// Whether one connection may carry requests of several users, as behind some load balancers.
    pub shared_connections: bool,
    /// Whether connections begin with a handshake of TLS.
    pub tls: bool,
    /// Whether requests for hosts of sites with certificates are redirected to these.
    pub redirect_to_https: bool,
    /// Whether HTTP/2 is spoken without TLS to those who begin with it.
    pub h2c: bool,
    /// With `proxy_protocol`: the networks, as `ADDRESS/BITS`, whose connections begin with its header; there are no
    /// others then. Empty without it.
    pub proxies: Vec<String>,
    /// With `tls` or `h2c`: whether connections may pass the filters by, which cannot see the requests on them.
    pub unfiltered: bool,
}

/// The shape of a line of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessFormat {
    /// The Common Log Format.
    Common,
    /// Common plus referrer and user agent.
    Combined,
    /// One JSON object a line.
    Json,
}

/// `[log]`: access logs and the error log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The shape of a line.
    pub access_format: AccessFormat,
    /// The longest a line may wait in memory, in milliseconds.
    pub flush_ms: u32,
    /// Whether each day (of UTC) has access logs of its own, `NAME.YYYYMMDD`.
    pub daily: bool,
    /// The error log, if it is not `error.log` in the folder of logs.
    pub error_file: Option<PathBuf>,
    /// Whether the lines of the error log go to syslog as well.
    pub error_syslog: bool,
    /// How many bytes a file of an access log may have.
    pub access_bytes: u64,
}

restart_keys!(checked_form);

/// When a process is replaced by a new one though nothing is wrong with it; `None`: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recycle {
    /// After so many requests.
    pub requests: Option<u64>,
    /// After so many milliseconds.
    pub age_ms: Option<u32>,
    /// When it has so many bytes of memory.
    pub memory: Option<u64>,
}

/// How many processes, each with a jail of its own, serve one site or one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    /// That serve in any case, at least 1.
    pub min: u16,
    /// That serve if there is so much to do, at least `min`.
    pub max: u16,
}

impl Default for Workers {
    fn default() -> Self {
        Self { min: 1, max: 1 }
    }
}

limits_keys!(checked_form);

/// In which order requests that wait are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Those of the address ranges first that were served longest ago.
    Recency,
    /// As they came.
    Fifo,
}

/// Which requests are refused for how they look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checks {
    /// What is dangerous, what is read in several ways, and what is unusual.
    Strict,
    /// What is dangerous, and what is read in several ways.
    Standard,
    /// What is dangerous.
    Lenient,
}

/// `[conditioning]`: which requests are served when there are more than can be, and which never.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conditioning {
    /// The longest that a new connection may send nothing at all, in milliseconds.
    pub first_byte_timeout_ms: u32,
    /// Bytes a second below which a request's body is given up.
    pub body_min_rate: u32,
    /// Bytes a second below which a response is given up.
    pub response_min_rate: u32,
    /// In which order requests that wait are served.
    pub priority: Priority,
    /// The share of all connections that one /8, one /16 and one /24 may have, in thousandths.
    pub share_max: [u16; 3],
    /// The same for one /32, one /48 and one /56 of IPv6.
    pub share_max_v6: [u16; 3],
    /// Which requests are refused for how they look.
    pub checks: Checks,
    /// Networks without shares, rates and bans, as `ADDRESS/BITS`.
    pub exempt: Vec<String>,
    /// Requests a second of one client; `None`: any number.
    pub rate_max: Option<u32>,
    /// How many of these may come at once; 0 without a rate.
    pub rate_burst: u32,
    /// Offences within a minute after which a client is banned; 0: never.
    pub ban_after: u32,
    /// How long a ban lasts, in milliseconds.
    pub ban_time_ms: u32,
    /// Programs through which every request goes, in this order.
    pub filters: Vec<Filter>,
}

/// A program that sees requests before they are passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The argument vector as written, program first.
    pub command: Vec<String>,
    /// `command[0]` as an absolute path.
    pub program: PathBuf,
    /// The only folders it may read.
    pub read: Vec<PathBuf>,
    /// Whether it may make code while it runs.
    pub jit: bool,
}

/// `[[site]]`: a set of hosts, a folder of files, and services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Unique; 1 to 63 of `[a-z0-9._-]`, the first a letter or digit.
    pub name: String,
    /// In lower case: a name, an IPv4 address, an IPv6 address in brackets as in a Host field (`[::1]`),
    /// `*.example.org`, or `*`.
    pub hosts: Vec<String>,
    /// The listeners it answers on; empty: all.
    pub listen: Vec<SocketAddr>,
    /// The prefix this site answers under; begins and ends with `/`.
    pub path: String,
    /// The folder of static files; a site without one has services.
    pub root: Option<PathBuf>,
    /// File names tried, in order, for a request for a folder.
    pub index: Vec<String>,
    /// What it has for TLS; `None`: it does without.
    pub tls: Option<SiteTls>,
    /// `[[site.service]]`: in the order of the file.
    pub services: Vec<Service>,
    /// `[[site.data]]`: in the order of the file.
    pub data: Vec<DataSource>,
    /// `[site.templates]`.
    pub templates: Option<Templates>,
    /// The folder with a folder for each host, in place of `root`.
    pub vhosts: Option<PathBuf>,
    /// Folders that symbolic links may lead into.
    pub follow_links: Vec<PathBuf>,
    /// Where every request is sent, if to somewhere else.
    pub redirect: Option<Redirect>,
    /// How its files are answered with.
    pub statics: Statics,
    /// Who may ask for anything of it.
    pub terms: Terms,
    /// `[[site.route]]`: in the order of the file.
    pub routes: Vec<Route>,
    /// Limits of its own.
    pub limits: SiteLimits,
    /// How its worker runs.
    pub worker: Worker,
    /// When its processes start; `None`: as `[server]` says.
    pub start: Option<Start>,
    /// After how long without a connection they go, in milliseconds; `None`: as `[server]` says.
    pub idle_stop_ms: Option<u32>,
    /// When its worker is replaced.
    pub recycle: Recycle,
    /// How many workers it has.
    pub workers: Workers,
}

impl Site {
    /// Whether its processes start only when somebody wants something of them.
    pub fn is_on_demand(&self, server: &Server) -> bool {
        self.start.unwrap_or(server.start) == Start::OnDemand
    }

    /// After how long without a connection a process of it goes, in milliseconds, if it is one of so many `workers`
    /// that it may go.
    pub fn idle_stop_ms(&self, server: &Server, workers: Workers) -> Option<u32> {
        let may_go = self.is_on_demand(server) || workers.max > workers.min;
        may_go.then(|| self.idle_stop_ms.unwrap_or(server.idle_stop_ms))
    }
}

/// Limits that a site has for itself; `None`: those of `[limits]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteLimits {
    /// The longest request body, in bytes; 0 refuses bodies.
    pub body_bytes: Option<u64>,
    /// The longest a connection may be silent, in milliseconds.
    pub idle_timeout_ms: Option<u32>,
    /// Connections its worker holds at once.
    pub connections: Option<u32>,
    /// Bytes of bodies that all its workers keep in files, until they are whole.
    pub spool_bytes: Option<u64>,
}

/// LIMIT: bytes of bodies that the workers of a site keep in files where nothing is said, if no body may be long.
const SPOOL_BYTES: u64 = 1 << 30;
/// LIMIT: the longest bodies that a worker has room for where nothing is said: a range of addresses may hold a quarter.
const SPOOL_BODIES: u64 = 4;

impl SiteLimits {
    /// Bytes of bodies that each of `workers` keeps in a file, of which `longest` is the longest that may come.
    pub fn spool_bytes(&self, longest: u64, workers: u16) -> u64 {
        let workers = u64::from(workers.max(1));
        let usual = SPOOL_BYTES.max(longest * SPOOL_BODIES * workers);
        self.spool_bytes.unwrap_or(usual) / workers
    }

    /// The limits of the site's processes, of which `routes` may say more of bodies.
    pub fn over(&self, general: &Limits, routes: &[Route]) -> Limits {
        let own = self.body_bytes.unwrap_or(general.body_bytes);
        let most = routes.iter().filter_map(|route| route.body_bytes).fold(own, u64::max);
        Limits {
            body_bytes: most,
            idle_timeout_ms: self.idle_timeout_ms.unwrap_or(general.idle_timeout_ms),
            connections: self.connections.unwrap_or(general.connections),
            ..general.clone()
        }
    }
}

/// How the worker of a site runs, and where it logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// The name of its access log in the folder of logs, without a day; no two sites have the same.
    pub access_log: String,
    /// The account of the machine whose uid it has, in place of one of `user_range`; another site has the same only if
    /// both say `danger_shared_user`.
    pub user: Option<String>,
    /// The operator's own program, in place of `site`: the argument vector as written, and `command[0]` as an
    /// absolute path.
    pub program: Option<(Vec<String>, PathBuf)>,
}

impl Site {
    /// The folder that it publishes: its `root`, or its `vhosts`.
    pub fn folder(&self) -> Option<&PathBuf> {
        self.root.as_ref().or(self.vhosts.as_ref())
    }

    /// All folders that its worker opens: that one, those of its routes, and those that links may lead into.
    pub fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        let aliases = self.routes.iter().filter_map(|route| route.alias.as_ref());
        self.folder().into_iter().chain(aliases).chain(&self.follow_links)
    }

    /// The files of users that it or one of its routes checks names and passwords by.
    pub fn users(&self) -> impl Iterator<Item = &PathBuf> {
        let terms = std::iter::once(&self.terms).chain(self.routes.iter().map(|route| &route.terms));
        terms.filter_map(|terms| terms.auth.as_ref()).map(|auth| &auth.users)
    }

    /// The services that may have a data source.
    pub fn services_with<'s>(&'s self, source: &'s str) -> impl Iterator<Item = &'s Service> {
        self.services.iter().filter(move |service| service.data.iter().any(|name| name == source))
    }
}

/// `[site.templates]`: the templates and public values of its services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Templates {
    /// The folder of templates.
    pub folder: PathBuf,
    /// The public values, sorted by name.
    pub values: Vec<(String, PublicValue)>,
}

/// A public value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublicValue {
    /// Text.
    Text(String),
    /// A whole number.
    Int(i64),
    /// True or false.
    Bool(bool),
}

service_keys!(checked_form);

impl Service {
    /// The folder of its own files, if it has one.
    pub fn files_folder(&self, server: &Server, site: &Site) -> Option<PathBuf> {
        self.files.then(|| files_folder(&server.state_dir, &site.name, &self.name))
    }
}

/// The folder in `state_dir` in which services have folders of their own.
pub(crate) const FILES: &str = "files";

/// The folder of the files of a service of a site.
pub(crate) fn files_folder(state_dir: &Path, site: &str, service: &str) -> PathBuf {
    state_dir.join(FILES).join(site).join(service)
}
