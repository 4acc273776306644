//! What a new process is told, and who is told of it: its set-up, its log, its channels to others.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: connects two processes between which
//! `wire::CHANNELS` has no edge.

use std::os::fd::OwnedFd;

use wire::tls::LauncherToSigner;
use wire::{
    AccessRight, LauncherToAdmin, LauncherToGate, LauncherToLogger, LauncherToService, LauncherToSite,
    Message,
};
use wire::{Role, Source, Text};

use crate::error::{Error, during};
use crate::launch::duplicate;
use crate::launcher::Launcher;
use crate::process::{Process, Stage};

impl Launcher {
    /// Says to a new process what it must know, and to others that it is there.
    pub(crate) fn introduce(&mut self, serial: u64) -> Result<(), Error> {
        let post = self.processes[&serial].post;
        match self.posts[post].role {
            Role::Logger => {
                for (message, descriptor) in self.ground.logger_setup(&self.logs)? {
                    self.tell(serial, &message, descriptor);
                }
                self.hand_logs_to(serial)?;
            }
            Role::Admin => self.introduce_admin(serial)?,
            Role::Gate => {
                let gate = self.posts[post].index;
                let sockets =
                    self.listeners.iter().map(|of| duplicate(&of[gate])).collect::<Result<_, _>>()?;
                let chain = self.chain_ends()?;
                for (message, descriptor) in self.ground.gate_setup(sockets, &self.posts, chain) {
                    self.tell(serial, &message, descriptor);
                }
                self.tell_bans(serial);
            }
            Role::Site => {
                let mut secrets = Vec::new();
                for secret in self.tickets.told(self.posts[post].site) {
                    secrets.push((secret, None));
                }
                let told = self.ground.site_setup(&self.posts[post], &self.posts, secrets)?;
                for (message, descriptor) in told {
                    self.tell(serial, &message, descriptor);
                }
            }
            Role::Service => {
                for (message, descriptor) in self.ground.service_setup(&self.posts[post]) {
                    self.tell(serial, &message, descriptor);
                }
            }
            Role::Signer => self.introduce_signer(serial),
            Role::Connector => {
                for (message, descriptor) in self.ground.connector_setup(&self.posts[post])? {
                    self.tell(serial, &message, descriptor);
                }
            }
            Role::Stapler => self.introduce_stapler(serial),
            Role::Broker => self.introduce_broker(serial)?,
            Role::Filter | Role::Launcher => {}
        }
        self.tell_loggers_of(serial)?;
        self.tell_what_is_broken(serial);
        self.connect(serial)
    }

    pub(crate) fn introduce_admin(&mut self, serial: u64) -> Result<(), Error> {
        self.tell(serial, &LauncherToAdmin::Socket {}, Some(self.door.socket()?));
        for (target, name) in
            self.orders.targets().enumerate().map(|(i, name)| (i, Text::new(name))).collect::<Vec<_>>()
        {
            self.tell(serial, &LauncherToAdmin::Target { target: target as u16, name }, None);
        }
        self.tell(serial, &LauncherToAdmin::Secret { secret: self.door.secret() }, None);
        self.tell(serial, &LauncherToAdmin::Begin {}, None);
        Ok(())
    }

    /// Gives a new logger what every process logs, and what those that are gone have left.
    pub(crate) fn hand_logs_to(&mut self, logger: u64) -> Result<(), Error> {
        for index in 0..self.unread_logs.len() {
            let (post, log, stderr) = &self.unread_logs[index];
            let (post, log, stderr) = (*post, log.as_ref().map(duplicate).transpose()?, duplicate(stderr)?);
            self.hand_log(logger, post, log, Some(stderr));
        }
        let others: Vec<u64> = self.processes.keys().copied().filter(|&serial| serial != logger).collect();
        for serial in others {
            let process = &self.processes[&serial];
            let log = process.log.as_ref().map(duplicate).transpose()?;
            let stderr = process.stderr.as_ref().map(|of| duplicate(&of.reading)).transpose()?;
            self.hand_log(logger, process.post, log, stderr);
        }
        Ok(())
    }

    /// Tells the loggers of a new process.
    pub(crate) fn tell_loggers_of(&mut self, serial: u64) -> Result<(), Error> {
        for logger in self.active(Role::Logger, None) {
            let process = &self.processes[&serial];
            // A logger does not read its own standard error: it would wait for itself.
            let log = process.log.as_ref().filter(|_| logger != serial).map(duplicate).transpose()?;
            let stderr = process.stderr.as_ref().filter(|_| logger != serial);
            let stderr = stderr.map(|of| duplicate(&of.reading)).transpose()?;
            self.hand_log(logger, process.post, log, stderr);
        }
        Ok(())
    }

    pub(crate) fn hand_log(
        &mut self,
        logger: u64,
        post: usize,
        log: Option<OwnedFd>,
        stderr: Option<OwnedFd>,
    ) {
        let post = &self.posts[post];
        let label = Text::new(post.title());
        let right = match post.role {
            // It answers for every site what cannot be passed on.
            Role::Gate => AccessRight::Every,
            Role::Site | Role::Service => AccessRight::Site(post.site),
            Role::Admin
            | Role::Logger
            | Role::Filter
            | Role::Connector
            | Role::Broker
            | Role::Signer
            | Role::Stapler
            | Role::Launcher => AccessRight::None,
        };
        if log.is_some() {
            self.tell(logger, &LauncherToLogger::Client { label: label.clone(), right }, log);
        }
        if stderr.is_some() {
            self.tell(logger, &LauncherToLogger::Stderr { label }, stderr);
        }
    }

    /// The processes of a role (and of one post) that are not retiring.
    pub(crate) fn active(&self, role: Role, post: Option<usize>) -> Vec<u64> {
        let fits = |process: &Process| {
            process.stage != Stage::Retiring
                && self.posts[process.post].role == role
                && post.is_none_or(|post| post == process.post)
        };
        self.processes.iter().filter(|(_, process)| fits(process)).map(|(&serial, _)| serial).collect()
    }

    /// Makes the channels between a new process and everyone that it works with.
    pub(crate) fn connect(&mut self, serial: u64) -> Result<(), Error> {
        let post = self.processes[&serial].post;
        let pairs: Vec<(u64, u64)> = match self.posts[post].role {
            Role::Gate => self
                .workers()
                .filter(|&worker| self.gate_serves(worker))
                .map(|worker| (serial, worker))
                .collect(),
            Role::Site => {
                let gates = self.active(Role::Gate, None).into_iter().map(|gate| (gate, serial));
                let services = self.workers().filter(|other| self.is_service_of(*other, post));
                gates.chain(services.map(|service| (serial, service))).collect()
            }
            Role::Service => {
                let gates = self.active(Role::Gate, None);
                let gates = gates.into_iter().filter(|_| self.gate_serves(serial));
                let sites =
                    self.workers().filter(|&site| self.is_service_of(serial, self.processes[&site].post));
                gates.chain(sites).map(|source| (source, serial)).collect()
            }
            _ => Vec::new(),
        };
        self.connect_backends(serial)?;
        self.connect_broker(serial)?;
        pairs.into_iter().try_for_each(|(source, worker)| self.connect_pair(source, worker))?;
        self.connect_signer(serial)?;
        self.connect_stapler(serial)
    }

    /// Makes the channels between a new signer and the sites that have certificates, or the other way round.
    fn connect_signer(&mut self, serial: u64) -> Result<(), Error> {
        let (signers, sites) = match self.posts[self.processes[&serial].post].role {
            Role::Signer => (vec![serial], self.active(Role::Site, None)),
            Role::Site => (self.active(Role::Signer, None), vec![serial]),
            _ => return Ok(()),
        };
        for &signer in &signers {
            for &worker in &sites {
                if let Some(site) = self.site_with_tls(worker) {
                    let of_signer = LauncherToSigner::Client { site };
                    self.join((signer, &of_signer), (worker, &LauncherToSite::Signer {}))?;
                }
            }
        }
        Ok(())
    }

    /// The site of a worker, if it has certificates.
    pub(crate) fn site_with_tls(&self, worker: u64) -> Option<u16> {
        let site = self.posts[self.processes[&worker].post].site;
        self.ground.config.sites[usize::from(site)].tls.is_some().then_some(site)
    }

    /// Makes a channel between two processes, each of which is told so with its end.
    pub(crate) fn join(
        &mut self,
        (one, of_one): (u64, &impl Message),
        (other, of_other): (u64, &impl Message),
    ) -> Result<(), Error> {
        let (its, others) = sys::seqpacket::pair().map_err(during("make a channel"))?;
        self.tell(one, of_one, Some(its));
        self.tell(other, of_other, Some(others));
        Ok(())
    }

    pub(crate) fn workers(&self) -> impl Iterator<Item = u64> {
        let is_worker = |role| matches!(role, Role::Site | Role::Service);
        self.processes
            .iter()
            .filter(move |(_, p)| p.stage != Stage::Retiring && is_worker(self.posts[p.post].role))
            .map(|(&serial, _)| serial)
    }

    /// Whether gates send clients' connections to this worker.
    pub(crate) fn gate_serves(&self, worker: u64) -> bool {
        let post = &self.posts[self.processes[&worker].post];
        self.ground.service(post).is_none_or(|(_, service)| service.takes_connections)
    }

    pub(crate) fn is_service_of(&self, service: u64, site: usize) -> bool {
        let (service, site) = (&self.posts[self.processes[&service].post], &self.posts[site]);
        service.role == Role::Service && site.role == Role::Site && service.site == site.site
    }

    pub(crate) fn connect_pair(&mut self, source: u64, worker: u64) -> Result<(), Error> {
        let (to_worker, from_source) = sys::seqpacket::pair().map_err(during("make a channel"))?;
        let partition = self.posts[self.processes[&worker].post].partition;
        let from_gate = self.posts[self.processes[&source].post].role == Role::Gate;
        if from_gate {
            self.tell(source, &LauncherToGate::Attach { partition }, Some(to_worker));
        } else {
            self.tell(source, &LauncherToSite::AttachService { partition }, Some(to_worker));
        }
        if self.posts[self.processes[&worker].post].role == Role::Site {
            self.tell(worker, &LauncherToSite::Attach {}, Some(from_source));
        } else {
            let source = if from_gate { Source::Gate } else { Source::Site };
            self.tell(worker, &LauncherToService::Attach { source }, Some(from_source));
        }
        Ok(())
    }

    /// Tells a new gate or site which of its partitions are broken.
    pub(crate) fn tell_what_is_broken(&mut self, serial: u64) {
        for post in 0..self.posts.len() {
            if self.duties[post].broken.is_some() {
                self.tell_broken(serial, post, true);
            }
        }
    }

    pub(crate) fn tell_broken(&mut self, serial: u64, post: usize, broken: bool) {
        let partition = self.posts[post].partition;
        match self.posts[self.processes[&serial].post].role {
            Role::Gate => self.tell(serial, &LauncherToGate::Broken { partition, broken }, None),
            Role::Site => self.tell(serial, &LauncherToSite::Broken { partition, broken }, None),
            _ => {}
        }
    }
}
