//! The launcher's state and its one loop: exits, messages, timers.
//!
//! Runs in: the launcher, as root, single-threaded. Sees: exits of children, fixed-size messages. Never: ends
//! because of something that a child did.

pub mod backoff;
pub(crate) mod chain;
pub mod chain_ends;
pub(crate) mod messages;
pub(crate) mod outbox;
pub mod process;
pub(crate) mod restart;
pub(crate) mod shutdown;
pub(crate) mod survivors;
pub mod unread;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime};

use config::Config;
use rustix::event::epoll;
use wire::Message;

use crate::components::admin_commands::AdminCommands;
use crate::components::admin_socket::AdminSocket;
use crate::components::bans::Bans;
use crate::components::certificates::Certificates;
use crate::components::conditioning_report::ConditioningReport;
use crate::components::core_copies::CoreCopy;
use crate::components::file_reload::FileReload;
use crate::components::log_rotation::LogRotation;
use crate::components::probes::Probe;
use crate::components::stderr_drain::StderrDrain;
use crate::components::ticket_keys::TicketKeys;
use crate::directories::{self, Directories};
use crate::error::{Error, during};
use crate::own_log::OwnLog;
use crate::setup::log_files::Logs;
use crate::setup::process_table::process_table;
use crate::spawn::Started;
use crate::spawn::cgroup::Cgroups;
use crate::spawn::cgroup_record::CgroupRecord;
use crate::spawn::context::SpawnContext;
use crate::spawn::inheritance;
use crate::spawn::listeners;
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::program::Version;
use crate::spawn::uid_range::{self, UidRange};
use crate::spawn::uids::Uids;
use crate::supervisor::backoff::{Backoff, Rule};
use crate::supervisor::chain::Chain;
use crate::supervisor::process::Process;
use crate::supervisor::survivors::Ended;

/// How often the program of a broken partition is looked at.
pub(crate) const BROKEN_CHECK: Duration = Duration::from_secs(1);

/// Keys of the event loop: a child's serial number, times two, plus one for its pidfd; this, for signals; and the next.
const SIGNALS: u64 = u64::MAX;
/// See [`SIGNALS`]: the pipes into which children print.
const PIPES: u64 = u64::MAX - 1;

/// What is known of a slot beside the processes that fill it.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) backoff: Backoff,
    pub(crate) restarts: u32,
    pub(crate) last_exit: String,
    /// Given up, with the version of the program that failed.
    pub(crate) broken: Option<Option<Version>>,
    /// When to start it (again).
    pub(crate) start_at: Option<Instant>,
    /// The process that works.
    pub(crate) current: Option<u64>,
    /// Its successor, until that is ready.
    pub(crate) next: Option<u64>,
}

/// Everything that the launcher has.
#[derive(Debug)]
pub struct Launcher {
    pub(crate) context: SpawnContext,
    pub(crate) directories: Directories,
    pub(crate) log: OwnLog,
    pub(crate) rule: Rule,
    pub(crate) logs: Logs,
    pub(crate) log_rotation: LogRotation,
    /// By listener, then by gate.
    pub(crate) listeners: Vec<Vec<OwnedFd>>,
    pub(crate) admin_socket: AdminSocket,
    pub(crate) specs: Vec<ProcessSpec>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) processes: BTreeMap<u64, Process>,
    /// What children that are gone had logged, until a logger has read it.
    pub(crate) unread_logs: VecDeque<(usize, Option<OwnedFd>, OwnedFd)>,
    /// What the gates hold of the filters that run.
    pub(crate) chain: Option<Chain>,
    /// How many chains there have been.
    pub(crate) chains: u32,
    pub(crate) admin_commands: AdminCommands,
    pub(crate) conditioning_report: ConditioningReport,
    pub(crate) certificates: Certificates,
    pub(crate) file_reload: FileReload,
    /// Held for as long as the launcher lives.
    uid_range: Option<UidRange>,
    /// The same.
    _group_record: Option<CgroupRecord>,
    /// What an earlier start had left, for the log.
    ended: Vec<String>,
    pub(crate) ticket_keys: TicketKeys,
    pub(crate) stderr_drain: StderrDrain,
    pub(crate) bans: Bans,
    /// Probes that run.
    pub(crate) probes: BTreeMap<u64, Probe>,
    /// Core files that are being copied.
    pub(crate) core_copies: BTreeMap<u64, CoreCopy>,
    pub(crate) epoll: OwnedFd,
    pub(crate) signals: OwnedFd,
    /// Children whose channel is watched for room as well.
    pub(crate) watched: HashSet<u64>,
    pub(crate) serial: u64,
    /// When the end began, and the roles that have been asked to go.
    pub(crate) stopping: Option<(Instant, usize)>,
    pub(crate) announced: bool,
    pub(crate) started: Instant,
}

impl Launcher {
    /// Prepares everything that can fail before the first child is started.
    pub fn new(config: Config) -> Result<Self, Error> {
        inheritance::occupy_inherited_numbers()?;
        inheritance::raise_descriptor_limit();
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
        if let Some(table) = &mut identities {
            table.save()?;
        }
        let listeners = config
            .listeners
            .iter()
            .map(|listener| listeners::listen_on(listener.address, gates))
            .collect::<Result<_, _>>()?;
        let logs = Logs::open(&config, &directories, SystemTime::now())?;
        let (error_log, syslog) = logs.for_own_log()?;
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| during("make an epoll")(e.into()))?;
        let signals = sys::signals::signal_descriptor().map_err(during("watch signals"))?;
        watch(&epoll, &signals, SIGNALS)?;
        let stderr_drain = StderrDrain::new()?;
        watch(&epoll, &stderr_drain.epoll, PIPES)?;
        let rule = Rule::of(&config.restart);
        let cgroups = if root { Cgroups::open() } else { Cgroups::default() };
        if let Some(record) = &mut group_record {
            record.keep(cgroups.tops()).map_err(during("write down the control groups"))?;
        }
        let empty_root = root.then(|| directories.empty_root()).transpose()?;
        let directory = directories::directory(&config.dir)?;
        let context = SpawnContext::new(config, empty_root, directory, &directories.state, cgroups)?;
        Ok(Self {
            log: OwnLog::new(error_log, syslog),
            admin_socket: AdminSocket::open(&directories.run)?,
            slots: specs.iter().map(|_| Slot::default()).collect(),
            admin_commands: AdminCommands::new(&specs),
            probes: BTreeMap::new(),
            core_copies: BTreeMap::new(),
            processes: BTreeMap::new(),
            unread_logs: VecDeque::new(),
            chain: None,
            chains: 0,
            conditioning_report: ConditioningReport::default(),
            certificates: Certificates::default(),
            file_reload: FileReload::of(&context.config),
            ticket_keys: TicketKeys::of(&context.config)?,
            stderr_drain,
            bans: Bans::default(),
            watched: HashSet::new(),
            serial: 0,
            stopping: None,
            announced: false,
            started: Instant::now(),
            context,
            directories,
            uid_range,
            _group_record: group_record,
            ended: ended.lines(),
            rule,
            logs,
            log_rotation: LogRotation::default(),
            listeners,
            specs,
            epoll,
            signals,
        })
    }

    /// Starts every child and looks after them until the end.
    pub fn run(mut self) -> Result<(), Error> {
        for slot in 0..self.specs.len() {
            // Filters are all started with the first, and all of them are tried again if one fails.
            let state = &self.slots[slot];
            if state.current.is_none() && state.start_at.is_none() {
                self.start(slot);
            }
        }
        self.log_isolation();
        self.log_warnings();
        self.log_missing_syslog();
        let mut events = Vec::with_capacity(256);
        loop {
            self.turn(&mut events)?;
            let none_left =
                self.processes.is_empty() && self.probes.is_empty() && self.core_copies.is_empty();
            if self.stopping.is_some() && none_left {
                self.log.info("stopped");
                self.admin_socket.close();
                return Ok(());
            }
        }
    }

    /// Says what is missing of the jails, and what holds their limits.
    fn log_isolation(&mut self) {
        let root = self.context.empty_root.is_some();
        let missing = self.missing();
        if !root {
            self.log.warning(format!(
                "not started as root: every process runs as this user, without the layers {}",
                missing.join(", ")
            ));
        } else if !missing.is_empty() {
            self.log.warning(format!("isolation is degraded: without the layers {}", missing.join(", ")));
        }
        if root {
            self.log.info(format!("limits are held by {}", self.context.cgroups.kind()));
        }
        for line in std::mem::take(&mut self.ended) {
            self.log.warning(line);
        }
        if let Some(note) = self.uid_range.as_mut().and_then(|uids| uids.note.take()) {
            self.log.warning(note);
        }
    }

    /// Says what the operator perhaps did not mean.
    fn log_warnings(&mut self) {
        for warning in &self.context.config.warnings {
            let config::Diagnostic { file, line, column, message, .. } = warning;
            self.log.warning(format!("{file}:{line}:{column}: {message}"));
        }
    }

    /// The layers that processes do without.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        let mut missing = jail::missing(self.context.empty_root.is_some());
        missing.extend(self.context.without.borrow().iter());
        missing
    }

    /// Waits for something to happen and deals with it.
    pub(crate) fn turn(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), Error> {
        let timeout = self.until_next_timer().map(|left| rustix::time::Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(during("wait for events")(error.into())),
        }
        for event in events.iter() {
            match event.data.u64() {
                SIGNALS => self.on_signal(),
                PIPES => self.stderr_drain.written(Instant::now()),
                key if key % 2 == 1 => self.on_exit(key / 2),
                key => self.on_message(key / 2),
            }
        }
        self.on_time(Instant::now());
        self.watch_for_room();
        Ok(())
    }

    pub(crate) fn on_signal(&mut self) {
        while let Ok(Some(signal)) = sys::signals::next_signal(&self.signals) {
            if signal == sys::signals::Signal::Stop {
                if self.stopping.is_some() {
                    self.log.warning("asked to stop a second time: ending every process at once");
                    self.processes.values().for_each(|process| process.child.kill());
                }
                self.stop();
            }
        }
    }

    /// Starts a process and connects it with everyone that it works with.
    pub(crate) fn spawn(&mut self, slot: usize) -> Result<u64, Error> {
        let started = self.context.start(&self.specs[slot])?;
        self.register(slot, started)
    }

    /// Looks after a process that was started, and connects it.
    pub(crate) fn register(&mut self, slot: usize, started: Started) -> Result<u64, Error> {
        self.serial += 1;
        let serial = self.serial;
        let control = started.control.as_ref();
        let watched = control
            .map_or(Ok(()), |control| watch(&self.epoll, control, serial * 2))
            .and_then(|()| watch(&self.epoll, started.child.pidfd(), serial * 2 + 1))
            .and_then(|()| self.stderr_drain.add(serial, &started.stderr));
        if let Err(error) = watched {
            // Nobody would see its end.
            started.child.end();
            return Err(error);
        }
        let mut process = Process::new(slot, started.child, started.control, Instant::now());
        process.log = started.log;
        process.stderr = Some(started.stderr);
        process.group = Some(started.group);
        process.core_folder = started.core_folder;
        let leader = process.child.pid;
        let handed = started.calls.as_ref().map_or(Ok(()), |calls| self.hand_calls(slot, leader, calls));
        process.calls = started.calls;
        self.processes.insert(serial, process);
        if let Err(error) = handed.and_then(|()| self.configure(serial)) {
            // It fills no slot, and would wait for ever for what could not be said to it.
            self.give_up(serial);
            return Err(error);
        }
        Ok(serial)
    }

    pub(crate) fn send(&mut self, serial: u64, message: &impl Message, descriptor: Option<OwnedFd>) {
        let Some(process) = self.processes.get_mut(&serial) else {
            return;
        };
        if !process.send(message, descriptor) {
            let (pid, title) = (process.child.pid, self.specs[process.slot].title());
            self.log.warning(format!("{title} (pid {pid}) does not read what it is told and was ended"));
        }
    }

    /// Watches the channels for room to which something waits to be sent.
    pub(crate) fn watch_for_room(&mut self) {
        for (&serial, process) in &self.processes {
            let (Some(control), wants) = (process.control(), process.has_waiting()) else {
                continue;
            };
            if wants != self.watched.contains(&serial) {
                let room = if wants { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
                let data = epoll::EventData::new_u64(serial * 2);
                let _ = epoll::modify(&self.epoll, control, data, epoll::EventFlags::IN | room);
                if wants {
                    self.watched.insert(serial)
                } else {
                    self.watched.remove(&serial)
                };
            }
        }
    }
}

pub(crate) fn watch(epoll: &OwnedFd, descriptor: impl std::os::fd::AsFd, key: u64) -> Result<(), Error> {
    epoll::add(epoll, descriptor, epoll::EventData::new_u64(key), epoll::EventFlags::IN)
        .map_err(|error| during("watch a descriptor")(error.into()))
}

/// How many gates there are unless the configuration says so: one for each processor.
fn processor_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
