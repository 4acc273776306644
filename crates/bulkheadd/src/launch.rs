//! Starting one child: its program, its jail, exactly its descriptors, and its first messages.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: gives a child a descriptor that is
//! not in this file.

use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use config::{Checks, Config, Listener, Priority, Service, Site};
use sys::inherit::{CONTROL, LOG};
use sys::process::{Child, Program, StartError};
use wire::{
    Conditioning, LauncherToGate, LauncherToLogger, LauncherToService, LauncherToSite, Role, RouteTarget,
    Text, WorkerLimits,
};

use crate::cgroups::{Cgroups, Group};
use crate::cores::Cores;
use crate::error::{Error, at, during};
use crate::jails::Filters;
use crate::logs::Logs;
use crate::roster::Post;
use crate::runtime::Answers;
use crate::spill::Stderr;
use crate::{places, program, reread, statics};

/// Where a filter finds the channel from which it takes bundles, and the one to which it passes them on: the contract
/// with whoever writes one.
const BUNDLES: i32 = 3;
const ONWARD: i32 = 4;
/// LIMIT: processes and threads of a filter: as many as a service has that says nothing else.
const FILTER_PROCESSES: u32 = 256;

/// What every start needs.
#[derive(Debug)]
pub struct Ground {
    /// The configuration.
    pub config: Config,
    /// The empty directory that is the root of our own roles; `None` in a rootless run.
    pub empty_root: Option<OwnedFd>,
    /// The configuration's folder, where services start.
    pub directory: OwnedFd,
    /// Where the programs of the roles are.
    pub roles_folder: std::path::PathBuf,
    /// `/dev/null`.
    pub null: OwnedFd,
    /// The launcher itself, as its children watch it.
    pub launcher: jail::Launcher,
    /// The filters of system calls.
    pub filters: Filters,
    /// Where core files are kept.
    pub cores: Cores,
    /// Where control groups are made.
    pub cgroups: Cgroups,
    /// Whether a process may be started without a layer that this machine cannot apply.
    pub degrades: bool,
    /// The layers that processes are started without.
    pub without: RefCell<Vec<&'static str>>,
    /// What the loaders of services' programs have answered.
    pub answers: Answers,
    /// How many processes were started.
    pub started: Cell<u64>,
    /// The filters, in the order of their chain; see [`chain`].
    pub chain: Vec<Service>,
}

/// A child that was started, with the launcher's ends of its channels.
#[derive(Debug)]
pub struct Started {
    /// The child.
    pub child: Child,
    /// Its control channel; a filter has none.
    pub control: Option<OwnedFd>,
    /// What the logger reads of it.
    pub log: Option<OwnedFd>,
    /// What it writes to standard error.
    pub stderr: Stderr,
    /// Its control group, to be kept until it has ended.
    pub group: Group,
}

impl Ground {
    /// Starts a process for `post`.
    pub fn start(&self, post: &Post) -> Result<Started, Error> {
        let pair = || sys::seqpacket::pair().map_err(during("make a channel"));
        let (control, its_control) = pair()?;
        let (stderr, its_stderr) = standard_error()?;
        let mut descriptors = vec![
            (duplicate(&self.null)?, 0),
            (duplicate(&self.null)?, 1),
            (its_stderr, 2),
            (its_control, CONTROL),
        ];
        let mut log = None;
        if post.role != Role::Logger {
            let (reading, writing) = pair()?;
            log = Some(reading);
            descriptors.push((writing, LOG));
        }
        let program = self.program(post)?;
        let (child, group) = self.start_in_jail(post, &program, &descriptors)?;
        Ok(Started { child, control: Some(control), log, stderr, group })
    }

    /// Starts the filter of `post`, which takes from `bundles` and passes on to `onward`.
    pub fn start_filter(&self, post: &Post, bundles: OwnedFd, onward: OwnedFd) -> Result<Started, Error> {
        let (stderr, its_stderr) = standard_error()?;
        let descriptors = vec![
            (duplicate(&self.null)?, 0),
            (duplicate(&self.null)?, 1),
            (its_stderr, 2),
            (bundles, BUNDLES),
            (onward, ONWARD),
        ];
        let (child, group) = self.start_in_jail(post, &self.program(post)?, &descriptors)?;
        Ok(Started { child, control: None, log: None, stderr, group })
    }

    /// Starts `program` in the jail of `post`; where degraded isolation allows it, without layers that fail.
    pub(crate) fn start_in_jail(
        &self,
        post: &Post,
        program: &Program,
        descriptors: &[(OwnedFd, i32)],
    ) -> Result<(Child, Group), Error> {
        loop {
            let (group, joins) = self.group(post)?;
            let inherited = descriptors
                .iter()
                .map(|(fd, number)| Ok((duplicate(fd)?, *number)))
                .collect::<Result<_, _>>()?;
            let jail = self.jail(post, &program.file, inherited, joins)?;
            match sys::process::start(program, jail.pids(), || jail::enter(&jail)) {
                Ok(child) => return Ok((child, group)),
                Err(failure) => self.do_without(failure)?,
            }
        }
    }

    /// Notes the layer that failed as one to do without, or fails.
    fn do_without(&self, failure: StartError) -> Result<(), Error> {
        let layer = jail::LAYERS.iter().find(|layer| layer.name == failure.step && !layer.mandatory);
        match layer {
            Some(layer) if self.degrades => {
                self.without.borrow_mut().push(layer.name);
                Ok(())
            }
            _ => Err(Error::Start(failure)),
        }
    }

    fn group(&self, post: &Post) -> Result<(Group, Vec<OwnedFd>), Error> {
        self.started.set(self.started.get() + 1);
        let name = format!("{}.{}", post.title().replace([' ', '/'], "."), self.started.get());
        let share = self.share(post);
        let missing = self.cgroups.missing(&share);
        if !missing.is_empty() && !self.degrades {
            return Err(Error::NotHeld { controllers: missing.join(", ") });
        }
        self.cgroups.group(&name, &share).map_err(during("make a control group"))
    }

    fn program(&self, post: &Post) -> Result<Program, Error> {
        if let Some((command, path)) = self.worker(post) {
            let file = program::worker_program(path, &self.config.dir, post.identity)?;
            let title = text(&format!("bulkhead: {}", post.title()))?;
            let words = command.iter().skip(1).map(|word| text(word)).collect::<Result<Vec<_>, _>>()?;
            return Ok(Program { file, arguments: [vec![title], words].concat(), environment: vec![] });
        }
        let Some(service) = self.guest(post) else {
            let file = program::role_program(&self.roles_folder, post.role.name())?;
            let title = text(&format!("bulkhead: {}", post.title()))?;
            return Ok(Program { file, arguments: vec![title], environment: vec![] });
        };
        let open = match post.role {
            Role::Filter => program::filter_program,
            _ => program::service_program,
        };
        let file = open(&service.program, &self.config.dir, post.identity)?;
        let arguments = service.command.iter().map(|word| text(word)).collect::<Result<_, _>>()?;
        let environment = service
            .environment
            .iter()
            .map(|(name, value)| text(&format!("{name}={value}")))
            .collect::<Result<_, _>>()?;
        Ok(Program { file, arguments, environment })
    }

    /// The site and the service that `post` stands for, if it is a service.
    pub fn service(&self, post: &Post) -> Option<(&Site, &Service)> {
        let site = self.config.sites.get(usize::from(post.site))?;
        (post.role == Role::Service).then(|| (site, &site.services[post.index]))
    }

    /// The program of the operator's that is the worker of the site of `post`.
    pub fn worker(&self, post: &Post) -> Option<&(Vec<String>, std::path::PathBuf)> {
        let site = self.config.sites.get(usize::from(post.site)).filter(|_| post.role == Role::Site)?;
        site.worker.program.as_ref()
    }

    /// The program of the operator's that `post` runs in a jail of its own, if it runs one.
    pub fn guest(&self, post: &Post) -> Option<&Service> {
        match post.role {
            Role::Filter => self.chain.get(post.index),
            _ => self.service(post).map(|(_, service)| service),
        }
    }

    fn limits(&self) -> WorkerLimits {
        let limits = &self.config.limits;
        WorkerLimits {
            head_bytes: limits.head_bytes,
            head_timeout_ms: limits.head_timeout_ms,
            body_bytes: limits.body_bytes,
            idle_timeout_ms: limits.idle_timeout_ms,
            start_timeout_ms: limits.start_timeout_ms,
            connections: limits.connections,
            flush_ms: self.config.log.flush_ms,
        }
    }

    /// What a gate is told before it accepts: its limits, policies and sockets, the ends of the chain of filters if
    /// there is one, and whose each path is.
    pub fn gate_setup(
        &self,
        listeners: Vec<OwnedFd>,
        posts: &[Post],
        chain: Option<(OwnedFd, OwnedFd)>,
    ) -> Vec<(LauncherToGate, Option<OwnedFd>)> {
        let limits = &self.config.limits;
        let mut told = vec![(
            LauncherToGate::Limits {
                head_bytes: limits.head_bytes,
                head_timeout_ms: limits.head_timeout_ms,
                start_timeout_ms: limits.start_timeout_ms,
                connections: limits.connections,
                flush_ms: self.config.log.flush_ms,
            },
            None,
        )];
        told.push((LauncherToGate::Conditioning { conditioning: policies(&self.config) }, None));
        for network in &self.config.conditioning.exempt {
            told.push((LauncherToGate::Exempt { network: Text::new(network.as_str()) }, None));
        }
        if let Some((first, last)) = chain {
            told.push((LauncherToGate::ChainFirst {}, Some(first)));
            told.push((LauncherToGate::ChainLast {}, Some(last)));
        }
        for (index, socket) in listeners.into_iter().enumerate() {
            told.push((LauncherToGate::Listen { index: index as u16 }, Some(socket)));
        }
        for (index, _) in self.config.listeners.iter().enumerate().filter(|(_, l)| l.shared_connections) {
            told.push((LauncherToGate::SharedConnections { listener: index as u16 }, None));
        }
        self.tell_of_tls(&mut told);
        for (index, listener) in self.config.listeners.iter().enumerate() {
            told.extend(listener.proxies.iter().map(|network| {
                let network = Text::new(network.as_str());
                (LauncherToGate::ProxyTrusted { listener: index as u16, network }, None)
            }));
        }
        for (host, path, post) in self.routes(posts) {
            for listener in self.listeners_of(post).filter(|&listener| self.takes_from(post, listener)) {
                let (host, path) = (Text::new(host), Text::new(path));
                let (partition, site) = (post.partition, post.site);
                told.push((LauncherToGate::Route { listener, host, path, partition, site }, None));
            }
        }
        told.push((LauncherToGate::Begin {}, None));
        told
    }

    /// Every host and path there is, with the site or service that it belongs to.
    fn routes<'a>(&'a self, posts: &'a [Post]) -> impl Iterator<Item = (&'a str, &'a str, &'a Post)> {
        posts.iter().filter(|post| matches!(post.role, Role::Site | Role::Service)).flat_map(|post| {
            let site = &self.config.sites[usize::from(post.site)];
            let path = self.service(post).map_or(&site.path, |(_, service)| &service.path);
            site.hosts.iter().map(move |host| (host.as_str(), path.as_str(), post))
        })
    }

    /// Whether gates send connections of a listener to this post, rather than to the site's worker, which relays.
    ///
    /// SECURITY: a connection that carries several users' requests is never in a service's hands: it could read and
    /// answer those of others, which go to other partitions.
    fn takes_from(&self, post: &Post, listener: u16) -> bool {
        let Listener { shared_connections: shared, tls, .. } = self.config.listeners[usize::from(listener)];
        if tls {
            return post.role == Role::Site && self.config.sites[usize::from(post.site)].tls.is_some();
        }
        self.service(post).is_none_or(|(_, service)| service.takes_connections && !shared)
    }

    /// The listeners on which a site answers, as indices into the configuration.
    fn listeners_of(&self, post: &Post) -> impl Iterator<Item = u16> {
        let only = &self.config.sites[usize::from(post.site)].listen;
        let all = self.config.listeners.iter().enumerate();
        all.filter(|(_, listener)| only.is_empty() || only.contains(&listener.address))
            .map(|(index, _)| index as u16)
    }

    /// What a site worker is told before it serves.
    pub fn site_setup(
        &self,
        post: &Post,
        posts: &[Post],
        ticket_keys: Vec<(LauncherToSite, Option<OwnedFd>)>,
    ) -> Result<Vec<(LauncherToSite, Option<OwnedFd>)>, Error> {
        let site = &self.config.sites[usize::from(post.site)];
        let mut told = vec![(LauncherToSite::Limits { limits: self.limits(), site: post.site }, None)];
        told.push((LauncherToSite::Conditioning { conditioning: policies(&self.config) }, None));
        if !self.chain.is_empty() {
            told.push((LauncherToSite::Filtered {}, None));
        }
        if let Some(tls) = &site.tls {
            told.extend(self.site_tls(tls));
            told.extend(ticket_keys);
        }
        if let Some(root) = &site.root {
            told.push((LauncherToSite::Root {}, Some(self.view_of(root)?)));
        }
        told.extend(site.index.iter().map(|name| (LauncherToSite::Index { name: Text::new(name) }, None)));
        if let Some(vhosts) = &site.vhosts {
            told.push((LauncherToSite::Vhosts {}, Some(self.view_of(vhosts)?)));
        }
        told.extend(statics::told(site));
        // After `Tls` and the rules, which they belong to.
        for (message, path) in reread::for_workers(site) {
            let file = reread::open(&path).map_err(at("open", &path))?;
            told.push((message, Some(file.into())));
        }
        let any_host = site.hosts.iter().any(|host| host.contains('*'));
        let meets =
            |other: &Post| self.listeners_of(post).any(|one| self.listeners_of(other).any(|two| one == two));
        for (host, path, other) in self.routes(posts).filter(|(_, _, other)| meets(other)) {
            let target = match other.role {
                _ if other.site != post.site => RouteTarget::Elsewhere,
                Role::Site => RouteTarget::Files,
                _ => RouteTarget::Service,
            };
            // Hosts that this site does not have are another's anyway, unless it has a pattern that covers them.
            if target != RouteTarget::Elsewhere || any_host || site.hosts.iter().any(|own| own == host) {
                let (host, path, partition) = (Text::new(host), Text::new(path), other.partition);
                told.push((LauncherToSite::Route { host, path, target, partition }, None));
            }
        }
        for other in posts.iter().filter(|other| other.site == post.site) {
            if let Some(requests) = self.service(other).and_then(|(_, service)| service.requests) {
                told.push((LauncherToSite::Requests { partition: other.partition, requests }, None));
            }
        }
        told.extend(self.backends_setup(site).into_iter().map(|message| (message, None)));
        told.push((LauncherToSite::Begin {}, None));
        Ok(told)
    }

    /// A directory for a role that works below it; as root, a view of it that has nothing above.
    pub(crate) fn view_of(&self, path: &Path) -> Result<OwnedFd, Error> {
        let directory = places::directory(path)?;
        if self.empty_root.is_none() || self.without.borrow().contains(&"root") {
            return Ok(directory);
        }
        jail::view(&directory, jail::Mode::Read).map_err(at("make a view of", path))
    }

    /// What a service worker is told before it initialises.
    pub fn service_setup(&self, post: &Post) -> Vec<(LauncherToService, Option<OwnedFd>)> {
        // Filters are to see every request, not the first of each connection alone.
        let owns_host = self.chain.is_empty()
            && self.service(post).is_some_and(|(site, service)| service.path == "/" && site.path == "/");
        let dumps = self.service(post).is_some_and(|(_, service)| service.core_max.is_some());
        let limits = LauncherToService::Limits { limits: self.limits(), site: post.site, owns_host, dumps };
        vec![(limits, None), (LauncherToService::Begin {}, None)]
    }

    /// What the logger is told before it writes; clients are told of separately.
    pub fn logger_setup(&self, logs: &Logs) -> Result<Vec<(LauncherToLogger, Option<OwnedFd>)>, Error> {
        let format = match self.config.log.access_format {
            config::AccessFormat::Common => 0,
            config::AccessFormat::Combined => 1,
            config::AccessFormat::Json => 2,
        };
        let mut told = vec![(LauncherToLogger::Format { format, flush_ms: self.config.log.flush_ms }, None)];
        told.extend(self.log_files(logs)?);
        told.push((LauncherToLogger::Begin {}, None));
        Ok(told)
    }

    /// Every log file, and syslog.
    pub fn log_files(&self, logs: &Logs) -> Result<Vec<(LauncherToLogger, Option<OwnedFd>)>, Error> {
        let mut told = vec![(LauncherToLogger::ErrorLog {}, Some(duplicate(&logs.error)?))];
        for (index, file) in logs.access.iter().enumerate() {
            // The last one is for requests of no site.
            let site = if index < self.config.sites.len() { index as u16 } else { wire::NO_PARTITION };
            told.push((LauncherToLogger::AccessLog { site }, Some(duplicate(file)?)));
        }
        if let Some(socket) = logs.syslog_socket().map_err(during("duplicate a descriptor"))? {
            told.push((LauncherToLogger::Syslog {}, Some(socket.into())));
        }
        Ok(told)
    }
}

/// The filters of a configuration as jails are made for them: as for services without network.
pub fn chain(config: &Config) -> Vec<Service> {
    let filters = config.conditioning.filters.iter().enumerate();
    let service = |(index, filter): (usize, &config::Filter)| Service {
        name: format!("filter {index}"),
        path: String::new(),
        command: filter.command.clone(),
        program: filter.program.clone(),
        read: filter.read.clone(),
        memory_max: None,
        memory_high: None,
        processes_max: FILTER_PROCESSES,
        core_max: None,
        cpu_percent: None,
        network: config::Network::default(),
        label: None,
        takes_connections: false,
        requests: None,
        environment: Vec::new(),
    };
    filters.map(service).collect()
}

/// The policies, as gates and sites are told.
pub fn policies(config: &Config) -> Conditioning {
    let policies = &config.conditioning;
    let ([share_8, share_16, share_24], [share_v6_32, share_v6_48, share_v6_56]) =
        (policies.share_max, policies.share_max_v6);
    Conditioning {
        first_byte_timeout_ms: policies.first_byte_timeout_ms,
        body_min_rate: policies.body_min_rate,
        response_min_rate: policies.response_min_rate,
        recency: policies.priority == Priority::Recency,
        strict: policies.checks == Checks::Strict,
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

/// A child's standard error: the launcher's ends, and the child's.
fn standard_error() -> Result<(Stderr, OwnedFd), Error> {
    let (reading, writing) = io::pipe().map_err(during("make a pipe"))?;
    let its = duplicate(&writing)?;
    Ok((Stderr::new(reading.into(), writing.into()), its))
}

/// A word of an argument vector or an environment.
pub fn text(word: &str) -> Result<CString, Error> {
    CString::new(word).map_err(|error| during("pass an argument")(io::Error::other(error)))
}

/// Another descriptor of the same open file, for a child.
pub fn duplicate(descriptor: &impl std::os::fd::AsFd) -> Result<OwnedFd, Error> {
    descriptor.as_fd().try_clone_to_owned().map_err(during("duplicate a descriptor"))
}
