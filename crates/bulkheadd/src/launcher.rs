//! The launcher's state and its one loop: exits, messages, timers.
//!
//! Runs in: the launcher, as root, single-threaded. Sees: exits of children, fixed-size messages. Never: ends
//! because of something that a child did.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use config::Config;
use rustix::event::epoll;
use sys::process::Exit;
use wire::{
    AdminToLauncher, ChildToLauncher, LauncherToAdmin, LauncherToGate, LauncherToLogger, LauncherToService,
    LauncherToSite, Message, NO_PARTITION, Outcome, Role, Source, Text,
};

use crate::error::{Error, during};
use crate::history::{History, Rule, Verdict};
use crate::identities::Identities;
use crate::journal::Journal;
use crate::launch::{Ground, duplicate};
use crate::listeners;
use crate::orders::Orders;
use crate::places::{self, Places};
use crate::process::{Process, Stage};
use crate::program::{self, Version};
use crate::roster::{Post, roster};

/// How many messages of one child are taken before the others get their turn.
const MESSAGES_PER_TURN: usize = 64;
/// How much nonsense a child may send before it is ended.
const NONSENSE_MAX: u32 = 100;
/// How often the program of a broken partition is looked at.
const BROKEN_CHECK: Duration = Duration::from_secs(1);

/// Keys of the event loop: a child's serial number, times two, plus one for its pidfd; and this, for signals.
const SIGNALS: u64 = u64::MAX;

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
    places: Places,
    pub(crate) journal: Journal,
    rule: Rule,
    access_logs: Vec<File>,
    error_log: File,
    /// By listener, then by gate.
    listeners: Vec<Vec<OwnedFd>>,
    admin_socket: OwnedFd,
    pub(crate) posts: Vec<Post>,
    pub(crate) duties: Vec<Duty>,
    pub(crate) processes: BTreeMap<u64, Process>,
    /// What children that are gone had logged while there was no logger.
    unread_logs: Vec<(usize, OwnedFd, OwnedFd)>,
    pub(crate) orders: Orders,
    epoll: OwnedFd,
    signals: OwnedFd,
    /// Children whose channel is watched for room as well.
    watched: HashSet<u64>,
    serial: u64,
    /// When the end began, and the roles that have been asked to go.
    stopping: Option<(Instant, usize)>,
    announced: bool,
    pub(crate) started: Instant,
}

/// In which order the roles go at the end: who passes work on goes before who does it.
const STOP_ORDER: [Role; 5] = [Role::Gate, Role::Site, Role::Service, Role::Admin, Role::Logger];

impl Launcher {
    /// Prepares everything that can fail before the first child is started.
    pub fn start(config: Config) -> Result<Self, Error> {
        occupy_inherited_numbers()?;
        jail::note_launcher();
        raise_descriptor_limit();
        let root = rustix::process::geteuid().is_root();
        let gates = config.server.gates.map_or_else(cores, |gates| gates as usize);
        let places = Places::open(&config.server)?;
        let mut identities =
            root.then(|| Identities::load(&places.state, config.server.user_range.clone())).transpose()?;
        let posts = roster(&config, gates, identities.as_mut())?;
        if let Some(table) = &mut identities {
            table.save()?;
        }
        let listeners = config
            .listeners
            .iter()
            .map(|listener| listeners::listen_on(listener.address, gates))
            .collect::<Result<_, _>>()?;
        let mut access_logs = Vec::new();
        for site in &config.sites {
            access_logs.push(places.log_file(&format!("{}.access.log", site.name))?);
        }
        access_logs.push(places.log_file("no-site.access.log")?);
        let error_log = places.log_file("error.log")?;
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| during("make an epoll")(e.into()))?;
        let signals = sys::signals::signal_descriptor().map_err(during("watch signals"))?;
        watch(&epoll, &signals, SIGNALS)?;
        let restart = &config.restart;
        let rule = Rule {
            broken_after: restart.broken_after as usize,
            within: Duration::from_millis(restart.within_ms.into()),
            backoff_max: Duration::from_millis(restart.backoff_max_ms.into()),
        };
        let ground = Ground {
            empty_root: root.then(|| places.empty_root()).transpose()?,
            directory: places::directory(&config.dir)?,
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
            journal: Journal::new(error_log.try_clone().map_err(during("duplicate a descriptor"))?),
            admin_socket: places.admin_socket()?,
            duties: posts.iter().map(|_| Duty::default()).collect(),
            orders: Orders::new(&posts, jail::missing(root)),
            processes: BTreeMap::new(),
            unread_logs: Vec::new(),
            watched: HashSet::new(),
            serial: 0,
            stopping: None,
            announced: false,
            started: Instant::now(),
            ground,
            places,
            rule,
            access_logs,
            error_log,
            listeners,
            posts,
            epoll,
            signals,
        })
    }

    /// Starts every child and looks after them until the end.
    pub fn run(mut self) -> Result<(), Error> {
        let missing = jail::missing(self.ground.empty_root.is_some());
        if !missing.is_empty() {
            self.journal.warning(format!(
                "not started as root: every process runs as this user, without the layers {}",
                missing.join(", ")
            ));
        }
        for post in 0..self.posts.len() {
            self.fill(post);
        }
        let mut events = Vec::with_capacity(256);
        loop {
            self.turn(&mut events)?;
            if self.stopping.is_some() && self.processes.is_empty() {
                self.journal.info("stopped");
                let _ = std::fs::remove_file(self.places.run.join("admin.sock"));
                return Ok(());
            }
        }
    }

    /// Waits for something to happen and deals with it.
    fn turn(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), Error> {
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
                key if key % 2 == 1 => self.on_exit(key / 2),
                key => self.on_message(key / 2),
            }
        }
        self.on_time(Instant::now());
        self.watch_for_room();
        Ok(())
    }

    fn on_signal(&mut self) {
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

    /// Begins the end: nothing is started any more, and the first role is asked to go.
    pub(crate) fn stop(&mut self) {
        if self.stopping.is_some() {
            return;
        }
        self.journal.info("stopping");
        self.stopping = Some((Instant::now(), 0));
        self.listeners.clear();
        for duty in &mut self.duties {
            duty.start_at = None;
        }
        self.retire_role(STOP_ORDER[0]);
    }

    /// Asks the next role to go once the one before is gone.
    fn go_on_stopping(&mut self) {
        while let Some((began, phase)) = self.stopping {
            let role = STOP_ORDER[phase];
            let left = self.processes.values().any(|process| self.posts[process.post].role == role);
            if left || phase + 1 == STOP_ORDER.len() {
                return;
            }
            self.stopping = Some((began, phase + 1));
            self.retire_role(STOP_ORDER[phase + 1]);
        }
    }

    fn retire_role(&mut self, role: Role) {
        let serials: Vec<u64> = self.processes.keys().copied().collect();
        for serial in serials {
            if self.posts[self.processes[&serial].post].role == role {
                self.retire(serial);
            }
        }
    }

    /// Asks a process to finish and go.
    pub(crate) fn retire(&mut self, serial: u64) {
        let drain = Duration::from_millis(self.ground.config.limits.drain_timeout_ms.into());
        if let Some(process) = self.processes.get_mut(&serial)
            && process.stage != Stage::Retiring
        {
            self.watched.remove(&serial);
            process.retire(Instant::now() + drain);
        }
    }

    /// Starts a process for a post that has none.
    fn fill(&mut self, post: usize) {
        self.duties[post].start_at = None;
        match self.spawn(post) {
            Ok(serial) => self.duties[post].current = Some(serial),
            Err(error) => {
                let text = error.to_string();
                self.journal.warning(format!("{}: {text}", self.posts[post].title()));
                self.judge(post, Exit::Status(127), Duration::ZERO, text);
            }
        }
    }

    /// Starts a process and connects it with everyone that it works with.
    pub(crate) fn spawn(&mut self, post: usize) -> Result<u64, Error> {
        let started = self.ground.start(&self.posts[post])?;
        self.serial += 1;
        let serial = self.serial;
        watch(&self.epoll, &started.control, serial * 2)?;
        watch(&self.epoll, started.child.pidfd(), serial * 2 + 1)?;
        let mut process = Process::new(post, started.child, started.control, Instant::now());
        process.log = started.log;
        process.stderr = Some(started.stderr);
        self.processes.insert(serial, process);
        self.introduce(serial)?;
        Ok(serial)
    }

    /// Says to a new process what it must know, and to others that it is there.
    fn introduce(&mut self, serial: u64) -> Result<(), Error> {
        let post = self.processes[&serial].post;
        match self.posts[post].role {
            Role::Logger => {
                for (message, descriptor) in self.ground.logger_setup(&self.access_logs, &self.error_log)? {
                    self.tell(serial, &message, descriptor);
                }
                self.hand_logs_to(serial)?;
            }
            Role::Admin => self.introduce_admin(serial)?,
            Role::Gate => {
                let gate = self.posts[post].index;
                let sockets =
                    self.listeners.iter().map(|of| duplicate(&of[gate])).collect::<Result<_, _>>()?;
                for (message, descriptor) in self.ground.gate_setup(sockets, &self.posts) {
                    self.tell(serial, &message, descriptor);
                }
            }
            Role::Site => {
                for (message, descriptor) in self.ground.site_setup(&self.posts[post], &self.posts)? {
                    self.tell(serial, &message, descriptor);
                }
            }
            Role::Service => {
                for (message, descriptor) in self.ground.service_setup(&self.posts[post]) {
                    self.tell(serial, &message, descriptor);
                }
            }
            Role::Launcher => {}
        }
        self.tell_loggers_of(serial)?;
        self.tell_what_is_broken(serial);
        self.connect(serial)
    }

    fn introduce_admin(&mut self, serial: u64) -> Result<(), Error> {
        self.tell(serial, &LauncherToAdmin::Socket {}, Some(duplicate(&self.admin_socket)?));
        for (target, name) in
            self.orders.targets().enumerate().map(|(i, name)| (i, Text::new(name))).collect::<Vec<_>>()
        {
            self.tell(serial, &LauncherToAdmin::Target { target: target as u16, name }, None);
        }
        let uid = rustix::process::getuid().as_raw();
        self.tell(serial, &LauncherToAdmin::Owner { uid }, None);
        self.tell(serial, &LauncherToAdmin::Begin {}, None);
        Ok(())
    }

    pub(crate) fn tell(&mut self, serial: u64, message: &impl Message, descriptor: Option<OwnedFd>) {
        if let Some(process) = self.processes.get_mut(&serial) {
            process.tell(message, descriptor);
        }
    }

    /// Gives a new logger what every process logs, and what those that are gone have left.
    fn hand_logs_to(&mut self, logger: u64) -> Result<(), Error> {
        for (post, log, stderr) in std::mem::take(&mut self.unread_logs) {
            self.hand_log(logger, post, Some(log), Some(stderr));
        }
        let others: Vec<u64> = self.processes.keys().copied().filter(|&serial| serial != logger).collect();
        for serial in others {
            let process = &self.processes[&serial];
            let log = process.log.as_ref().map(duplicate).transpose()?;
            let stderr = process.stderr.as_ref().map(duplicate).transpose()?;
            self.hand_log(logger, process.post, log, stderr);
        }
        Ok(())
    }

    /// Tells the loggers of a new process.
    fn tell_loggers_of(&mut self, serial: u64) -> Result<(), Error> {
        for logger in self.active(Role::Logger, None) {
            let process = &self.processes[&serial];
            // A logger does not read its own standard error: it would wait for itself.
            let log = process.log.as_ref().filter(|_| logger != serial).map(duplicate).transpose()?;
            let stderr = process.stderr.as_ref().filter(|_| logger != serial).map(duplicate).transpose()?;
            self.hand_log(logger, process.post, log, stderr);
        }
        Ok(())
    }

    fn hand_log(&mut self, logger: u64, post: usize, log: Option<OwnedFd>, stderr: Option<OwnedFd>) {
        let label = Text::new(self.posts[post].title());
        // A gate answers for every site; who is of no site writes no access records.
        let site = if self.posts[post].role == Role::Gate { NO_PARTITION } else { self.posts[post].site };
        if log.is_some() {
            self.tell(logger, &LauncherToLogger::Client { label: label.clone(), site }, log);
        }
        if stderr.is_some() {
            self.tell(logger, &LauncherToLogger::Stderr { label }, stderr);
        }
    }

    /// The processes of a role (and of one post) that are not retiring.
    fn active(&self, role: Role, post: Option<usize>) -> Vec<u64> {
        let fits = |process: &Process| {
            process.stage != Stage::Retiring
                && self.posts[process.post].role == role
                && post.is_none_or(|post| post == process.post)
        };
        self.processes.iter().filter(|(_, process)| fits(process)).map(|(&serial, _)| serial).collect()
    }

    /// Makes the channels between a new process and everyone that it works with.
    fn connect(&mut self, serial: u64) -> Result<(), Error> {
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
        pairs.into_iter().try_for_each(|(source, worker)| self.connect_pair(source, worker))
    }

    fn workers(&self) -> impl Iterator<Item = u64> {
        let is_worker = |role| matches!(role, Role::Site | Role::Service);
        self.processes
            .iter()
            .filter(move |(_, p)| p.stage != Stage::Retiring && is_worker(self.posts[p.post].role))
            .map(|(&serial, _)| serial)
    }

    /// Whether gates send clients' connections to this worker.
    fn gate_serves(&self, worker: u64) -> bool {
        let post = &self.posts[self.processes[&worker].post];
        self.ground.service(post).is_none_or(|(_, service)| service.takes_connections)
    }

    fn is_service_of(&self, service: u64, site: usize) -> bool {
        let (service, site) = (&self.posts[self.processes[&service].post], &self.posts[site]);
        service.role == Role::Service && site.role == Role::Site && service.site == site.site
    }

    fn connect_pair(&mut self, source: u64, worker: u64) -> Result<(), Error> {
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
    fn tell_what_is_broken(&mut self, serial: u64) {
        for post in 0..self.posts.len() {
            if self.duties[post].broken.is_some() {
                self.tell_broken(serial, post, true);
            }
        }
    }

    fn tell_broken(&mut self, serial: u64, post: usize, broken: bool) {
        let partition = self.posts[post].partition;
        match self.posts[self.processes[&serial].post].role {
            Role::Gate => self.tell(serial, &LauncherToGate::Broken { partition, broken }, None),
            Role::Site => self.tell(serial, &LauncherToSite::Broken { partition, broken }, None),
            _ => {}
        }
    }

    fn set_broken(&mut self, post: usize, broken: Option<Option<Version>>) {
        let now = broken.is_some();
        if self.duties[post].broken.is_some() != now {
            for serial in self.processes.keys().copied().collect::<Vec<_>>() {
                self.tell_broken(serial, post, now);
            }
        }
        self.duties[post].broken = broken;
    }

    /// Takes what a child has to say.
    fn on_message(&mut self, serial: u64) {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(process) = self.processes.get_mut(&serial) else {
                return;
            };
            process.flush();
            let Some(control) = process.control() else { return };
            let mut buffer = [0; 64];
            match sys::seqpacket::receive(control, &mut buffer) {
                Ok(Some(got)) => self.heard(serial, &buffer[..got.len]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => self.nonsense(serial),
                // It has closed its channel: it is ending, or wants to be ended.
                Ok(None) | Err(_) => return self.retire(serial),
            }
        }
    }

    fn heard(&mut self, serial: u64, bytes: &[u8]) {
        let admin = self.posts[self.processes[&serial].post].role == Role::Admin;
        let decoded = if admin {
            AdminToLauncher::decode(bytes)
        } else {
            ChildToLauncher::decode(bytes).map(|message| match message {
                ChildToLauncher::Ready {} => AdminToLauncher::Ready {},
                ChildToLauncher::Counters { counters } => AdminToLauncher::Counters { counters },
            })
        };
        match decoded {
            Ok(AdminToLauncher::Ready {}) => self.on_ready(serial),
            Ok(AdminToLauncher::Counters { counters }) => self.on_counters(serial, counters),
            Ok(AdminToLauncher::Status { ticket }) => self.begin_status(serial, ticket),
            Ok(AdminToLauncher::Relaunch { ticket, target }) => self.begin_relaunch(serial, ticket, target),
            Ok(AdminToLauncher::Stop { ticket }) => {
                self.answer(ticket, Outcome::Done, "");
                self.stop();
            }
            Err(_) => self.nonsense(serial),
        }
    }

    /// A child sent what no child sends. Only the child pays for it.
    pub(crate) fn nonsense(&mut self, serial: u64) {
        let Some(process) = self.processes.get_mut(&serial) else {
            return;
        };
        process.nonsense += 1;
        let title = self.posts[process.post].title();
        if process.nonsense == 1 {
            self.journal.warning(format!("{title} sent a message that it may not send"));
        } else if process.nonsense == NONSENSE_MAX {
            process.child.kill();
            self.journal.warning(format!("{title} sent {NONSENSE_MAX} such messages and was ended"));
        }
    }

    fn on_ready(&mut self, serial: u64) {
        let Some(process) = self.processes.get_mut(&serial) else {
            return;
        };
        if process.stage != Stage::Starting {
            return self.nonsense(serial);
        }
        process.stage = Stage::Serving;
        process.deadline = None;
        let (post, ticket) = (process.post, process.ticket.take());
        // Before the old one retires: it may be the admin role, which is to pass the answer on.
        if let Some(ticket) = ticket {
            self.journal.info(format!("{} relaunched", self.posts[post].title()));
            self.relaunched(ticket, Ok(()));
        }
        if self.duties[post].next == Some(serial) {
            self.duties[post].next = None;
            if let Some(old) = self.duties[post].current.replace(serial) {
                self.retire(old);
            }
        }
        self.announce();
    }

    /// Says once that everything is up.
    fn announce(&mut self) {
        let up = |duty: &Duty| {
            duty.broken.is_some()
                || duty.current.is_some_and(|serial| self.processes[&serial].stage == Stage::Serving)
        };
        if self.announced || !self.duties.iter().all(up) {
            return;
        }
        self.announced = true;
        let config = &self.ground.config;
        let addresses: Vec<String> =
            config.listeners.iter().map(|l| format!("http://{}", l.address)).collect();
        let services: usize = config.sites.iter().map(|site| site.services.len()).sum();
        let (sites, processes) = (config.sites.len(), self.processes.len());
        self.journal.info(format!(
            "serving on {}; sites: {sites}, services: {services}, processes: {processes}",
            addresses.join(", ")
        ));
    }

    /// Takes notice of a child's end.
    fn on_exit(&mut self, serial: u64) {
        let Some(exit) =
            self.processes.get(&serial).and_then(|process| process.child.try_wait().ok().flatten())
        else {
            return;
        };
        // What it said last, such as that it was ready, is still in its channel.
        self.on_message(serial);
        let Some(mut process) = self.processes.remove(&serial) else {
            return;
        };
        self.watched.remove(&serial);
        let post = process.post;
        self.keep_unread_log(post, &mut process);
        self.report_from(serial);
        let lived = process.since.elapsed();
        let title = self.posts[post].title();
        if self.duties[post].next == Some(serial) {
            self.duties[post].next = None;
            let reason = format!("the new process ended with {exit}; error.log has what it said");
            self.journal.warning(format!("{title}: {reason}"));
            if let Some(ticket) = process.ticket {
                self.relaunched(ticket, Err(reason));
            }
        } else if self.duties[post].current == Some(serial) {
            self.duties[post].current = self.duties[post].next.take();
            if self.stopping.is_none() {
                self.journal.warning(format!("{title} (pid {}) ended with {exit}", process.child.pid));
                if let Some(ticket) = process.ticket {
                    self.relaunched(ticket, Err(format!("it ended with {exit}; error.log has what it said")));
                }
                self.judge(post, exit, lived, exit.to_string());
            }
        } else if exit != Exit::Clean && self.stopping.is_none() {
            self.journal.warning(format!("{title} (pid {}) retired with {exit}", process.child.pid));
        }
        self.go_on_stopping();
    }

    fn keep_unread_log(&mut self, post: usize, process: &mut Process) {
        if self.active(Role::Logger, None).is_empty()
            && let (Some(log), Some(stderr)) = (process.log.take(), process.stderr.take())
        {
            self.unread_logs.push((post, log, stderr));
        }
    }

    /// Decides whether and when a post is filled again.
    fn judge(&mut self, post: usize, exit: Exit, lived: Duration, why: String) {
        let now = Instant::now();
        let duty = &mut self.duties[post];
        duty.last_exit = why;
        duty.restarts += 1;
        let verdict = duty.history.exited(&self.rule, exit == Exit::Clean, lived, now);
        if duty.current.is_some() {
            return;
        }
        let partition = matches!(self.posts[post].role, Role::Site | Role::Service);
        match verdict {
            Verdict::Restart(delay) => duty.start_at = Some(now + delay),
            Verdict::Broken if partition => {
                let name = self.posts[post].name.clone();
                self.journal.warning(format!(
                    "{} is broken: {} unclean exits within {:?}; its requests are answered with 500 until \
                     `bulkhead relaunch {name}` or a changed program file",
                    self.posts[post].title(),
                    self.rule.broken_after,
                    self.rule.within
                ));
                let version = self.version(post);
                self.set_broken(post, Some(version));
                self.announce();
            }
            // Without its roles nothing works; they are tried for ever.
            Verdict::Broken => duty.start_at = Some(now + self.rule.backoff_max),
        }
    }

    fn version(&self, post: usize) -> Option<Version> {
        let post = &self.posts[post];
        match self.ground.service(post) {
            Some((_, service)) => program::version(&service.program),
            None => program::version(&self.ground.roles_folder.join(post.role.name())),
        }
    }

    /// Makes a broken partition whole again and starts it.
    pub(crate) fn mend(&mut self, post: usize) {
        self.duties[post].history.forgive();
        self.set_broken(post, None);
        self.fill(post);
    }

    fn until_next_timer(&self) -> Option<Duration> {
        let now = Instant::now();
        let starts = self.duties.iter().filter_map(|duty| duty.start_at);
        let deadlines = self.processes.values().filter_map(|process| process.deadline);
        let check = self.duties.iter().any(|duty| duty.broken.is_some()).then(|| now + BROKEN_CHECK);
        starts
            .chain(deadlines)
            .chain(check)
            .chain(self.orders.deadline())
            .min()
            .map(|at| at.saturating_duration_since(now))
    }

    fn on_time(&mut self, now: Instant) {
        for post in 0..self.posts.len() {
            if self.duties[post].start_at.is_some_and(|at| at <= now) {
                self.fill(post);
            }
            if let Some(failed) = self.duties[post].broken
                && self.stopping.is_none()
                && self.version(post).is_some_and(|version| Some(version) != failed)
            {
                self.journal.info(format!("{}: its program has changed", self.posts[post].title()));
                self.mend(post);
            }
        }
        let late = |process: &Process| process.deadline.is_some_and(|at| at <= now);
        let late: Vec<u64> =
            self.processes.iter().filter(|(_, p)| late(p)).map(|(&serial, _)| serial).collect();
        for serial in late {
            self.overdue(serial);
        }
        self.orders_on_time(now);
    }

    /// Ends a process that was not ready, or not gone, in time.
    fn overdue(&mut self, serial: u64) {
        let Some(process) = self.processes.get_mut(&serial) else {
            return;
        };
        process.deadline = None;
        process.child.kill();
        let (title, stage) = (self.posts[process.post].title(), process.stage.word());
        self.journal
            .warning(format!("{title} (pid {}) was {stage} for too long and was ended", process.child.pid));
    }

    /// Watches the channels for room to which something waits to be sent.
    fn watch_for_room(&mut self) {
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

fn watch(epoll: &OwnedFd, descriptor: impl std::os::fd::AsFd, key: u64) -> Result<(), Error> {
    epoll::add(epoll, descriptor, epoll::EventData::new_u64(key), epoll::EventFlags::IN)
        .map_err(|error| during("watch a descriptor")(error.into()))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Fills the numbers at which children find their descriptors, so that nothing of the launcher's is there.
fn occupy_inherited_numbers() -> Result<(), Error> {
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
fn raise_descriptor_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
}
