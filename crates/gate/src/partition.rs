//! A partition as a gate sees it: the ways to its workers, and what these say.
//!
//! Runs in: the gate. Sees: connections that workers hand back, which may be compromised. Never: lets those of one
//! partition take the room of others.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use conditioning::{Bans, Exempt, Rate};

use worker::dispatcher::{Dispatcher, Outgoing, Owner};

use crate::answer::{self, Refusal};
use crate::connection::Connection;
use crate::gate::{Gate, Limits};

/// One partition.
pub struct Partition {
    /// Its workers.
    pub dispatcher: Rc<Dispatcher>,
    /// Whether it is answered for with 500.
    broken: Rc<Cell<bool>>,
    /// Whether a server that we only guard is behind it.
    pub guarded: Rc<Cell<bool>>,
    /// Clients whose records failed to decrypt, if there were any.
    ///
    /// SECURITY: only of this partition: a worker that was taken over names whom it likes.
    banned: RefCell<Option<Bans>>,
    /// How much clients ask of its workers, if these have said that of any.
    ///
    /// SECURITY: only of this partition, for the same reason.
    rate: Rc<RefCell<Option<Rate>>>,
}

impl Partition {
    /// The partition called `name`, whose requests are logged as those of `site`.
    pub fn new(gate: &Gate, name: String, site: u16) -> Rc<Self> {
        let guarded = Rc::new(Cell::new(false));
        let broken = Rc::new(Cell::new(false));
        let (gate_of_host, shared) = (gate.me.clone(), Rc::default());
        let rate = Rc::new(RefCell::default());
        let host = Host {
            gate: gate_of_host,
            site,
            shared,
            guarded: guarded.clone(),
            broken: broken.clone(),
            rate: Rc::clone(&rate),
        };
        let Limits { start_timeout, connections, .. } = gate.limits;
        let dispatcher = Dispatcher::new(name, start_timeout, connections, Rc::new(host));
        Rc::new(Self { dispatcher, broken, guarded, banned: RefCell::default(), rate })
    }

    /// Whether requests are answered with 500 here.
    pub fn is_broken(&self) -> bool {
        self.broken.get()
    }

    /// Has requests answered with 500, or not any more; those that wait for a worker as well, for whom none will come.
    pub fn set_broken(&self, broken: bool) {
        self.broken.set(broken);
        if broken {
            self.dispatcher.reject_all();
        }
    }

    /// Refuses a client until then; without a time, no more.
    pub fn ban(&self, client: IpAddr, until: Option<Instant>, now: Instant) {
        let mut banned = self.banned.borrow_mut();
        match until {
            Some(until) => {
                let new = || Bans::new(0, Duration::ZERO, Exempt::default());
                banned.get_or_insert_with(new).ban(client, until, now);
            }
            None => banned.iter_mut().for_each(|banned| banned.pardon(client, now)),
        }
    }

    /// Whether a client is refused.
    pub fn has_banned(&self, client: IpAddr, now: Instant) -> bool {
        self.banned.borrow_mut().as_mut().is_some_and(|banned| banned.is_banned(client, now))
    }
}

impl Partition {
    /// Whether a client may make one more request here now, as far as its workers have said.
    pub fn within_rate(&self, client: IpAddr, now: Instant) -> bool {
        self.rate.borrow_mut().as_mut().is_none_or(|rate| rate.take_if_known(client, now))
    }
}

/// What is told by the workers of a partition.
struct Host {
    gate: Weak<Gate>,
    site: u16,
    /// Connections that its workers handed back and that are still here.
    shared: Rc<Cell<u32>>,
    guarded: Rc<Cell<bool>>,
    broken: Rc<Cell<bool>>,
    rate: Rc<RefCell<Option<Rate>>>,
}

impl Owner for Host {
    fn undelivered(&self, outgoing: Outgoing) {
        if let Some(gate) = self.gate.upgrade() {
            let now = Instant::now();
            let refusal = if self.broken.get() { Refusal::Broken } else { Refusal::Unavailable };
            answer::refuse(&gate, Connection::undelivered(outgoing, now), self.site, refusal, now);
        }
    }

    fn delivered(&self) {
        if let Some(gate) = self.gate.upgrade() {
            gate.drops.note(|shed| shed.admitted += 1);
            gate.connection_closed();
        }
    }

    fn handed_back(&self, stream: OwnedFd, preread: Vec<u8>, client: Option<SocketAddr>) {
        if let Some(gate) = self.gate.upgrade() {
            // All that a guarded server keeps alive idles here, and it is all that this gate is for.
            let share = (!self.guarded.get()).then(|| Share::new(&self.shared));
            Connection::handed_back(&gate, stream, preread, client, share, false);
        }
    }

    fn rate_used(&self, client: IpAddr, used: Duration) -> bool {
        if let Some(gate) = self.gate.upgrade() {
            let mut rate = self.rate.borrow_mut();
            rate.get_or_insert_with(|| gate.policies().rate_of_partition()).record(
                client,
                used,
                Instant::now(),
            );
        }
        true
    }

    fn retiring(&self) {}
}

/// The place of one connection among those that came from the same processes of ours.
pub struct Share(Rc<Cell<u32>>);

impl Share {
    /// One more of them.
    pub fn new(count: &Rc<Cell<u32>>) -> Self {
        count.set(count.get() + 1);
        Self(count.clone())
    }

    /// Whether these connections leave too little room for others.
    ///
    /// LIMIT: an eighth of what the gate may hold. Those that wait come from a worker that retires, and have
    /// nothing to lose but the time of a new connection.
    pub fn exceeds(&self, limits: &Limits) -> bool {
        self.0.get() > (limits.connections / 8).max(1)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
