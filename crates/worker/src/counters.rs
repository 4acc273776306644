//! The counters of a process, for `bulkhead status`.
//!
//! Runs in: every process but the launcher. Sees no untrusted bytes. Never: blocks.

use std::cell::{Cell, RefCell};

use wire::Shed;

/// Counts of one process; a clone counts into the same place.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections that it holds now.
    pub connections_now: Cell<u32>,
    /// Connections that it has had.
    pub connections: Cell<u64>,
    /// Requests that it has answered.
    pub requests: Cell<u64>,
}

impl Counters {
    /// A connection has come.
    pub fn connected(&self) {
        self.connections_now.set(self.connections_now.get() + 1);
        self.connections.set(self.connections.get() + 1);
    }

    /// A connection has gone.
    pub fn disconnected(&self) {
        self.connections_now.set(self.connections_now.get().saturating_sub(1));
    }

    /// A request has been answered.
    pub fn answered(&self) {
        self.requests.set(self.requests.get() + 1);
    }

    /// The counts as a message's field.
    pub fn snapshot(&self) -> wire::Counters {
        wire::Counters {
            connections_now: self.connections_now.get(),
            connections: self.connections.get(),
            requests: self.requests.get(),
        }
    }
}

/// The connections and requests that a process has dropped, by reason, for `bulkhead status --conditioning`.
#[derive(Debug, Default)]
pub struct DropCounters(RefCell<Shed>);

impl DropCounters {
    /// Counts something: `note(|shed| shed.malformed += 1)`.
    pub fn note(&self, count: impl FnOnce(&mut Shed)) {
        count(&mut self.0.borrow_mut());
    }

    /// The counts as a message's field.
    pub fn snapshot(&self) -> Shed {
        self.0.borrow().clone()
    }
}
