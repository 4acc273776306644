//! The launcher's state and its one loop: exits, messages, timers.
//!
//! Runs in: the launcher, as root, single-threaded. Sees: exits of children, fixed-size messages. Never: ends
//! because of something that a child did.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime};

use config::Config;
use rustix::event::epoll;
use wire::Message;

use crate::bans::Bans;
use crate::certificates::Certificates;
use crate::cgroups::Cgroups;
use crate::chain::Chain;
use crate::cores::Cores;
use crate::door::Door;
use crate::error::{Error, during};
use crate::group_record::GroupRecord;
use crate::history::{History, Rule};
use crate::identities::Identities;
use crate::jails::Filters;
use crate::journal::Journal;
use crate::keepers::Keeper;
use crate::launch::{self, Ground, Started};
use crate::listeners;
use crate::logs::Logs;
use crate::orders::Orders;
use crate::places::{self, Places};
use crate::probing::Probe;
use crate::process::Process;
use crate::program::{self, Version};
use crate::reaper::Reaper;
use crate::reread::Rereading;
use crate::roster::{Post, roster};
use crate::rotation::Rotation;
use crate::runtime::Answers;
use crate::spill::Spill;
use crate::survey::Survey;
use crate::survivors::{self, Ended};
use crate::tickets::Tickets;
use crate::uid_range::{self, UidRange};

/// How often the program of a broken partition is looked at.
pub(crate) const BROKEN_CHECK: Duration = Duration::from_secs(1);

/// Keys of the event loop: a child's serial number, times two, plus one for its pidfd; this, for signals; and the next.
const SIGNALS: u64 = u64::MAX;
/// See [`SIGNALS`]: the pipes into which children print.
const PIPES: u64 = u64::MAX - 1;

/// What is known of a post beside the processes that fill it.
#[derive(Debug, Default)]
pub(crate) struct Duty {
    pub(crate) history: History,
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
    pub(crate) ground: Ground,
    pub(crate) places: Places,
    pub(crate) journal: Journal,
    pub(crate) rule: Rule,
    pub(crate) logs: Logs,
    pub(crate) rotation: Rotation,
    /// By listener, then by gate.
    pub(crate) listeners: Vec<Vec<OwnedFd>>,
    pub(crate) door: Door,
    pub(crate) posts: Vec<Post>,
    pub(crate) duties: Vec<Duty>,
    pub(crate) processes: BTreeMap<u64, Process>,
    /// What children that are gone had logged, until a logger has read it.
    pub(crate) unread_logs: VecDeque<(usize, Option<OwnedFd>, OwnedFd)>,
    /// What the gates hold of the filters that run.
    pub(crate) chain: Option<Chain>,
    /// How many chains there have been.
    pub(crate) chains: u32,
    pub(crate) orders: Orders,
    pub(crate) survey: Survey,
    pub(crate) certificates: Certificates,
    pub(crate) rereading: Rereading,
    /// Held for as long as the launcher lives.
    uid_range: Option<UidRange>,
    /// The same.
    _group_record: Option<GroupRecord>,
    /// What an earlier start had left, for the log.
    ended: Vec<String>,
    pub(crate) tickets: Tickets,
    pub(crate) spill: Spill,
    pub(crate) bans: Bans,
    /// Probes that run.
    pub(crate) probes: BTreeMap<u64, Probe>,
    /// Core files that are being copied.
    pub(crate) keepers: BTreeMap<u64, Keeper>,
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
    pub fn start(config: Config) -> Result<Self, Error> {
        occupy_inherited_numbers()?;
        raise_descriptor_limit();
        let root = rustix::process::geteuid().is_root();
        let gates = config.server.gates.map_or_else(cores, |gates| gates as usize);
        let places = Places::open(&config.server)?;
        let uid_range = root.then(|| uid_range::reserve(&config, &places.state)).transpose()?;
        let identities = uid_range.as_ref().map(|uids| Identities::load(&places.state, uids.range.clone()));
        let mut identities = identities.transpose()?;
        let mut ended = Ended::default();
        let mut group_record = None;
        if let (Some(uids), Some(table)) = (&uid_range, &identities) {
            // Before any uid is given out for the first time: the table says what was ours before.
            group_record = Some(survivors::end_left_groups(&places.state, &mut ended)?);
            survivors::end_under(&uids.range, table, &mut ended)?;
        }
        let posts = roster(&config, gates, identities.as_mut())?;
        if let Some(table) = &mut identities {
            table.save()?;
        }
        let listeners = config
            .listeners
            .iter()
            .map(|listener| listeners::listen_on(listener.address, gates))
            .collect::<Result<_, _>>()?;
        let logs = Logs::open(&config, &places, SystemTime::now())?;
        let (error_log, syslog) = logs.for_journal()?;
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| during("make an epoll")(e.into()))?;
        let signals = sys::signals::signal_descriptor().map_err(during("watch signals"))?;
        watch(&epoll, &signals, SIGNALS)?;
        let spill = Spill::new()?;
        watch(&epoll, &spill.epoll, PIPES)?;
        let restart = &config.restart;
        let rule = Rule {
            broken_after: restart.broken_after as usize,
            within: Duration::from_millis(restart.within_ms.into()),
            backoff_max: Duration::from_millis(restart.backoff_max_ms.into()),
        };
        let cgroups = if root { Cgroups::open() } else { Cgroups::default() };
        if let Some(record) = &mut group_record {
            record.keep(cgroups.tops()).map_err(during("write down the control groups"))?;
        }
        let ground = Ground {
            empty_root: root.then(|| places.empty_root()).transpose()?,
            directory: places::directory(&config.dir)?,
            launcher: jail::Launcher::this().map_err(during("open the launcher's pidfd"))?,
            filters: Filters::default(),
            reaper: Reaper::default(),
            cores: Cores::below(&places.state),
            cgroups,
            degrades: !root || config.server.isolation == config::Isolation::Degraded,
            without: RefCell::new(left_out(&config)),
            answers: Answers::default(),
            started: Cell::new(0),
            chain: launch::chain(&config),
            roles_folder: program::roles_folder()?,
            null: File::options()
                .read(true)
                .write(true)
                .open("/dev/null")
                .map_err(during("open /dev/null"))?
                .into(),
            config,
        };
        Ok(Self {
            journal: Journal::new(error_log, syslog),
            door: Door::open(&places.run)?,
            duties: posts.iter().map(|_| Duty::default()).collect(),
            orders: Orders::new(&posts),
            probes: BTreeMap::new(),
            keepers: BTreeMap::new(),
            processes: BTreeMap::new(),
            unread_logs: VecDeque::new(),
            chain: None,
            chains: 0,
            survey: Survey::default(),
            certificates: Certificates::default(),
            rereading: Rereading::of(&ground.config),
            tickets: Tickets::of(&ground.config)?,
            spill,
            bans: Bans::default(),
            watched: HashSet::new(),
            serial: 0,
            stopping: None,
            announced: false,
            started: Instant::now(),
            ground,
            places,
            uid_range,
            _group_record: group_record,
            ended: ended.lines(),
            rule,
            logs,
            rotation: Rotation::default(),
            listeners,
            posts,
            epoll,
            signals,
        })
    }

    /// Starts every child and looks after them until the end.
    pub fn run(mut self) -> Result<(), Error> {
        for post in 0..self.posts.len() {
            // Filters are all started with the first, and all of them are tried again if one fails.
            let duty = &self.duties[post];
            if duty.current.is_none() && duty.start_at.is_none() {
                self.fill(post);
            }
        }
        self.tell_isolation();
        self.tell_warnings();
        self.tell_of_no_syslog();
        let mut events = Vec::with_capacity(256);
        loop {
            self.turn(&mut events)?;
            let none_left = self.processes.is_empty() && self.probes.is_empty() && self.keepers.is_empty();
            if self.stopping.is_some() && none_left {
                self.journal.info("stopped");
                self.door.close();
                return Ok(());
            }
        }
    }

    /// Says what is missing of the jails, and what holds their limits.
    fn tell_isolation(&mut self) {
        let root = self.ground.empty_root.is_some();
        let missing = self.missing();
        if !root {
            self.journal.warning(format!(
                "not started as root: every process runs as this user, without the layers {}",
                missing.join(", ")
            ));
        } else if !missing.is_empty() {
            self.journal.warning(format!("isolation is degraded: without the layers {}", missing.join(", ")));
        }
        if root {
            self.journal.info(format!("limits are held by {}", self.ground.cgroups.kind()));
        }
        for line in std::mem::take(&mut self.ended) {
            self.journal.warning(line);
        }
        if let Some(note) = self.uid_range.as_mut().and_then(|uids| uids.note.take()) {
            self.journal.warning(note);
        }
    }

    /// Says what the operator perhaps did not mean.
    fn tell_warnings(&mut self) {
        for warning in &self.ground.config.warnings {
            let config::Diagnostic { file, line, column, message, .. } = warning;
            self.journal.warning(format!("{file}:{line}:{column}: {message}"));
        }
    }

    /// The layers that processes do without.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        let mut missing = jail::missing(self.ground.empty_root.is_some());
        missing.extend(self.ground.without.borrow().iter());
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
                PIPES => self.spill.written(Instant::now()),
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
                    self.journal.warning("asked to stop a second time: ending every process at once");
                    self.processes.values().for_each(|process| process.child.kill());
                }
                self.stop();
            }
        }
    }

    /// Starts a process and connects it with everyone that it works with.
    pub(crate) fn spawn(&mut self, post: usize) -> Result<u64, Error> {
        let started = self.ground.start(&self.posts[post])?;
        self.enlist(post, started)
    }

    /// Looks after a process that was started, and connects it.
    pub(crate) fn enlist(&mut self, post: usize, started: Started) -> Result<u64, Error> {
        self.serial += 1;
        let serial = self.serial;
        let control = started.control.as_ref();
        let watched = control
            .map_or(Ok(()), |control| watch(&self.epoll, control, serial * 2))
            .and_then(|()| watch(&self.epoll, started.child.pidfd(), serial * 2 + 1))
            .and_then(|()| self.spill.add(serial, &started.stderr));
        if let Err(error) = watched {
            // Nobody would see its end.
            started.child.end();
            return Err(error);
        }
        let mut process = Process::new(post, started.child, started.control, Instant::now());
        process.log = started.log;
        process.stderr = Some(started.stderr);
        process.group = Some(started.group);
        process.cores = self.ground.cores.made(&self.posts[post].name);
        let leader = process.child.pid;
        let handed = started.calls.as_ref().map_or(Ok(()), |calls| self.hand_calls(post, leader, calls));
        process.calls = started.calls;
        self.processes.insert(serial, process);
        if let Err(error) = handed.and_then(|()| self.introduce(serial)) {
            // It fills no post, and would wait for ever for what could not be said to it.
            self.give_up(serial);
            return Err(error);
        }
        Ok(serial)
    }

    pub(crate) fn tell(&mut self, serial: u64, message: &impl Message, descriptor: Option<OwnedFd>) {
        let Some(process) = self.processes.get_mut(&serial) else {
            return;
        };
        if !process.tell(message, descriptor) {
            let (pid, title) = (process.child.pid, self.posts[process.post].title());
            self.journal.warning(format!("{title} (pid {pid}) does not read what it is told and was ended"));
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

/// The layers that the operator takes away.
pub(crate) fn left_out(config: &Config) -> Vec<&'static str> {
    let named = |layer: &&jail::Layer| config.server.danger_without.iter().any(|name| name == layer.name);
    jail::LAYERS.iter().filter(named).map(|layer| layer.name).collect()
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Fills the numbers at which children find their descriptors, so that nothing of the launcher's is there.
pub(crate) fn occupy_inherited_numbers() -> Result<(), Error> {
    loop {
        let null = File::open("/dev/null").map_err(during("open /dev/null"))?;
        let null = OwnedFd::from(null);
        if std::os::fd::AsRawFd::as_raw_fd(&null) > sys::inherit::LOG {
            return Ok(());
        }
        std::mem::forget(null);
    }
}

/// Lets the launcher, and those children that it allows, have as many descriptors as the machine grants.
pub(crate) fn raise_descriptor_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
}
