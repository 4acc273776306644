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
use super::{Client, Outgoing, Outlets};
use crate::channel::Channel;

/// LIMIT: credits that one worker may have given; a worker grants 64.
pub const CREDITS_MAX: u32 = 4096;

/// When something may be sent on a channel.
pub enum Way {
    /// Against credits, which a worker gives.
    Credits,
    /// As far as there is room, to a guarded server, for the partition named; who holds what is known there.
    Server(Rc<Guarded>, Weak<Outlets>),
    /// As far as there is room, to a filter, which passes everything on.
    Filter,
}

/// See the file's head.
pub struct Line {
    channel: Channel<FromWorker, ToWorker>,
    way: Way,
    /// How much more may be sent. A channel that has room gives itself as many as there may be.
    credits: Cell<u32>,
    draining: Cell<bool>,
    /// Notified when a channel has no more room.
    full: Notify,
    /// What the worker holds, and whose it is.
    sent: RefCell<HashMap<u64, (Client, SocketAddr)>>,
    /// Whether its nonsense was told; once is enough.
    told: Cell<bool>,
}

impl Line {
    /// Takes over a channel's descriptor.
    pub fn new(descriptor: OwnedFd, way: Way) -> io::Result<Rc<Self>> {
        let channel = Channel::new(descriptor)?;
        let limited = matches!(way, Way::Credits);
        if !limited {
            // What waits in the channel waits in order. The kernel makes a handful of bundles of the least.
            channel.set_backlog(0)?;
        }
        Ok(Rc::new(Self {
            channel,
            way,
            credits: Cell::new(if limited { 0 } else { CREDITS_MAX }),
            draining: Cell::new(false),
            full: Notify::new(),
            sent: RefCell::default(),
            told: Cell::new(false),
        }))
    }

    /// Whether a connection may be sent now.
    pub fn has_room(&self, held_max: usize) -> bool {
        let open = self.credits.get() > 0 && !self.draining.get();
        open && match &self.way {
            Way::Credits => self.sent.borrow().len() < held_max,
            Way::Server(guarded, outlets) => guarded.has_room(held_max, outlets),
            Way::Filter => true,
        }
    }

    /// Sends nothing more.
    pub fn drain(&self) {
        self.draining.set(true);
        self.channel.finish();
    }

    /// Sends a connection, or gives it back.
    pub fn send(&self, mut outgoing: Outgoing, client: Client, next_id: &Cell<u64>) -> Result<(), Outgoing> {
        let id = match &self.way {
            Way::Server(guarded, _) => guarded.next_id(),
            _ => next_id.replace(next_id.get() + 1),
        };
        let bundle = Bundle {
            id,
            peer: outgoing.peer,
            local: outgoing.local,
            kind: outgoing.kind,
            taken: Bytes(std::mem::take(&mut outgoing.taken)),
        };
        let message = ToWorker::Connection { bundle };
        let stream = Some(outgoing.stream.as_fd());
        let result = match self.way {
            Way::Credits => self.channel.try_send(&message, stream),
            Way::Server(..) | Way::Filter => self.channel.try_send_any(&message, stream),
        };
        let Err(error) = result else {
            self.has_sent(id, client, outgoing.peer);
            return Ok(());
        };
        if error.kind() == io::ErrorKind::WouldBlock && !matches!(self.way, Way::Credits) {
            self.credits.set(0);
            self.full.notify_one();
        }
        // It is full, or gone, which `listen` will see; another may do.
        let ToWorker::Connection { bundle } = message;
        outgoing.taken = bundle.taken.0;
        Err(outgoing)
    }

    fn has_sent(&self, id: u64, client: Client, peer: SocketAddr) {
        match &self.way {
            Way::Credits => {
                self.credits.set(self.credits.get() - 1);
                self.sent.borrow_mut().insert(id, (client, peer));
            }
            Way::Server(guarded, outlets) => guarded.sent(id, client, outlets),
            Way::Filter => {}
        }
    }
}

impl Outlets {
    /// Hears a worker until it is gone.
    pub(super) async fn listen(self: Rc<Self>, line: Rc<Line>) {
        let whom = format!("{}: its worker", self.name);
        let take = |arrived| match arrived {
            Ok((message, descriptor)) => self.heard(&line, message, descriptor),
            Err(_) => self.nonsense(&line, "a malformed message"),
        };
        line.channel.hear(whom, take).await;
        self.lose(&line);
    }

    /// A channel is gone, and what was sent on it.
    fn lose(self: &Rc<Self>, line: &Rc<Line>) {
        self.lines.borrow_mut().retain(|other| !Rc::ptr_eq(other, line));
        for (_, (client, _)) in line.sent.take() {
            self.release(client);
        }
        self.owner.retiring();
    }

    /// Does what a worker says; how much of it was nonsense.
    fn heard(self: &Rc<Self>, line: &Line, message: FromWorker, descriptor: Option<OwnedFd>) -> u32 {
        match (message, descriptor) {
            (FromWorker::Returns { credits, done }, None) => {
                let mut unknown = false;
                for id in done {
                    let ended = line.sent.borrow_mut().remove(&id);
                    match ended {
                        Some((client, _)) => self.release(client),
                        None => unknown = true,
                    }
                }
                let mut nonsense = 0;
                if unknown {
                    nonsense += self.nonsense(line, "the end of a connection that it does not hold");
                }
                let credits = line.credits.get().saturating_add(credits.into());
                if credits > CREDITS_MAX {
                    nonsense += self.nonsense(line, "more credits than a worker may grant");
                }
                line.credits.set(credits.min(CREDITS_MAX));
                self.serve_queue();
                nonsense
            }
            // One that another source had sent, which is gone, has no number here. A worker can make up a connection, as any
            // client can; it is treated as one.
            (FromWorker::Back { id, taken }, Some(stream)) => {
                let client = line.sent.borrow().get(&id).map(|(_, peer)| *peer);
                self.owner.handed_back(stream, taken.0, client);
                0
            }
            (FromWorker::Rate { address_high, address_low, used_ms }, None) => {
                let client = wire::address_of(address_high, address_low).to_canonical();
                match self.owner.rate_used(client, Duration::from_millis(used_ms.into())) {
                    true => 0,
                    false => self.nonsense(line, "a client's rate, which is for gates"),
                }
            }
            (FromWorker::Drain {}, None) => {
                line.drain();
                self.owner.retiring();
                0
            }
            _ => self.nonsense(line, "a descriptor where none belongs, or none where one does"),
        }
    }

    /// Tells the first nonsense of a worker.
    fn nonsense(&self, line: &Line, what: &str) -> u32 {
        if !line.told.replace(true) {
            eprintln!("warning: {}: its worker sent {what}", self.name);
        }
        1
    }

    /// Sends as long as a channel without credits has room, until nobody is at its other end.
    pub(super) async fn watch_room(self: Rc<Self>, line: Rc<Line>) {
        loop {
            self.serve_queue();
            tokio::select! {
                // Nothing is ever said on it.
                _ = line.channel.receive() => break,
                _ = async {
                    line.full.notified().await;
                    line.channel.room().await
                } => line.credits.set(CREDITS_MAX),
            }
        }
        if let Way::Server(guarded, outlets) = &line.way {
            guarded.lost(outlets);
        }
        self.lose(&line);
    }
}
