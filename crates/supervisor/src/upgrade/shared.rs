//! What all processes share: the configuration, listening sockets, the chain of filters, what waits for a logger.
//!
//! Runs in: the launcher, as root. Sees: the record of the launcher before. Never: binds a socket, or reads the
//! configuration's files: what runs is what the launcher before has read.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use config::{Config, Site, Source};
use wire::successor::LauncherToSuccessor;
use wire::{Bytes, Role, Text};

use crate::Supervisor;
use crate::chain_ends::Chain;
use crate::chain_start::ChainStart;
use crate::directories::Directories;
use crate::error::Error;
use crate::foreign::Foreign;
use crate::life::{Life, Removed};
use crate::numbers::{is_live, leave_place};
use crate::own_log::OwnLog;
use crate::setup::log_files::NO_SITE;
use crate::site_order::SiteOrder;
use crate::spawn::context::SpawnContext;
use crate::spawn::passed::PassedSockets;
use crate::unread::Unread;
use crate::upgrade::{Handed, Held, Record, slots};

/// The launcher before.
#[derive(Clone, Debug)]
pub struct Predecessor {
    /// Its version.
    pub version: String,
    /// The number that its last process has.
    pub serial: u64,
    /// The admin process that has passed on the order to upgrade, and the ticket of that.
    pub order: Option<(u64, u32)>,
}

impl Predecessor {
    /// The one that has written this record.
    ///
    /// # Errors
    /// It does not say.
    pub fn of(handed: &Handed) -> Result<Self, Error> {
        let found = handed.items().find_map(|item| match item {
            LauncherToSuccessor::Launcher { version, serial, admin, ticket, .. } => Some(Self {
                version: version.as_str().to_owned(),
                serial: *serial,
                order: (*admin != wire::successor::NONE).then_some((*admin, *ticket)),
            }),
            _ => None,
        });
        found.ok_or_else(|| Error::record("it does not say who wrote it"))
    }
}

/// Writes down the texts of the configuration that runs.
pub(super) fn hand_over_source(record: &mut Record<'_>, source: &Source) {
    for (path, text) in source.files() {
        let (path, text) = (Text::new(path.to_string_lossy()), Bytes(text.as_bytes().to_vec()));
        record.add(LauncherToSuccessor::Source { path, text });
    }
}

/// The texts of the configuration that runs.
///
/// # Errors
/// There is none.
pub fn source(handed: &Handed) -> Result<Source, Error> {
    let files = handed.items().filter_map(|item| match item {
        LauncherToSuccessor::Source { path, text } => {
            Some((PathBuf::from(path.as_str()), String::from_utf8_lossy(&text.0).into_owned()))
        }
        _ => None,
    });
    Source::new(files).ok_or_else(|| Error::record("it has no configuration"))
}

/// A configuration with each site at the number that it has had, and these numbers in the order of the file.
///
/// # Errors
/// The sites are others than those of the record.
pub fn numbered(handed: &Handed, mut config: Config) -> Result<(Config, Vec<u16>), Error> {
    let sites = std::mem::take(&mut config.sites);
    let read: HashMap<&str, (usize, &Arc<Site>)> =
        sites.iter().enumerate().map(|(at, site)| (&*site.name, (at, site))).collect();
    let mut order = vec![None; sites.len()];
    for item in handed.items() {
        let LauncherToSuccessor::Site { name, serves } = item else { continue };
        let lacks = || Error::record("it names a site that its configuration lacks");
        let known = read.get(name.as_str());
        if *serves {
            let &(at, site) = known.filter(|(at, _)| order[*at].is_none()).ok_or_else(lacks)?;
            order[at] = Some(config.sites.len() as u16);
            config.sites.push(site.clone());
        } else {
            let gone = known.map(|&(_, site)| site.clone());
            let gone = gone.or_else(|| sites.first().map(|any| nobody(any, name.as_str())));
            config.sites.push(gone.map(place).ok_or_else(lacks)?);
        }
    }
    let order = order.into_iter().collect::<Option<_>>();
    order
        .map(|order| (config, order))
        .ok_or_else(|| Error::record("its configuration has a site that it does not name"))
}

/// Something that stands for a site that has gone without a successor. Nothing runs there, so that any site will do for
/// it; but what others still say of it is not for that one's log.
fn nobody(any: &Arc<Site>, name: &str) -> Arc<Site> {
    let mut site = any.clone();
    let gone = Arc::make_mut(&mut site);
    gone.name = name.to_owned();
    gone.worker.access_log = NO_SITE.to_owned();
    site
}

/// The place of a site that has gone.
fn place(mut site: Arc<Site>) -> Arc<Site> {
    leave_place(&mut site);
    site
}

impl Supervisor {
    /// Writes down what was read of the files of the configuration, and all else that is not one process's.
    pub(super) fn hand_over_shared<'a>(&'a self, record: &mut Record<'a>) {
        for site in &self.context.config.sites {
            let name = Text::new(site.name.as_str());
            record.add(LauncherToSuccessor::Site { name, serves: is_live(site) });
        }
        for (listener, sockets) in (0u16..).zip(&self.listeners) {
            for (gate, socket) in (0u16..).zip(sockets) {
                let descriptor = record.leave(socket);
                record.add(LauncherToSuccessor::Listening { listener, gate, descriptor });
            }
        }
        for passed in self.passed.iter() {
            let (name, descriptor) = (Text::new(passed.name.as_str()), record.leave(&passed.socket));
            record.add(LauncherToSuccessor::Passed { name, descriptor });
        }
        for (slot, log, stderr) in &self.unread_logs {
            let (log, stderr) = (record.leave_if(log.as_ref()), record.leave(stderr));
            record.add(LauncherToSuccessor::Unread { slot: *slot as u32, log, stderr });
        }
        if let Some(chain) = &self.filters.chain {
            let age_ms = record.age(chain.since);
            let (first, last) = (record.leave(&chain.first), record.leave(&chain.last));
            record.add(LauncherToSuccessor::Chain { number: chain.number, first, last, age_ms });
            for unread in &chain.unread {
                let descriptor = record.leave(unread.descriptor());
                record.add(LauncherToSuccessor::ChainUnread { descriptor });
            }
        }
        self.hand_over_held(record);
    }

    /// Writes down which launcher this is, what it has read, and who waits for its successor.
    pub fn hand_over_itself(
        &self,
        record: &mut Record<'_>,
        version: &str,
        source: &Source,
        order: Option<(u64, u32)>,
    ) {
        let (admin, ticket) = order.unwrap_or((wire::successor::NONE, 0));
        record.add(LauncherToSuccessor::Launcher {
            version: Text::new(version),
            age_ms: record.age(self.started),
            serial: self.serial,
            chains: self.filters.chains,
            groups: self.context.started.get(),
            admin,
            ticket,
        });
        hand_over_source(record, source);
    }

    /// The supervisor of the launcher before. What may have an effect outside of this process when it is dropped is not
    /// in it, but in what comes along, for [`Supervisor::hold`].
    ///
    /// # Errors
    /// The record is not whole, or a descriptor cannot be had.
    pub fn resume(
        handed: &Handed,
        context: SpawnContext,
        directories: Directories,
        log: OwnLog,
        order: Vec<u16>,
        signals: OwnedFd,
    ) -> Result<(Self, Held), Error> {
        let (specs, lives): (Vec<_>, Vec<_>) =
            slots::specs(handed, context.config.sites.len())?.into_iter().unzip();
        let gates = specs.iter().filter(|spec| spec.role == Role::Gate).map(|spec| spec.index + 1).max();
        let listeners = listeners(handed, context.config.listeners.len(), gates.unwrap_or(0))?;
        let mut supervisor = Self::new(context, directories, log, listeners, specs, signals)?;
        supervisor.slots.iter_mut().zip(lives).for_each(|(slot, life)| slot.life = life);
        supervisor.order = SiteOrder::of(order, &supervisor.context.config.sites);
        supervisor.announced = true;
        supervisor.examine_beside();
        supervisor.resume_slots(handed)?;
        supervisor.resume_processes(handed)?;
        supervisor.resume_chain(handed)?;
        for item in handed.items() {
            match item {
                LauncherToSuccessor::Launcher { age_ms, serial, chains, groups, .. } => {
                    (supervisor.started, supervisor.serial) = (handed.before(*age_ms), *serial);
                    supervisor.filters.chains = *chains;
                    supervisor.context.started.set(*groups);
                }
                LauncherToSuccessor::Unread { slot, log, stderr } => {
                    let unread =
                        (*slot as usize, handed.copy_if(*log)?.map(Foreign::from), handed.copy(*stderr)?);
                    supervisor.unread_logs.push_back(unread);
                }
                LauncherToSuccessor::Without { layer } => supervisor.leave_out(layer.as_str()),
                _ => {}
            }
        }
        supervisor.rest_removed();
        supervisor.passed = PassedSockets::new(passed(handed)?)?;
        let held = Held::of(handed)?;
        Ok((supervisor, held))
    }

    /// Has slots that were removed rest once more: who has heard of them is not said.
    fn rest_removed(&mut self) {
        let removed = Removed { last: self.serial, at: Instant::now() };
        let slots = self.slots.iter_mut().filter(|slot| slot.life == Life::Removed);
        slots.for_each(|slot| slot.removed = Some(removed));
    }

    fn leave_out(&self, name: &str) {
        let mut without = self.context.without.borrow_mut();
        let layer = jail::LAYERS.iter().find(|layer| layer.name == name && !without.contains(&layer.name));
        without.extend(layer.map(|layer| layer.name));
    }

    fn resume_chain(&mut self, handed: &Handed) -> Result<(), Error> {
        let serving = self.filters().first().map(|&slot| self.specs[slot].generation);
        if let Some(generation) = serving {
            self.set_filters(generation);
        }
        let (mut ends, mut unread) = (None, Vec::new());
        for item in handed.items() {
            match item {
                LauncherToSuccessor::Chain { number, first, last, age_ms } => {
                    let (first, last) = (handed.copy(*first)?, handed.copy(*last)?);
                    ends = Some((*number, Foreign::from(first), Foreign::from(last), handed.before(*age_ms)));
                }
                LauncherToSuccessor::ChainUnread { descriptor } => {
                    unread.push(Unread::new(handed.copy(*descriptor)?))
                }
                _ => {}
            }
        }
        self.filters.chain = ends.map(|(number, first, last, since)| Chain {
            number,
            first,
            last,
            unread,
            since,
            look_at: Instant::now(),
            start: Some(ChainStart::new(Instant::now())),
        });
        Ok(())
    }
}

/// The sockets that the first launcher was started with.
fn passed(handed: &Handed) -> Result<Vec<(String, OwnedFd)>, Error> {
    let passed = handed.items().filter_map(|item| match item {
        LauncherToSuccessor::Passed { name, descriptor } => Some((name.as_str().to_owned(), *descriptor)),
        _ => None,
    });
    passed.map(|(name, descriptor)| Ok((name, handed.copy(descriptor)?))).collect()
}

/// The listening sockets, by listener, then by gate: one for each, or the record is refused.
fn listeners(handed: &Handed, count: usize, gates: usize) -> Result<Vec<Vec<OwnedFd>>, Error> {
    let mut sockets: BTreeMap<(u16, u16), OwnedFd> = BTreeMap::new();
    for item in handed.items() {
        if let LauncherToSuccessor::Listening { listener, gate, descriptor } = item {
            sockets.insert((*listener, *gate), handed.copy(*descriptor)?);
        }
    }
    let all = (0..count as u16).map(|listener| {
        let of_gates = (0..gates as u16).map(|gate| sockets.remove(&(listener, gate)));
        of_gates.collect::<Option<Vec<_>>>()
    });
    let all: Option<Vec<_>> = all.collect();
    all.ok_or_else(|| Error::record("a gate has no socket of a listener"))
}
