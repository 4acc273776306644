//! Answers the requests of a service's broker on its channel.
//!
//! Runs in: the connector of a service. Sees: addresses and descriptors of the service's, by its broker, either of
//! which may be compromised. Never: makes or connects a socket that was not granted, or does more at once than its
//! limit.
//!
//! A broker that ends leaves callers behind that wait. Its requests are carried out all the same, and its successor is
//! told of them, and then ends those calls.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use sys::foreign::Foreign;
use tokio::task::AbortHandle;
use wire::{BrokerToConnector, ConnectorToBroker};
use worker::channel::Channel;
use worker::counters::Counters;
use worker::log::Log;

use crate::attempt::{Socket, Wait, new_socket};
use crate::grants::{Grants, plain};
use crate::refusals::Refusals;

type BrokerChannel = Channel<BrokerToConnector, ConnectorToBroker>;

/// LIMIT: answers for a broker that is yet to come: more than calls can wait of one that has gone.
const LEFT_MAX: usize = 65_536;

/// The calls of one service.
#[derive(Debug)]
pub struct Calls {
    grants: Grants,
    /// How long a connection may take to come about.
    timeout: Duration,
    /// How many may be under way at once.
    waiting_max: usize,
    counters: Rc<Counters>,
    refusals: Refusals,
    log: Log,
    /// Attempts whose callers wait, by call.
    under_way: RefCell<HashMap<u64, AbortHandle>>,
    /// The newest channel.
    newest: RefCell<Option<Rc<BrokerChannel>>>,
    /// Answers that nobody was there for.
    left: RefCell<Vec<ConnectorToBroker>>,
}

/// An answer.
enum CallAnswer {
    Made(OwnedFd),
    Ended(Result<(), Errno>),
}

impl Calls {
    /// For a service with these grants.
    pub fn new(
        grants: Grants,
        timeout: Duration,
        waiting_max: usize,
        counters: Rc<Counters>,
        log: Log,
    ) -> Self {
        Self {
            grants,
            timeout,
            waiting_max,
            counters,
            refusals: Refusals::default(),
            log,
            under_way: RefCell::default(),
            newest: RefCell::default(),
            left: RefCell::default(),
        }
    }

    /// How many callers wait.
    pub fn waiting(&self) -> usize {
        self.under_way.borrow().len()
    }

    /// Serves a broker until it is gone.
    ///
    /// # Errors
    /// The system refuses to watch the channel.
    pub async fn attend(self: Rc<Self>, channel: OwnedFd) -> std::io::Result<()> {
        let broker = Rc::new(BrokerChannel::new(channel)?);
        *self.newest.borrow_mut() = Some(broker.clone());
        for message in self.left.take() {
            if broker.send(&message, None).await.is_err() {
                self.left.borrow_mut().push(message);
            }
        }
        let take = |arrived| match arrived {
            Ok((BrokerToConnector::Socket { id, v6, datagram }, None)) => {
                self.make(&broker, id, v6, datagram);
                0
            }
            Ok((BrokerToConnector::Connect { id, address, scope, waits }, Some(socket))) => {
                self.connect(&broker, id, (address, scope), waits, socket)
            }
            Ok((BrokerToConnector::Disconnect { id }, Some(socket))) => {
                let outcome = Socket::of(socket).and_then(|socket| socket.disconnect());
                self.answer(&broker, id, CallAnswer::Ended(outcome));
                0
            }
            Ok((BrokerToConnector::Cancel { id }, None)) => {
                // It may be done already; then this came too late.
                if let Some(attempt) = self.under_way.borrow_mut().remove(&id) {
                    attempt.abort();
                    self.counters.disconnected();
                }
                0
            }
            Ok(_) | Err(_) => 1,
        };
        broker.receive_all("the broker", take).await;
        self.newest.borrow_mut().take_if(|newest| Rc::ptr_eq(newest, &broker));
        Ok(())
    }

    fn make(self: &Rc<Self>, broker: &Rc<BrokerChannel>, id: u64, v6: bool, datagram: bool) {
        let made = match self.grants.has(datagram) {
            true => new_socket(v6, datagram),
            false => {
                self.refusals.socket(&self.log, datagram);
                Err(Errno::ACCESS)
            }
        };
        self.answer(broker, id, made.map_or_else(|errno| CallAnswer::Ended(Err(errno)), CallAnswer::Made));
    }

    /// Begins an attempt; how much nonsense the wish was.
    fn connect(
        self: &Rc<Self>,
        broker: &Rc<BrokerChannel>,
        id: u64,
        (address, scope): (SocketAddr, u32),
        waits: bool,
        socket: Foreign,
    ) -> u32 {
        if self.under_way.borrow().contains_key(&id) {
            return 1;
        }
        let address = plain(address);
        let outcome = match self.granted(socket, address) {
            Ok(socket) if waits && !socket.datagram => {
                return self.connect_waiting(broker, id, Wait::new(socket, address, scope));
            }
            Ok(socket) => socket.begin(address, scope),
            Err(errno) => Err(errno),
        };
        self.answer(broker, id, CallAnswer::Ended(outcome));
        0
    }

    /// The socket, if it may be connected to `address`.
    fn granted(&self, socket: Foreign, address: SocketAddr) -> Result<Socket, Errno> {
        let socket = Socket::of(socket)?;
        if self.grants.allows(socket.datagram, address) {
            return Ok(socket);
        }
        self.refusals.connection(&self.log, socket.datagram, address);
        Err(Errno::ACCESS)
    }

    fn connect_waiting(self: &Rc<Self>, broker: &Rc<BrokerChannel>, id: u64, wait: Wait) -> u32 {
        if self.under_way.borrow().len() >= self.waiting_max {
            self.answer(broker, id, CallAnswer::Ended(Err(Errno::AGAIN)));
            return 0;
        }
        if let Some(outcome) = wait.begin() {
            // Before the caller runs on, its socket blocks again.
            drop(wait);
            self.answer(broker, id, CallAnswer::Ended(outcome));
            return 0;
        }
        self.counters.connected();
        let (calls, broker) = (self.clone(), broker.clone());
        let attempt = tokio::task::spawn_local(async move {
            let outcome = wait.end(calls.timeout).await;
            if calls.under_way.borrow_mut().remove(&id).is_some() {
                calls.counters.disconnected();
                calls.answer(&broker, id, CallAnswer::Ended(outcome));
            }
        });
        self.under_way.borrow_mut().insert(id, attempt.abort_handle());
        0
    }

    /// Answers on the channel that asked, or else on the newest.
    fn answer(self: &Rc<Self>, broker: &Rc<BrokerChannel>, id: u64, answer: CallAnswer) {
        self.counters.answered();
        let (message, socket) = match answer {
            CallAnswer::Made(socket) => (ConnectorToBroker::Made { id }, Some(socket)),
            CallAnswer::Ended(outcome) => (ended(id, outcome), None),
        };
        match broker.try_send(&message, socket.as_ref().map(AsFd::as_fd)) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                let (calls, broker) = (self.clone(), broker.clone());
                tokio::task::spawn_local(async move {
                    if broker.send(&message, socket.as_ref().map(AsFd::as_fd)).await.is_err() {
                        calls.answer_newest(message);
                    }
                });
            }
            Err(_) => self.answer_newest(message),
        }
    }

    /// Answers a broker that is gone by its newest successor: a socket is not of use to a successor, which knows
    /// nothing of the call but that it is to end.
    fn answer_newest(&self, message: ConnectorToBroker) {
        let message = match message {
            ConnectorToBroker::Made { id } => ended(id, Err(Errno::NOBUFS)),
            message @ ConnectorToBroker::Ended { .. } => message,
        };
        let newest = self.newest.borrow().clone();
        let sent = newest.is_some_and(|broker| broker.try_send(&message, None).is_ok());
        let mut left = self.left.borrow_mut();
        if !sent && left.len() < LEFT_MAX {
            left.push(message);
        }
    }
}

fn ended(id: u64, outcome: Result<(), Errno>) -> ConnectorToBroker {
    let errno = outcome.err().map_or(0, |errno| errno.raw_os_error() as u16);
    ConnectorToBroker::Ended { id, errno }
}
