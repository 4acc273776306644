//! Tracks the connections that were sent to guarded servers: processes that are not ours, which take connections from
//! channels that they share, and each say on a channel of its own which ones they have taken.
//!
//! Runs in: gates. Sees: what such a process says, which may be anything. Never: lets it take more memory than what
//! was sent, or keep the share of a client when it is gone.
//!
//! The numbers of connections are those of one gate, whichever partition (the server's listening socket) they are
//! for: a process takes from all.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use wire::FromGuarded;

use super::keeping::{Keeping, ProcessChannel};
use super::outgoing::{CountedClient, WaitingPartition};
use crate::channel::Channel;

/// LIMIT: connections that are under way without anybody having said that it took them. A channel holds a handful;
/// a process that dies between taking one and saying so leaves one.
const UNDER_WAY_MAX: usize = 256;
/// LIMIT: processes of guarded servers, more than any server has by default.
const PROCESSES_MAX: usize = 4096;
/// How long a connection may be under way to a server that is full: no longer than it takes to say that one was taken.
/// Without an end, processes that died in between would use its capacity up.
const UNDER_WAY_TIME: Duration = Duration::from_secs(30);

/// See the file's head.
pub struct GuardedConnections {
    held: RefCell<HashMap<u64, HeldConnection>>,
    /// Sent, and not known to be taken; the oldest first.
    under_way: RefCell<VecDeque<(u64, Instant)>>,
    /// Partitions that wait for room, because the server holds as many as it can serve; in turn.
    full: RefCell<VecDeque<Weak<dyn WaitingPartition>>>,
    processes: Cell<usize>,
    next_id: Cell<u64>,
    keeping: Rc<Keeping>,
}

impl Default for GuardedConnections {
    /// Nothing is held. Numbers begin anywhere: a process that holds connections of a gate that is gone says their
    /// ends to its successor, for which these are to be the numbers of nothing.
    fn default() -> Self {
        let begin = RandomState::new().hash_one(()) >> 1;
        Self {
            held: RefCell::default(),
            under_way: RefCell::default(),
            full: RefCell::default(),
            processes: Cell::default(),
            next_id: Cell::new(begin),
            keeping: Rc::default(),
        }
    }
}

struct HeldConnection {
    client: CountedClient,
    partition: Weak<dyn WaitingPartition>,
    /// How many processes hold it: those that are forked hold what the one before them held.
    holders: usize,
}

impl GuardedConnections {
    /// Whether the server may have one more, if it can serve so many; `partition` has its turn when it can again.
    pub(super) fn has_room(&self, capacity: usize, partition: &Weak<dyn WaitingPartition>) -> bool {
        let has_room = || self.held.borrow().len() < capacity;
        if has_room() {
            return true;
        }
        self.give_up_late();
        if has_room() {
            return true;
        }
        let mut full = self.full.borrow_mut();
        if !full.iter().any(|other| other.ptr_eq(partition)) {
            full.push_back(partition.clone());
        }
        false
    }

    /// Gives each partition that waits for room a turn, until one of them waits again.
    fn serve_full(&self) {
        while let Some(partition) = self.next_full() {
            if let Some(dispatcher) = partition.upgrade() {
                dispatcher.serve_queue();
            }
            if self.full.borrow().iter().any(|other| other.ptr_eq(&partition)) {
                return;
            }
        }
    }

    fn next_full(&self) -> Option<Weak<dyn WaitingPartition>> {
        self.full.borrow_mut().pop_front()
    }

    pub(super) fn next_id(&self) -> u64 {
        self.next_id.replace(self.next_id.get() + 1)
    }

    /// Lets processes keep connections between two requests whose heads are no longer than that.
    pub fn keep(&self, head_bytes: usize) {
        self.keeping.allow(u32::try_from(head_bytes).unwrap_or(u32::MAX));
    }

    /// Has every connection come back after each request, from now on.
    pub fn keep_nothing(&self) {
        self.keeping.forbid();
    }

    pub(super) fn add_partition(&self, partition: Weak<dyn WaitingPartition>) {
        self.keeping.add_partition(partition);
    }

    pub(super) fn something_waits(&self) {
        self.keeping.something_waits();
    }

    /// A connection is on its way.
    pub(super) fn sent(&self, id: u64, client: CountedClient, partition: &Weak<dyn WaitingPartition>) {
        self.keeping.sent();
        self.held
            .borrow_mut()
            .insert(id, HeldConnection { client, partition: partition.clone(), holders: 0 });
        self.under_way.borrow_mut().push_back((id, Instant::now()));
        if self.under_way.borrow().len() > UNDER_WAY_MAX {
            self.give_up_oldest();
        }
    }

    fn give_up_oldest(&self) {
        let oldest = self.under_way.borrow_mut().pop_front();
        oldest.into_iter().for_each(|(id, _)| self.end(id));
    }

    fn give_up_late(&self) {
        let late = || self.under_way.borrow().front().is_some_and(|(_, at)| at.elapsed() > UNDER_WAY_TIME);
        while late() {
            self.give_up_oldest();
        }
    }

    /// The shared channel of a partition is gone, and what was under way on it.
    pub(super) fn lost(&self, partition: &Weak<dyn WaitingPartition>) {
        let of_it = |(id, _): &(u64, Instant)| {
            self.held.borrow().get(id).is_some_and(|held| held.partition.ptr_eq(partition))
        };
        let (lost, others): (VecDeque<_>, _) = self.under_way.take().into_iter().partition(of_it);
        *self.under_way.borrow_mut() = others;
        lost.into_iter().for_each(|(id, _)| self.end(id));
    }

    /// Hears a new process, whose connections come back to `partition`'s owner.
    ///
    /// # Errors
    /// The event loop cannot watch the channel, or there are too many.
    pub fn attach(
        self: &Rc<Self>,
        descriptor: OwnedFd,
        partition: Rc<dyn WaitingPartition>,
    ) -> std::io::Result<()> {
        if self.processes.get() >= PROCESSES_MAX {
            eprintln!("warning: a guarded server has more than {PROCESSES_MAX} processes; one is not heard");
            return Ok(());
        }
        let channel = Channel::new(descriptor)?;
        self.processes.set(self.processes.get() + 1);
        tokio::task::spawn_local(self.clone().listen(channel, partition));
        Ok(())
    }

    /// Hears one process until it is gone, and then releases what it held.
    async fn listen(self: Rc<Self>, channel: ProcessChannel, partition: Rc<dyn WaitingPartition>) {
        let mut holds = HashSet::new();
        let channel = Rc::new(channel);
        let take = |arrived| {
            match arrived {
                Ok((FromGuarded::Took { id, .. }, None)) => self.took(&mut holds, id),
                Ok((FromGuarded::Done { id }, None)) => self.done(&mut holds, id),
                Ok((FromGuarded::Back { id, preread }, Some(stream))) => {
                    self.done(&mut holds, id);
                    partition.handed_back(stream, preread.0);
                }
                Ok((FromGuarded::Keeps {}, None)) => self.keeping.add_process(&channel),
                Ok((FromGuarded::Served { requests }, None)) => partition.served(requests),
                Ok((FromGuarded::Batch { took, done }, None)) => {
                    took.into_iter().for_each(|id| self.took(&mut holds, id));
                    done.into_iter().for_each(|id| self.done(&mut holds, id));
                }
                _ => return 1,
            }
            0
        };
        channel.receive_all("a process of a guarded server", take).await;
        self.processes.set(self.processes.get() - 1);
        holds.into_iter().for_each(|id| self.end(id));
    }

    fn took(&self, holds: &mut HashSet<u64>, id: u64) {
        if let Some(held) = self.held.borrow_mut().get_mut(&id)
            && holds.insert(id)
        {
            held.holders += 1;
            let mut under_way = self.under_way.borrow_mut();
            // It is among the first ones: they are taken in order.
            if let Some(place) = under_way.iter().position(|(other, _)| *other == id) {
                under_way.remove(place);
            }
        }
    }

    fn done(&self, holds: &mut HashSet<u64>, id: u64) {
        if holds.remove(&id) {
            self.end(id);
        }
    }

    /// One holder less.
    fn end(&self, id: u64) {
        let mut all = self.held.borrow_mut();
        let Some(held) = all.get_mut(&id) else {
            return;
        };
        held.holders = held.holders.saturating_sub(1);
        if held.holders > 0 {
            return;
        }
        let ended = all.remove(&id);
        drop(all);
        if let Some(HeldConnection { client, partition, .. }) = ended
            && let Some(partition) = partition.upgrade()
        {
            partition.connection_ended(client, &|| self.serve_full());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    impl WaitingPartition for Nobody {
        fn connection_ended(self: Rc<Self>, _client: CountedClient, _serve_others: &dyn Fn()) {}
        fn serve_queue(&self) {}
        fn handed_back(&self, _stream: sys::foreign::Foreign, _preread: Vec<u8>) {}
        fn served(&self, _requests: u32) {}
        fn waits_since(&self) -> Option<Instant> {
            None
        }
    }

    #[test]
    fn so_many_processes_are_heard_and_no_more() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let guarded = Rc::new(GuardedConnections::default());
            guarded.processes.set(PROCESSES_MAX - 1);
            let attach = || {
                let (ours, theirs) = sys::seqpacket::pair().unwrap();
                guarded.attach(ours, Rc::new(Nobody)).unwrap();
                theirs
            };
            let last = attach();
            let refused = attach();
            assert_eq!(guarded.processes.get(), PROCESSES_MAX);
            let is_open =
                |end: &OwnedFd| rustix::net::send(end, b"x", rustix::net::SendFlags::NOSIGNAL).is_ok();
            assert!(is_open(&last) && !is_open(&refused));
        });
    }
}
