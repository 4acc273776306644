//! The chain of filter processes that each request goes through before its partition is looked for.
//!
//! Runs in: the gate. Sees: nothing of requests. Never: lets a request past a chain that is out of order.
//!
//! Source: Park and Pai, "Connection Conditioning" (NSDI 2006), section 3.1.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use worker::dispatcher::{Dispatcher, Outgoing};

/// Requests that went into the chain and came out of it.
#[derive(Default)]
pub struct Flow {
    /// Those that were sent to the first filter.
    pub sent: Cell<u64>,
    /// Those that came from the last one.
    pub returned: Cell<u64>,
    /// Connections that came from the last filter and are still here.
    pub shared: Rc<Cell<u32>>,
}

/// The chain, from its first filter to its last.
pub struct FilterChain {
    first: Rc<Dispatcher>,
    flow: Rc<Flow>,
}

impl FilterChain {
    /// A chain, the ends of which follow.
    pub fn new(first: Rc<Dispatcher>, flow: Rc<Flow>) -> Self {
        Self { first, flow }
    }

    /// Takes the channel to the first filter, in the place of an earlier one.
    pub fn begin(&self, channel: OwnedFd) -> std::io::Result<()> {
        self.first.finish();
        self.first.attach_filter(channel)
    }

    /// Sends nothing more to the first filter; what waits for it is given back.
    pub fn end(&self) {
        self.first.finish();
        self.first.reject_all();
    }

    /// Sends a request to the first filter, or lets it wait for one.
    pub fn send(&self, outgoing: Outgoing) {
        self.first.send_uncounted(outgoing);
    }

    /// The connections that went in and have not come out: dropped by a filter, or under way.
    pub fn missing(&self) -> u64 {
        self.flow.sent.get().saturating_sub(self.flow.returned.get())
    }

    /// The connections that went in and came out.
    pub fn flow(&self) -> &Rc<Flow> {
        &self.flow
    }

    /// The way in, for what waits there.
    pub fn dispatcher(&self) -> &Dispatcher {
        &self.first
    }
}
