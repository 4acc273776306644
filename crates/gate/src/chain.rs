//! The chain of filter processes that each request goes through before its partition is looked for.
//!
//! Runs in: the gate. Sees: what the last filter passes on, which may be compromised by what it has read. Never: lets
//! a request past a chain that is out of order; trusts what a filter says of a connection.
//!
//! Source: Park and Pai, "Connection Conditioning", NSDI 2006, 3.1.

use std::cell::Cell;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::time::Instant;

use wire::{FromWorker, ToWorker};
use worker::channel::{Channel, ChannelEnd};
use worker::dispatcher::{Dispatcher, Outgoing, Owner};

use crate::answer::{self, Refusal};
use crate::connection::Connection;
use crate::gate::{Gate, Limits};
use crate::partition::Share;

/// The chain, from its first filter to its last.
pub struct Chain {
    first: Rc<Dispatcher>,
    flow: Rc<Flow>,
}

struct Flow {
    gate: Weak<Gate>,
    sent: Cell<u64>,
    returned: Cell<u64>,
    /// Connections that came from the last filter and are still here.
    shared: Rc<Cell<u32>>,
}

impl Chain {
    /// A chain, the ends of which follow.
    pub fn new(gate: &Gate) -> Self {
        let flow = Rc::new(Flow {
            gate: gate.me.clone(),
            sent: Cell::new(0),
            returned: Cell::new(0),
            shared: Rc::default(),
        });
        let Limits { start_timeout, connections, .. } = gate.limits;
        Self {
            first: Dispatcher::new("the chain of filters", start_timeout, connections, flow.clone()),
            flow,
        }
    }

    /// Takes the channel to the first filter, in the place of an earlier one.
    pub fn begin(&self, channel: OwnedFd) -> std::io::Result<()> {
        self.first.finish();
        self.first.attach_filter(channel)
    }

    /// Takes the channel from the last filter; what is returned hears that to its end. An earlier one is heard on.
    pub fn end(&self, channel: OwnedFd) -> std::io::Result<impl Future<Output = ChannelEnd> + use<>> {
        Ok(self.flow.clone().listen(Channel::new(channel)?))
    }

    /// Sends a request to the first filter, or lets it wait for one.
    pub fn send(&self, outgoing: Outgoing) {
        self.first.send_uncounted(outgoing);
    }

    /// What went in and has not come out: dropped by a filter, or under way.
    pub fn missing(&self) -> u64 {
        self.flow.sent.get().saturating_sub(self.flow.returned.get())
    }

    /// The way in, for what waits there.
    pub fn dispatcher(&self) -> &Dispatcher {
        &self.first
    }
}

impl Flow {
    async fn listen(self: Rc<Self>, line: Channel<ToWorker, FromWorker>) -> ChannelEnd {
        let take = |arrived| match (self.gate.upgrade(), arrived) {
            (Some(gate), Ok((ToWorker::Connection { bundle }, Some(stream)))) => {
                self.returned.set(self.returned.get() + 1);
                let share = Some(Share::new(&self.shared));
                Connection::handed_back(&gate, stream, bundle.preread.0, Some(bundle.peer), share, true);
                0
            }
            (Some(_), _) => 1,
            (None, _) => 0,
        };
        line.receive_all("the last filter", take).await
    }
}

impl Owner for Flow {
    fn delivered(&self) {
        if let Some(gate) = self.gate.upgrade() {
            self.sent.set(self.sent.get() + 1);
            gate.connection_closed();
        }
    }

    fn undelivered(&self, outgoing: Outgoing) {
        if let Some(gate) = self.gate.upgrade() {
            let now = Instant::now();
            let connection = Connection::undelivered(outgoing, now);
            answer::refuse(&gate, connection, wire::NO_PARTITION, Refusal::Unavailable, now);
        }
    }

    /// A filter has only the one way on.
    fn handed_back(&self, _stream: OwnedFd, _taken: Vec<u8>, _client: Option<SocketAddr>) {}

    fn retiring(&self) {}
}
