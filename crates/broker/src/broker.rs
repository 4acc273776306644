//! The state that the calls of all processes of the service share.
//!
//! Runs in: the broker. Sees: results of calls that an earlier broker has taken. Never: keeps more of them than a
//! limit.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use sys::notify::Listener;
use tokio::time::Instant;
use wire::log::Level;
use worker::counters::Counters;
use worker::log::Log;

use crate::calls::Calls;
use crate::connector::ConnectorClient;

/// LIMIT: results of which nobody knows yet whose they are; more than one broker can have left behind.
const STRAY_MAX: usize = 65_536;

/// The service's affairs.
#[derive(Debug)]
pub struct Broker {
    pub(crate) connector: ConnectorClient,
    born: Instant,
    timeout: Duration,
    /// How many calls of one process and its descendants may wait.
    pub(crate) waiting_max: usize,
    pub(crate) counters: Counters,
    log: Log,
    processes: RefCell<Vec<Rc<Calls>>>,
    stray: RefCell<Vec<(u64, Result<(), Errno>)>>,
    /// Whether it was said that the service cannot be looked into.
    logged: Cell<bool>,
}

impl Broker {
    /// With a connector that is yet to come, and is waited for so long.
    pub fn new(waiting_max: usize, timeout: Duration, log: Log) -> Self {
        Self {
            connector: ConnectorClient::new(timeout),
            born: Instant::now(),
            timeout,
            waiting_max,
            counters: Counters::default(),
            log,
            processes: RefCell::default(),
            stray: RefCell::default(),
            logged: Cell::new(false),
        }
    }

    /// Its counters: of connections those that are waited for.
    pub fn counters(&self) -> wire::Counters {
        self.counters.snapshot()
    }

    /// Answers the calls of a process, until it is gone.
    pub async fn attend_process(self: Rc<Self>, listener: Listener, leader: u32) {
        let calls = Rc::new(Calls { listener, leader: leader as i32, under_way: Cell::new(0) });
        self.processes.borrow_mut().push(calls.clone());
        for (id, result) in self.stray.borrow().iter() {
            calls.end(*id, *result, &self);
        }
        if let Err(error) = calls.clone().attend(self.clone()).await {
            self.log
                .event(Level::Error, format!("a process of the service cannot connect any more: {error}"));
        }
        self.processes.borrow_mut().retain(|known| !Rc::ptr_eq(known, &calls));
    }

    /// Hears a connector, until it is gone.
    pub async fn attend_connector(self: Rc<Self>, channel: OwnedFd) {
        let ended = self.connector.attend(channel, |id, result| self.stray(id, result)).await;
        if let Err(error) = ended {
            self.log.event(Level::Error, format!("the connector cannot be heard: {error}"));
        }
    }

    /// An earlier broker has asked for it. Whose call it was, only the kernel knows.
    fn stray(&self, id: u64, result: Result<(), Errno>) {
        self.processes.borrow().iter().for_each(|calls| calls.end(id, result, self));
        let mut stray = self.stray.borrow_mut();
        match self.born.elapsed() < self.timeout && stray.len() < STRAY_MAX {
            true => stray.push((id, result)),
            // Every process of the service that there was is known by now.
            false => stray.clear(),
        }
    }

    /// The process of a thread of the service's.
    pub(crate) fn process_of(&self, thread: i32) -> std::io::Result<OwnedFd> {
        sys::notify::process_of(thread, self.processes.borrow().iter().map(|calls| calls.leader))
    }

    /// A caller's memory or descriptors are not ours to look into.
    pub(crate) fn closed_to_us(&self, error: &std::io::Error) {
        if !self.logged.replace(true) {
            self.log.event(
                Level::Error,
                format!(
                    "a connection was refused, as the service cannot be looked into ({error}); a program must begin to \
                     serve before it connects, and kernel.yama.ptrace_scope must be 0 or 1"
                ),
            );
        }
    }
}
