//! Who is told of a new process: the loggers, and those that work with it.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: connects two processes between which
//! `wire::CHANNELS` has no edge.

use std::os::fd::OwnedFd;

use wire::tls::LauncherToSigner;
use wire::{
    AccessLogRight, AccessRight, LauncherToGate, LauncherToLogger, LauncherToService, LauncherToSite,
};
use wire::{Role, Source, Text};

use crate::Supervisor;
use crate::error::{Error, during};
use crate::process::{Process, Stage};
use crate::setup::links;
use crate::spawn::context::duplicate;

impl Supervisor {
    /// Gives a new logger what every process logs, and what those that are gone have left.
    pub fn hand_logs_to(&mut self, logger: u64) -> Result<(), Error> {
        for index in 0..self.unread_logs().len() {
            let (slot, log, stderr) = &self.unread_logs()[index];
            let (slot, log, stderr) = (*slot, log.as_ref().map(duplicate).transpose()?, duplicate(stderr)?);
            self.hand_log(logger, slot, log, Some(stderr));
        }
        let others =
            self.processes().iter().filter(|&(&serial, process)| serial != logger && process.is_configured);
        let others: Vec<u64> = others.map(|(&serial, _)| serial).collect();
        for serial in others {
            let process = &self.processes()[&serial];
            let log = process.log.as_ref().map(duplicate).transpose()?;
            let stderr = process.stderr.as_ref().map(|of| duplicate(&of.reading)).transpose()?;
            self.hand_log(logger, process.slot, log, stderr);
        }
        Ok(())
    }

    /// Tells the loggers of a new process.
    pub fn register_with_loggers(&mut self, serial: u64) -> Result<(), Error> {
        for logger in self.active(Role::Logger, None) {
            let process = &self.processes()[&serial];
            // A logger does not read its own standard error: it would wait for itself.
            let log = process.log.as_ref().filter(|_| logger != serial).map(duplicate).transpose()?;
            let stderr = process.stderr.as_ref().filter(|_| logger != serial);
            let stderr = stderr.map(|of| duplicate(&of.reading)).transpose()?;
            self.hand_log(logger, process.slot, log, stderr);
        }
        Ok(())
    }

    /// Hands a logger its end of the log of a slot's process, and of what that prints.
    pub fn hand_log(&mut self, logger: u64, slot: usize, log: Option<OwnedFd>, stderr: Option<OwnedFd>) {
        let spec = self.spec(slot);
        let label = Text::new(spec.title());
        let right = match spec.role.facts().access_log {
            AccessLogRight::Every => AccessRight::Every,
            AccessLogRight::Site => AccessRight::Site(spec.site),
            AccessLogRight::None => AccessRight::None,
        };
        if log.is_some() {
            self.send(logger, &LauncherToLogger::Client { label: label.clone(), right }, log);
        }
        if stderr.is_some() {
            self.send(logger, &LauncherToLogger::Stderr { label }, stderr);
        }
    }

    /// Makes the channels on which requests go: from a new gate or site's worker, or to a new worker. Gates and sites
    /// that retire are among these: they may have something for a new worker yet, and connections that only a new gate
    /// can go on with.
    pub(crate) fn connect_workers(&mut self, serial: u64) -> Result<(), Error> {
        let slot = self.processes()[&serial].slot;
        let pairs: Vec<(u64, u64)> = match self.spec(slot).role {
            Role::Gate => {
                let services = self.workers().filter(|&worker| self.spec_of(worker).role == Role::Service);
                let services = services.filter(|&worker| self.gate_serves(worker));
                self.hearing(Role::Site).into_iter().chain(services).map(|worker| (serial, worker)).collect()
            }
            Role::Site => {
                let gates = self.hearing(Role::Gate).into_iter().map(|gate| (gate, serial));
                let site = self.spec(slot).site;
                let services = self.of_site(site).filter(|other| self.is_service_of(*other, slot));
                let relayed = self.relayed_by(serial);
                let relaying = self.relaying_to(serial);
                gates
                    .chain(services.chain(relayed).map(|worker| (serial, worker)))
                    .chain(relaying.into_iter().map(|site| (site, serial)))
                    .collect()
            }
            Role::Service => {
                let gates = self.hearing(Role::Gate);
                let gates = gates.into_iter().filter(|_| self.gate_serves(serial));
                let site = self.spec(slot).site;
                let is_its = |site: &u64| self.is_service_of(serial, self.processes()[site].slot);
                let sites = self.of_site(site).filter(is_its);
                gates.chain(sites).map(|source| (source, serial)).collect()
            }
            _ => return Ok(()),
        };
        pairs.into_iter().try_for_each(|(source, worker)| self.connect_pair(source, worker))
    }

    /// Makes the channels between a new signer and the sites that have certificates, or the other way round.
    pub(crate) fn connect_signer(&mut self, serial: u64) -> Result<(), Error> {
        let (signers, sites) = match self.spec_of(serial).role {
            Role::Signer => (vec![serial], self.hearing(Role::Site)),
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
    pub fn site_with_tls(&self, worker: u64) -> Option<u16> {
        let spec = self.spec_of(worker);
        links::has_certificates(&self.context().config, spec).then_some(spec.site)
    }

    /// The processes that answer requests, as far as they are not told to end.
    pub fn workers(&self) -> impl Iterator<Item = u64> {
        let is_worker = |process: &Process| self.spec(process.slot).role.is_worker();
        let workers = self.processes().iter().filter(move |(_, process)| is_worker(process));
        workers.map(|(&serial, _)| serial).filter(|&serial| self.is_active(serial))
    }

    /// The processes of a site that are told what is new.
    pub(super) fn of_site(&self, site: u16) -> impl Iterator<Item = u64> {
        self.index.of_site(site).filter(|serial| self.processes()[serial].hears())
    }

    /// The workers to which a site's worker relays requests under TLS.
    fn relayed_by(&self, front: u64) -> Vec<u64> {
        // Most sites relay nothing, and are not relayed to: only for the others is every site looked at.
        if self.site_with_tls(front).is_none() {
            return Vec::new();
        }
        self.workers().filter(|&other| self.relays(front, other)).collect()
    }

    /// The workers that relay requests under TLS to a site's worker.
    fn relaying_to(&self, other: u64) -> Vec<u64> {
        let slot = self.processes()[&other].slot;
        let site = &self.context().config.sites[usize::from(self.spec(slot).site)];
        if site.path == "/" {
            return Vec::new();
        }
        // One that retires goes by what it was told.
        let relayed = |front: &Process| front.stage == Stage::Retiring && front.relays_to.contains(&slot);
        let fronts = self.hearing(Role::Site).into_iter();
        fronts.filter(|front| self.relays(*front, other) || relayed(&self.processes()[front])).collect()
    }

    /// Whether gates send clients' connections to this worker.
    pub fn gate_serves(&self, worker: u64) -> bool {
        links::takes_connections(&self.context().config, self.spec_of(worker))
    }

    /// Whether a slot is that of a service of the site in another slot.
    pub fn is_service_of(&self, service: u64, site: usize) -> bool {
        let (service, site) = (self.spec_of(service), self.spec(site));
        service.role == Role::Service && site.role == Role::Site && service.site == site.site
    }

    /// Whether a site's worker relays requests under TLS to another site's.
    fn relays(&self, front: u64, other: u64) -> bool {
        let (front, other) = (self.spec_of(front), self.spec_of(other));
        let are_sites = front.role == Role::Site && other.role == Role::Site;
        are_sites && links::relays(&self.context().config, front, other)
    }

    /// Makes a channel on which a gate or a site worker sends connections to a worker.
    pub fn connect_pair(&mut self, source: u64, worker: u64) -> Result<(), Error> {
        let (from, to) = (self.spec_of(source).role, self.spec_of(worker).role);
        let (back, there) = (wire::carries(to, from, "FromWorker"), wire::carries(from, to, "ToWorker"));
        let made = sys::seqpacket::pair_that_takes(back, there);
        let (to_worker, from_source) = made.map_err(during("make a channel"))?;
        let partition = self.spec_of(worker).partition;
        let from_gate = self.spec_of(source).role == Role::Gate;
        let to_site = self.spec_of(worker).role == Role::Site;
        match (from_gate, to_site) {
            (true, _) => self.send(source, &LauncherToGate::Attach { partition }, Some(to_worker)),
            (false, true) => {
                self.note_relay(source, worker);
                self.send(source, &LauncherToSite::AttachSite { partition }, Some(to_worker));
            }
            (false, false) => {
                self.send(source, &LauncherToSite::AttachService { partition }, Some(to_worker));
            }
        }
        match (from_gate, to_site) {
            (true, true) => self.send(worker, &LauncherToSite::Attach {}, Some(from_source)),
            (false, true) => self.send(worker, &LauncherToSite::AttachRelay {}, Some(from_source)),
            (_, false) => {
                let source = if from_gate { Source::Gate } else { Source::Site };
                self.send(worker, &LauncherToService::Attach { source }, Some(from_source));
            }
        }
        Ok(())
    }
}
