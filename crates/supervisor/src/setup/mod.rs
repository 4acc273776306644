//! What each process is sent before it serves.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: tells a process of what is another's.

pub mod broker;
pub mod configure;
pub mod connector;
pub mod data;
pub mod files;
pub mod links;
pub mod log_files;
mod made_files;
pub mod names;
pub mod opened;
pub mod process_table;
pub mod reloaded_files;
pub mod route_table;
pub mod spool;
pub mod stapler;
pub mod syslog;
pub mod templates;
pub mod tls;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::IsTerminal as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;

use config::{Checks, Config, Listener, Priority, Service, Site, Workers};
use wire::{
    Conditioning, LauncherToGate, LauncherToLogger, LauncherToService, LauncherToSite, NO_PARTITION, Role,
    RouteTarget, Text, WorkerLimits,
};

use crate::chain_ends::ChainEnds;
use crate::error::{Error, at, during};
use crate::outbox::Passed;
use crate::setup::log_files::Logs;
use crate::setup::opened::Opened;
use crate::setup::route_table::{RouteTable, Routed};
use crate::spawn::context::{SpawnContext, duplicate};
use crate::spawn::process_spec::ProcessSpec;

/// What processes are sent as far as a configuration says it. Nothing is opened for it, so that it can be asked of a
/// configuration that does not hold yet.
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a> {
    /// The configuration, each site at its number.
    pub config: &'a Config,
}

impl SpawnContext {
    /// What the configuration says to processes.
    pub fn messages(&self) -> Messages<'_> {
        Messages { config: &self.config }
    }

    /// What a gate is sent before it accepts: its limits, policies and sockets, the ends of the chain of filters if
    /// there is one, and whose each path is. `tables` is the configuration that says what there is to accept.
    pub fn gate_setup(
        &self,
        tables: Messages<'_>,
        listeners: Vec<OwnedFd>,
        specs: &[&ProcessSpec],
        chain: Option<ChainEnds>,
    ) -> Vec<(LauncherToGate, Option<OwnedFd>)> {
        let limits = self.messages().gate_limits().into_iter();
        let mut messages: Vec<_> = limits.map(|message| (message, None)).collect();
        messages.extend(chain.into_iter().flat_map(ChainEnds::messages));
        messages.extend(tables.gate_tables(listeners, specs));
        messages
    }

    /// What a site worker is sent before it serves.
    pub fn site_setup(
        &self,
        spec: &ProcessSpec,
        table: &RouteTable<'_>,
        ticket_keys: Vec<LauncherToSite>,
    ) -> Result<Vec<(LauncherToSite, Option<OwnedFd>)>, Error> {
        let with_descriptors =
            self.messages().site_messages(spec, table).into_iter().map(|(message, opened)| {
                let descriptor = match opened {
                    None => None,
                    Some(Opened::View(path)) => Some(self.view_of(&path)?),
                    Some(Opened::File(path)) => {
                        Some(self.opener().file(&path).map_err(at("open", &path))?.into())
                    }
                    // A disk that is full keeps no worker from its files: what is too long for memory is refused.
                    Some(Opened::Spool) => spool::file(&self.config.server.state_dir).ok(),
                };
                Ok((message, descriptor))
            });
        let mut messages = with_descriptors.collect::<Result<Vec<_>, _>>()?;
        messages.extend(ticket_keys.into_iter().map(|secret| (secret, None)));
        messages.push((LauncherToSite::Begin {}, None));
        Ok(messages)
    }

    /// What the logger is sent before it writes; clients are sent of separately.
    pub fn logger_setup(&self, logs: &Logs) -> Result<Vec<(LauncherToLogger, Option<Passed>)>, Error> {
        let mut messages = self.log_files(logs)?;
        messages.extend(terminal().map(|terminal| (LauncherToLogger::Terminal {}, Some(terminal.into()))));
        messages.push((LauncherToLogger::Begin {}, None));
        Ok(messages)
    }

    /// The access log of a site, or word that it is not open.
    pub fn access_log(&self, logs: &Logs, index: usize) -> (LauncherToLogger, Option<Passed>) {
        // The last one is for requests of no site.
        let site = if index < logs.access.sites() { index as u16 } else { NO_PARTITION };
        let name = Text::new(self.config.sites.get(index).map_or("", |about| about.name.as_str()));
        match logs.access.file(index) {
            Some(file) => (LauncherToLogger::AccessLog { site, name }, Some(Passed::Kept(file.clone()))),
            None => (LauncherToLogger::AccessLogLater { site, name }, None),
        }
    }

    /// The format, every log file, and syslog.
    pub fn log_files(&self, logs: &Logs) -> Result<Vec<(LauncherToLogger, Option<Passed>)>, Error> {
        let format = match logs.format {
            config::AccessFormat::Common => 0,
            config::AccessFormat::Combined => 1,
            config::AccessFormat::Json => 2,
        };
        let mut messages = vec![
            (
                LauncherToLogger::Format { format, flush_ms: logs.flush_ms, access_bytes: logs.access_bytes },
                None,
            ),
            (LauncherToLogger::ErrorLog {}, Some(duplicate(&logs.error)?.into())),
        ];
        messages.extend((0..=logs.access.sites()).map(|index| self.access_log(logs, index)));
        if let Some(socket) = logs.syslog_socket().map_err(during("duplicate a descriptor"))? {
            messages.push((LauncherToLogger::Syslog {}, Some(OwnedFd::from(socket).into())));
        } else if logs.syslog.is_none() {
            messages.push((LauncherToLogger::NoSyslog {}, None));
        }
        Ok(messages)
    }
}

/// What this process prints to, if somebody may be looking: a terminal, or the pipe of a container. A description of
/// its own, to write to without waiting: a terminal that is stopped must not stop the logger.
fn terminal() -> Option<OwnedFd> {
    let (stderr, flags) = (std::io::stderr(), rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY);
    let is_pipe = || {
        let found = rustix::fs::fstat(&stderr).ok()?;
        Some(rustix::fs::FileType::from_raw_mode(found.st_mode) == rustix::fs::FileType::Fifo)
    };
    if !stderr.is_terminal() && is_pipe() != Some(true) {
        return None;
    }
    let opened = File::options().write(true).custom_flags(flags.bits() as i32).open("/proc/self/fd/2");
    opened.ok().map(OwnedFd::from)
}

impl<'a> Messages<'a> {
    /// The site and the service that `spec` stands for, if it is a service that the site has: after an upgrade nothing
    /// is known of the services of sites that had gone.
    pub fn service(&self, spec: &ProcessSpec) -> Option<(&'a Site, &'a Service)> {
        let site = spec.site(self.config).filter(|_| spec.role == Role::Service)?;
        Some((site, spec.service(self.config)?))
    }

    /// How many processes the partition of `spec` has; one, if it is no site's worker and no service.
    pub fn workers(&self, spec: &ProcessSpec) -> Workers {
        match (spec.role, self.config.sites.get(usize::from(spec.site))) {
            (Role::Site, Some(site)) => site.workers,
            _ => self.service(spec).map(|(_, service)| service.workers).unwrap_or_default(),
        }
    }

    /// Those of a process of a site.
    fn limits(&self, spec: &ProcessSpec) -> WorkerLimits {
        let site = &self.config.sites[usize::from(spec.site)];
        let limits = site.limits.over(&self.config.limits, &site.routes);
        WorkerLimits {
            head_bytes: limits.head_bytes,
            head_timeout_ms: limits.head_timeout_ms,
            body_bytes: limits.body_bytes,
            idle_timeout_ms: limits.idle_timeout_ms,
            start_timeout_ms: limits.start_timeout_ms,
            connections: limits.connections,
            flush_ms: self.config.log.flush_ms,
            idle_stop_ms: site.idle_stop_ms(&self.config.server, self.workers(spec)).unwrap_or(0),
        }
    }

    /// What holds for as long as a gate lives.
    pub fn gate_limits(&self) -> Vec<LauncherToGate> {
        let limits = &self.config.limits;
        let mut messages = vec![LauncherToGate::Limits {
            head_bytes: limits.head_bytes,
            head_timeout_ms: limits.head_timeout_ms,
            start_timeout_ms: limits.start_timeout_ms,
            connections: limits.connections,
            flush_ms: self.config.log.flush_ms,
        }];
        messages.push(LauncherToGate::Conditioning { conditioning: policies(self.config) });
        for network in &self.config.conditioning.exempt {
            messages.push(LauncherToGate::Exempt { network: Text::new(network.as_str()) });
        }
        for network in &self.config.tls.tamper_exempt {
            messages.push(LauncherToGate::TamperExempt { network: Text::new(network.as_str()) });
        }
        messages
    }

    /// The listeners of a gate and whose each path is there, which take the place of those that it has, if any.
    pub fn gate_tables(
        &self,
        listeners: Vec<OwnedFd>,
        specs: &[&ProcessSpec],
    ) -> Vec<(LauncherToGate, Option<OwnedFd>)> {
        let mut messages = Vec::new();
        for (index, socket) in listeners.into_iter().enumerate() {
            messages.push((LauncherToGate::Listen { index: index as u16 }, Some(socket)));
        }
        for (index, _) in self.config.listeners.iter().enumerate().filter(|(_, l)| l.shared_connections) {
            messages.push((LauncherToGate::SharedConnections { listener: index as u16 }, None));
        }
        let protocols = self.protocols().chain(self.redirects(self.config.sites.iter()));
        messages.extend(protocols.map(|message| (message, None)));
        for (index, listener) in self.config.listeners.iter().enumerate() {
            messages.extend(listener.proxies.iter().map(|network| {
                let network = Text::new(network.as_str());
                (LauncherToGate::ProxyTrusted { listener: index as u16, network }, None)
            }));
            if listener.unfiltered {
                messages.push((LauncherToGate::Unfiltered { listener: index as u16 }, None));
            }
        }
        messages.extend(self.gate_routes(specs, |_| true).into_iter().map(|message| (message, None)));
        messages.push((LauncherToGate::Commit {}, None));
        messages
    }

    /// What gates are sent of some hosts whose paths are others' now, and nothing of what is as it was. `specs` are at
    /// least those of the sites with these hosts.
    pub fn gate_changes(&self, hosts: &BTreeSet<String>, specs: &[&ProcessSpec]) -> Vec<LauncherToGate> {
        let mut messages = vec![LauncherToGate::Change {}];
        for listener in 0..self.config.listeners.len() as u16 {
            let forget = |host: &String| LauncherToGate::Forget { listener, host: Text::new(host.as_str()) };
            messages.extend(hosts.iter().map(forget));
        }
        let has = |site: &Site| site.hosts.iter().any(|host| hosts.contains(host));
        let sites: BTreeSet<usize> = specs.iter().map(|spec| usize::from(spec.site)).collect();
        let sites = sites.into_iter().filter_map(|site| self.config.sites.get(site));
        let sites: Vec<_> = sites.filter(|site| has(site)).collect();
        let mut redirects = self.redirects(sites.into_iter());
        redirects.retain(|message| match message {
            LauncherToGate::Redirect { host, .. } => hosts.contains(host.as_str()),
            _ => false,
        });
        messages.extend(redirects);
        let concerned =
            |spec: &&ProcessSpec| self.config.sites.get(usize::from(spec.site)).is_some_and(|site| has(site));
        let specs: Vec<&ProcessSpec> = specs.iter().copied().filter(concerned).collect();
        messages.extend(self.gate_routes(&specs, |host| hosts.contains(host)));
        messages.push(LauncherToGate::Commit {});
        messages
    }

    /// What sites and services are called, and whose each path of these hosts is.
    fn gate_routes(&self, specs: &[&ProcessSpec], is_of: impl Fn(&str) -> bool) -> Vec<LauncherToGate> {
        let mut messages = Vec::new();
        for spec in specs.iter().filter(|spec| spec.role.is_worker()) {
            let (partition, name) = (spec.partition, Text::new(spec.title()));
            messages.push(LauncherToGate::Name { partition, name });
        }
        for &Routed { host, path, spec } in
            RouteTable::new(self.config, specs).all().iter().filter(|of| is_of(of.host))
        {
            for listener in self.listeners_of(spec).filter(|&listener| self.takes_from(spec, listener)) {
                let (host, path) = (Text::new(host), Text::new(path));
                let (partition, site) = (spec.partition, spec.site);
                messages.push(LauncherToGate::Route { listener, host, path, partition, site });
            }
        }
        messages
    }

    /// Whether gates send connections of a listener to this spec, rather than to the site's worker, which relays.
    ///
    /// SECURITY: a connection that carries several users' requests is never in a service's hands: it could read and
    /// answer those of others, which go to other partitions.
    fn takes_from(&self, spec: &ProcessSpec, listener: u16) -> bool {
        let Listener { shared_connections: shared, tls, .. } = self.config.listeners[usize::from(listener)];
        if tls {
            return spec.role == Role::Site && self.config.sites[usize::from(spec.site)].tls.is_some();
        }
        self.service(spec).is_none_or(|(_, service)| service.takes_connections && !shared)
    }

    /// The listeners on which a site answers, as indices into the configuration.
    fn listeners_of(&self, spec: &ProcessSpec) -> impl Iterator<Item = u16> {
        let site = &self.config.sites[usize::from(spec.site)];
        let all = self.config.listeners.iter().enumerate();
        all.filter(|(_, listener)| site.answers_on(listener)).map(|(index, _)| index as u16)
    }

    /// What the configuration says to a site's worker, and what comes along; nothing is opened. A worker for which this
    /// is as it was needs no successor.
    pub fn site_messages(
        &self,
        spec: &ProcessSpec,
        table: &RouteTable<'_>,
    ) -> Vec<(LauncherToSite, Option<Opened>)> {
        let site = &self.config.sites[usize::from(spec.site)];
        let mut messages = vec![LauncherToSite::Limits { limits: self.limits(spec), site: spec.site }];
        messages.push(LauncherToSite::Conditioning { conditioning: policies(self.config) });
        for network in &self.config.conditioning.exempt {
            messages.push(LauncherToSite::Exempt { network: Text::new(network.as_str()) });
        }
        for listener in self.config.listeners.iter().filter(|listener| listener.shared_connections) {
            messages.push(LauncherToSite::SharedConnections { port: listener.address.port() });
        }
        if !self.config.conditioning.filters.is_empty() {
            messages.push(LauncherToSite::Filtered {});
        }
        messages.extend(site.tls.iter().map(|tls| self.site_tls(tls)));
        messages.extend(site.index.iter().map(|name| LauncherToSite::Index { name: Text::new(name) }));
        messages.extend(files::messages(site, &self.config.limits));
        let mut messages: Vec<_> = messages.into_iter().map(|message| (message, None)).collect();
        let directories = [(LauncherToSite::Root {}, &site.root), (LauncherToSite::Vhosts {}, &site.vhosts)];
        for (message, path) in directories {
            messages.extend(path.clone().map(|path| (message, Some(Opened::View(path)))));
        }
        messages.extend(files::folders(site));
        // After `Tls` and the rules, which they belong to.
        let files = reloaded_files::for_workers(site).into_iter();
        messages.extend(files.map(|(message, path)| (message, Some(Opened::File(path)))));
        let rest = self.site_routes(spec, table).into_iter().chain(self.backends_setup(site));
        messages.extend(rest.map(|message| (message, None)));
        let spool = site.spool_bytes(&self.config.limits);
        messages.extend(spool.map(|bytes| (LauncherToSite::Spool { bytes }, Some(Opened::Spool))));
        messages
    }

    /// Whose each path is, as far as a site's worker must know, and how much each of its services may have.
    pub fn site_routes(&self, spec: &ProcessSpec, table: &RouteTable<'_>) -> Vec<LauncherToSite> {
        let site = &self.config.sites[usize::from(spec.site)];
        let mut messages = Vec::new();
        let has = |host: &str| site.hosts.iter().any(|own| own == host);
        let meets = |other: &ProcessSpec| {
            self.listeners_of(spec).any(|one| self.listeners_of(other).any(|two| one == two))
        };
        // Hosts that this site does not have are another's anyway, unless it has a pattern that covers them.
        for Routed { host, path, spec: other } in table.of_hosts(&site.hosts) {
            if !meets(other) {
                continue;
            }
            let (target, partition) = match other.role {
                _ if other.site != spec.site && links::relays(self.config, spec, other) && has(host) => {
                    (RouteTarget::Relayed, table.partition_of(other.site))
                }
                // Which one it is does not matter here, and changes with each of its successors.
                _ if other.site != spec.site => (RouteTarget::Elsewhere, NO_PARTITION),
                Role::Site => (RouteTarget::Files, other.partition),
                _ => (RouteTarget::Service, other.partition),
            };
            let (host, path) = (Text::new(host), Text::new(path));
            messages.push(LauncherToSite::Route { host, path, target, partition });
        }
        for other in table.of_site(spec.site) {
            if let Some(requests) = self.service(other).and_then(|(_, service)| service.requests) {
                messages.push(LauncherToSite::Requests { partition: other.partition, requests });
            }
        }
        messages
    }

    /// What a service worker is sent before it initialises.
    pub fn service_setup(&self, spec: &ProcessSpec) -> Vec<LauncherToService> {
        // Filters are to see every request, not the first of each connection alone.
        let owns_host = self.config.conditioning.filters.is_empty()
            && self.service(spec).is_some_and(|(site, service)| service.path == "/" && site.path == "/");
        // Its broker reads what its calls point at, which the kernel takes for the same.
        let dumps = self
            .service(spec)
            .is_some_and(|(_, service)| service.core_max.is_some() || service.network.is_granted());
        let jit = self.service(spec).is_some_and(|(_, service)| service.jit);
        let limits =
            LauncherToService::Limits { limits: self.limits(spec), site: spec.site, owns_host, dumps, jit };
        let sources = self.service(spec).into_iter().flat_map(|(_, service)| &service.data);
        let sources = sources.map(|name| LauncherToService::DataSource { name: Text::new(name) });
        let has_templates = self.service(spec).is_some_and(|(_, service)| service.templates);
        let templates = has_templates.then_some(LauncherToService::Templates {});
        let begin = [LauncherToService::Begin {}];
        std::iter::once(limits).chain(sources).chain(templates).chain(begin).collect()
    }
}

/// The policies, as gates and sites are sent.
pub fn policies(config: &Config) -> Conditioning {
    let policies = &config.conditioning;
    let ([share_8, share_16, share_24], [share_v6_32, share_v6_48, share_v6_56]) =
        (policies.share_max, policies.share_max_v6);
    Conditioning {
        first_byte_timeout_ms: policies.first_byte_timeout_ms,
        body_min_rate: policies.body_min_rate,
        response_min_rate: policies.response_min_rate,
        recency: policies.priority == Priority::Recency,
        checks: match policies.checks {
            Checks::Lenient => wire::Checks::Lenient,
            Checks::Standard => wire::Checks::Standard,
            Checks::Strict => wire::Checks::Strict,
        },
        share_8,
        share_16,
        share_24,
        share_v6_32,
        share_v6_48,
        share_v6_56,
        rate_max: policies.rate_max.unwrap_or(0),
        rate_burst: policies.rate_burst,
        ban_after: policies.ban_after,
        ban_time_ms: policies.ban_time_ms,
    }
}
