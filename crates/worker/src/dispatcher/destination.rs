//! One channel on which connections are sent: to a worker, against its credits, or to all processes of a guarded
//! server or to a filter, as far as the channel has room.
//!
//! Runs in: gates and site workers. Sees: messages of workers, which may be compromised. Never: sends without room.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use wire::{Bundle, Bytes, FromWorker, ToWorker};

use super::guarded::Guarded;
use super::{Client, Dispatcher, Outgoing};
use crate::channel::Channel;

/// LIMIT: credits that one worker may have given; a worker grants 64.
pub const CREDITS_MAX: u32 = 4096;

/// When something may be sent on a channel.
pub enum Kind {
    /// Against credits, which a worker gives.
    Credits,
    /// As far as there is room, to a guarded server, for the partition named; who holds what is known there.
    Server(Rc<Guarded>, Weak<Dispatcher>),
    /// As far as there is room, to a filter, which passes everything on.
    Filter,
}

/// See the file's head.
pub struct Destination {
    channel: Channel<FromWorker, ToWorker>,
    kind: Kind,
    /// How much more may be sent. A channel that has room gives itself as many as there may be.
    credits: Cell<u32>,
    draining: Cell<bool>,
    /// Notified when a channel has no more room.
    full: Notify,
    /// What the worker holds, and whose it is.
    sent: RefCell<HashMap<u64, (Client, SocketAddr)>>,
    /// Whether its nonsense was told; once is enough.
    violation_logged: Cell<bool>,
}

impl Destination {
    /// Takes over a channel's descriptor.
    pub fn new(descriptor: OwnedFd, kind: Kind) -> io::Result<Rc<Self>> {
        let channel = Channel::new(descriptor)?;
        let limited = matches!(kind, Kind::Credits);
        if !limited {
            // What waits in the channel waits in order. The kernel makes a handful of bundles of the least.
            channel.set_backlog(0)?;
        }
        Ok(Rc::new(Self {
            channel,
            kind,
            credits: Cell::new(if limited { 0 } else { CREDITS_MAX }),
            draining: Cell::new(false),
            full: Notify::new(),
            sent: RefCell::default(),
            violation_logged: Cell::new(false),
        }))
    }

    /// Whether a connection may be sent now.
    pub fn has_room(&self, held_max: usize) -> bool {
        let open = self.credits.get() > 0 && !self.draining.get();
        open && match &self.kind {
            Kind::Credits => self.sent.borrow().len() < held_max,
            Kind::Server(guarded, dispatcher) => guarded.has_room(held_max, dispatcher),
            Kind::Filter => true,
        }
    }

    /// Sends nothing more.
    pub fn drain(&self) {
        self.draining.set(true);
        self.channel.finish();
    }

    /// Sends a connection, or gives it back.
    pub fn send(&self, mut outgoing: Outgoing, client: Client, next_id: &Cell<u64>) -> Result<(), Outgoing> {
        let id = match &self.kind {
            Kind::Server(guarded, _) => guarded.next_id(),
            _ => next_id.replace(next_id.get() + 1),
        };
        let bundle = Bundle {
            id,
            peer: outgoing.peer,
            local: outgoing.local,
            kind: outgoing.kind,
            preread: Bytes(std::mem::take(&mut outgoing.preread)),
        };
        let message = ToWorker::Connection { bundle };
        let stream = Some(outgoing.stream.as_fd());
        let result = match self.kind {
            Kind::Credits => self.channel.try_send(&message, stream),
            Kind::Server(..) | Kind::Filter => self.channel.try_send_any(&message, stream),
        };
        let Err(error) = result else {
            self.has_sent(id, client, outgoing.peer);
            return Ok(());
        };
        if error.kind() == io::ErrorKind::WouldBlock && !matches!(self.kind, Kind::Credits) {
            self.credits.set(0);
            self.full.notify_one();
        }
        // It is full, or gone, which `listen` will see; another may do.
        let ToWorker::Connection { bundle } = message;
        outgoing.preread = bundle.preread.0;
        Err(outgoing)
    }

    fn has_sent(&self, id: u64, client: Client, peer: SocketAddr) {
        match &self.kind {
            Kind::Credits => {
                self.credits.set(self.credits.get() - 1);
                self.sent.borrow_mut().insert(id, (client, peer));
            }
            Kind::Server(guarded, dispatcher) => guarded.sent(id, client, dispatcher),
            Kind::Filter => {}
        }
    }
}

impl Dispatcher {
    /// Hears a worker until it is gone.
    pub(super) async fn listen(self: Rc<Self>, destination: Rc<Destination>) {
        let whom = format!("{}: its worker", self.name);
        let take = |arrived| match arrived {
            Ok((message, descriptor)) => self.handle(&destination, message, descriptor),
            Err(_) => self.protocol_violation(&destination, "a malformed message"),
        };
        destination.channel.receive_all(whom, take).await;
        self.lose(&destination);
    }

    /// A channel is gone, and what was sent on it.
    fn lose(self: &Rc<Self>, destination: &Rc<Destination>) {
        self.destinations.borrow_mut().retain(|other| !Rc::ptr_eq(other, destination));
        for (_, (client, _)) in destination.sent.take() {
            self.release(client);
        }
        self.owner.retiring();
    }

    /// Does what a worker says; how much of it was nonsense.
    fn handle(
        self: &Rc<Self>,
        destination: &Destination,
        message: FromWorker,
        descriptor: Option<OwnedFd>,
    ) -> u32 {
        match (message, descriptor) {
            (FromWorker::Returns { credits, done }, None) => {
                let mut unknown = false;
                for id in done {
                    let ended = destination.sent.borrow_mut().remove(&id);
                    match ended {
                        Some((client, _)) => self.release(client),
                        None => unknown = true,
                    }
                }
                let mut violations = 0;
                if unknown {
                    violations +=
                        self.protocol_violation(destination, "the end of a connection that it does not hold");
                }
                let credits = destination.credits.get().saturating_add(credits.into());
                if credits > CREDITS_MAX {
                    violations +=
                        self.protocol_violation(destination, "more credits than a worker may grant");
                }
                destination.credits.set(credits.min(CREDITS_MAX));
                self.serve_queue();
                violations
            }
            // One that another source had sent, which is gone, has no number here. A worker can make up a connection, as any
            // client can; it is treated as one.
            (FromWorker::Back { id, preread }, Some(stream)) => {
                let client = destination.sent.borrow().get(&id).map(|(_, peer)| *peer);
                self.owner.handed_back(stream, preread.0, client);
                0
            }
            (FromWorker::Rate { address_high, address_low, used_ms }, None) => {
                let client = wire::address_of(address_high, address_low).to_canonical();
                match self.owner.rate_used(client, Duration::from_millis(used_ms.into())) {
                    true => 0,
                    false => self.protocol_violation(destination, "a client's rate, which is for gates"),
                }
            }
            (FromWorker::Drain {}, None) => {
                destination.drain();
                self.owner.retiring();
                0
            }
            _ => self
                .protocol_violation(destination, "a descriptor where none belongs, or none where one does"),
        }
    }

    /// Tells the first nonsense of a worker.
    fn protocol_violation(&self, destination: &Destination, what: &str) -> u32 {
        if !destination.violation_logged.replace(true) {
            eprintln!("warning: {}: its worker sent {what}", self.name);
        }
        1
    }

    /// Sends as long as a channel without credits has room, until nobody is at its other end.
    pub(super) async fn watch_room(self: Rc<Self>, destination: Rc<Destination>) {
        loop {
            self.serve_queue();
            tokio::select! {
                // Nothing is ever said on it.
                _ = destination.channel.receive() => break,
                _ = async {
                    destination.full.notified().await;
                    destination.channel.room().await
                } => destination.credits.set(CREDITS_MAX),
            }
        }
        if let Kind::Server(guarded, dispatcher) = &destination.kind {
            guarded.lost(dispatcher);
        }
        self.lose(&destination);
    }
}
