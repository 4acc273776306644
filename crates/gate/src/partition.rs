//! A partition as a gate sees it: the ways to its workers, and what these say.
//!
//! Runs in: the gate. Sees: connections that workers hand back, which may be compromised. Never: lets those of one
//! partition take the room of others.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use conditioning::{Bans, Exempt, Rate};
use worker::dispatcher::Dispatcher;

use crate::policies::Policies;

/// The state that the owner of a dispatcher and its partition share.
#[derive(Clone, Default)]
pub struct Reports {
    /// Whether the partition is answered for with 500.
    pub broken: Rc<Cell<bool>>,
    /// Whether there is no room for a worker: the partition is answered for with 503.
    pub without_room: Rc<Cell<bool>>,
    /// Whether a server that we only guard is behind the partition.
    pub guarded: Rc<Cell<bool>>,
    /// Whether the launcher has removed the partition.
    pub removed: Rc<Cell<bool>>,
    /// The site in whose log its requests appear.
    pub site: Rc<Cell<u16>>,
    /// How much clients ask of the partition's workers, if these have said that of any.
    pub rate: Rc<RefCell<Option<Rate>>>,
    /// Whether the launcher has been told lately that the partition is in use.
    pub used: Rc<Cell<bool>>,
}

/// One partition.
pub struct Partition {
    /// Its workers.
    pub dispatcher: Rc<Dispatcher>,
    /// Whether it is answered for with 500.
    broken: Rc<Cell<bool>>,
    without_room: Rc<Cell<bool>>,
    /// Whether a server that we only guard is behind it.
    pub guarded: Rc<Cell<bool>>,
    removed: Rc<Cell<bool>>,
    /// The site in whose log its requests appear that are answered for it.
    pub site: Rc<Cell<u16>>,
    /// Clients whose records failed to decrypt, if there were any.
    ///
    /// SECURITY: only of this partition: a worker that was taken over names whom it likes.
    banned: RefCell<Option<Bans>>,
    /// How much clients ask of its workers, if these have said that of any.
    ///
    /// SECURITY: only of this partition, for the same reason.
    rate: Rc<RefCell<Option<Rate>>>,
    /// The offences and requests of clients on connections that its workers have handed back.
    returned: RefCell<Option<ReturnedClients>>,
}

/// Offences and requests on connections that the workers of one partition have handed back.
struct ReturnedClients {
    bans: Bans,
    rate: Rate,
}

impl ReturnedClients {
    fn new(policies: &Policies) -> Self {
        Self { bans: policies.bans_of_partition(), rate: policies.rate_of_partition() }
    }
}

impl Partition {
    /// The partition whose connections `dispatcher` sends to its workers; `reports` is what these say of it.
    pub fn new(dispatcher: Rc<Dispatcher>, reports: &Reports) -> Rc<Self> {
        let Reports { broken, without_room, guarded, removed, site, rate, used: _ } = reports.clone();
        Rc::new(Self {
            dispatcher,
            broken,
            without_room,
            guarded,
            removed,
            site,
            banned: RefCell::default(),
            rate,
            returned: RefCell::default(),
        })
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

    /// Whether requests are answered with 503 here, as there is no room for a worker.
    pub fn is_without_room(&self) -> bool {
        self.without_room.get()
    }

    /// Has requests answered with 503 until a worker is attached; those that wait for one as well.
    pub fn set_without_room(&self) {
        self.without_room.set(true);
        self.dispatcher.reject_all();
    }

    /// Takes the channel to a worker.
    ///
    /// # Errors
    /// It is none.
    pub fn attach(&self, channel: OwnedFd) -> io::Result<()> {
        self.without_room.set(false);
        self.dispatcher.attach(channel)
    }

    /// Whether the launcher has removed the partition: a connection may still come by a route to it.
    pub fn is_removed(&self) -> bool {
        self.removed.get()
    }

    /// Has requests answered as those for a site that there is not; those that wait for a worker as well.
    pub fn remove(&self) {
        self.removed.set(true);
        self.dispatcher.reject_all();
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
        let by_word = self.banned.borrow_mut().as_mut().is_some_and(|banned| banned.is_banned(client, now));
        let mut returned = self.returned.borrow_mut();
        by_word || returned.as_mut().is_some_and(|returned| returned.bans.is_banned(client, now))
    }

    /// Notes that a client has sent what no honest one does, as a worker of this partition would have it.
    pub fn offended(&self, policies: &Policies, client: IpAddr, now: Instant) {
        let mut returned = self.returned.borrow_mut();
        returned.get_or_insert_with(|| ReturnedClients::new(policies)).bans.offences(client, now);
    }

    /// Whether workers of this partition may hand back one more request of this client now.
    pub fn may_return(&self, policies: &Policies, client: IpAddr, now: Instant) -> bool {
        let mut returned = self.returned.borrow_mut();
        returned.get_or_insert_with(|| ReturnedClients::new(policies)).rate.take(client, now)
    }

    /// Whether a client may make one more request here now, as far as its workers have said.
    pub fn within_rate(&self, client: IpAddr, now: Instant) -> bool {
        self.rate.borrow_mut().as_mut().is_none_or(|rate| rate.take_if_known(client, now))
    }
}
