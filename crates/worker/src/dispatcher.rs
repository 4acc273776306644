//! Connections on their way to the workers of one partition: shares, the queue of those that wait, deadlines.
//!
//! Runs in: gates (for every partition, and for their filters) and site workers (for their services). Sees: messages
//! of workers, which may be compromised. Never: sends more than a worker has asked for or a channel has room for;
//! lets a worker's nonsense, or the requests of one range of addresses, cost anyone else.
//!
//! A connection is counted into its ranges of addresses, or is parked until they have room; then it is sent, or waits
//! until a worker has room; and is counted out when the worker says that it has ended.
//!
//! Source: Park and Pai, "Connection Conditioning", NSDI 2006, 4.2.

mod destination;
mod guarded;
mod keeping;
mod load;
mod outgoing;
mod receive;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use conditioning::{AddressRange, DelayQueue, Priority, Queue, QueuedItem, ShareLimits, Shares};
use sys::foreign::Foreign;
use wire::{BUNDLES_MAX, Conditioning, Shed};

use destination::{CREDITS_MAX, Destination, SendCondition};
pub use guarded::GuardedConnections;
use outgoing::{CountedClient, Ready, WaitingPartition};
pub use outgoing::{Outgoing, Owner};

/// Which requests are refused for how they look.
pub fn setting(checks: wire::Checks) -> conditioning::checks::Setting {
    use conditioning::checks::Setting;
    match checks {
        wire::Checks::Lenient => Setting::Lenient,
        wire::Checks::Standard => Setting::Standard,
        wire::Checks::Strict => Setting::Strict,
    }
}

/// The shares that the launcher has said.
pub fn share_limits(conditioning: &Conditioning) -> ShareLimits {
    ShareLimits {
        v4: [(8, conditioning.share_8), (16, conditioning.share_16), (24, conditioning.share_24)],
        v6: [(32, conditioning.share_v6_32), (48, conditioning.share_v6_48), (56, conditioning.share_v6_56)],
    }
}

impl WaitingPartition for Dispatcher {
    fn connection_ended(self: Rc<Self>, client: CountedClient, serve_others: &dyn Fn()) {
        self.count_out(client);
        // Those that wait for this room before those that only wait for the share of its client.
        serve_others();
        self.admit_delayed();
        Dispatcher::serve_queue(&self);
    }

    fn serve_queue(&self) {
        Dispatcher::serve_queue(self);
    }

    fn handed_back(&self, stream: Foreign, preread: Vec<u8>) {
        self.owner.handed_back(stream, preread, None);
    }

    fn served(&self, requests: u32) {
        self.owner.served(requests);
    }

    fn waits_since(&self) -> Option<Instant> {
        // Nobody waits for longer than this.
        self.next_deadline().and_then(|deadline| deadline.checked_sub(self.wait_max))
    }
}

/// The workers of one partition, and the connections that wait for one.
pub struct Dispatcher {
    name: RefCell<String>,
    owner: Rc<dyn Owner>,
    /// The newest first.
    destinations: RefCell<Vec<Rc<Destination>>>,
    /// Those that came in this turn of the loop, for which there was room: they leave together at its end.
    outbox: RefCell<VecDeque<Ready>>,
    /// Those that no worker has room for.
    queue: RefCell<Queue<(Outgoing, CountedClient)>>,
    /// Those whose ranges hold their shares already.
    delayed: RefCell<DelayQueue<Outgoing>>,
    shares: RefCell<Option<Shares>>,
    wait_max: Duration,
    waiting_max: usize,
    /// LIMIT: connections that a worker may hold without saying that they have ended: as many as it may have at
    /// once, and the credits that it may have given. One that never says so gets no more, and takes no more memory.
    held_max: usize,
    /// How many connections a guarded server can serve at once, if that is known: it holds no more.
    capacity: Cell<Option<u32>>,
    /// The connections held by a guarded server's processes, if such a server is behind the partition.
    guarded: OnceCell<Rc<GuardedConnections>>,
    next_id: Cell<u64>,
    sweeping: Cell<bool>,
    /// Whether the owner knows that a worker is wanted.
    is_wanted: Cell<bool>,
    /// Whether somebody looks whether the workers keep up.
    watching: Cell<bool>,
    unavailable: Cell<u64>,
    /// Those for which there was no room to park.
    over_share: Cell<u64>,
}

impl Dispatcher {
    /// The way to the partition called `name`, whose connections wait at most `wait_max` for a worker.
    ///
    /// `connections` is how many its owner holds in all; half of them may wait for this partition, so that one
    /// whose workers are stuck leaves room for the others.
    pub fn new(
        name: impl Into<String>,
        wait_max: Duration,
        connections: u32,
        owner: Rc<dyn Owner>,
    ) -> Rc<Self> {
        Rc::new(Self {
            name: RefCell::new(name.into()),
            owner,
            destinations: RefCell::default(),
            outbox: RefCell::default(),
            queue: RefCell::new(Queue::new(Priority::Recency)),
            delayed: RefCell::default(),
            shares: RefCell::default(),
            wait_max,
            waiting_max: connections as usize / 2,
            held_max: connections as usize + CREDITS_MAX as usize,
            capacity: Cell::default(),
            guarded: OnceCell::new(),
            next_id: Cell::new(0),
            sweeping: Cell::new(false),
            is_wanted: Cell::new(false),
            watching: Cell::new(false),
            unavailable: Cell::new(0),
            over_share: Cell::new(0),
        })
    }

    /// Sets what the partition is called from now on in messages.
    pub fn set_name(&self, name: impl Into<String>) {
        *self.name.borrow_mut() = name.into();
    }

    /// Sets in which order those who wait are served, and how much one range of addresses may have, once, before the
    /// first connection. Without a word: by recency, and anything.
    pub fn set_policy(&self, priority: Priority, shares: Option<Shares>) {
        *self.queue.borrow_mut() = Queue::new(priority);
        *self.shares.borrow_mut() = shares;
        self.capacity.get().into_iter().for_each(|capacity| self.shares_of(capacity));
    }

    /// A guarded server can serve so many connections at once: it gets no more, and shares are of them. Whatever
    /// waits then does so here, where it is in order, and not in the channel.
    pub fn limit(&self, capacity: u32) {
        self.capacity.set(Some(capacity));
        // Kept connections would hold places in which others could be served.
        self.guarded.get().into_iter().for_each(|guarded| guarded.keep_nothing());
        self.shares_of(capacity);
    }

    fn held_max(&self) -> usize {
        self.capacity.get().map_or(self.held_max, |capacity| capacity as usize)
    }

    fn shares_of(&self, capacity: u32) {
        self.shares.borrow_mut().iter_mut().for_each(|shares| shares.serving(capacity));
    }

    /// Adds the channel of a worker, which gives credits.
    pub fn attach(self: &Rc<Self>, descriptor: OwnedFd) -> std::io::Result<()> {
        let destination = Destination::new(descriptor, SendCondition::Credits)?;
        self.destinations.borrow_mut().insert(0, destination.clone());
        self.is_wanted.set(false);
        self.count_workers();
        let listening = tokio::task::spawn_local(self.clone().listen(destination.clone()));
        destination.heard_by(listening);
        Ok(())
    }

    /// Adds the channel that all processes of a guarded server share; what they hold they say to `guarded`.
    pub fn attach_shared(
        self: &Rc<Self>,
        descriptor: OwnedFd,
        guarded: &Rc<GuardedConnections>,
    ) -> std::io::Result<()> {
        let this: Rc<dyn WaitingPartition> = self.clone();
        let first = self.guarded.set(guarded.clone()).is_ok();
        if first {
            guarded.add_partition(Rc::downgrade(&this));
        }
        if self.capacity.get().is_some() {
            guarded.keep_nothing();
        }
        self.attach_kind(descriptor, SendCondition::Server(guarded.clone(), Rc::downgrade(&this)))
    }

    /// Adds the channel to a filter.
    pub fn attach_filter(self: &Rc<Self>, descriptor: OwnedFd) -> std::io::Result<()> {
        self.attach_kind(descriptor, SendCondition::Filter)
    }

    fn attach_kind(self: &Rc<Self>, descriptor: OwnedFd, kind: SendCondition) -> std::io::Result<()> {
        let destination = Destination::new(descriptor, kind)?;
        self.destinations.borrow_mut().insert(0, destination.clone());
        tokio::task::spawn_local(self.clone().watch_room(destination));
        Ok(())
    }

    /// Sends nothing more on the channels that there are now; what was sent still arrives.
    pub fn finish(self: &Rc<Self>) {
        self.send_outbox();
        self.destinations.borrow().iter().for_each(|destination| destination.drain());
    }

    /// Has workers hand nothing more back, and waits for what they had on its way: whoever leaves after this loses no
    /// connection. Connections that came can still be sent to them.
    pub async fn refuse(&self) {
        let destinations = self.destinations.borrow().clone();
        for destination in destinations {
            destination.refuse().await;
        }
    }

    /// Sends a connection to a worker that has room, or lets it wait: for its share, then for a worker.
    pub fn send(self: &Rc<Self>, outgoing: Outgoing) {
        let client = outgoing.peer.ip();
        let admitted = self.shares.borrow_mut().as_mut().map(|shares| shares.admit(client).is_ok());
        match admitted {
            None => self.dispatch(outgoing, None, None),
            Some(true) => self.dispatch(outgoing, Some(client), None),
            Some(false) => self.delay(outgoing),
        }
    }

    /// As [`Self::send`], for one whose client's address says nothing.
    pub fn send_uncounted(self: &Rc<Self>, outgoing: Outgoing) {
        self.dispatch(outgoing, None, None);
    }

    /// Adds what was shed here, and how many wait.
    pub fn report(&self, shed: &mut Shed) {
        let delayed = self.delayed.borrow();
        shed.delayed += delayed.delayed_total;
        shed.over_share += delayed.over_share + self.over_share.get();
        shed.unavailable += self.unavailable.get();
        shed.waiting_now += (self.queue.borrow().len() + delayed.len()) as u32;
    }

    /// The ranges of addresses that most of what workers hold belongs to.
    pub fn ranges_held(&self, at_most: usize) -> Vec<(AddressRange, u32)> {
        self.shares.borrow().as_ref().map_or_else(Vec::new, |shares| shares.ranges(at_most))
    }

    /// The ranges of addresses that most of what waits belongs to.
    pub fn ranges_waiting(&self, at_most: usize) -> Vec<(AddressRange, u32)> {
        let mut ranges = self.queue.borrow().ranges(at_most);
        ranges.extend(self.delayed.borrow().ranges(at_most));
        ranges
    }

    fn delay(self: &Rc<Self>, outgoing: Outgoing) {
        let mut delayed = self.delayed.borrow_mut();
        if delayed.len() >= self.waiting_max / 2 {
            drop(delayed);
            self.over_share.set(self.over_share.get() + 1);
            return self.owner.undelivered(outgoing);
        }
        delayed.push(outgoing.peer.ip(), Instant::now() + self.wait_max, outgoing);
        drop(delayed);
        self.keep_deadlines();
    }

    fn dispatch(self: &Rc<Self>, outgoing: Outgoing, client: CountedClient, deadline: Option<Instant>) {
        let ready = Ready { outgoing, client, deadline };
        if !self.queue.borrow().is_empty() {
            self.enqueue(ready);
            // Those who wait may do so although there are credits: the kernel refuses a descriptor when too many
            // are under way. No worker would call for them then.
            return self.serve_queue();
        }
        if self.room() == 0 {
            return self.enqueue(ready);
        }
        let mut outbox = self.outbox.borrow_mut();
        outbox.push_back(ready);
        let count = outbox.len();
        drop(outbox);
        if count >= BUNDLES_MAX {
            self.send_outbox();
        } else if count == 1 {
            let this = self.clone();
            tokio::task::spawn_local(async move { this.send_outbox() });
        }
    }

    /// Sends what has come in this turn of the loop.
    fn send_outbox(self: &Rc<Self>) {
        let mut outbox = self.outbox.take();
        self.send_batch(&mut outbox);
        self.watch_load();
        outbox.into_iter().for_each(|unsent| self.enqueue(unsent));
    }

    /// A client was served, whether it has waited or not. Where those who are served make others wait, it has had its
    /// turn; our own workers mostly take all, so that it is not worth the memory to know whom.
    fn served(&self, address: IpAddr) {
        if self.capacity.get().is_some() {
            self.queue.borrow_mut().served(address);
            self.delayed.borrow_mut().served(address);
        }
    }

    fn enqueue(self: &Rc<Self>, ready: Ready) {
        let Ready { outgoing, client, deadline } = ready;
        if self.queue.borrow().len() >= self.waiting_max {
            return self.give_up(outgoing, client);
        }
        let deadline = deadline.unwrap_or_else(|| Instant::now() + self.wait_max);
        self.queue.borrow_mut().push(outgoing.peer.ip(), deadline, (outgoing, client));
        self.keep_deadlines();
        self.want_worker();
        self.note_full();
        self.watch_load();
    }

    /// Has the owner know that something waits, if there is no worker that could take it.
    fn want_worker(&self) {
        let has_worker = self.destinations.borrow().iter().any(|destination| !destination.is_draining());
        if !has_worker && !self.queue.borrow().is_empty() && !self.is_wanted.replace(true) {
            self.owner.wanted();
        }
    }

    fn give_up(&self, outgoing: Outgoing, client: CountedClient) {
        self.unavailable.set(self.unavailable.get() + 1);
        self.count_out(client);
        self.owner.undelivered(outgoing);
    }

    /// Gives all who wait back to the owner: no worker will come for them.
    pub fn reject_all(self: &Rc<Self>) {
        self.send_outbox();
        // Nobody waits for longer than this.
        let end = Instant::now() + self.wait_max;
        while let Some((outgoing, client)) = self.expired(end) {
            self.count_out(client);
            self.owner.undelivered(outgoing);
        }
        while let Some(outgoing) = self.expired_delayed(end) {
            self.owner.undelivered(outgoing);
        }
    }

    fn keep_deadlines(self: &Rc<Self>) {
        self.guarded.get().into_iter().for_each(|guarded| guarded.something_waits());
        if !self.sweeping.replace(true) {
            tokio::task::spawn_local(self.clone().sweep());
        }
    }

    /// Gives up on those that have waited too long; runs only while somebody waits.
    async fn sweep(self: Rc<Self>) {
        while let Some(first) = self.next_deadline() {
            tokio::time::sleep_until(first.into()).await;
            let now = Instant::now();
            while let Some((outgoing, client)) = self.expired(now) {
                self.give_up(outgoing, client);
            }
            while let Some(outgoing) = self.expired_delayed(now) {
                self.owner.undelivered(outgoing);
            }
            self.admit_delayed();
        }
        self.sweeping.set(false);
    }

    fn next_deadline(&self) -> Option<Instant> {
        let queued = self.queue.borrow_mut().next_deadline();
        queued.into_iter().chain(self.delayed.borrow_mut().next_deadline()).min()
    }

    fn expired(&self, now: Instant) -> Option<(Outgoing, CountedClient)> {
        self.queue.borrow_mut().expired(now).map(|late| late.item)
    }

    fn expired_delayed(&self, now: Instant) -> Option<Outgoing> {
        self.delayed.borrow_mut().expired(now).map(|late| late.item)
    }

    /// How many connections may be sent now in one message.
    fn room(&self) -> usize {
        let held_max = self.held_max();
        let destinations = self.destinations.borrow();
        destinations.iter().map(|destination| destination.room(held_max)).find(|&room| room > 0).unwrap_or(0)
    }

    /// Sends to the workers that have room, the least busy first; leaves those for which there is none.
    fn send_batch(&self, batch: &mut VecDeque<Ready>) {
        let sent = |address| {
            self.served(address);
            self.owner.delivered();
        };
        // One that has room and takes nothing is gone, or full.
        let mut failed: Vec<Rc<Destination>> = Vec::new();
        while !batch.is_empty()
            && let Some((destination, count)) = self.next_destination(batch.len(), &failed)
        {
            if !destination.send_batch(batch, count, &self.next_id, sent) {
                failed.push(destination);
            }
        }
    }

    fn serve_queue(&self) {
        // A client that asks a guarded server for room has its turn when there is some.
        while !self.queue.borrow().is_empty() {
            let room = self.room();
            let mut batch: VecDeque<_> = std::iter::from_fn(|| self.pop()).take(room).collect();
            if batch.is_empty() {
                return;
            }
            self.send_batch(&mut batch);
            if !batch.is_empty() {
                // The last one first: each is the next again.
                return batch.into_iter().rev().for_each(|unsent| self.requeue(unsent));
            }
        }
    }

    fn requeue(&self, ready: Ready) {
        let Ready { outgoing, client, deadline } = ready;
        let deadline = deadline.unwrap_or_else(|| Instant::now() + self.wait_max);
        let waiting = QueuedItem { address: outgoing.peer.ip(), deadline, item: (outgoing, client) };
        self.queue.borrow_mut().requeue(waiting);
    }

    fn pop(&self) -> Option<Ready> {
        let QueuedItem { deadline, item: (outgoing, client), .. } = self.queue.borrow_mut().pop()?;
        Some(Ready { outgoing, client, deadline: Some(deadline) })
    }

    fn count_out(&self, client: CountedClient) {
        if let (Some(client), Some(shares)) = (client, &mut *self.shares.borrow_mut()) {
            shares.release(client);
        }
    }

    /// A worker no longer holds a connection: those that waited for the share of its client may have their turn.
    fn release(self: &Rc<Self>, client: CountedClient) {
        self.count_out(client);
        self.admit_delayed();
    }

    fn admit_delayed(self: &Rc<Self>) {
        while self.queue.borrow().len() < self.waiting_max
            && let Some(QueuedItem { address, deadline, item }) = self.next_admitted()
        {
            self.dispatch(item, Some(address), Some(deadline));
        }
    }

    fn next_admitted(&self) -> Option<QueuedItem<Outgoing>> {
        let mut delayed = self.delayed.borrow_mut();
        match &mut *self.shares.borrow_mut() {
            Some(shares) if !delayed.is_empty() => delayed.pop_admitted(shares),
            _ => None,
        }
    }
}
