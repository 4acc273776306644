//! A server that has a name: its addresses, looked up again and again.
//!
//! Runs in: the connector of a site whose servers have names. Sees: addresses that DNS servers name. Never: gives up
//! addresses that were good because a DNS server fails.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use names::{LocalNames, ResolveError, ResolvedAddresses, Search};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout};
use wire::log::Level;

use crate::address::Address;
use crate::member::TargetAddress;

/// LIMIT: how long addresses are used at least, whatever DNS says: one question per name in that time.
const TTL_MIN: Duration = Duration::from_secs(5);
/// LIMIT: how long they are used at most: so late is an operator's correction seen.
const TTL_MAX: Duration = Duration::from_secs(300);
/// LIMIT: the pause after an attempt in vain.
const RETRY: Duration = Duration::from_secs(5);
/// LIMIT: how long addresses are used of a name that is no more, says DNS. A name that is missing for a moment, while
/// somebody edits a zone, does no harm; and nobody sends requests forever to an address that may have a new owner.
const ABSENT_HOLD: Duration = Duration::from_secs(30);
/// LIMIT: names that are looked up at once.
const AT_ONCE: usize = 8;

/// Looks names up.
#[derive(Debug)]
pub struct Resolver {
    names: RefCell<Rc<LocalNames>>,
    changed: Notify,
    turns: Semaphore,
}

impl Resolver {
    /// One that knows so much.
    pub fn new(names: LocalNames) -> Self {
        Self { names: RefCell::new(Rc::new(names)), changed: Notify::new(), turns: Semaphore::new(AT_ONCE) }
    }

    /// Takes what has changed in a file; all names are looked up again.
    pub fn change(&self, change: impl FnOnce(&mut LocalNames)) {
        change(Rc::make_mut(&mut self.names.borrow_mut()));
        self.changed.notify_waiters();
    }

    async fn look_up(&self, name: &str) -> Result<ResolvedAddresses, ResolveError> {
        let _turn = self.turns.acquire().await;
        let names = self.names.borrow().clone();
        names.look_up(name, Search::Short).await
    }
}

/// A name and a port.
#[derive(Debug)]
pub struct NamedServer {
    name: String,
    port: u16,
    /// Both, as people write them.
    shown: Rc<str>,
    members: RefCell<Vec<Rc<TargetAddress>>>,
    is_looked_up: Cell<bool>,
    first: Notify,
    /// Since when there is no such name.
    absent_since: Cell<Option<Instant>>,
    /// The last fault, so that it is logged once.
    fault: RefCell<Option<String>>,
}

impl NamedServer {
    /// A server that nobody has looked up yet.
    pub fn new(name: &str, port: u16) -> Self {
        Self {
            name: name.to_owned(),
            port,
            shown: format!("{name}:{port}").into(),
            members: RefCell::default(),
            is_looked_up: Cell::new(false),
            first: Notify::new(),
            absent_since: Cell::new(None),
            fault: RefCell::default(),
        }
    }

    /// Its addresses as they are now.
    pub(crate) fn members(&self) -> Vec<Rc<TargetAddress>> {
        self.members.borrow().clone()
    }

    /// Waits until it has been looked up once.
    pub(crate) async fn first_answer(&self) {
        loop {
            let first = self.first.notified();
            if self.is_looked_up.get() {
                return;
            }
            first.await;
        }
    }

    /// Looks it up whenever that is due; `moved` hears when it is no longer at some address.
    pub async fn keep(&self, resolver: &Resolver, log: &dyn Fn(Level, String), moved: &dyn Fn()) {
        loop {
            let changed = resolver.changed.notified();
            let before = self.members();
            let pause = match resolver.look_up(&self.name).await {
                Ok(found) => {
                    self.found(&found, log);
                    found.ttl
                }
                Err(why) => {
                    self.not_found(&why, log);
                    Some(RETRY)
                }
            };
            let now = self.members();
            if before.iter().any(|member| !now.iter().any(|other| Rc::ptr_eq(member, other))) {
                moved();
            }
            self.is_looked_up.set(true);
            self.first.notify_waiters();
            match pause {
                Some(pause) => drop(timeout(pause.clamp(TTL_MIN, TTL_MAX), changed).await),
                None => changed.await,
            }
        }
    }

    fn found(&self, found: &ResolvedAddresses, log: &dyn Fn(Level, String)) {
        let before = self.members();
        let members: Vec<_> = found.addresses.iter().map(|ip| self.member(*ip, &before)).collect();
        let is_same = members.len() == before.len()
            && members.iter().all(|member| before.iter().any(|other| Rc::ptr_eq(member, other)));
        self.absent_since.set(None);
        let had_fault = self.fault.take().is_some();
        if had_fault || !is_same {
            log(Level::Info, format!("{} is at {}", self.shown, list(&found.addresses)));
        }
        *self.members.borrow_mut() = members;
    }

    /// One of those before, with what is known of it, or a new one.
    fn member(&self, ip: IpAddr, before: &[Rc<TargetAddress>]) -> Rc<TargetAddress> {
        let address = SocketAddr::new(ip, self.port);
        let known = before.iter().find(|member| member.is_at(address)).cloned();
        known.unwrap_or_else(|| Rc::new(TargetAddress::new(Address::Tcp(address), Some(self.shown.clone()))))
    }

    /// Takes note of an attempt in vain.
    fn not_found(&self, why: &ResolveError, log: &dyn Fn(Level, String)) {
        match why {
            ResolveError::Absent(_) => {
                let now = Instant::now();
                let since = self.absent_since.get().unwrap_or(now);
                self.absent_since.set(Some(since));
                if now.duration_since(since) >= ABSENT_HOLD {
                    self.members.borrow_mut().clear();
                }
            }
            ResolveError::Failed(_) => self.absent_since.set(None),
        }
        let (shown, has) = (&self.shown, !self.members.borrow().is_empty());
        let text = match has {
            true => format!("{shown}: the name {why}; its last addresses are used"),
            false => format!(
                "{shown}: the name {why}; requests for it get 502: correct the name, or have a DNS server or \
                 `/etc/hosts` know it"
            ),
        };
        if self.fault.replace(Some(text.clone())).as_ref() != Some(&text) {
            log(Level::Warning, text);
        }
    }
}

fn list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_for_as_long_as_they_are_good() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let (named, lines) = (NamedServer::new("app.test", 80), RefCell::new(Vec::new()));
            let log = |_, text| lines.borrow_mut().push(text);
            let ips = ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse::<IpAddr>().unwrap());
            let found = |addresses: &[IpAddr]| ResolvedAddresses { addresses: addresses.to_vec(), ttl: None };
            let (failed, absent) =
                (ResolveError::Failed("fails".into()), ResolveError::Absent("is absent".into()));
            named.not_found(&failed, &log);
            assert!(named.members().is_empty() && lines.borrow()[0].contains("502"));
            named.found(&found(&ips), &log);
            assert_eq!(lines.borrow()[1], "app.test:80 is at 192.0.2.1, 192.0.2.2");
            // In another order, they are the same; what is known of each stays.
            let before = named.members();
            named.found(&found(&[ips[1], ips[0]]), &log);
            assert!(Rc::ptr_eq(&named.members()[0], &before[1]) && lines.borrow().len() == 2);
            for _ in 0..100 {
                named.not_found(&failed, &log);
                tokio::time::advance(RETRY).await;
            }
            assert_eq!((named.members().len(), lines.borrow().len()), (2, 3));
            // A name that is missing for a moment, and then for good.
            named.not_found(&absent, &log);
            tokio::time::advance(ABSENT_HOLD).await;
            named.found(&found(&ips[..1]), &log);
            named.not_found(&absent, &log);
            assert_eq!(named.members().len(), 1);
            tokio::time::advance(ABSENT_HOLD).await;
            named.not_found(&absent, &log);
            assert!(named.members().is_empty());
        });
    }
}
