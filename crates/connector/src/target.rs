//! A target: one or several servers of which any will do.
//!
//! Runs in: the connector. Sees: which connections come about. Never: waits without a deadline.
//!
//! A full queue of a Unix socket is a server that is busy, not one that is gone: who wants a connection waits for a
//! place, in the order in which they came, and is not answered with an error at once. Source:
//! `epoll_unixconnect_forgiving` of the web server rwasa (2ton.com.au).

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use tokio::time::{Instant, timeout_at};
use wire::Unreachable;

use crate::address::{Address, ConnectOutcome};
use crate::member::TargetAddress;
use crate::named::NamedServer;

/// Some servers that do the same.
#[derive(Debug, Default)]
pub struct ServerGroup {
    servers: Vec<ConfiguredServer>,
    /// Whose turn it is.
    next: Cell<usize>,
}

/// A server as the operator has named it.
#[derive(Debug)]
enum ConfiguredServer {
    At(Rc<TargetAddress>),
    Named(Rc<NamedServer>),
}

/// The outcome of one round of attempts.
enum Round {
    Connected(OwnedFd, Rc<TargetAddress>),
    /// A server is there whose queue is full.
    Full(Rc<TargetAddress>),
    None(Unreachable),
}

impl ServerGroup {
    /// Adds a server.
    pub fn add(&mut self, address: Address) {
        self.servers.push(ConfiguredServer::At(Rc::new(TargetAddress::new(address, None))));
    }

    /// Adds a server at whatever addresses its name has.
    pub fn add_named(&mut self, named: Rc<NamedServer>) {
        self.servers.push(ConfiguredServer::Named(named));
    }

    /// The servers that have names.
    pub fn named(&self) -> impl Iterator<Item = &Rc<NamedServer>> {
        self.servers.iter().filter_map(|server| match server {
            ConfiguredServer::At(_) => None,
            ConfiguredServer::Named(named) => Some(named),
        })
    }

    /// Whether there is another server that can be asked in the place of one.
    pub(crate) fn has_several(&self) -> bool {
        self.servers.len() > 1 || self.members().len() > 1
    }

    /// A connection to one of the servers, by `deadline`. Changes for the better or the worse are written to `log`.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn connect(&self, deadline: Instant, log: &dyn Fn(String)) -> Result<OwnedFd, Unreachable> {
        self.connect_to_member(deadline, log).await.map(|(socket, _)| socket)
    }

    /// The same, with the server to which it is.
    pub(crate) async fn connect_to_member(
        &self,
        deadline: Instant,
        log: &dyn Fn(String),
    ) -> Result<(OwnedFd, Rc<TargetAddress>), Unreachable> {
        if self.members().is_empty() {
            // At the start nobody has answered yet; later this does not wait.
            let _ = timeout_at(deadline, self.looked_up()).await;
        }
        match self.try_each(deadline, log).await {
            Round::Connected(socket, member) => Ok((socket, member)),
            Round::None(why) => Err(why),
            Round::Full(member) => match timeout_at(deadline, member.wait_for_place()).await {
                Ok(Ok(socket)) => Ok((socket, member)),
                Ok(Err(error)) => Err(member.failed(&error, log)),
                Err(_) => Err(Unreachable::Late),
            },
        }
    }

    /// Sockets that connect with their first bytes, at most so many. Only where there is one server: which of several
    /// it is to be is not known before.
    pub fn aim(&self, count: usize) -> Vec<OwnedFd> {
        let [ConfiguredServer::At(member)] = &*self.servers else { return Vec::new() };
        std::iter::from_fn(|| member.aim()).take(count).collect()
    }

    /// Waits until a name has addresses, or all have been looked up in vain.
    async fn looked_up(&self) {
        for named in self.named() {
            named.first_answer().await;
            if !named.members().is_empty() {
                return;
            }
        }
    }

    /// Tries one server after the other, those that failed lately last.
    async fn try_each(&self, deadline: Instant, log: &dyn Fn(String)) -> Round {
        let nowhere = if self.servers.is_empty() { Unreachable::Unknown } else { Unreachable::Unresolved };
        let (mut full, mut why) = (None, nowhere);
        let order = self.order();
        for (tried, member) in order.iter().enumerate() {
            // Each of those that are left gets its part of what is left of the time.
            let now = Instant::now();
            let part = deadline.saturating_duration_since(now) / (order.len() - tried) as u32;
            match timeout_at(now + part, member.try_once()).await {
                Ok(Ok(ConnectOutcome::Connected(socket))) => {
                    member.succeeded(log);
                    return Round::Connected(socket, member.clone());
                }
                Ok(Ok(ConnectOutcome::Full)) => full = full.or(Some(member.clone())),
                Ok(Err(error)) => why = member.failed(&error, log),
                Err(_) => {
                    member.failed(&io::ErrorKind::TimedOut.into(), log);
                    why = Unreachable::Late;
                }
            }
        }
        full.map_or(Round::None(why), Round::Full)
    }

    /// All addresses of all servers.
    fn members(&self) -> Vec<Rc<TargetAddress>> {
        let of_server = |server: &ConfiguredServer| match server {
            ConfiguredServer::At(member) => vec![member.clone()],
            ConfiguredServer::Named(named) => named.members(),
        };
        self.servers.iter().flat_map(of_server).collect()
    }

    /// In which order the servers are tried: in turn, those that are left out at the end.
    fn order(&self) -> Vec<Rc<TargetAddress>> {
        let mut order = self.members();
        let first = self.next.get();
        self.next.set(first.wrapping_add(1));
        let count = order.len();
        order.rotate_left(first % count.max(1));
        let now = Instant::now();
        order.sort_by_key(|member| member.is_left_out(now));
        order
    }
}
