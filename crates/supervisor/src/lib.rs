//! The processes of a server: how each is started in its jail, what it is sent, and what becomes of it when it ends.
//!
//! Runs in: the launcher, as root, and the guard; single-threaded. Sees: exits of children, fixed-size messages. Never:
//! ends because of something that a child did; uses a component of the launcher, which configures each process that was
//! started.
//!
//! From the bottom: `spawn` starts one process; the modules at the top level own the processes; `setup` says what each
//! is sent before it serves.

pub mod admission;
mod announcement;
pub mod backoff;
mod broken;
pub mod chain;
pub mod chain_ends;
mod chain_start;
pub mod change;
mod copies;
pub mod directories;
mod due;
pub mod error;
pub mod events;
pub mod examinations;
pub mod examine;
mod examined;
mod figures;
mod footprint;
pub mod foreign;
pub mod good_copies;
pub mod health_check;
mod index;
pub mod leaving;
pub mod life;
pub mod limits;
mod lookup;
mod memory;
mod memory_reclaim;
pub mod need;
pub mod numbers;
pub mod on_demand;
mod oom_kills;
mod opened;
pub mod opened_files;
mod openings;
pub mod outbox;
pub mod own_log;
mod pace;
pub mod process;
mod publisher_end;
mod reaping;
pub mod report;
pub mod restart;
mod roles;
mod room;
mod scarcity;
mod seen;
pub mod setup;
pub mod shutdown;
pub mod site_names;
pub mod site_order;
pub mod slots;
pub mod spawn;
mod staged_chain;
mod starting;
pub mod survivors;
mod telling;
pub mod unread;
pub mod upgrade;
mod user_threads;
mod view;
pub mod whereabouts;
mod workers;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::PipeReader;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use config::SharedList;
use rustix::event::epoll;
use sys::control::ControlEnd;
use sys::process::{Child, out_of_the_way};
use wire::{Message, Role};

use crate::backoff::{Backoff, Rule};
use crate::chain_ends::FilterChains;
use crate::copies::Copies;
use crate::directories::Directories;
use crate::error::{Error, during};
use crate::examinations::Examinations;
use crate::figures::Figures;
use crate::foreign::{Closer, Foreign};
use crate::index::Index;
use crate::life::{Life, Removed};
use crate::lookup::{Hosts, Lookup};
use crate::memory::{Memory, OomKills};
use crate::memory_reclaim::MemoryReclaim;
use crate::openings::Openings;
use crate::own_log::OwnLog;
use crate::pace::Pace;
use crate::process::{Process, Stage};
use crate::room::RoomQueue;
use crate::site_order::SiteOrder;
use crate::spawn::background::Background;
use crate::spawn::beginning::Beginning;
use crate::spawn::context::SpawnContext;
use crate::spawn::passed::PassedSockets;
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::uid_share::Share;
use crate::spawn::{BegunProcess, Jailed, Started};
use sys::file_version::FileVersion;

/// How often the program of a broken partition is looked at.
pub const BROKEN_CHECK: Duration = Duration::from_secs(1);

/// Keys of the event loop: a child's serial number, times two, plus one for its pidfd; this, for signals; and the next.
const SIGNALS: u64 = u64::MAX;
/// See [`SIGNALS`]: the pipes into which children print.
const PIPES: u64 = u64::MAX - 1;
/// See [`SIGNALS`]: the end of the reaper.
const REAPER: u64 = u64::MAX - 2;
/// See [`SIGNALS`]: what processes say on their way to their programs.
const BEGINNINGS: u64 = u64::MAX - 3;

/// See [`SIGNALS`]: connections that gates are to accept.
const ARRIVALS: u64 = u64::MAX - 4;

/// What is known of a slot beside the processes that fill it.
#[derive(Debug, Default)]
pub struct Slot {
    /// When it is started again after it has ended, and when it is given up.
    pub backoff: Backoff,
    /// How often it was started again.
    pub restarts: u32,
    /// How many of its processes the kernel has killed for want of memory.
    pub oom_kills: u32,
    /// How its last process ended.
    pub last_exit: String,
    /// How many of its processes in a row have ended before they were ready.
    pub(crate) failed_starts: u32,
    /// Since when it is tried to have a process that is ready, if there is none.
    pub(crate) unready_since: Option<Instant>,
    /// Given up, with the version of the program that failed.
    pub broken: Option<Option<FileVersion>>,
    /// The process that works.
    pub current: Option<u64>,
    /// Its successor, until that is ready.
    pub next: Option<u64>,
    /// How long the slot is there for.
    pub life: Life,
    /// Whether it has no process until one is wanted.
    pub rests: bool,
    /// When its process was given something last, as far as is known.
    pub(crate) used: Option<Instant>,
    /// What the process that has ended has kept in memory, until the next one is ready.
    pub(crate) memory: Option<OwnedFd>,
    /// When it was removed, if it was.
    removed: Option<Removed>,
}

/// All processes, and what is needed to start them.
#[derive(Debug)]
pub struct Supervisor {
    context: SpawnContext,
    directories: Directories,
    log: OwnLog,
    rule: Rule,
    /// By listener, then by gate.
    listeners: Vec<Vec<OwnedFd>>,
    /// Of which some listeners are made.
    passed: PassedSockets,
    /// The sites in the order of the file.
    order: SiteOrder,
    /// The sites by their hosts.
    hosts: Hosts,
    specs: Vec<ProcessSpec>,
    slots: Vec<Slot>,
    processes: BTreeMap<u64, Process>,
    index: Index,
    /// Until something of what it is made of changes.
    lookup: OnceCell<Lookup>,
    /// The slots that are broken.
    broken: BTreeSet<usize>,
    /// The slots that are started again, and when.
    starts: BTreeMap<usize, Instant>,
    /// Where it is looked first for one that is due.
    next_restart: usize,
    /// The longest steps of the loop, since its start and of lately, in microseconds, and what they were for, as the
    /// launcher has measured them.
    pub steps_us: [(u64, &'static str); 2],
    /// How much of the range of uids is given out; `None` in a rootless run.
    pub uids: Option<Share>,
    /// Whether processes of a launcher before are being replaced.
    pub is_upgrading: bool,
    /// Programs that are examined beside the loop.
    examinations: Examinations,
    copies: Copies,
    openings: Openings,
    /// Slots whose processes are wanted, in that order.
    wanted: VecDeque<usize>,
    /// Processes that were started and have not been sent their set-up.
    unconfigured: VecDeque<u64>,
    /// Those of them that do not execute their programs yet.
    begun: BTreeSet<u64>,
    /// What children that are gone had logged, until a logger has read it.
    unread_logs: VecDeque<(usize, Option<Foreign>, OwnedFd)>,
    /// When it is looked at again whether that was read.
    next_unread_check: Instant,
    /// The chains of filters.
    filters: FilterChains,
    epoll: OwnedFd,
    signals: OwnedFd,
    /// The pidfd of the reaper that runs, and since when it is watched.
    reaper: Option<(OwnedFd, Instant)>,
    /// When all that is to end with the launcher is to be given to a reaper once more.
    reaper_due: Option<Instant>,
    /// Closes what is foreign.
    closer: Closer,
    /// Removed slots whose processes others may still need.
    departing: Vec<usize>,
    /// Processes that have a deadline, the first first.
    timed: BTreeSet<(Instant, u64)>,
    /// Processes for which something may wait until their channel has room.
    unsent: BTreeSet<u64>,
    /// Children whose channel is watched for room as well.
    watched: BTreeSet<u64>,
    /// Processes that nobody needs, and when each goes.
    pace: Pace,
    memory: Memory,
    figures: Figures,
    /// Slots for whose processes there is no room.
    room: RoomQueue,
    memory_reclaim: MemoryReclaim,
    oom_kills: OomKills,
    serial: u64,
    /// When the end began, and the roles that have been asked to go.
    stopping: Option<(Instant, usize)>,
    /// Whether processes of that role have not been asked, as others relay to them.
    has_kept: bool,
    announced: bool,
    /// The first slot that was not up when it was last asked whether all are.
    not_up: usize,
    started: Instant,
}

impl Supervisor {
    /// A supervisor without processes. `signals` is where the launcher finds its signals.
    pub fn new(
        context: SpawnContext,
        directories: Directories,
        log: OwnLog,
        listeners: Vec<Vec<OwnedFd>>,
        specs: Vec<ProcessSpec>,
        signals: OwnedFd,
    ) -> Result<Self, Error> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(during("make an epoll"))?;
        watch(&epoll, &signals, SIGNALS)?;
        let slots = 0..specs.len();
        let memory = Memory::of_launcher();
        let mut hosts = Hosts::default();
        hosts.update(&SharedList::default(), &context.config.sites);
        let mut supervisor = Self {
            rule: Rule::of(&context.config.restart),
            slots: specs.iter().map(|_| Slot::default()).collect(),
            context,
            directories,
            log,
            listeners,
            passed: PassedSockets::default(),
            order: SiteOrder::default(),
            hosts,
            specs,
            processes: BTreeMap::new(),
            index: Index::default(),
            lookup: OnceCell::new(),
            broken: BTreeSet::new(),
            starts: BTreeMap::new(),
            next_restart: 0,
            steps_us: [(0, ""); 2],
            uids: None,
            is_upgrading: false,
            examinations: Examinations::default(),
            copies: Copies::default(),
            openings: Openings::default(),
            wanted: VecDeque::new(),
            unconfigured: VecDeque::new(),
            begun: BTreeSet::new(),
            unread_logs: VecDeque::new(),
            next_unread_check: Instant::now(),
            filters: FilterChains::default(),
            epoll,
            signals,
            reaper: None,
            reaper_due: None,
            closer: Closer::default(),
            departing: Vec::new(),
            timed: BTreeSet::new(),
            unsent: BTreeSet::new(),
            watched: BTreeSet::new(),
            pace: Pace::default(),
            oom_kills: OomKills::after(memory.kills()),
            memory,
            figures: Figures::of_launcher(),
            room: RoomQueue::default(),
            memory_reclaim: MemoryReclaim::default(),
            serial: 0,
            stopping: None,
            has_kept: false,
            announced: false,
            not_up: 0,
            started: Instant::now(),
        };
        supervisor.let_rest(slots);
        config::open_beside(supervisor.context.opened.clone());
        Ok(supervisor)
    }

    /// The layers that processes do without.
    pub fn missing(&self) -> Vec<&'static str> {
        let mut missing = jail::missing(self.context.empty_root.is_some());
        missing.extend(self.context.without.borrow().iter());
        missing
    }

    /// Watches a process that fills no slot; returns the number by which its end is reported.
    pub fn watch_helper(&mut self, child: &Child) -> Result<u64, Error> {
        self.serial += 1;
        watch(&self.epoll, child.pidfd(), self.serial * 2 + 1)?;
        Ok(self.serial)
    }

    /// Where copies of this process work.
    pub fn background(&self) -> Rc<Background> {
        self.context.background.clone()
    }

    /// Watches a copy of this process that was begun in the background; returns the number by which its end is
    /// reported.
    pub fn watch_copy(&mut self, child: &Child) -> Result<u64, Error> {
        let serial = self.watch_helper(child)?;
        self.copies.begin(serial, Instant::now());
        Ok(serial)
    }

    /// Has the word of a copy that it has done its work, in this pipe, be reported as the copy's end is. The kernel
    /// takes apart what a copy has of a large memory before it reports the end.
    pub fn watch_word(&self, serial: u64, word: &PipeReader) -> Result<(), Error> {
        watch(&self.epoll, word, serial * 2 + 1)
    }

    /// Hears no more of a copy's word.
    pub fn forget_word(&self, word: &PipeReader) {
        // Another process may have the pipe as well, for a moment.
        let _ = epoll::delete(&self.epoll, word);
    }

    /// Takes notice that a copy has ended, if `serial` is that of one.
    pub fn on_copy_exit(&mut self, serial: u64) {
        self.copies.end(serial);
    }

    /// Begins to start a process for a slot; see [`Supervisor::finish_start`].
    pub fn begin_start(&self, slot: usize) -> Result<BegunProcess, Error> {
        self.context.begin(&self.specs[slot])
    }

    /// Looks after a process that was started.
    fn register(
        &mut self,
        slot: usize,
        started: Started,
        beginning: Option<Beginning>,
    ) -> Result<u64, Error> {
        self.serial += 1;
        let serial = self.serial;
        let Started { jailed: Jailed { child, group, calls, core_folder }, control, log, stderr } = started;
        let control = control.map(ControlEnd::out_of_the_way);
        let log = log.map(out_of_the_way).map(Foreign::from);
        let stderr = stderr.out_of_the_way();
        let watched =
            beginning.as_ref().map_or(Ok(()), |beginning| watch(&self.epoll, beginning.report(), BEGINNINGS));
        if let Err(error) = watched.and_then(|()| self.watch_process(serial, control.as_ref(), &child)) {
            // Nobody would see its end.
            child.end();
            return Err(error);
        }
        let mut process = Process::new(slot, child, control, Instant::now());
        (process.log, process.stderr, process.group) = (log, Some(stderr), Some(group));
        (process.core_folder, process.calls, process.is_ours) = (core_folder, calls, true);
        self.begun.extend(beginning.as_ref().map(|_| serial));
        process.beginning = beginning;
        self.processes.insert(serial, process);
        self.index.insert(&self.specs[slot], serial);
        self.unconfigured.push_back(serial);
        self.watch_reaper();
        Ok(serial)
    }

    /// Waits for what a process says, and for its end.
    fn watch_process(&self, serial: u64, control: Option<&ControlEnd>, child: &Child) -> Result<(), Error> {
        control.map_or(Ok(()), |control| watch(&self.epoll, control.heard(), serial * 2))?;
        watch(&self.epoll, child.pidfd(), serial * 2 + 1)
    }

    /// The processes of a role (and of one slot) that are not retiring.
    pub fn active(&self, role: Role, slot: Option<usize>) -> Vec<u64> {
        let of_slot = |serial: &u64| slot.is_none_or(|slot| slot == self.processes[serial].slot);
        self.index.of_role(role).filter(|&serial| self.is_active(serial)).filter(of_slot).collect()
    }

    /// The processes of a role that are told what is new: those that serve, after those that retire and hear the
    /// launcher until they end. What comes last is the newest to whoever is told of several, and preferred.
    pub fn hearing(&self, role: Role) -> Vec<u64> {
        let hearing = self.index.of_role(role).filter(|serial| self.processes[serial].hears());
        let (mut all, others): (Vec<u64>, Vec<u64>) =
            hearing.partition(|serial| self.processes[serial].stage == Stage::Retiring);
        all.extend(others);
        all
    }

    /// Whether a process was sent its set-up and is not retiring.
    fn is_active(&self, serial: u64) -> bool {
        let process = &self.processes[&serial];
        process.is_configured && process.stage != Stage::Retiring
    }

    /// Makes a channel between two processes: its ends take descriptors only where `wire::CHANNELS` has them.
    fn channel_between(&self, one: u64, other: u64) -> Result<(OwnedFd, OwnedFd), Error> {
        let (one, other) = (self.spec_of(one).role, self.spec_of(other).role);
        let (to_one, to_other) = (wire::carries_any(other, one), wire::carries_any(one, other));
        sys::seqpacket::pair_that_takes(to_one, to_other).map_err(during("make a channel"))
    }

    /// Makes a channel between two processes, each of which is sent so with its end.
    pub fn join(
        &mut self,
        (one, of_one): (u64, &impl Message),
        (other, of_other): (u64, &impl Message),
    ) -> Result<(), Error> {
        let (its, others) = self.channel_between(one, other)?;
        self.send(one, of_one, Some(its));
        self.send(other, of_other, Some(others));
        Ok(())
    }
}

fn watch(epoll: &OwnedFd, descriptor: impl std::os::fd::AsFd, key: u64) -> Result<(), Error> {
    epoll::add(epoll, descriptor, epoll::EventData::new_u64(key), epoll::EventFlags::IN)
        .map_err(during("watch a descriptor"))
}
