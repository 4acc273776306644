//! One channel on which connections are sent: to a worker, against its credits, or to all processes of a guarded
//! server or to a filter, as far as the channel has room.
//!
//! Runs in: gates and site workers. Sees: messages of workers, which may be compromised. Never: sends without room.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::time::Instant;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use wire::{BUNDLES_MAX, Bundle, Bundles, Bytes, FromWorker, ToWorker};

use super::guarded::GuardedConnections;
use super::outgoing::{CountedClient, Outgoing, Ready, WaitingPartition};
use crate::channel::Channel;

const _: () = assert!(BUNDLES_MAX <= sys::seqpacket::MANY_MAX, "a descriptor for each bundle");

/// LIMIT: credits that one worker may have given; a worker grants 64, and 512 while it needs them.
pub const CREDITS_MAX: u32 = 4096;

/// When something may be sent on a channel.
pub enum SendCondition {
    /// Against credits, which a worker gives.
    Credits,
    /// As far as there is room, to a guarded server, for the partition named; who holds what is known there.
    Server(Rc<GuardedConnections>, Weak<dyn WaitingPartition>),
    /// As far as there is room, to a filter, which passes everything on.
    Filter,
}

/// See the file's head.
pub struct Destination {
    pub(super) channel: Channel<FromWorker, ToWorker>,
    pub(super) kind: SendCondition,
    /// How much more may be sent. A channel that has room gives itself as many as there may be.
    pub(super) credits: Cell<u32>,
    draining: Cell<bool>,
    /// Since when the worker has said nothing of what it was sent; nothing, if it has said something since.
    unheard: Cell<Option<Instant>>,
    /// Notified when a channel has no more room.
    pub(super) full: Notify,
    /// The connections that the worker holds, with their clients.
    pub(super) sent: RefCell<HashMap<u64, (CountedClient, SocketAddr)>>,
    /// Whether its nonsense was told; once is enough.
    pub(super) violation_logged: Cell<bool>,
    /// Whether it is to keep what it would hand back.
    refuses: Cell<bool>,
    /// The task that receives from the worker.
    listening: Cell<Option<JoinHandle<()>>>,
}

impl Destination {
    /// Takes over a channel's descriptor.
    pub fn new(descriptor: OwnedFd, kind: SendCondition) -> io::Result<Rc<Self>> {
        let limited = matches!(kind, SendCondition::Credits);
        // Filters and guarded servers have a channel for all gates.
        let channel = if limited { Channel::new(descriptor)? } else { Channel::shared(descriptor)? };
        if !limited {
            // Bundles wait in the channel in their order. The kernel allows a handful even with the least backlog.
            channel.set_backlog(0)?;
        }
        Ok(Rc::new(Self {
            channel,
            kind,
            credits: Cell::new(if limited { 0 } else { CREDITS_MAX }),
            draining: Cell::new(false),
            unheard: Cell::new(None),
            full: Notify::new(),
            sent: RefCell::default(),
            violation_logged: Cell::new(false),
            refuses: Cell::new(false),
            listening: Cell::default(),
        }))
    }

    /// How many connections may be sent now in one message.
    pub fn room(&self, held_max: usize) -> usize {
        if self.credits.get() == 0 || self.draining.get() {
            return 0;
        }
        match &self.kind {
            SendCondition::Credits => {
                let left = held_max.saturating_sub(self.sent.borrow().len());
                left.min(self.credits.get() as usize).min(BUNDLES_MAX)
            }
            SendCondition::Server(guarded, dispatcher) => usize::from(guarded.has_room(held_max, dispatcher)),
            SendCondition::Filter => 1,
        }
    }

    /// Whether this is the way to a worker, which gives credits.
    pub fn has_credits(&self) -> bool {
        matches!(self.kind, SendCondition::Credits)
    }

    /// How many connections the worker holds that were sent here.
    pub fn held(&self) -> usize {
        self.sent.borrow().len()
    }

    /// The worker has said something.
    pub fn has_heard(&self) {
        self.unheard.set(None);
    }

    /// Whether the worker has said nothing since something was sent.
    pub fn owes_word(&self) -> bool {
        self.unheard.get().is_some()
    }

    /// Whether the worker has said nothing of what was sent `before` this.
    pub fn is_late(&self, before: Instant) -> bool {
        self.unheard.get().is_some_and(|since| since <= before)
    }

    /// Whether nothing more is sent.
    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Sends nothing more.
    pub fn drain(&self) {
        self.draining.set(true);
        self.channel.finish();
    }

    /// Notes what hears the worker.
    pub fn heard_by(&self, listening: JoinHandle<()>) {
        self.listening.set(Some(listening));
    }

    /// Takes nothing more from the worker, which keeps it and learns so, and waits until all that it said before is
    /// heard.
    pub async fn refuse(&self) {
        self.refuses.set(true);
        self.channel.refuse();
        if let Some(listening) = self.listening.take() {
            let _ = listening.await;
        }
    }

    /// Whether the end of what the worker says is of our making.
    pub fn refuses(&self) -> bool {
        self.refuses.get()
    }

    /// Sends the first `count` of `batch`, which [`Self::room`] allows, and leaves the others; those too that the
    /// channel does not take. `sent` is called for each of those that it takes, with the client's address; whether it
    /// takes any.
    pub fn send_batch(
        &self,
        batch: &mut VecDeque<Ready>,
        count: usize,
        next_id: &Cell<u64>,
        sent: impl Fn(IpAddr),
    ) -> bool {
        // Bytes that were read before make a message long, so such a bundle goes by itself.
        let alone = |ready: &Ready| !ready.outgoing.preread.is_empty();
        let several = batch.iter().take(count).take_while(|ready| !alone(ready)).count();
        if several < 2 {
            let Some(mut ready) = batch.pop_front() else {
                return false;
            };
            let address = ready.outgoing.peer.ip();
            if let Err(outgoing) = self.send(ready.outgoing, ready.client, next_id) {
                ready.outgoing = outgoing;
                batch.push_front(ready);
                return false;
            }
            sent(address);
            return true;
        }
        let first = next_id.get();
        let bundles = batch.iter().zip(first..).take(several).map(|(ready, id)| {
            let Outgoing { peer, local, kind, .. } = ready.outgoing;
            Bundle { id, peer, local, kind, preread: Bytes::default() }
        });
        let message = ToWorker::Connections { bundles: Bundles(bundles.collect()) };
        let streams: Vec<_> = batch.iter().take(several).map(|ready| ready.outgoing.stream.as_fd()).collect();
        // Where it is full, or gone, which `listen` will see, another may do.
        if self.channel.try_send_many(&message, &streams).is_err() {
            return false;
        }
        next_id.set(first + several as u64);
        for (ready, id) in batch.drain(..several).zip(first..) {
            self.has_sent(id, ready.client, ready.outgoing.peer);
            sent(ready.outgoing.peer.ip());
        }
        true
    }

    /// Sends a connection, or gives it back.
    fn send(
        &self,
        mut outgoing: Outgoing,
        client: CountedClient,
        next_id: &Cell<u64>,
    ) -> Result<(), Outgoing> {
        let id = match &self.kind {
            SendCondition::Server(guarded, _) => guarded.next_id(),
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
            SendCondition::Credits => self.channel.try_send(&message, stream),
            SendCondition::Server(..) | SendCondition::Filter => self.channel.try_send_any(&message, stream),
        };
        let Err(error) = result else {
            self.has_sent(id, client, outgoing.peer);
            return Ok(());
        };
        if error.kind() == io::ErrorKind::WouldBlock && !matches!(self.kind, SendCondition::Credits) {
            self.credits.set(0);
            self.full.notify_one();
        }
        // It is full, or gone, which `listen` will see; another may do.
        if let ToWorker::Connection { bundle } = message {
            outgoing.preread = bundle.preread.0;
        }
        Err(outgoing)
    }

    fn has_sent(&self, id: u64, client: CountedClient, peer: SocketAddr) {
        match &self.kind {
            SendCondition::Credits => {
                self.credits.set(self.credits.get() - 1);
                if self.unheard.get().is_none() {
                    self.unheard.set(Some(Instant::now()));
                }
                self.sent.borrow_mut().insert(id, (client, peer));
            }
            SendCondition::Server(guarded, dispatcher) => guarded.sent(id, client, dispatcher),
            SendCondition::Filter => {}
        }
    }
}
