//! Which connections of a guarded server stay with its processes between two requests, instead of coming back to the
//! gate each time: as many as the gate allows, while none waits for room.
//!
//! Runs in: gates. Sees: that a process can keep connections. Never: waits for a process; counts on one to give back
//! what it was asked for, since a process that does not only keeps what it was sent.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use wire::{FromGuarded, ToGuarded};

use super::outgoing::WaitingPartition;
use crate::channel::Channel;

/// The channel of one process.
pub(super) type ProcessChannel = Channel<FromGuarded, ToGuarded>;

/// LIMIT: connections that one process may keep, a third of the least that event-based servers have room for (nginx of
/// Debian 768); more than that many come back as they did before.
const KEPT_MAX: u32 = 256;
/// How long a connection may wait for a server that takes none before those that are kept make room, and how often that
/// is looked at.
const PATIENCE: Duration = Duration::from_millis(20);
/// The same for a server that takes some: a busy one would only be busier with what comes back.
const PATIENCE_WITH_BUSY: Duration = Duration::from_millis(200);
/// How long nothing must have waited for so long before connections are kept again.
const QUIET: Duration = Duration::from_millis(250);

/// See the file's head.
#[derive(Default)]
pub(super) struct Keeping {
    /// The longest head of a request that need not come here; without it nothing is kept.
    head_bytes: Cell<Option<u32>>,
    /// Whether every connection has to come back, whatever is allowed later.
    forbidden: Cell<bool>,
    /// Whether something has waited for too long.
    pressed: Cell<bool>,
    /// Whether a task looks at what waits.
    watched: Cell<bool>,
    /// Those that can keep connections, with what each was told last.
    processes: RefCell<Vec<(Weak<ProcessChannel>, Cell<u32>)>>,
    /// How many connections were sent, from any number on.
    sent: Cell<u64>,
    /// The partitions whose connections may wait.
    partitions: RefCell<Vec<Weak<dyn WaitingPartition>>>,
}

impl Keeping {
    /// Allows it for requests with heads of at most so many bytes, unless it was forbidden.
    pub(super) fn allow(&self, head_bytes: u32) {
        if !self.forbidden.get() {
            self.head_bytes.set(Some(head_bytes));
            self.tell();
        }
    }

    /// Forbids it for good.
    pub(super) fn forbid(&self) {
        self.forbidden.set(true);
        self.head_bytes.set(None);
        self.tell();
    }

    /// A partition has a server.
    pub(super) fn add_partition(&self, partition: Weak<dyn WaitingPartition>) {
        self.partitions.borrow_mut().push(partition);
    }

    /// A connection was sent.
    pub(super) fn sent(&self) {
        self.sent.set(self.sent.get().wrapping_add(1));
    }

    /// A process can keep connections.
    pub(super) fn add_process(&self, channel: &Rc<ProcessChannel>) {
        let mut processes = self.processes.borrow_mut();
        processes.retain(|(known, _)| known.strong_count() > 0);
        // SECURITY: a process may say so any number of times.
        if !processes.iter().any(|(known, _)| known.as_ptr() == Rc::as_ptr(channel)) {
            processes.push((Rc::downgrade(channel), Cell::new(0)));
        }
        drop(processes);
        self.tell();
    }

    fn allowed(&self) -> u32 {
        if self.pressed.get() || self.head_bytes.get().is_none() { 0 } else { KEPT_MAX }
    }

    /// Tells each process that does not know it how many it may keep. One whose channel is full is asked again when
    /// something else has changed, or while something waits.
    fn tell(&self) {
        let (connections, head_bytes) = (self.allowed(), self.head_bytes.get().unwrap_or(0));
        for (channel, told) in self.processes.borrow().iter() {
            if told.get() != connections
                && let Some(channel) = channel.upgrade()
                && channel.try_send(&ToGuarded::Keep { connections, head_bytes }, None).is_ok()
            {
                told.set(connections);
            }
        }
    }

    /// A connection waits for room.
    pub(super) fn something_waits(self: &Rc<Self>) {
        if self.head_bytes.get().is_some()
            && !self.processes.borrow().is_empty()
            && !self.watched.replace(true)
        {
            tokio::task::spawn_local(self.clone().watch());
        }
    }

    /// Takes back what is kept if something waits for too long, until nothing does.
    async fn watch(self: Rc<Self>) {
        let (mut late, mut sent) = (Instant::now(), self.sent.get());
        loop {
            tokio::time::sleep(PATIENCE).await;
            let now = Instant::now();
            let patience = match std::mem::replace(&mut sent, self.sent.get()) == self.sent.get() {
                true => PATIENCE,
                false => PATIENCE_WITH_BUSY,
            };
            match self.waits_since() {
                Some(since) if now.duration_since(since) >= patience => {
                    late = now;
                    self.pressed.set(true);
                    self.tell();
                }
                None if !self.pressed.get() => break,
                _ if self.pressed.get() && now.duration_since(late) > QUIET => {
                    self.pressed.set(false);
                    self.tell();
                }
                _ => {}
            }
        }
        self.watched.set(false);
    }

    /// Since when the oldest waits of what does.
    fn waits_since(&self) -> Option<Instant> {
        let partitions: Vec<_> = self.partitions.borrow().iter().filter_map(Weak::upgrade).collect();
        partitions.iter().filter_map(|partition| partition.waits_since()).min()
    }
}
