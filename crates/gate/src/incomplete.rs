//! Connections without a whole request: those that have just come, those that idle between two requests, and those
//! that were answered here and are on their way out.
//!
//! Runs in: the gate. Sees: when something arrives, and from whom. Never: keeps one past its deadline; lets the
//! connections of one range of addresses take the room of others; costs a task or a timer for each.
//!
//! They are watched by an event queue of their own beneath the runtime's. One that is ended to make room must be gone
//! before the next is accepted, and 32,000 of them are to cost little more than their descriptors.
//!
//! Source: Park and Pai, "Connection Conditioning", NSDI 2006, 4.2.1: the oldest incomplete connection of the
//! heaviest branch is closed first.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use conditioning::{AddressRange, ClientOrigin, ItemKey, Tree};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use crate::connection::GateConnection;

/// LIMIT: how many arrivals are looked at before what else there is to do gets its turn.
pub const BATCH: usize = 64;
/// LIMIT: how long a kept-alive connection that was handed back may be idle here, as in a worker by default.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// LIMIT: after an answer, what the client still sends is thrown away for so long, since closing
/// the connection with unread bytes would destroy the answer on its way.
const LINGER: Duration = Duration::from_secs(2);
/// LIMIT: entries of connections that have left, beyond as many as there are, before the deadlines are tidied.
const SLACK: usize = 1024;
/// LIMIT: addresses without a connection here whose branch is kept, since clients come back: 512 KiB.
const ADDRESSES_REMEMBERED: u32 = 4096;
/// A question, not a wait.
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// How far a connection has come. Each stage lasts equally long for all, so that its deadlines are in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadStage {
    /// Nothing was ever sent on it.
    Silent,
    /// A head has begun.
    Begun,
    /// It was handed back, and its next request has not begun.
    Idle,
    /// It was answered; so many bytes more are thrown away, until the client closes too.
    Answered { left: usize },
}

impl HeadStage {
    const COUNT: usize = 4;

    fn number(self) -> usize {
        match self {
            Self::Silent => 0,
            Self::Begun => 1,
            Self::Idle => 2,
            Self::Answered { .. } => 3,
        }
    }
}

/// A connection and its stage.
pub struct IncompleteConnection {
    /// The connection.
    pub connection: GateConnection,
    /// Its stage.
    pub stage: HeadStage,
    key: ItemKey,
}

/// All of them.
pub struct Incomplete {
    events: AsyncFd<OwnedFd>,
    /// By descriptor: small numbers that are used again.
    held: RefCell<Vec<Option<IncompleteConnection>>>,
    /// Their descriptors, by the addresses of their clients.
    tree: RefCell<Tree<u32>>,
    /// By stage: who is due when, the first one first. A connection that has left is skipped when its time comes.
    deadlines: RefCell<[VecDeque<(Instant, ItemKey)>; HeadStage::COUNT]>,
    allowed: Cell<[Duration; HeadStage::COUNT]>,
    /// The deadline that is slept to.
    alarm: Cell<Option<Instant>>,
    earlier: Notify,
}

impl Incomplete {
    /// An empty place; must be called inside the runtime.
    pub fn new(head_timeout: Duration) -> std::io::Result<Self> {
        Ok(Self {
            events: worker::watch(epoll::create(CreateFlags::CLOEXEC)?)?,
            held: RefCell::default(),
            tree: RefCell::new(Tree::remembering(ADDRESSES_REMEMBERED)),
            deadlines: RefCell::default(),
            allowed: Cell::new([head_timeout, head_timeout, IDLE_TIMEOUT, LINGER]),
            alarm: Cell::new(None),
            earlier: Notify::new(),
        })
    }

    /// Sets how long a connection may send nothing at all.
    pub fn allow_silence(&self, first_byte_timeout: Duration) {
        let mut allowed = self.allowed.get();
        allowed[HeadStage::Silent.number()] = first_byte_timeout;
        self.allowed.set(allowed);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.tree.borrow().len()
    }

    /// The ranges of addresses that most of them come from.
    pub fn ranges(&self, at_most: usize) -> Vec<(AddressRange, u32)> {
        self.tree.borrow().ranges(at_most)
    }

    /// Takes one in; false, and it is closed, if it cannot be watched.
    pub fn take(&self, mut connection: GateConnection, stage: HeadStage, now: Instant) -> bool {
        let descriptor = connection.stream.as_raw_fd() as u32;
        if !connection.watched {
            // Edges: a look takes nothing out, so that what was not enough would otherwise be reported for ever.
            let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
            let data = EventData::new_u64(descriptor.into());
            if epoll::add(&self.events, &connection.stream, data, flags).is_err() {
                return false;
            }
            connection.watched = true;
        }
        let key = self.tree.borrow_mut().insert(ClientOrigin::from(connection.peer.ip()), descriptor);
        let mut held = self.held.borrow_mut();
        let slot = descriptor as usize;
        if held.len() <= slot {
            held.resize_with(slot + 1, || None);
        }
        held[slot] = Some(IncompleteConnection { connection, stage, key });
        drop(held);
        self.expect(stage, key, now);
        true
    }

    /// Lets one go that is held at `slot`.
    pub fn leave(&self, slot: u32) -> Option<IncompleteConnection> {
        let held = self.held.borrow_mut().get_mut(slot as usize)?.take()?;
        self.tree.borrow_mut().remove(held.key);
        Some(held)
    }

    /// Hears no more of one that has left, and whose socket will live on in another process.
    pub fn unwatch(&self, connection: &GateConnection) {
        if connection.watched {
            let _ = epoll::delete(&self.events, &connection.stream);
        }
    }

    /// Where the connection called `key` is held, if it is still in the stage of that number.
    fn slot_of(&self, key: ItemKey, stage: usize) -> Option<u32> {
        let slot = *self.tree.borrow().get(key)?;
        let held = self.held.borrow();
        let found = held.get(slot as usize)?.as_ref()?;
        (found.stage.number() == stage).then_some(slot)
    }

    /// Notes when a connection that enters a stage is due.
    fn expect(&self, stage: HeadStage, key: ItemKey, now: Instant) {
        let number = stage.number();
        let due = now + self.allowed.get()[number];
        let mut deadlines = self.deadlines.borrow_mut();
        let queue = &mut deadlines[number];
        queue.push_back((due, key));
        if queue.len() > 2 * self.len() + SLACK {
            queue.retain(|(_, key)| self.slot_of(*key, number).is_some());
        }
        if self.alarm.get().is_none_or(|alarm| due < alarm) {
            self.alarm.set(Some(due));
            self.earlier.notify_one();
        }
    }

    /// Takes out the oldest one of the heaviest branch of addresses, if there is any.
    pub fn leave_heaviest(&self) -> Option<IncompleteConnection> {
        let heaviest = self.tree.borrow().heaviest().map(|(_, slot)| *slot);
        heaviest.and_then(|slot| self.leave(slot))
    }

    /// Waits until something has arrived on connections, or clients have closed them; `events` then has their slots, at
    /// most [`BATCH`] of them. False if nothing more can be waited for.
    pub async fn arrivals(&self, events: &mut Vec<Event>) -> bool {
        let Ok(mut ready) = self.events.readable().await else {
            return false;
        };
        events.clear();
        let count = epoll::wait(&self.events, spare_capacity(events), Some(&AT_ONCE)).unwrap_or(0);
        if count < BATCH {
            ready.clear_ready();
        }
        true
    }

    /// Does something with the connection that is held at `slot`, unless it has left since its event was noted.
    pub fn with<T>(&self, slot: u32, act: impl FnOnce(&mut IncompleteConnection) -> T) -> Option<T> {
        self.held.borrow_mut().get_mut(slot as usize).and_then(Option::as_mut).map(act)
    }

    /// The head of the connection at `slot` has begun to arrive.
    pub fn head_began(&self, slot: u32, now: Instant) {
        let begin = |held: &mut IncompleteConnection| {
            (held.stage, held.connection.since) = (HeadStage::Begun, now);
            held.key
        };
        if let Some(key) = self.with(slot, begin) {
            self.expect(HeadStage::Begun, key, now);
        }
    }

    /// Waits until deadlines have passed, or for ever.
    pub async fn deadline(&self) {
        loop {
            match self.alarm.get() {
                None => self.earlier.notified().await,
                Some(alarm) => tokio::select! {
                    () = tokio::time::sleep_until(alarm.into()) => return,
                    () = self.earlier.notified() => {}
                },
            }
        }
    }

    /// Takes out one whose deadline has passed. When there is none left, the next deadline is set.
    pub fn leave_late(&self, now: Instant) -> Option<IncompleteConnection> {
        for number in 0..HeadStage::COUNT {
            while let Some(key) = self.due(number, now) {
                if let Some(held) = self.slot_of(key, number).and_then(|slot| self.leave(slot)) {
                    return Some(held);
                }
            }
        }
        let first = |queue: &VecDeque<(Instant, ItemKey)>| queue.front().map(|(due, _)| *due);
        self.alarm.set(self.deadlines.borrow().iter().filter_map(first).min());
        None
    }

    fn due(&self, number: usize, now: Instant) -> Option<ItemKey> {
        let first = self.deadlines.borrow_mut()[number].pop_front_if(|(due, _)| *due <= now);
        first.map(|(_, key)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(now: Instant) -> GateConnection {
        GateConnection {
            stream: sys::seqpacket::pair().unwrap().0.into(),
            peer: "192.0.2.1:5".parse().unwrap(),
            local: "192.0.2.2:80".parse().unwrap(),
            preread: Vec::new(),
            since: now,
            searched: 0,
            share: None,
            filtered: false,
            source: crate::connection::BytesSource::Client,
            hello_least: 0,
            kind: wire::Kind::Plain,
            awaits_proxy_header: false,
            watched: false,
        }
    }

    #[test]
    fn each_stage_has_its_time() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (head, silence) = (Duration::from_secs(10), Duration::from_secs(3));
            let incomplete = Incomplete::new(head).unwrap();
            incomplete.allow_silence(silence);
            for (stage, allowed) in [
                (HeadStage::Silent, silence),
                (HeadStage::Begun, head),
                (HeadStage::Idle, Duration::from_secs(60)),
            ] {
                let now = Instant::now();
                assert!(incomplete.take(connection(now), stage, now));
                assert!(incomplete.leave_late(now + allowed - Duration::from_millis(1)).is_none());
                assert!(incomplete.leave_late(now + allowed).is_some());
            }
        });
    }
}
