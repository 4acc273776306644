//! The guard's one loop: signals, ends, what the server says of its sockets, calls that wait, timers.
//!
//! Runs in: the guard. Sees: small messages and exits. Never: waits for anybody; never outlives the command, or the
//! program that has started it.

mod command;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::process::{Resource, getrlimit};
use sys::process::Child;
use wire::ChildToLauncher;

use crate::command::CommandOrder;
use crate::filters::Filters;
use crate::gate::GateProcess;
use crate::listeners::Listeners;
use crate::notify::Supervisor;
use crate::options::{GuardTarget, Options};
use crate::reactor::{EventSource, Reactor};
use crate::registry::Registry;
use crate::report::ConditioningReport;
use crate::spawn_context::{context, log_isolation};
use crate::stderr_relay::say;
use supervisor::error::{Error, during};
use supervisor::events::wait;
use supervisor::foreign::Closer;
use supervisor::spawn::context::SpawnContext;
use supervisor::spawn::{inheritance, listeners};

/// How often is looked at what tells nothing by itself: callers that gave up, channels that were full.
const LOOK: Duration = Duration::from_millis(20);

/// See the file.
#[derive(Debug)]
pub struct Guard {
    /// The command, until it is started.
    order: Option<CommandOrder>,
    /// How often what was shed is sent.
    report_every: Option<Duration>,
    /// The context of every start.
    pub context: SpawnContext,
    /// The state that every part of the guard acts on.
    pub reactor: Reactor,
    filters: Filters,
    signals: OwnedFd,
    control: Option<OwnedFd>,
    command: Option<Child>,
    supervisor: Option<Supervisor>,
    /// Closes what the server has sent.
    closer: Closer,
    report: ConditioningReport,
    next_report: Option<Instant>,
    /// Whether somebody has asked for the end.
    asked: bool,
    /// With which code to end, and when at the latest.
    ending: Option<(u8, Instant)>,
}

impl Guard {
    /// Prepares everything that can fail before anything is started.
    pub fn start(options: Options) -> Result<Self, Error> {
        let (control, words) = match options.guarded {
            GuardTarget::Command(words) => (None, Some(words)),
            GuardTarget::Parent(number) => {
                let channel = sys::inherit::named(number);
                let missing = || std::io::Error::other(format!("descriptor {number} is no such channel"));
                (Some(channel.ok_or_else(missing).map_err(during("take --control"))?), None)
            }
        };
        inheritance::prepare()?;
        let descriptors = getrlimit(Resource::Nofile);
        inheritance::raise_descriptor_limit();
        let (context, mut leases) = context(options.config)?;
        let mut identity = || leases.as_mut().map(|leases| leases.take()).transpose();
        let gate = GateProcess::new(identity()?, &context.config.restart);
        let filters = Filters::new(&context.config, identity)?;
        // Its locks are what keeps the uids ours; they end with the process.
        std::mem::forget(leases);
        let own = options.listen.iter().map(|&address| listen_on(address)).collect::<Result<_, _>>()?;
        let flags = epoll::CreateFlags::CLOEXEC;
        let epoll = epoll::create(flags).map_err(during("make an epoll"))?;
        let signals = sys::signals::guard_descriptor().map_err(during("watch signals"))?;
        let reactor = Reactor { epoll, listeners: Listeners::new(own, options.terms), gate };
        let (listens, filtered) = (reactor.listeners.own, filters.len() > 0);
        let (by, persists) = (options.by, options.persists);
        let order = words.map(|words| CommandOrder { words, by, listens, persists, filtered, descriptors });
        reactor.must_watch(&signals, EventSource::Signals, 0)?;
        if let Some(control) = &control {
            reactor.must_watch(control, EventSource::Control, 0)?;
        }
        Ok(Self {
            order,
            report_every: options.report,
            next_report: options.report.map(|every| Instant::now() + every),
            context,
            reactor,
            filters,
            signals,
            control,
            command: None,
            supervisor: None,
            closer: Closer::default(),
            report: ConditioningReport::default(),
            asked: false,
            ending: None,
        })
    }

    /// Guards until the end; returns the code to end with.
    pub fn run(mut self) -> Result<ExitCode, Error> {
        for index in 0..self.filters.len() {
            self.filters.start(index, &self.context)?;
            self.watch_filter(index)?;
        }
        self.start_gate()?;
        self.reactor.await_arrival(None);
        log_isolation(&self.context);
        let command = self.order.as_ref().and_then(|order| order.words.first().cloned());
        let mut registry = Registry::new(command, &self.reactor.listeners);
        let mut events = Vec::with_capacity(256);
        loop {
            self.turn(&mut events)?;
            registry.keep(&self.reactor.listeners, self.reactor.gate.is_ready());
            if let Some((code, deadline)) = self.ending
                && deadline <= Instant::now()
            {
                return Ok(ExitCode::from(code));
            }
        }
    }

    fn turn(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), Error> {
        let restless = self.reactor.gate.flush() | self.supervisor.as_mut().is_some_and(Supervisor::flush);
        let left = self.until_next(restless);
        wait(&self.reactor.epoll, events, left)?;
        for event in events.iter() {
            self.on_event(EventSource::of(event), event.flags)?;
        }
        self.on_time(Instant::now(), restless)
    }

    fn on_event(
        &mut self,
        (source, which): (EventSource, u32),
        flags: epoll::EventFlags,
    ) -> Result<(), Error> {
        let now = Instant::now();
        match source {
            EventSource::Signals => self.on_signal(),
            EventSource::Control => self.on_control(),
            EventSource::Command => self.on_command_end(),
            EventSource::GateEnd => self.on_gate_end(now),
            EventSource::Gate => self.on_gate()?,
            EventSource::GateStderr if !self.reactor.gate.relay() => self.unwatch_gate_stderr(),
            EventSource::FilterStderr if !self.filters.relay(which as usize) => {
                if let Some((_, stderr)) = self.filters.watched(which as usize) {
                    self.reactor.unwatch(&stderr.pipe);
                }
            }
            EventSource::GateStderr | EventSource::FilterStderr => {}
            EventSource::FilterEnd => self.filters.ended(which as usize, now),
            EventSource::End => self.on_closed(which),
            EventSource::Arrival => self.reactor.gate.health.on_arrival(now),
            EventSource::Calls | EventSource::Waiting | EventSource::Server => {
                self.on_server(source, which, flags)
            }
        }
        Ok(())
    }

    /// Events of a server whose calls are answered.
    fn on_server(&mut self, source: EventSource, which: u32, flags: epoll::EventFlags) {
        let Some(supervisor) = &mut self.supervisor else {
            return;
        };
        match source {
            EventSource::Calls if flags.contains(epoll::EventFlags::IN) => {
                supervisor.on_call(&mut self.reactor)
            }
            // All of its processes are gone.
            EventSource::Calls => self.reactor.unwatch(&supervisor.listener),
            EventSource::Server => supervisor.on_end(which as i32, &mut self.reactor),
            _ => supervisor.on_waiting(&mut self.reactor),
        }
    }

    fn on_closed(&mut self, end: u32) {
        if let Some(number) = self.reactor.closed(end)
            && let Some(supervisor) = &mut self.supervisor
        {
            supervisor.closed(number);
        }
    }

    fn on_gate(&mut self) -> Result<(), Error> {
        for message in self.reactor.gate.heard() {
            match message {
                ChildToLauncher::Ready {} => self.start_command()?,
                ChildToLauncher::TopRange { address_high, address_low, bits, held, waiting } => {
                    self.report.heavy((address_high, address_low), bits, held, waiting);
                }
                ChildToLauncher::Shed { shed } => {
                    self.report.complete(&shed).iter().for_each(say);
                    if let Some((_, deadline)) = &mut self.ending {
                        *deadline = Instant::now();
                    }
                }
                ChildToLauncher::ChainCut { chain } => match self.filters.cut(chain) {
                    Ok(None) => {}
                    Ok(Some((message, last))) => self.reactor.gate.send(&message, Some(last)),
                    Err(error) => say(format_args!("the last filter cannot be replaced: {error}")),
                },
                // A guarded server is always there, and looked after by its own starter. No site, no signer, no
                // stapler, no logger; and nothing that the gate would have to be told while it ends.
                ChildToLauncher::TakesRetire {}
                | ChildToLauncher::Wanted { .. }
                | ChildToLauncher::Used { .. }
                | ChildToLauncher::Idle {}
                | ChildToLauncher::Counters { .. }
                | ChildToLauncher::Certificate { .. }
                | ChildToLauncher::Staple { .. }
                | ChildToLauncher::Committed {}
                | ChildToLauncher::StaplesEnd {}
                | ChildToLauncher::Tampered { .. }
                | ChildToLauncher::LogWanted { .. }
                | ChildToLauncher::Confirmed { .. } => {}
            }
        }
        Ok(())
    }

    fn start_gate(&mut self) -> Result<(), Error> {
        let chain = self.filters.ends()?;
        self.reactor.gate.start(&self.context, &self.reactor.listeners, chain)?;
        let Some((end, control, stderr)) = self.reactor.gate.watched() else {
            return Ok(());
        };
        self.reactor.must_watch(end, EventSource::GateEnd, 0)?;
        self.reactor.must_watch(control, EventSource::Gate, 0)?;
        self.reactor.must_watch(&stderr.pipe, EventSource::GateStderr, 0)
    }

    fn unwatch_gate_stderr(&self) {
        if let Some((_, _, stderr)) = self.reactor.gate.watched() {
            self.reactor.unwatch(&stderr.pipe);
        }
    }

    fn on_gate_end(&mut self, now: Instant) {
        if let Some((exit, again)) = self.reactor.gate.ended(now)
            && self.ending.is_none()
        {
            say(format_args!("the gate ended ({exit}); {}", what_follows(again)));
            if !again {
                self.give_up();
            }
        }
    }

    fn watch_filter(&self, index: usize) -> Result<(), Error> {
        let Some((end, stderr)) = self.filters.watched(index) else {
            return Ok(());
        };
        self.reactor.must_watch(end, EventSource::FilterEnd, index as u32)?;
        self.reactor.must_watch(&stderr.pipe, EventSource::FilterStderr, index as u32)
    }

    fn until_next(&mut self, restless: bool) -> Option<Duration> {
        let ending = self.ending.map(|(_, deadline)| deadline);
        let looking = restless.then(|| Instant::now() + LOOK);
        let gate = &self.reactor.gate;
        let times =
            [self.next_report, gate.again.at, gate.health.deadline(), self.filters.next(), ending, looking];
        let times = times.into_iter().chain([self.closer.deadline(Instant::now())]);
        times.flatten().min().map(|at| at.saturating_duration_since(Instant::now()))
    }

    fn on_time(&mut self, now: Instant, restless: bool) -> Result<(), Error> {
        let context = &self.context;
        if let Err(error) = self.closer.on_time(now, || context.start_closer()) {
            say(format_args!("nobody closes what the server has sent: {error}"));
        }
        if restless && let Some(supervisor) = &mut self.supervisor {
            supervisor.on_waiting(&mut self.reactor);
        }
        if self.reactor.gate.look_after(now) {
            self.reactor.await_arrival(None);
        }
        if self.reactor.gate.again.is_due(now)
            && let Err(error) = self.start_gate()
        {
            let again = self.reactor.gate.failed(now);
            say(format_args!("the gate cannot be started: {error}; {}", what_follows(again)));
            if !again {
                self.give_up();
            }
        }
        self.filters.end_hung(now);
        for index in self.filters.due(now) {
            let started = self.filters.start(index, &self.context).and_then(|()| self.watch_filter(index));
            if let Err(error) = started {
                self.filters.failed(index, Duration::ZERO, now, &error.to_string());
            }
        }
        if self.next_report.is_some_and(|at| at <= now) {
            self.next_report = self.report_every.map(|every| now + every);
            self.reactor.ask_for_report();
        }
        Ok(())
    }
}

fn what_follows(again: bool) -> &'static str {
    if again { "it is started again" } else { "too often: the command is asked to end" }
}

/// A socket of the guard's own.
fn listen_on(address: SocketAddr) -> Result<OwnedFd, Error> {
    let socket = listeners::listen_on(address, 1)?.pop();
    socket.ok_or_else(|| std::io::Error::other("no socket")).map_err(during("listen"))
}
