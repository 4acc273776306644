//! Where clients' orders and the launcher's answers meet: tickets, and the names that stand for targets.
//!
//! Runs in: the admin role. Sees: the launcher's messages (trusted), names from clients. Never: hands a name on;
//! it finds the number that the launcher gave it.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::os::fd::OwnedFd;

use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use wire::{AdminToLauncher, LauncherToAdmin};
use worker::channel::Channel;
use worker::counters::Counters;

use crate::command::Command;
use crate::gather::PartialReply;
use crate::order::OrderEffect;
use crate::reply::OrderReply;
use crate::secret::ServerSecret;
use crate::targets::Targets;

/// LIMIT: bytes of a report of a probe or publisher; a few hundred findings of a few hundred bytes.
const REPORT_MAX: u64 = 1 << 20;

/// The channel to and from the launcher.
pub(crate) type AdminControl = Channel<LauncherToAdmin, AdminToLauncher>;

/// The state of this process.
#[derive(Debug)]
pub(crate) struct Admin {
    pub(crate) control: AdminControl,
    pub(crate) counters: Counters,
    /// The secret with which every order begins.
    pub(crate) secret: OnceCell<ServerSecret>,
    pub(crate) targets: RefCell<Targets>,
    pending: RefCell<HashMap<u32, Pending>>,
    next_ticket: Cell<u32>,
    /// The launcher has closed its end: no order can be given any more.
    closed: Cell<bool>,
}

/// An answer of the launcher's, with channels to processes of a service, each with the number of its worker.
pub(crate) type LauncherAnswer = (OrderReply, Vec<(u16, OwnedFd)>);

/// An order that the launcher has yet to answer.
#[derive(Debug)]
struct Pending {
    gathered: PartialReply,
    /// Channels to processes of a service, each with the number of its worker.
    channels: Vec<(u16, OwnedFd)>,
    reply: oneshot::Sender<LauncherAnswer>,
}

/// Takes a ticket back, however its order ends.
struct Ticket<'d> {
    admin: &'d Admin,
    number: u32,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.admin.pending.borrow_mut().remove(&self.number);
    }
}

impl Admin {
    pub(crate) fn new(control: AdminControl) -> Self {
        Self {
            control,
            counters: Counters::default(),
            secret: OnceCell::new(),
            targets: RefCell::default(),
            pending: RefCell::default(),
            // When `admin` itself is relaunched, two of them use tickets at a time; each begins somewhere else.
            next_ticket: Cell::new(RandomState::new().build_hasher().finish() as u32),
            closed: Cell::new(false),
        }
    }

    /// Gives one order to the launcher.
    pub(crate) async fn give(&self, command: Command) -> LauncherAnswer {
        let (number, answer) = self.ticket();
        let ticket = Ticket { admin: self, number };
        let effect = command.facts().effect;
        let message = match command.message(number, &self.targets.borrow()) {
            Ok(message) => message,
            Err(reply) => return (reply, Vec::new()),
        };
        let sent = !self.closed.get() && self.control.send(&message, None).await.is_ok();
        let reply = if sent { answer.await.ok() } else { None };
        drop(ticket);
        match reply {
            Some(answer) => answer,
            // The channel's end before the answer is what was asked for: the launcher retires this process only
            // when it stops, or when a successor is ready.
            None if sent && effect == OrderEffect::EndsAdmin => (OrderReply::done(), Vec::new()),
            None => {
                let reason = "the admin process is ending, as the server stops or it is being relaunched";
                let is_failure = sent && effect != OrderEffect::Nothing;
                let reply = if is_failure { OrderReply::failed } else { OrderReply::not_begun };
                (reply(reason), Vec::new())
            }
        }
    }

    fn ticket(&self) -> (u32, oneshot::Receiver<LauncherAnswer>) {
        let number = self.next_ticket.get();
        self.next_ticket.set(number.wrapping_add(1));
        let (reply, answer) = oneshot::channel();
        let (gathered, channels) = (PartialReply::default(), Vec::new());
        self.pending.borrow_mut().insert(number, Pending { gathered, channels, reply });
        (number, answer)
    }

    /// Takes a part of the answer to an order; a part for a client that has given up finds no order.
    pub(crate) fn gather(&self, ticket: u32, message: LauncherToAdmin) {
        let whole = match self.pending.borrow_mut().get_mut(&ticket) {
            Some(pending) => pending.gathered.take(message),
            None => None,
        };
        if let Some(reply) = whole {
            self.finish(ticket, reply);
        }
    }

    /// Takes a channel to a process of a service.
    pub(crate) fn service_channel(&self, ticket: u32, worker: u16, channel: OwnedFd) {
        if let Some(pending) = self.pending.borrow_mut().get_mut(&ticket) {
            pending.channels.push((worker, channel));
        }
    }

    /// Takes what a probe says, to its end.
    pub(crate) async fn probe_output(&self, ticket: u32, output: OwnedFd) {
        let (text, read) = read_output(output).await;
        self.finish(
            ticket,
            match read {
                Ok(_) => OrderReply::probed(&text),
                Err(error) => OrderReply::failed(format!("the probe's report could not be read: {error}")),
            },
        );
    }

    /// Answers an order; one whose client has given up is not found, or does not listen.
    pub(crate) fn finish(&self, ticket: u32, reply: OrderReply) {
        let pending = self.pending.borrow_mut().remove(&ticket);
        if let Some(Pending { channels, reply: client, .. }) = pending {
            let _ = client.send((reply, channels));
        }
    }

    /// Ends every order that has no answer: none can come any more.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        let pending = self.pending.take();
        drop(pending);
    }
}

/// Reads a socket to its end.
pub(crate) async fn read_output(output: OwnedFd) -> (Vec<u8>, io::Result<usize>) {
    let mut text = Vec::new();
    let read = match readable(output) {
        Ok(stream) => stream.take(REPORT_MAX).read_to_end(&mut text).await,
        Err(error) => Err(error),
    };
    (text, read)
}

fn readable(output: OwnedFd) -> io::Result<UnixStream> {
    let stream = std::os::unix::net::UnixStream::from(output);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}
