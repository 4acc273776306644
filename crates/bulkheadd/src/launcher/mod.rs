//! The launcher: the supervisor, the components, and the one loop that serves both.
//!
//! Runs in: the launcher, as root, single-threaded. Sees: exits of children, fixed-size messages. Never: ends
//! because of something that a child did.
//!
//! Decisions that need both a process and a component are made here: what a new process is sent, which component a
//! message is for, and which command fails with a process that has ended. A component sees the supervisor alone.

mod configure;
mod holders;
mod left_out;
mod messages;
mod reading;
mod reload;
pub(crate) mod resume;
mod staging;
mod step_clock;
mod transaction;
mod uids;
mod upgrade;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use config::{Cache, Judged, Source};
use rustix::event::epoll;

use crate::components::admin_commands::AdminCommands;
use crate::components::admin_socket::AdminSocket;
use crate::components::all::Components;
use crate::components::bans::Bans;
use crate::components::certificates::Certificates;
use crate::components::conditioning_report::ConditioningReport;
use crate::components::configuration_examination::ConfigurationExamination;
use crate::components::core_copies::CoreCopies;
use crate::components::file_reload::Lacking;
use crate::components::good_copies::GoodCopies;
use crate::components::health::Health;
use crate::components::log_rotation::LogRotation;
use crate::components::probes::Probes;
use crate::components::registry::{Registry, Started};
use crate::components::rehearsal::Rehearsal;
use crate::components::service_manager::ServiceManager;
use crate::components::stderr_drain::StderrDrain;
use crate::components::ticket_keys::TicketKeys;
use crate::given::Given;
use crate::launcher::step_clock::StepClock;
use crate::site_watch::SiteWatch;
use crate::transactions::{Asker, Transactions, Wanted};
use crate::upgrades::Upgrade;
use supervisor::Supervisor;
use supervisor::directories::{self, Directories};
use supervisor::error::{Error, during};
use supervisor::events::Event;
use supervisor::own_log::OwnLog;
use supervisor::setup::log_files::Logs;
use supervisor::setup::process_table::process_table;
use supervisor::site_names::{self, holders::Holders};
use supervisor::spawn::BegunProcess;
use supervisor::spawn::cgroup::Cgroups;
use supervisor::spawn::cgroup_record::CgroupRecord;
use supervisor::spawn::context::SpawnContext;
use supervisor::spawn::inheritance;
use supervisor::spawn::passed::PassedSockets;
use supervisor::spawn::uid_range::{self, UidRange};
use supervisor::spawn::uids::Uids;
use supervisor::survivors::{self, Ended};
use sys::signals::Signal;
use wire::Role;

/// LIMIT: for how long programs are examined one after the other at the start of the server, when nothing is served
/// yet. What is left then is examined beside the loop.
const EXAMINED_AT_START: Duration = Duration::from_secs(10);

/// LIMIT: for how long one process is waited for then, until it executes its program; it is one on its way from then
/// on.
const BEGUN_AT_START: Duration = Duration::from_secs(2);

/// LIMIT: warnings of a configuration that are lines of the log, of each start and each reload: they may be of
/// thousands of tenants' files.
const WARNINGS_LOGGED_MAX: usize = 100;

/// The launcher.
#[derive(Debug)]
pub struct Launcher {
    supervisor: Supervisor,
    components: Components,
    admin_socket: AdminSocket,
    /// For how long its steps keep others waiting.
    steps: StepClock,
    /// The file that the configuration is from.
    config_path: PathBuf,
    /// Files of sites as they were read last, and what has happened in their folder since then.
    read_files: Cache,
    site_watch: SiteWatch,
    /// The texts that the configuration is from which runs.
    source: Source,
    /// Which uid is whose; `None` in a rootless run.
    identities: Option<Uids>,
    /// Whose the names of sites are.
    holders: Holders,
    transactions: Transactions,
    upgrade: Upgrade,
    /// Held for as long as the launcher lives.
    uid_range: Option<UidRange>,
    /// The same.
    group_record: Option<CgroupRecord>,
    /// What an earlier start had left, for the log.
    ended: Vec<String>,
}

impl Launcher {
    /// Prepares everything that can fail before the first child is started.
    pub fn new(
        Judged { config, source, left_out, .. }: Judged,
        (read_files, site_watch): (Cache, SiteWatch),
        started: Started,
        given: Given,
    ) -> Result<Self, Error> {
        inheritance::raise_descriptor_limit();
        inheritance::raise_process_limit();
        let passed = PassedSockets::new(given.sockets)?;
        passed.check(&config.listeners)?;
        let root = rustix::process::geteuid().is_root();
        let gates = config.server.gates.map_or_else(processor_count, |gates| gates as usize);
        let directories = Directories::open(&config.server)?;
        let uid_range = root.then(|| uid_range::reserve(&config, &directories.state)).transpose()?;
        let identities = uid_range.as_ref().map(|uids| Uids::load(&directories.state, uids.range.clone()));
        let mut identities = identities.transpose()?;
        let mut ended = Ended::default();
        let mut group_record = None;
        if let (Some(uids), Some(table)) = (&uid_range, &identities) {
            // Before any uid is given out for the first time: the table says what was ours before.
            group_record = Some(survivors::end_left_groups(&directories.state, &mut ended)?);
            survivors::end_under(&uids.range, table, &mut ended)?;
        }
        let specs = process_table(&config, gates, identities.as_mut())?;
        identities.as_mut().map_or(Ok(()), Uids::save)?;
        let holders = site_names::at_start(&directories.state, &config)?;
        let listeners = config.listeners.iter().map(|listener| passed.listen_on(listener.address, gates));
        let listeners = listeners.collect::<Result<_, _>>()?;
        let logs = Logs::open(&config, SystemTime::now())?;
        let log = logs.for_own_log().map(|(error_log, syslog)| OwnLog::new(error_log, syslog))?;
        // Before anything is made that would be left by a signal.
        let signals = sys::signals::signal_descriptor().map_err(during("watch signals"))?;
        let stderr_drain = StderrDrain::new()?;
        let cgroups = if root { Cgroups::open() } else { Cgroups::default() };
        if let Some(record) = &mut group_record {
            record.keep(cgroups.tops()).map_err(during("write down the control groups"))?;
        }
        let empty_root = root.then(|| directories.empty_root()).transpose()?;
        let folder = directories::directory(&config.dir)?;
        let context = SpawnContext::new(config, empty_root, folder, &directories.state, cgroups)?;
        context.check_versions(&specs)?;
        let admin_socket = AdminSocket::open(&directories.run)?;
        let mut components = Components {
            admin_commands: AdminCommands::new(&specs),
            certificates: Certificates::of(&context.config),
            ticket_keys: TicketKeys::of(&context.config)?,
            conditioning_report: ConditioningReport::default(),
            bans: Bans::default(),
            probes: Probes::default(),
            core_copies: CoreCopies::default(),
            log_rotation: LogRotation::new(logs),
            registry: Registry::default(),
            stderr_drain,
            health: Health::default(),
            rehearsal: Rehearsal::default(),
            configuration_examination: ConfigurationExamination::default(),
            service_manager: ServiceManager::new(given.notifier, given.watchdog),
            good_copies: GoodCopies::default(),
        };
        let mut supervisor = Supervisor::new(context, directories, log, listeners, specs, signals)?;
        supervisor.keep_passed(passed);
        supervisor.watch_pipes(&components.stderr_drain.epoll)?;
        let config_path = started.config.clone();
        components.registry.register(&mut supervisor, started);
        components.admin_commands.left_out = left_out;
        Ok(Self {
            supervisor,
            components,
            admin_socket,
            steps: StepClock::new(Instant::now()),
            config_path,
            read_files,
            site_watch,
            source,
            identities,
            holders,
            transactions: Transactions::default(),
            upgrade: Upgrade::default(),
            uid_range,
            group_record,
            ended: ended.lines(),
        })
    }

    /// Starts every child and looks after them until the end.
    pub fn run(mut self) -> Result<(), Error> {
        self.warn_of_lack(false);
        self.start_all();
        self.log_isolation();
        self.log_warnings();
        self.note_uids();
        self.log_left_out("start", None);
        self.keep_good_copies();
        self.components.log_rotation.log_missing_syslog(&mut self.supervisor);
        self.serve()
    }

    /// Looks after the children until the end.
    pub fn serve(mut self) -> Result<(), Error> {
        let mut events = Vec::with_capacity(256);
        loop {
            self.turn(&mut events)?;
            let none_left = self.supervisor.processes().is_empty()
                && self.components.all().iter().all(|component| component.is_idle());
            if self.supervisor.is_stopping() && none_left {
                self.supervisor.info("stopped");
                self.admin_socket.close();
                self.components.registry.close();
                return Ok(());
            }
        }
    }

    /// Starts a process for each slot. As many are on their way at a time as there are processors: most of a start goes
    /// on in the child, which makes its jail.
    fn start_all(&mut self) {
        let rests = |slot: &usize| self.supervisor.slot(*slot).rests;
        let mut slots: Vec<usize> = (0..self.supervisor.specs().len()).filter(|slot| !rests(slot)).collect();
        // Where there is not room for all, what works for all sites comes first.
        slots.sort_by_key(|slot| self.supervisor.spec(*slot).role.is_of_a_site());
        self.start_each(slots, Instant::now() + EXAMINED_AT_START);
        self.supervisor.examine_beside();
    }

    /// Starts a process for each of these slots, and waits for them; those that take long are on their way from then
    /// on. Those that may be given one program file, under different uids, are not on their way at the same time. Up to
    /// a time, what is to be known of programs is found out here, and from then on beside the loop.
    fn start_each(&mut self, slots: Vec<usize>, examined_until: Instant) {
        let at_once = processor_count();
        let mut begun = VecDeque::new();
        for slot in slots {
            // Filters are all started with the first, and all of them are tried again if one fails.
            if self.supervisor.slot(slot).current.is_some() || self.supervisor.is_start_due(slot) {
                continue;
            }
            while begun.len() >= at_once || self.is_in_the_way(&begun, slot) {
                self.finish_start(begun.pop_front(), examined_until);
            }
            let now = Instant::now();
            if examined_until <= now {
                self.supervisor.examine_beside();
            }
            if self.supervisor.is_started_later(slot, now) || self.supervisor.waits_for_room(slot, now) {
                continue;
            }
            if self.supervisor.spec(slot).role == Role::Filter {
                self.supervisor.start(slot);
                self.configure_new();
                while self.supervisor.awaits_chain(begun_until(examined_until)) {
                    self.configure_new();
                }
            } else {
                begun.push_back((slot, self.supervisor.begin_start(slot)));
            }
        }
        while !begun.is_empty() {
            self.finish_start(begun.pop_front(), examined_until);
        }
    }

    /// Starts a process for each of the next slots that are wanted, unless it has one by then.
    fn start_wanted(&mut self, now: Instant) {
        for slot in self.supervisor.next_wanted() {
            let is_started =
                self.supervisor.slot(slot).current.is_some() || self.supervisor.is_start_due(slot);
            if !is_started && !self.supervisor.is_started_later(slot, now) {
                self.supervisor.start(slot);
            }
        }
        self.configure_new();
    }

    /// Whether one of these has to execute its program before the process of a slot may be given that. Of filters it is
    /// not said which one is next.
    fn is_in_the_way(&self, begun: &VecDeque<(usize, Result<BegunProcess, Error>)>, slot: usize) -> bool {
        let is_filter = self.supervisor.spec(slot).role == Role::Filter;
        begun.iter().any(|(other, _)| is_filter || self.supervisor.share_program(slot, *other))
    }

    fn finish_start(&mut self, begun: Option<(usize, Result<BegunProcess, Error>)>, until: Instant) {
        if let Some((slot, begun)) = begun {
            self.supervisor.finish_start(slot, begun, begun_until(until));
            self.configure_new();
        }
    }

    /// Says which limits are too low for what is configured, or for an upgrade of it.
    pub(super) fn warn_of_lack(&mut self, is_upgrade: bool) {
        self.supervisor.lack(is_upgrade).into_iter().for_each(|lack| self.supervisor.warn(lack));
    }

    /// Says what is missing of the jails, and what holds their limits.
    fn log_isolation(&mut self) {
        let root = self.supervisor.context().empty_root.is_some();
        let missing = self.supervisor.missing();
        if !root {
            self.supervisor.warn(format!(
                "not started as root: every process runs as this user, without the layers {}",
                missing.join(", ")
            ));
        } else if !missing.is_empty() {
            self.supervisor.warn(format!("isolation is degraded: without the layers {}", missing.join(", ")));
        }
        if root {
            self.supervisor.info(format!("limits are held by {}", self.supervisor.context().cgroups.kind()));
        }
        for line in std::mem::take(&mut self.ended) {
            self.supervisor.warn(line);
        }
        if let Some(note) = self.uid_range.as_mut().and_then(|uids| uids.note.take()) {
            self.supervisor.warn(note);
        }
    }

    /// Says what the operator perhaps did not mean.
    fn log_warnings(&mut self) {
        let warnings = &self.supervisor.context().config.warnings;
        let more = warnings.len().saturating_sub(WARNINGS_LOGGED_MAX);
        let said = warnings.iter().take(WARNINGS_LOGGED_MAX);
        let said = said.map(|config::Diagnostic { file, line, column, message, .. }| {
            format!("{file}:{line}:{column}: {message}")
        });
        for line in said.collect::<Vec<_>>() {
            self.supervisor.warn(line);
        }
        if more > 0 {
            self.supervisor.warn(format!("{more} more warnings; `bulkhead check` says all"));
        }
    }

    /// Waits for something to happen and deals with it.
    fn turn(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), Error> {
        let now = Instant::now();
        let deadlines = self.components.all().map(|component| component.deadline());
        let others = self.supervisor.deadline(now).into_iter().chain(self.upgrade.deadline());
        let next = deadlines.into_iter().flatten().chain(others).min();
        self.steps.end(now);
        self.supervisor.wait(events, next.map(|at| at.saturating_duration_since(now)))?;
        let now = Instant::now();
        self.steps.begin(now);
        self.supervisor.steps_us = self.steps.longest_us(now);
        for event in events.iter() {
            let what = match Event::from(event) {
                Event::Signal => {
                    self.on_signal();
                    "signal"
                }
                Event::Pipes => {
                    self.components.stderr_drain.written(Instant::now());
                    "log"
                }
                Event::Reaper => {
                    self.supervisor.on_reaper_end();
                    "reaper"
                }
                Event::Arrival => {
                    self.components.health.on_arrival();
                    "arrival"
                }
                // All that have arrived are configured after each event.
                Event::Beginning => "start",
                Event::Exit(serial) => {
                    self.on_exit(serial);
                    "end"
                }
                Event::Channel(serial) => {
                    self.on_channel(serial);
                    "message"
                }
            };
            self.configure_new();
            self.steps.did(what);
        }
        self.on_time(Instant::now());
        self.start_wanted(Instant::now());
        self.supervisor.watch_for_room();
        self.steps.did("wanted");
        Ok(())
    }

    /// Does what signals ask for.
    fn on_signal(&mut self) {
        for signal in self.supervisor.on_signal() {
            match signal {
                Signal::Reload => self.begin_reload(Asker::Log, Wanted::all()),
                Signal::Upgrade => self.begin_upgrade(None, false),
                Signal::Stop | Signal::Other => {}
            }
        }
    }

    /// Does what is due.
    fn on_time(&mut self, now: Instant) {
        self.launch_after_examinations(now);
        self.steps.did("launch");
        self.supervisor.on_time(now);
        self.configure_new();
        self.look_at_chain();
        self.steps.did("restart");
        for component in self.components.all() {
            component.on_time(&mut self.supervisor, now);
        }
        self.steps.did("files");
        self.use_examined_configuration();
        self.steps.did("configuration");
        let written = self.components.certificates.files.take_written();
        if !written.is_empty() {
            self.carry_out(Asker::Log, &written, Lacking::Refused);
        }
        for (slot, why) in self.components.health.take_due() {
            self.recycle(slot, &why);
        }
        self.go_on_upgrading();
        self.configure_new();
        self.steps.did("change");
    }

    /// Replaces a process, and only this one of its name.
    fn recycle(&mut self, slot: usize, why: &str) {
        let transactions = &self.transactions;
        if transactions.has_reload() || transactions.is_full() || transactions.is_planned(slot) {
            return;
        }
        let title = self.supervisor.spec(slot).title();
        self.supervisor.info(format!("{title} is replaced because {why}"));
        let id = self.transactions.open(Asker::Log);
        self.launch(id, slot);
        self.release(id);
    }

    /// Takes notice of a child's end.
    fn on_exit(&mut self, serial: u64) {
        self.supervisor.on_copy_exit(serial);
        for component in self.components.all() {
            if component.on_helper_exit(&mut self.supervisor, serial) {
                return;
            }
        }
        if self.supervisor.on_examined(serial) {
            return;
        }
        let Some(exit) = self.supervisor.exit_of(serial) else { return };
        // What kept it from executing its program says more than that it has ended.
        self.configure_new();
        // What it said last, such as that it was ready, is still in its channel.
        self.on_channel(serial);
        let Some(mut ended) = self.supervisor.remove(serial, exit) else { return };
        for component in self.components.all() {
            component.on_exit(&mut self.supervisor, &mut ended);
        }
        let slot = ended.process.slot;
        if let Some((ticket, reason)) = self.supervisor.on_end(ended) {
            self.ended_for(ticket, (serial, Some(slot)), Err(reason));
        }
        self.supervisor.go_on_stopping();
    }
}

/// Until when the next process is waited for at the start of the server.
fn begun_until(examined_until: Instant) -> Instant {
    examined_until.min(Instant::now() + BEGUN_AT_START)
}

/// How many gates there are unless the configuration says so: one for each processor.
fn processor_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
