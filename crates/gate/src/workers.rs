//! The processes that connections are sent to, as the gate makes and hears them: partitions with their workers, and the
//! chain of filters.
//!
//! Runs in: the gate. Sees: what workers and filters say and hand back, which may be compromised. Never: trusts what
//! they say of a connection; lets those of one partition take the room of others.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use sys::foreign::Foreign;
use wire::{FromWorker, NO_PARTITION, ToWorker};
use worker::channel::{Channel, ChannelEnd};
use worker::dispatcher::{Dispatcher, Outgoing, Owner};

use crate::answer;
use crate::chain::{FilterChain, Flow};
use crate::connection::{BytesSource, ConnectionShare, GateConnection};
use crate::gate::{Gate, GateLimits};
use crate::incomplete::HeadStage;
use crate::listener::RouteTarget;
use crate::partition::{Partition, Reports};
use crate::refusal::GateRefusal;

/// The partition of this number. One that no route leads to is made up and never used.
pub fn partition(gate: &Rc<Gate>, number: u16) -> Rc<Partition> {
    gate.partition(number, || new_partition(gate, number, NO_PARTITION))
}

/// Whose the requests of a route are that leads to the partition of this number.
pub fn route_target(gate: &Rc<Gate>, number: u16, site: u16) -> RouteTarget {
    let partition = gate.partition(number, || new_partition(gate, number, site));
    // Its workers may have come before.
    partition.site.set(site);
    // A partition that is no site's is a guarded server's, also before any process of that server has said so.
    partition.guarded.set(partition.guarded.get() || site == NO_PARTITION);
    RouteTarget { partition, site }
}

/// The partition of this number, whose requests are logged as those of `site`; the launcher says what it is called.
fn new_partition(gate: &Rc<Gate>, number: u16, site: u16) -> Rc<Partition> {
    let reports = Reports { site: Rc::new(Cell::new(site)), ..Reports::default() };
    let workers =
        Workers { gate: Rc::downgrade(gate), number, shared: Rc::default(), reports: reports.clone() };
    let GateLimits { start_timeout, connections, .. } = gate.limits;
    let name = "a partition without a name";
    Partition::new(Dispatcher::new(name, start_timeout, connections, Rc::new(workers)), &reports)
}

/// The chain of filters, which every request goes through from now on.
pub fn chain(gate: &Rc<Gate>) -> Rc<FilterChain> {
    // Filters see every request.
    gate.guarded.keep_nothing();
    gate.chain(|| {
        let flow = Rc::<Flow>::default();
        let filters = Filters { gate: Rc::downgrade(gate), flow: flow.clone() };
        let GateLimits { start_timeout, connections, .. } = gate.limits;
        let name = "the chain of filters";
        FilterChain::new(Dispatcher::new(name, start_timeout, connections, Rc::new(filters)), flow)
    })
}

/// Takes the channel from the last filter; what is returned receives from that to its end. An earlier channel is
/// received from as before.
pub fn end_chain(
    gate: &Rc<Gate>,
    channel: OwnedFd,
) -> std::io::Result<impl Future<Output = ChannelEnd> + use<>> {
    let (gate, flow) = (Rc::downgrade(gate), chain(gate).flow().clone());
    Ok(receive(gate, flow, Channel::shared(channel)?))
}

async fn receive(gate: Weak<Gate>, flow: Rc<Flow>, channel: Channel<ToWorker, FromWorker>) -> ChannelEnd {
    let take = |arrived| match (gate.upgrade(), arrived) {
        (Some(gate), Ok((ToWorker::Connection { bundle }, Some(stream)))) => {
            flow.returned.set(flow.returned.get() + 1);
            let share = Some(ConnectionShare::new(&flow.shared));
            GateConnection::handed_back(
                &gate,
                stream,
                bundle.preread.0,
                Some(bundle.peer),
                share,
                BytesSource::Filter,
            );
            0
        }
        (Some(_), _) => 1,
        (None, _) => 0,
    };
    channel.receive_all("the last filter", take).await
}

/// The owner of the dispatcher to the workers of a partition.
struct Workers {
    gate: Weak<Gate>,
    number: u16,
    /// Connections that its workers handed back and that are still here.
    shared: Rc<Cell<u32>>,
    reports: Reports,
}

impl Owner for Workers {
    fn undelivered(&self, outgoing: Outgoing) {
        if let Some(gate) = self.gate.upgrade() {
            let now = Instant::now();
            let (refusal, site) = match &self.reports {
                reports if reports.removed.get() => (GateRefusal::NoSuchSite, NO_PARTITION),
                reports if reports.broken.get() => (GateRefusal::Broken, reports.site.get()),
                reports => (GateRefusal::Unavailable, reports.site.get()),
            };
            answer::refuse(&gate, GateConnection::undelivered(outgoing, now), site, refusal, now);
        }
    }

    fn delivered(&self) {
        if let Some(gate) = self.gate.upgrade() {
            gate.drops.note(|shed| shed.admitted += 1);
            gate.note_used(self.number, &self.reports.used);
            gate.connection_closed();
        }
    }

    fn handed_back(&self, stream: Foreign, preread: Vec<u8>, client: Option<SocketAddr>) {
        if let Some(gate) = self.gate.upgrade() {
            // All that a guarded server keeps alive idles here, and it is all that this gate is for.
            let (share, source) = match self.reports.guarded.get() {
                true => (None, BytesSource::Client),
                false => (
                    Some(ConnectionShare::new(&self.shared)),
                    BytesSource::Worker(partition(&gate, self.number)),
                ),
            };
            GateConnection::handed_back(&gate, stream, preread, client, share, source);
        }
    }

    fn served(&self, requests: u32) {
        if let Some(gate) = self.gate.upgrade() {
            gate.drops.note(|shed| shed.admitted = shed.admitted.saturating_add(requests.into()));
        }
    }

    fn rate_used(&self, client: IpAddr, used: Duration) -> bool {
        if let Some(gate) = self.gate.upgrade() {
            let mut rate = self.reports.rate.borrow_mut();
            rate.get_or_insert_with(|| gate.policies().rate_of_partition()).record(
                client,
                used,
                Instant::now(),
            );
        }
        true
    }

    fn offended(&self, client: IpAddr) -> bool {
        if let Some(gate) = self.gate.upgrade() {
            partition(&gate, self.number).offended(gate.policies(), client, Instant::now());
        }
        true
    }

    /// A client that is gone, or was answered with 500 or 503, is not waited for.
    fn wanted(&self) {
        let Reports { removed, broken, without_room, .. } = &self.reports;
        let is_there = !removed.get() && !broken.get() && !without_room.get();
        self.gate.upgrade().filter(|_| is_there).into_iter().for_each(|gate| gate.want(self.number));
    }
}

/// The owner of the dispatcher to the chain of filters.
struct Filters {
    gate: Weak<Gate>,
    flow: Rc<Flow>,
}

impl Owner for Filters {
    fn delivered(&self) {
        if let Some(gate) = self.gate.upgrade() {
            self.flow.sent.set(self.flow.sent.get() + 1);
            gate.connection_closed();
        }
    }

    fn undelivered(&self, outgoing: Outgoing) {
        if let Some(gate) = self.gate.upgrade() {
            let now = Instant::now();
            let connection = GateConnection::undelivered(outgoing, now);
            if gate.filters().is_none() {
                // The filters were removed while it waited for them.
                return connection.begin(&gate, HeadStage::Begun, now);
            }
            answer::refuse(&gate, connection, wire::NO_PARTITION, GateRefusal::Unavailable, now);
        }
    }

    /// A filter has only the one way on.
    fn handed_back(&self, _stream: Foreign, _taken: Vec<u8>, _client: Option<SocketAddr>) {}
}
