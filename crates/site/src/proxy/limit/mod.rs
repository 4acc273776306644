//! How many requests may be with a backend at once (the servers of one route, or one service), and which of those that
//! wait is next.
//!
//! Untrusted input: addresses of clients. Must never: let those who are slow, however many they are, have every place
//! of the worker, or one range of addresses every place of a backend.
//!
//! A request has a permit from when it is passed on to the end of its answer, or of the tunnel that this opens. Without
//! a number of its own, a backend may have as many requests as places are left by all of them: the first that hangs
//! gets half of the places, the next half of what is left, and a request that needs no backend is served all the while.
//!
//! Of the places of a backend, a range of addresses holds at most its share, as of the connections in a gate. What
//! nobody else uses is lent beyond that, up to [`LENT_MAX`] places and never the last quarter, so that another range
//! finds a place at once; if others have asked within the last seconds, a range has a quarter at most. A request over
//! the limit waits, in a queue by recency of which a range also has at most its share. When a request within its
//! range's share waits, nothing is lent any more, and lent places whose client is being waited for are taken back.

mod lately;
mod permit;
mod stall;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conditioning::{
    AddressRange, ClientOrigin, Exempt, IpNetwork, ItemKey, Priority, Queue, QueuedItem, ShareLimits, Shares,
};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use lately::Lately;

pub use permit::Permit;
pub(crate) use stall::{Side, Stall};

/// The address of clients whose address says nothing: many users are behind it. No share is counted for it.
pub(crate) const ANYBODY: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// With those whose address says nothing among the exempt.
pub(crate) fn but_anybody(mut exempt: Exempt) -> Exempt {
    exempt.0.extend("::/128".parse::<IpNetwork>());
    exempt
}

/// LIMIT: how long a request waits for a place: twice as long as a lent place may stand still, so that one that was
/// taken back is still of use, and well below the 30 s after which browsers and proxies give up.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// LIMIT: how long a client is waited for that holds a lent place while others wait for it: a line that was cut has
/// sent again what was lost (TCP's timeouts of 0.2, 0.4, .. 1.6 s).
const STALL_MAX: Duration = Duration::from_secs(5);
/// How often one that waits looks for a lent place that stands still.
const PRESS_EVERY: Duration = Duration::from_secs(1);
/// LIMIT: places of a backend that are lent to ranges beyond their shares. An exchange with a backend takes some 40
/// KiB, hence 10 MiB. More is for clients of several networks, which have shares of their own.
const LENT_MAX: usize = 256;
/// The part of a backend's places that is never lent: what the widest range has as its share, without `share_max`.
const NOT_LENT: usize = 4;
/// The part of a backend's places that one range has at most while others ask as well.
const QUARTER: usize = 4;
/// The places of a range however few there are, the widest first: a client's neighbours have one as well.
const LEAST: [u32; 3] = [3, 2, 1];
/// LIMIT: after so many at once, memory is given back when a quarter of them is left: some 10 MiB.
const PEAK_MIN: usize = 256;

/// The backend that requests are passed on to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum BackendId {
    /// The servers of the rule with this number.
    Target(u16),
    /// The service of this partition.
    Service(u16),
    /// The site of this partition, to which requests under TLS are relayed.
    Site(u16),
    /// This worker itself, which answers streams of HTTP/2.
    Streams,
}

/// Why a request got no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitRefusal {
    /// So many are with the backend, which is as many as may be, and no place became free in time, or too many wait.
    Busy {
        /// How many.
        held: usize,
    },
    /// The range of the client's address has its share already.
    OverShare,
}

/// Counters of refusals, for `bulkhead status --conditioning`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Requests that had to wait.
    pub delayed: u64,
    /// Requests that were refused because their range had its share.
    pub over_share: u64,
    /// Requests that were refused because nothing was free.
    pub unavailable: u64,
    /// Requests that wait now.
    pub waiting: usize,
}

/// Ranges of addresses, and how many requests of each are with a backend, or wait.
#[derive(Debug)]
pub(crate) struct Ranges {
    pub held: Vec<(AddressRange, u32)>,
    pub waiting: Vec<(AddressRange, u32)>,
}

/// See the file's head.
pub(crate) struct ConcurrencyLimit {
    state: Arc<Mutex<LimitState>>,
}

struct LimitState {
    /// Requests that may be under way, or wait, for all backends.
    places: usize,
    held: usize,
    peak: usize,
    limits: ShareLimits,
    exempt: Exempt,
    priority: Priority,
    backends: BTreeMap<BackendId, BackendPlaces>,
    counts: Counts,
    fallen: Arc<Notify>,
}

type QueuedRequest = oneshot::Sender<Permit>;

struct BackendPlaces {
    /// Where the operator has said how many.
    at_most: Option<usize>,
    held: usize,
    /// Places that are held within shares.
    shares: Shares,
    /// Places that are held beyond shares, and by which range.
    lent: Vec<(Stall, AddressRange)>,
    lately: Lately,
    /// How many bits the addresses of a range have in common, of IPv4 and IPv6.
    bits: [u8; 2],
    queue: Queue<QueuedRequest>,
    /// Waiting requests, by range.
    waiting: Shares,
}

/// A place that was found, to be handed out once nothing is locked: whoever does not want it gives it back at once.
type GrantedPermits = Vec<(QueuedRequest, Permit)>;

enum PermitAnswer {
    Granted(Permit),
    Refused(LimitRefusal),
    Queued(ItemKey, oneshot::Receiver<Permit>),
}

fn lock(state: &Mutex<LimitState>) -> MutexGuard<'_, LimitState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ConcurrencyLimit {
    /// For a worker that may hold `places` connections.
    pub fn new(places: u32) -> Self {
        let state = LimitState {
            places: places as usize,
            held: 0,
            peak: 0,
            limits: ShareLimits::default(),
            exempt: Exempt::default(),
            priority: Priority::Recency,
            backends: BTreeMap::new(),
            counts: Counts::default(),
            fallen: Arc::default(),
        };
        let limit = Self { state: Arc::new(Mutex::new(state)) };
        limit.set_policy(Priority::Recency, ShareLimits::default(), Exempt::default());
        limit
    }

    /// Sets in which order requests wait, and what a range may hold, before the first request.
    pub fn set_policy(&self, priority: Priority, limits: ShareLimits, exempt: Exempt) {
        let mut state = lock(&self.state);
        (state.priority, state.limits, state.exempt) = (priority, limits, but_anybody(exempt));
        let known = std::mem::take(&mut state.backends);
        let known: Vec<_> = known.into_iter().map(|(id, backend)| (id, backend.at_most)).collect();
        known.into_iter().for_each(|(id, at_most)| state.backend(id).at_most = at_most);
    }

    /// Lets `backend` have `requests` at once, whatever is left.
    pub fn set(&self, backend: BackendId, requests: u32) {
        lock(&self.state).backend(backend).at_most = Some(requests as usize);
    }

    /// A place of `backend` that is free now.
    pub fn try_acquire(&self, backend: BackendId, client: IpAddr) -> Result<Permit, LimitRefusal> {
        let mut state = lock(&self.state);
        let refused = match state.grant(&self.state, backend, client) {
            Ok(permit) => return Ok(permit),
            Err(refused) => refused,
        };
        state.counts.note(refused);
        Err(refused)
    }

    /// A place of `backend` that is free now, for one that waits for a place if there is none.
    pub fn grant_now(&self, backend: BackendId, client: IpAddr) -> Option<Permit> {
        lock(&self.state).grant(&self.state, backend, client).ok()
    }

    /// A place of `backend`, which is waited for.
    pub async fn acquire(&self, backend: BackendId, client: IpAddr) -> Result<Permit, LimitRefusal> {
        let (key, mut receiver) = match self.ask(backend, client) {
            PermitAnswer::Granted(permit) => return Ok(permit),
            PermitAnswer::Refused(refused) => return Err(refused),
            PermitAnswer::Queued(key, receiver) => (key, receiver),
        };
        let _waiter = Waiter { state: &self.state, backend, client, key };
        let end = Instant::now() + WAIT_MAX;
        loop {
            let look = end.min(Instant::now() + PRESS_EVERY);
            if let Ok(Ok(permit)) = timeout_at(look, &mut receiver).await {
                return Ok(permit);
            }
            let mut state = lock(&self.state);
            let now = Instant::now();
            let refused = state.backend(backend).refusal(client);
            if now >= end {
                state.counts.note(refused);
                return Err(refused);
            }
            if refused != LimitRefusal::OverShare {
                state.backend(backend).take_back(now);
            }
        }
    }

    fn ask(&self, backend: BackendId, client: IpAddr) -> PermitAnswer {
        let mut state = lock(&self.state);
        let refused = match state.grant(&self.state, backend, client) {
            Ok(permit) => return PermitAnswer::Granted(permit),
            Err(refused) => refused,
        };
        if let Some((key, receiver)) = state.enqueue(backend, client) {
            return PermitAnswer::Queued(key, receiver);
        }
        state.counts.note(refused);
        PermitAnswer::Refused(refused)
    }

    /// How many requests were refused, and how many wait.
    pub fn counts(&self) -> Counts {
        lock(&self.state).counts
    }

    /// The ranges of addresses that most of it belongs to.
    pub fn ranges(&self, at_most: usize) -> Ranges {
        let state = lock(&self.state);
        let all = state.backends.values();
        Ranges {
            held: all.clone().flat_map(|backend| backend.shares.ranges(at_most)).collect(),
            waiting: all.flat_map(|backend| backend.queue.ranges(at_most)).collect(),
        }
    }

    /// Ready each time when many requests were under way and few are left.
    pub fn fallen(&self) -> Arc<Notify> {
        lock(&self.state).fallen.clone()
    }
}

impl Counts {
    fn note(&mut self, refused: LimitRefusal) {
        match refused {
            LimitRefusal::Busy { .. } => self.unavailable += 1,
            LimitRefusal::OverShare => self.over_share += 1,
        }
    }
}

impl LimitState {
    fn backend(&mut self, id: BackendId) -> &mut BackendPlaces {
        let Self { limits, exempt, priority, places, .. } = self;
        self.backends.entry(id).or_insert_with(|| BackendPlaces::new(*limits, exempt, *priority, *places))
    }

    /// How many requests a backend may have now. Requests that wait for the others take places of the worker as well.
    fn capacity(&mut self, id: BackendId) -> usize {
        let (places, all) = (self.places, self.held + self.counts.waiting);
        let backend = self.backend(id);
        let others = all - backend.held - backend.queue.len();
        backend.at_most.unwrap_or(places.saturating_sub(others).div_ceil(2))
    }

    fn grant(
        &mut self,
        own: &Arc<Mutex<Self>>,
        id: BackendId,
        client: IpAddr,
    ) -> Result<Permit, LimitRefusal> {
        let capacity = self.capacity(id);
        let stall = self.backend(id).admit(capacity, client)?;
        Ok(self.permit(own, id, client, stall))
    }

    fn permit(
        &mut self,
        own: &Arc<Mutex<Self>>,
        id: BackendId,
        client: IpAddr,
        stall: Option<Stall>,
    ) -> Permit {
        self.held += 1;
        self.peak = self.peak.max(self.held);
        Permit::new(own.clone(), id, client, stall)
    }

    /// Lets a request wait, if there is room for one more of its range.
    fn enqueue(&mut self, id: BackendId, client: IpAddr) -> Option<(ItemKey, oneshot::Receiver<Permit>)> {
        let left = self.places.saturating_sub(self.held + self.counts.waiting);
        let backend = self.backend(id);
        if backend.queue.len() >= left || backend.waiting.admit(client).is_err() {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        let key = backend.queue.push(client, (Instant::now() + WAIT_MAX).into_std(), sender);
        self.counts.delayed += 1;
        self.counts.waiting += 1;
        Some((key, receiver))
    }

    fn leave_queue(&mut self, id: BackendId, client: IpAddr, key: ItemKey) {
        let backend = self.backend(id);
        if backend.queue.remove(key).is_some() {
            backend.waiting.release(client);
            self.counts.waiting -= 1;
        }
    }

    fn release(&mut self, id: BackendId, client: IpAddr, stall: Option<&Stall>) {
        self.backend(id).release(client, stall);
        self.held -= 1;
        if self.peak >= PEAK_MIN && self.held <= self.peak / 4 {
            self.peak = self.held;
            self.fallen.notify_one();
        }
    }

    /// Finds places for those that wait.
    fn serve(&mut self, own: &Arc<Mutex<Self>>) -> GrantedPermits {
        let mut grants = Vec::new();
        if self.counts.waiting == 0 {
            return grants;
        }
        let awaited = self.backends.iter().filter(|(_, backend)| !backend.queue.is_empty());
        for id in awaited.map(|(id, _)| *id).collect::<Vec<_>>() {
            loop {
                let capacity = self.capacity(id);
                let Some((waiting, stall)) = self.backend(id).next(capacity) else { break };
                self.counts.waiting -= 1;
                grants.push((waiting.item, self.permit(own, id, waiting.address, stall)));
            }
        }
        grants
    }
}

impl BackendPlaces {
    fn new(limits: ShareLimits, exempt: &Exempt, priority: Priority, places: usize) -> Self {
        let shares = |capacity: usize| Shares::new(limits, capacity as u32, exempt.clone()).at_least(LEAST);
        Self {
            at_most: None,
            held: 0,
            shares: shares(places),
            lent: Vec::new(),
            lately: Lately::default(),
            bits: [limits.v4[2].0, limits.v6[2].0],
            queue: Queue::new(priority),
            // As many as may wait where nothing else needs places.
            waiting: shares(places / 2),
        }
    }

    /// Counts a request in; [`Stall`] where its place is lent.
    fn admit(&mut self, capacity: usize, client: IpAddr) -> Result<Option<Stall>, LimitRefusal> {
        self.shares.serving(capacity as u32);
        let (range, now) = (self.range(client), Instant::now());
        self.lately.note(range, now);
        if self.held < capacity && self.shares.admit(client).is_ok() {
            self.held += 1;
            return Ok(None);
        }
        match self.queue.is_empty() && self.lends(capacity, range, now) {
            true => Ok(Some(self.lend(range))),
            false => Err(self.refusal(client)),
        }
    }

    fn range(&self, client: IpAddr) -> AddressRange {
        let origin = ClientOrigin::from(client);
        origin.range(self.bits[usize::from(origin.is_v6())])
    }

    /// Whether a range may be lent one place more.
    fn lends(&self, capacity: usize, range: AddressRange, now: Instant) -> bool {
        if self.lent.len() >= LENT_MAX || self.held >= capacity - capacity / NOT_LENT {
            return false;
        }
        let held =
            || self.lent.iter().filter(|(_, of)| *of == range).count() + self.shares.of(range) as usize;
        self.lately.is_alone(range, now) || held() < (capacity / QUARTER).max(1)
    }

    fn lend(&mut self, range: AddressRange) -> Stall {
        self.held += 1;
        let stall = Stall::default();
        self.lent.push((stall.clone(), range));
        stall
    }

    /// Why a request of `client` has no place.
    fn refusal(&self, client: IpAddr) -> LimitRefusal {
        if self.shares.may(client) { LimitRefusal::Busy { held: self.held } } else { LimitRefusal::OverShare }
    }

    /// The next of those that wait, if there is a place for it.
    fn next(&mut self, capacity: usize) -> Option<(QueuedItem<QueuedRequest>, Option<Stall>)> {
        self.shares.serving(capacity as u32);
        if self.held >= capacity {
            return None;
        }
        let (next, stall) = match self.queue.pop_admitted(&mut self.shares) {
            Some(next) => {
                self.held += 1;
                (next, None)
            }
            None => {
                let next = self.queue.pop()?;
                let range = self.range(next.address);
                if !self.lends(capacity, range, Instant::now()) {
                    self.queue.requeue(next);
                    return None;
                }
                (next, Some(self.lend(range)))
            }
        };
        self.waiting.release(next.address);
        Some((next, stall))
    }

    fn release(&mut self, client: IpAddr, stall: Option<&Stall>) {
        self.held -= 1;
        match stall {
            Some(stall) => self.lent.retain(|(other, _)| !other.is(stall)),
            None => self.shares.release(client),
        }
    }

    /// Takes the lent place back whose client has been waited for for longest, if that is too long.
    fn take_back(&mut self, now: Instant) {
        let since = |stall: &Stall| stall.since().filter(|since| now.duration_since(*since) >= STALL_MAX);
        let lent = self.lent.iter().map(|(stall, _)| stall);
        if let Some(stall) = lent.filter(|one| since(one).is_some()).min_by_key(|one| since(one)) {
            stall.give_up();
        }
    }
}

/// Changes something, and hands out the places that are free after that.
fn settle(own: &Arc<Mutex<LimitState>>, change: impl FnOnce(&mut LimitState)) {
    let grants = {
        let mut state = lock(own);
        change(&mut state);
        state.serve(own)
    };
    for (queued, permit) in grants {
        // One that does not wait any more: its place is free again.
        let _ = queued.send(permit);
    }
}

/// A request that waits; it leaves the queue when this is dropped.
struct Waiter<'a> {
    state: &'a Arc<Mutex<LimitState>>,
    backend: BackendId,
    client: IpAddr,
    key: ItemKey,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        settle(self.state, |state| state.leave_queue(self.backend, self.client, self.key));
    }
}
