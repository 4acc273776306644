//! A launcher that goes on with the work of the one before, by its record.
//!
//! Runs in: the launcher, as root. Sees: the record, and the configuration that runs. Never: has an effect outside of
//! this process before [`Resumed::hold`]: until then the launcher before can be put back.

use std::fs::File;
use std::os::fd::{OwnedFd, RawFd};

use config::{Cache, Config, Examine};
use wire::successor::{LauncherToSuccessor, Lock};

use crate::components::admin_commands::AdminCommands;
use crate::components::admin_socket::AdminSocket;
use crate::components::bans::Bans;
use crate::components::certificates::Certificates;
use crate::components::file_reload::handover;
use crate::components::health::Health;
use crate::components::log_rotation::LogRotation;
use crate::components::registry::{Registry, Started};
use crate::components::service_manager::ServiceManager;
use crate::components::stderr_drain::StderrDrain;
use crate::components::ticket_keys::TicketKeys;
use crate::entry::VERSION;
use crate::given::Given;
use crate::launcher::step_clock::StepClock;
use crate::launcher::{Components, Launcher};
use crate::site_watch::SiteWatch;
use crate::transactions::Transactions;
use crate::upgrades::Upgrade;
use supervisor::Supervisor;
use supervisor::directories::{self, Directories};
use supervisor::error::{Error, during};
use supervisor::examine::{self, Examiner, KnownCertificates};
use supervisor::own_log::OwnLog;
use supervisor::setup::log_files::Logs;
use supervisor::site_names::holders::Holders;
use supervisor::spawn::cgroup::Cgroups;
use supervisor::spawn::cgroup_record::CgroupRecord;
use supervisor::spawn::context::SpawnContext;
use supervisor::spawn::uid_range::UidRange;
use supervisor::spawn::uids::Uids;
use supervisor::upgrade::{Handed, Held, Predecessor, Record, numbered, source};

/// How much is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// The record and the texts of the configuration.
    Texts,
    /// What these name on disk as well, and the versions of the programs of all roles: for a rehearsal.
    Whole,
}

/// A launcher that knows all of the one before, and has not taken its place for good.
pub(crate) struct Resumed {
    launcher: Launcher,
    held: Held,
    predecessor: Predecessor,
    started: Started,
}

impl Launcher {
    /// Writes down everything for a successor, and the order that waits for an answer.
    pub(super) fn record(&self, order: Option<(u64, u32)>) -> Record<'_> {
        let mut record = Record::default();
        self.supervisor.hand_over_itself(&mut record, VERSION, &self.source, order);
        self.supervisor.hand_over(&mut record);
        let mut lock = |lock, file: Option<&File>| {
            if let Some(file) = file {
                let descriptor = record.leave_again(file);
                record.add(LauncherToSuccessor::Locked { lock, descriptor });
            }
        };
        lock(Lock::Run, Some(self.supervisor.directories().lock()));
        lock(Lock::Uids, self.uid_range.as_ref().and_then(UidRange::lock));
        lock(Lock::Groups, self.group_record.as_ref().map(CgroupRecord::file));
        if let Some(uids) = &self.uid_range {
            let (first, last) = (*uids.range.start(), *uids.range.end());
            record.add(LauncherToSuccessor::UidRange { first, last });
        }
        self.admin_socket.hand_over(&mut record);
        self.components.hand_over(&mut record);
        record
    }

    /// The launcher that has written the record at this number.
    ///
    /// # Errors
    /// The record, or the configuration that runs, is none that this launcher can work with.
    pub(crate) fn resume(
        record: RawFd,
        started: Started,
        given: Given,
        depth: Depth,
    ) -> Result<Resumed, Error> {
        let handed = Handed::read(record)?;
        let predecessor = Predecessor::of(&handed)?;
        let source = source(&handed)?;
        // The signer of before has read them, and its successor reads all before the one of before goes.
        let known = KnownCertificates::for_trial(handover::known(&handed));
        let examiner = Examiner::new(examine::Depth::Start).knowing(known);
        let examiner = (depth == Depth::Whole).then_some(&examiner as &dyn Examine);
        let config = Config::of_source(&source, examiner);
        let config = config.map_err(|diagnostics| Error::Configuration { diagnostics })?;
        let (config, order) = numbered(&handed, config)?;
        let directories =
            Directories::known(&config.server, lock_of(&handed, Lock::Run)?.ok_or_else(no_lock)?);
        let uid_range = uid_range(&handed)?;
        let identities = uid_range.as_ref().map(|uids| Uids::load(&directories.state, uids.range.clone()));
        let holders = Holders::load(&directories.state)?;
        let logs = logs(&handed, &config)?;
        let (error_log, syslog) = logs.for_own_log()?;
        let signals = sys::signals::signal_descriptor().map_err(during("watch signals"))?;
        let empty_root = uid_range.as_ref().map(|_| directories.empty_root()).transpose()?;
        let directory = directories::directory(&config.dir)?;
        let context =
            SpawnContext::new(config, empty_root, directory, &directories.state, Cgroups::default())?;
        let admin_socket = AdminSocket::resume(&handed, &directories.run)?;
        let log = OwnLog::new(error_log, syslog);
        let (supervisor, held) = Supervisor::resume(&handed, context, directories, log, order, signals)?;
        if depth == Depth::Whole {
            supervisor.context().check_versions(supervisor.specs())?;
        }
        let components = Components::resume(&handed, &supervisor, logs, given)?;
        let launcher = Self {
            supervisor,
            components,
            admin_socket,
            steps: StepClock::new(std::time::Instant::now()),
            config_path: started.config.clone(),
            read_files: Cache::default(),
            site_watch: SiteWatch::default(),
            source,
            identities: identities.transpose()?,
            holders,
            transactions: Transactions::default(),
            upgrade: Upgrade::default(),
            uid_range,
            group_record: lock_of(&handed, Lock::Groups)?.map(CgroupRecord::known),
            ended: Vec::new(),
        };
        Ok(Resumed { launcher, held, predecessor, started })
    }
}

impl Resumed {
    /// Takes the place of the launcher before for good.
    fn hold(self) -> (Launcher, Predecessor) {
        let Self { mut launcher, held, predecessor, started } = self;
        launcher.supervisor.hold(held);
        if let Err(error) = sys::passed::close_rest() {
            launcher.supervisor.warn(format!("descriptors of the launcher before stay open: {error}"));
        }
        launcher.components.registry.resume(&mut launcher.supervisor, started);
        launcher.keep_unknown_holders();
        launcher.note_uids();
        (launcher, predecessor)
    }

    /// Takes the place of the launcher before, and begins to replace its processes.
    pub(crate) fn replace_all(self) -> Launcher {
        let (mut launcher, predecessor) = self.hold();
        launcher.supervisor.inherit(&predecessor.version);
        launcher.begin_to_replace(predecessor);
        launcher
    }

    /// The launcher before itself: its successor could not work.
    pub(crate) fn say_failed(self, reason: &str) -> Launcher {
        let (mut launcher, predecessor) = self.hold();
        let reason = format!("the new launcher could not take over, and this one goes on: {reason}");
        launcher.refuse_upgrade(predecessor.order, &reason);
        launcher
    }
}

impl Components {
    fn hand_over<'a>(&'a self, record: &mut Record<'a>) {
        self.admin_commands.targets.hand_over(record);
        self.certificates.files.hand_over(record);
        self.ticket_keys.hand_over(record);
        self.bans.hand_over(record);
        self.health.hand_over(record);
        let logs = &self.log_rotation.logs;
        for access in logs.access.files() {
            let descriptor = record.leave_if(access.map(|file| &**file));
            record.add(LauncherToSuccessor::AccessLog { descriptor });
        }
        let descriptor = record.leave(&logs.error);
        record.add(LauncherToSuccessor::ErrorLog { descriptor, day: logs.day() });
    }

    fn resume(handed: &Handed, supervisor: &Supervisor, logs: Logs, given: Given) -> Result<Self, Error> {
        let config = &supervisor.context().config;
        let mut stderr_drain = StderrDrain::new()?;
        supervisor.watch_pipes(&stderr_drain.epoll)?;
        for (&serial, process) in supervisor.processes() {
            process.stderr.as_ref().map_or(Ok(()), |stderr| stderr_drain.add(serial, stderr))?;
        }
        Ok(Self {
            admin_commands: AdminCommands::resume(handed, supervisor),
            certificates: Certificates::resume(handed, config),
            ticket_keys: TicketKeys::resume(handed, config)?,
            bans: Bans::resume(handed),
            log_rotation: LogRotation::new(logs),
            registry: Registry::default(),
            stderr_drain,
            health: Health::resume(handed, supervisor),
            conditioning_report: Default::default(),
            probes: Default::default(),
            core_copies: Default::default(),
            rehearsal: Default::default(),
            configuration_examination: Default::default(),
            service_manager: ServiceManager::new(given.notifier, given.watchdog),
            good_copies: Default::default(),
        })
    }
}

fn no_lock() -> Error {
    Error::record("it has no lock of the run directory")
}

fn lock_of(handed: &Handed, wanted: Lock) -> Result<Option<OwnedFd>, Error> {
    let found = handed.items().find_map(|item| match item {
        LauncherToSuccessor::Locked { lock, descriptor } if *lock == wanted => Some(*descriptor),
        _ => None,
    });
    found.map(|number| handed.copy(number)).transpose()
}

fn uid_range(handed: &Handed) -> Result<Option<UidRange>, Error> {
    let lock = lock_of(handed, Lock::Uids)?;
    let range = handed.items().find_map(|item| match item {
        LauncherToSuccessor::UidRange { first, last } => Some(*first..=*last),
        _ => None,
    });
    match (range, rustix::process::geteuid().is_root()) {
        (None, true) => Err(Error::record("it has no uids")),
        (range, _) => Ok(range.map(|range| UidRange::known(range, lock))),
    }
}

fn logs(handed: &Handed, config: &Config) -> Result<Logs, Error> {
    let (mut access, mut error) = (Vec::new(), None);
    for item in handed.items() {
        match item {
            LauncherToSuccessor::AccessLog { descriptor } => {
                access.push(handed.copy_if(*descriptor)?.map(File::from));
            }
            LauncherToSuccessor::ErrorLog { descriptor, day } => {
                error = Some((handed.copy(*descriptor)?, *day))
            }
            _ => {}
        }
    }
    match error {
        Some((error, day)) if access.len() == config.sites.len() + 1 => {
            Ok(Logs::known(config, access, error.into(), day))
        }
        _ => Err(Error::record("it does not have the logs of all sites")),
    }
}
