//! The owner of connections that only counts what becomes of them.

use std::cell::Cell;
use std::net::SocketAddr;

use worker::dispatcher::{Outgoing, Owner};

#[derive(Default)]
pub struct Counts {
    pub delivered: Cell<usize>,
    pub undelivered: Cell<usize>,
    pub wanted: Cell<usize>,
    /// How many waited when it was said last that there is no place for them.
    pub full: Cell<usize>,
}

impl Owner for Counts {
    fn delivered(&self) {
        self.delivered.set(self.delivered.get() + 1);
    }
    fn undelivered(&self, _: Outgoing) {
        self.undelivered.set(self.undelivered.get() + 1);
    }
    fn handed_back(&self, _: sys::foreign::Foreign, _: Vec<u8>, _: Option<SocketAddr>) {}
    fn wanted(&self) {
        self.wanted.set(self.wanted.get() + 1);
    }
    fn full(&self, waiting: usize) {
        self.full.set(waiting);
    }
}
