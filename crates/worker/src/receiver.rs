//! Connections that arrive from a gate or from a site's worker, and the credits against which they are sent.
//!
//! Runs in: site and service workers. Sees: bundles from gates (which see the network) and, in a service, from
//! its site's worker; in a site, from the worker of the site that has the certificate of its host. Never: takes more
//! connections than its limit; keeps silent about one that ended.
//!
//! Sources: Park and Pai, "Connection Conditioning", NSDI 2006 (bundles); Krohn, "Building Secure High-Performance Web
//! Services with OKWS", USENIX ATC 2004,
//! 4.1-4.2 (forwarded descriptors).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::time::Duration;

use sys::foreign::{connection, leave};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use wire::{Bundle, Bytes, FromWorker, Kind, NUMBERLESS, NUMBERS_MAX, PREREAD_MAX, ToWorker};

use crate::channel::Channel;
use crate::counters::Counters;

/// How many connections one source may have on their way at once, at first and when little comes.
///
/// LIMIT: enough that a source need not wait for a turn of the worker's loop under load; small enough that the
/// queue of connections stays where it can still be ordered, in the source. OKWS: 100 in transit per service.
const CREDITS: u16 = 64;

/// How many it may have on their way while it uses all that it is given, and the worker has room for them.
///
/// LIMIT: a turn of the loop of a worker with thousands of busy connections takes tens of milliseconds, and brings at
/// most so many new ones. More would be more than a worker that hangs takes down with it.
const CREDITS_BURST: u16 = 512;

/// LIMIT: how long a connection that no gate takes is kept for a gate that is about to be attached. A gate leaves once
/// its successor's channels are under way; a busy worker reads of them within a turn of its loop.
const RETURN_TIME: Duration = Duration::from_secs(1);

type SourceChannel = Channel<ToWorker, FromWorker>;

/// All sources of one worker.
#[derive(Debug)]
pub struct Receiver {
    sources: RefCell<Vec<Rc<ReceiverSource>>>,
    arrived: RefCell<VecDeque<Arrival>>,
    arrival: Notify,
    /// The worker retires, or has no connection any more. A task that waits for the first is woken for nothing else: a
    /// connection does not look again for what it was woken.
    changed: Notify,
    /// There is another source, or there will be none.
    attached: Notify,
    /// Since when it retires.
    drains_since: Cell<Option<Instant>>,
    live: Cell<u32>,
    live_max: u32,
    /// The counts that `bulkhead status` shows.
    pub counters: Rc<Counters>,
}

/// One source.
#[derive(Debug)]
struct ReceiverSource {
    channel: SourceChannel,
    /// Whether it relays requests of several clients on each connection.
    relays: bool,
    /// The returns to be reported to it.
    returns: RefCell<Returns>,
    /// Credits that the source has and has not used.
    granted: Cell<u32>,
    /// How many it may have at most: [`CREDITS`] to [`CREDITS_BURST`]; 0 before the first ones.
    window: Cell<u16>,
    ended: Cell<bool>,
    /// Whether it takes nothing back: it leaves.
    refuses: Cell<bool>,
}

/// The returns that a source has not been told since the last message.
#[derive(Debug, Default)]
struct Returns {
    /// Whether connections have arrived: it waits for a word, also if their credits do not come back.
    has_taken: bool,
    credits: u16,
    /// The numbers of connections that have ended.
    done: Vec<u64>,
}

impl Returns {
    fn is_empty(&self) -> bool {
        !self.has_taken && self.credits == 0 && self.done.is_empty()
    }
}

/// A connection that has arrived.
#[derive(Debug)]
pub struct Arrival {
    /// Its descriptor: a client's TCP connection or, if relayed, one end of a pair.
    pub stream: OwnedFd,
    /// Bytes that were read from it already.
    pub preread: Vec<u8>,
    /// The client.
    pub peer: SocketAddr,
    /// The address of ours that it connected to.
    pub local: SocketAddr,
    /// Whether a site worker is at the other end.
    pub relayed: bool,
    /// The protocol spoken on it, as its source says.
    pub kind: Kind,
    /// Says that the connection ended when dropped.
    pub guard: ConnectionGuard,
}

/// A connection's place in the worker; dropping it tells the source that the connection ended.
#[derive(Debug)]
pub struct ConnectionGuard {
    id: u64,
    from: Weak<ReceiverSource>,
    receiver: Rc<Receiver>,
}

impl Receiver {
    /// Makes the meeting point of all sources; the worker holds at most `live_max` connections at once.
    pub fn new(live_max: u32) -> Rc<Self> {
        Rc::new(Self {
            sources: RefCell::default(),
            arrived: RefCell::default(),
            arrival: Notify::new(),
            changed: Notify::new(),
            attached: Notify::new(),
            drains_since: Cell::new(None),
            live: Cell::new(0),
            live_max,
            counters: Rc::default(),
        })
    }

    /// Adds a source and grants it its first credits.
    pub fn attach(self: &Rc<Self>, descriptor: OwnedFd, relays: bool) -> std::io::Result<()> {
        let source = Rc::new(ReceiverSource {
            channel: Channel::new(descriptor)?,
            relays,
            returns: RefCell::new(Returns { credits: CREDITS, ..Returns::default() }),
            granted: Cell::new(0),
            window: Cell::new(0),
            ended: Cell::new(false),
            refuses: Cell::new(false),
        });
        self.sources.borrow_mut().push(source.clone());
        self.attached.notify_waiters();
        if self.draining() {
            let _ = source.channel.try_send(&FromWorker::Drain {}, None);
        } else {
            tokio::task::spawn_local(self.clone().flush(source.clone()));
        }
        tokio::task::spawn_local(self.clone().listen(source));
        Ok(())
    }

    /// The next connection; `None` once the worker drains and every source has said its last.
    pub async fn next(&self) -> Option<Arrival> {
        loop {
            if let Some(arrival) = self.arrived.borrow_mut().pop_front() {
                return Some(arrival);
            }
            if self.draining() && self.sources.borrow().iter().all(|source| source.ended.get()) {
                return None;
            }
            self.arrival.notified().await;
        }
    }

    /// Asks every source to send no more; what is under way still arrives.
    pub fn drain(&self) {
        self.drains_since.set(self.drains_since.get().or_else(|| Some(Instant::now())));
        for source in self.sources.borrow().iter() {
            let _ = source.channel.try_send(&FromWorker::Drain {}, None);
        }
        self.arrival.notify_one();
        self.changed.notify_waiters();
        self.attached.notify_waiters();
    }

    /// Says something to every gate that has room for it now.
    pub fn notify_gates(&self, message: &FromWorker) {
        for source in self.sources.borrow().iter().filter(|source| !source.relays && !source.ended.get()) {
            let _ = source.channel.try_send(message, None);
        }
    }

    /// Whether the worker retires.
    pub fn draining(&self) -> bool {
        self.drains_since.get().is_some()
    }

    /// Since when it does.
    pub fn drains_since(&self) -> Option<std::time::Instant> {
        self.drains_since.get().map(Instant::into_std)
    }

    /// Waits until the worker retires.
    pub async fn drained(&self) {
        while !self.draining() {
            self.changed.notified().await;
        }
    }

    /// Waits until no connection is left.
    pub async fn idle(&self) {
        while self.live.get() > 0 {
            self.changed.notified().await;
        }
    }

    /// Waits until there has been no connection for `time`, of which it looks at so many `steps`: whoever serves need
    /// not look at the clock.
    pub async fn rested(&self, time: Duration, steps: u32) {
        let (mut quiet, mut seen) = (0, self.counters.snapshot().connections);
        while quiet < steps {
            tokio::time::sleep(time / steps).await;
            let now = self.counters.snapshot().connections;
            quiet = if self.live.get() == 0 && now == seen { quiet + 1 } else { 0 };
            seen = now;
        }
    }

    /// Receives what one source sends until it closes or misbehaves.
    async fn listen(self: Rc<Self>, source: Rc<ReceiverSource>) {
        let name = if source.relays { "the worker that relays to it" } else { "a gate" };
        let mut descriptors = Vec::new();
        loop {
            let taken = match source.channel.receive_many(&mut descriptors).await {
                Ok(None) => break,
                Ok(Some(ToWorker::Connection { bundle })) => {
                    self.take(&source, std::iter::once(bundle), &mut descriptors)
                }
                Ok(Some(ToWorker::Connections { bundles })) => {
                    self.take(&source, bundles.0.into_iter(), &mut descriptors)
                }
                Err(error) => {
                    eprintln!("warning: {name} sends what is no connection: {error}; its channel is closed");
                    break;
                }
            };
            if let Err(violation) = taken {
                eprintln!("warning: {name} sends {violation}; its channel is closed");
                break;
            }
            if source.granted.get() == 0 {
                // The source waits for it, and a turn of the loop is long while many connections are busy.
                self.send_returns(&source).await;
            }
        }
        // SECURITY: whoever has sent them decides how long their closing takes.
        descriptors.drain(..).for_each(leave);
        source.ended.set(true);
        if !self.draining() {
            self.sources.borrow_mut().retain(|other| !Rc::ptr_eq(other, &source));
        }
        self.arrival.notify_one();
    }

    /// Takes the connections of one message in: all of them, or none and why.
    fn take(
        self: &Rc<Self>,
        source: &Rc<ReceiverSource>,
        bundles: impl ExactSizeIterator<Item = Bundle>,
        descriptors: &mut Vec<OwnedFd>,
    ) -> Result<(), &'static str> {
        let count = bundles.len() as u32;
        let Some(left) = source.granted.get().checked_sub(count) else {
            return Err("more connections than it has credits for");
        };
        if count == 0 || descriptors.len() != bundles.len() {
            return Err("a bundle without a connection, or a connection without a bundle");
        }
        source.granted.set(left);
        let mut arrived = self.arrived.borrow_mut();
        for (bundle, descriptor) in bundles.zip(descriptors.drain(..)) {
            self.live.set(self.live.get() + 1);
            self.counters.connected();
            let guard =
                ConnectionGuard { id: bundle.id, from: Rc::downgrade(source), receiver: self.clone() };
            // SECURITY: the source may have it from somebody else, and goes on. The connection is over at once.
            if let Ok(stream) = connection(descriptor).map(OwnedFd::from) {
                arrived.push_back(Arrival {
                    stream,
                    preread: bundle.preread.0,
                    peer: bundle.peer,
                    local: bundle.local,
                    relayed: source.relays,
                    kind: bundle.kind,
                    guard,
                });
            }
            let credits = u16::from(self.live.get() <= self.live_max);
            self.queue_return(source, |returns| {
                returns.has_taken = true;
                returns.credits += credits;
            });
        }
        drop(arrived);
        self.arrival.notify_one();
        Ok(())
    }

    /// Notes something to be returned to a source, and sees to it that it is sent once per turn of the loop.
    fn queue_return(self: &Rc<Self>, source: &Rc<ReceiverSource>, note: impl FnOnce(&mut Returns)) {
        let mut returns = source.returns.borrow_mut();
        let nothing_pending = returns.is_empty();
        note(&mut returns);
        if nothing_pending {
            tokio::task::spawn_local(self.clone().flush(source.clone()));
        }
    }

    /// Sends what is to be returned to a source.
    async fn flush(self: Rc<Self>, source: Rc<ReceiverSource>) {
        // A turn of the loop later, what the same turn brings is in the same message.
        tokio::task::yield_now().await;
        self.send_returns(&source).await;
    }

    async fn send_returns(&self, source: &ReceiverSource) {
        loop {
            let Returns { has_taken, credits, mut done } = source.returns.take();
            let rest = done.split_off(done.len().min(NUMBERS_MAX));
            source.returns.borrow_mut().done = rest;
            let is_draining = self.draining();
            let has_taken = has_taken && !is_draining;
            let credits = if is_draining { 0 } else { self.adapted(source, credits) };
            if !has_taken && credits == 0 && done.is_empty() {
                return;
            }
            // Before they are sent: they may be used before this is gone on with.
            source.granted.set(source.granted.get() + u32::from(credits));
            if source.channel.send(&FromWorker::Returns { credits, done }, None).await.is_err() {
                return;
            }
        }
    }

    /// How many credits are to be returned to a source in the place of `credits`: more if it has used up all of them,
    /// so that others wait there, and there is room for them; fewer when it does not need them any more.
    fn adapted(&self, source: &ReceiverSource, credits: u16) -> u16 {
        let window = source.window.get();
        if window == 0 {
            source.window.set(CREDITS);
            return credits;
        }
        let used = u32::from(window).saturating_sub(source.granted.get());
        let room = self.live_max.saturating_sub(self.live.get());
        let adapted = if credits == 0 {
            window
        } else if source.granted.get() == 0 && room >= 2 * u32::from(window) {
            (window * 2).min(CREDITS_BURST)
        } else if room < u32::from(window) || used < u32::from(window / 4) {
            (window - credits.min(window)).max(CREDITS)
        } else {
            window
        };
        source.window.set(adapted);
        // INVARIANT: what the window shrinks by are credits that are not returned.
        credits + adapted - window
    }

    /// The source to hand `guard`'s connection back to: where it came from, or else the newest gate: an older one may
    /// have a successor and be about to end.
    fn return_path(&self, guard: &ConnectionGuard) -> Option<Rc<ReceiverSource>> {
        let takes = |source: &Rc<ReceiverSource>| !source.relays && !source.refuses.get();
        guard
            .from
            .upgrade()
            .filter(|source| takes(source) && !source.ended.get())
            .or_else(|| self.sources.borrow().iter().rfind(|source| takes(source)).cloned())
    }

    /// As [`Self::return_path`], and waits until `deadline` for a source to be attached if there is none. A worker that
    /// retires does not wait: at the end of everything, there are no gates any more.
    async fn return_path_until(
        &self,
        guard: &ConnectionGuard,
        deadline: Instant,
    ) -> Option<Rc<ReceiverSource>> {
        loop {
            let found = self.return_path(guard);
            if found.is_some() || self.draining() {
                return found;
            }
            timeout_at(deadline, self.attached.notified()).await.ok()?;
        }
    }
}

impl ConnectionGuard {
    /// Hands the connection back with the bytes already read from it.
    ///
    /// # Errors
    /// The connection, when there is no gate to take it, nor one within a moment, or too much was read.
    pub async fn hand_back(self, stream: OwnedFd, preread: Vec<u8>) -> Result<(), OwnedFd> {
        if preread.len() > PREREAD_MAX {
            return Err(stream);
        }
        let mut message = FromWorker::Back { id: NUMBERLESS, preread: Bytes(preread) };
        let deadline = Instant::now() + RETURN_TIME;
        while let Some(source) = self.receiver.return_path_until(&self, deadline).await {
            let ours = self.from.upgrade().is_some_and(|from| Rc::ptr_eq(&from, &source));
            if let FromWorker::Back { id, .. } = &mut message {
                // To another source, this one's number would be somebody else's.
                *id = if ours { self.id } else { NUMBERLESS };
            }
            if source.channel.send(&message, Some(stream.as_fd())).await.is_ok() {
                return Ok(());
            }
            // A gate that leaves has stopped to take anything; its successor takes it.
            source.refuses.set(true);
        }
        Err(stream)
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let receiver = self.receiver.clone();
        let was_full = receiver.live.get() > receiver.live_max;
        receiver.live.set(receiver.live.get() - 1);
        receiver.counters.disconnected();
        if let Some(source) = self.from.upgrade().filter(|source| !source.ended.get()) {
            receiver.queue_return(&source, |returns| {
                returns.credits += u16::from(was_full);
                returns.done.push(self.id);
            });
        }
        if receiver.live.get() == 0 {
            receiver.changed.notify_waiters();
        }
    }
}
