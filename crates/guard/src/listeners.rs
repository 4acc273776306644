//! The sockets of the guarded server, and the channels by which its processes take and return connections.
//!
//! Runs in: the guard. Sees: descriptors and numbers from the server's processes, of which the least trusted may have
//! made them up. Never: lets the gate have a descriptor of another kind than it expects; never reads a channel.
//!
//! The guard keeps a descriptor of every gate's end, so that a new gate goes on where the old one ended, and sees by
//! the hang-up when the server has closed its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketType, sockopt};
use sys::foreign::Foreign;
use wire::{LauncherToGate, NO_PARTITION, Text};

use supervisor::error::Error;
use supervisor::spawn::context::duplicate;

/// LIMIT: sockets that a server listens on at once; nginx with a hundred addresses and 8 processes has 800.
const LISTENERS_MAX: usize = 4096;
/// LIMIT: processes of a server, each with a channel: as many as a gate hears.
const PROCESSES_MAX: usize = 4096;

/// A message to the gate.
pub type GateMessage = (LauncherToGate, Option<OwnedFd>);

/// One socket that the server would accept on, or all of the guard's own.
#[derive(Debug)]
struct GuardedListener {
    /// The server's number for it; `None` for the guard's own.
    number: Option<u64>,
    sockets: Vec<(u16, Foreign)>,
    /// Gate's ends of channels, by the numbers under which their hang-up is noticed.
    shared: Vec<(u32, Foreign)>,
}

/// The settings of all sockets of the server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms {
    /// How many connections the server can serve at once, if that is known.
    pub capacity: Option<u32>,
    /// Whether connections on which filters see no requests may pass them by.
    pub unfiltered: bool,
}

/// Everything that the gate accepts on and sends to.
#[derive(Debug, Default)]
pub struct Listeners {
    /// By partition.
    listeners: BTreeMap<u16, GuardedListener>,
    /// Gate's ends of processes' own channels.
    processes: BTreeMap<u32, Foreign>,
    /// Whether the guard listens itself.
    pub own: bool,
    terms: Terms,
    next_listener: u16,
    next_partition: u16,
    next_end: u32,
    /// How often something has changed that others are told of.
    version: u64,
}

impl Listeners {
    /// With sockets of the guard's own, on which the server's connections come; or without, on the server's.
    pub fn new(own: Vec<OwnedFd>, terms: Terms) -> Self {
        let mut listeners = Self { own: !own.is_empty(), terms, ..Self::default() };
        if listeners.own {
            let sockets = own.into_iter().map(|socket| (listeners.listener(), socket.into())).collect();
            listeners.listeners.insert(0, GuardedListener { number: None, sockets, shared: Vec::new() });
            listeners.next_partition = 1;
        }
        listeners
    }

    /// Whether the server listens on anything.
    pub fn listens(&self) -> bool {
        self.listeners.values().any(|listener| !listener.shared.is_empty())
    }

    /// Another number after each change of what is listened on, and of who takes from it.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The addresses that are listened on, each once.
    pub fn addresses(&self) -> Vec<String> {
        let sockets = self.listeners.values().flat_map(|listener| &listener.sockets);
        let address = |(_, socket): &(u16, Foreign)| {
            SocketAddr::try_from(rustix::net::getsockname(socket).ok()?)
                .ok()
                .map(|address| address.to_string())
        };
        let mut addresses: Vec<String> = sockets.filter_map(address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// The sockets that clients connect to: all, or those that the server calls so.
    pub fn sockets(&self, number: Option<u64>) -> impl Iterator<Item = &Foreign> {
        let asked = move |listener: &&GuardedListener| number.is_none() || listener.number == number;
        self.listeners
            .values()
            .filter(asked)
            .flat_map(|listener| listener.sockets.iter().map(|(_, socket)| socket))
    }

    /// The messages to a gate before it begins.
    pub fn at_first(&self) -> Result<Vec<GateMessage>, Error> {
        let mut messages = Vec::new();
        for (partition, listener) in &self.listeners {
            messages.extend(listener.opened(*partition, self.terms)?);
        }
        Ok(messages)
    }

    /// The messages to a gate once it has begun.
    pub fn then(&self) -> Result<Vec<GateMessage>, Error> {
        let mut messages = Vec::new();
        for (&partition, listener) in &self.listeners {
            for (_, end) in &listener.shared {
                messages.push((LauncherToGate::AttachShared { partition }, Some(duplicate(end)?)));
            }
        }
        let partition = self.any();
        for end in self.processes.values() {
            messages.push((LauncherToGate::AttachProcess { partition }, Some(duplicate(end)?)));
        }
        Ok(messages)
    }

    /// The server listens on `socket`, which it calls `number`.
    pub fn listening(&mut self, number: u64, socket: Foreign) -> Result<Vec<GateMessage>, Error> {
        if self.own || !is_listening(&socket) || self.listeners.len() >= LISTENERS_MAX {
            return Ok(Vec::new());
        }
        let (partition, listener) = (self.partition(number), self.listener());
        let listener =
            GuardedListener { number: Some(number), sockets: vec![(listener, socket)], shared: Vec::new() };
        let messages = listener.opened(partition, self.terms)?;
        self.listeners.insert(partition, listener);
        self.version += 1;
        Ok(messages)
    }

    /// The gate's end of the channel for what is accepted on `number`; the number of this end comes back with it.
    pub fn accepting(&mut self, number: u64, end: Foreign) -> Result<Option<(u32, Vec<GateMessage>)>, Error> {
        if !is_channel(&end) {
            return Ok(None);
        }
        let found =
            self.listeners.iter_mut().find(|(_, listener)| listener.number.is_none_or(|own| own == number));
        let Some((&partition, listener)) = found else {
            return Ok(None);
        };
        self.next_end += 1;
        self.version += 1;
        let messages = vec![(LauncherToGate::AttachShared { partition }, Some(duplicate(&end)?))];
        listener.shared.push((self.next_end, end));
        Ok(Some((self.next_end, messages)))
    }

    /// The gate's end of a new process's own channel.
    pub fn process(&mut self, end: Foreign) -> Result<Option<(u32, Vec<GateMessage>)>, Error> {
        if !is_channel(&end) || self.processes.len() >= PROCESSES_MAX {
            return Ok(None);
        }
        self.next_end += 1;
        let partition = self.any();
        let messages = vec![(LauncherToGate::AttachProcess { partition }, Some(duplicate(&end)?))];
        self.processes.insert(self.next_end, end);
        Ok(Some((self.next_end, messages)))
    }

    /// The end that was numbered so, to be watched.
    pub fn end(&self, number: u32) -> Option<&Foreign> {
        let shared = self.listeners.values().flat_map(|listener| &listener.shared);
        let shared = shared.filter(|(at, _)| *at == number).map(|(_, end)| end).next();
        shared.or_else(|| self.processes.get(&number))
    }

    /// The server's side of an end is closed. The number of the listener comes back if it is gone with it.
    pub fn closed(&mut self, end: u32) -> Option<u64> {
        self.processes.remove(&end);
        let holds = |listener: &GuardedListener| listener.shared.iter().any(|(number, _)| *number == end);
        let (&partition, listener) = self.listeners.iter_mut().find(|(_, listener)| holds(listener))?;
        listener.shared.retain(|(number, _)| *number != end);
        self.version += 1;
        if !listener.shared.is_empty() || listener.number.is_none() {
            return None;
        }
        let listener = self.listeners.remove(&partition)?;
        for (_, socket) in &listener.sockets {
            // The gate has it, too: it must not listen any more, so that the server can at the same address.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
        listener.number
    }

    /// A partition of the server's: its processes take from all, and what they return is nobody's in particular.
    fn any(&self) -> u16 {
        self.listeners.keys().next().copied().unwrap_or(0)
    }

    fn listener(&mut self) -> u16 {
        let number = self.next_listener;
        self.next_listener = number.wrapping_add(1);
        number
    }

    /// The partition of the server's socket `number`: that which it has, or a new one.
    fn partition(&mut self, number: u64) -> u16 {
        let known = self.listeners.iter().find(|(_, listener)| listener.number == Some(number));
        if let Some((&partition, _)) = known {
            return partition;
        }
        while self.listeners.contains_key(&self.next_partition) || self.next_partition == NO_PARTITION {
            self.next_partition = self.next_partition.wrapping_add(1);
        }
        self.next_partition
    }
}

impl GuardedListener {
    fn opened(&self, partition: u16, terms: Terms) -> Result<Vec<GateMessage>, Error> {
        let capacity = terms.capacity.map(|connections| LauncherToGate::Capacity { partition, connections });
        let mut messages: Vec<GateMessage> = capacity.into_iter().map(|message| (message, None)).collect();
        messages.push((LauncherToGate::Name { partition, name: Text::new("the guarded server") }, None));
        for (listener, socket) in &self.sockets {
            messages.push((LauncherToGate::Listen { index: *listener }, Some(duplicate(socket)?)));
            if terms.unfiltered {
                messages.push((LauncherToGate::Unfiltered { listener: *listener }, None));
            }
            let (host, path) = (Text::new("*"), Text::new("/"));
            let (listener, site) = (*listener, NO_PARTITION);
            messages.push((LauncherToGate::Route { listener, host, path, partition, site }, None));
        }
        Ok(messages)
    }
}

/// Whether it is a TCP socket that listens; it does not block from now on, as one of a server may.
fn is_listening(socket: impl AsFd) -> bool {
    is_tcp(&socket)
        && matches!(sockopt::socket_acceptconn(&socket), Ok(true))
        && rustix::io::ioctl_fionbio(&socket, true).is_ok()
}

/// Whether it is a TCP socket, or one that may use several paths, as Go's are: its clients may still use one.
pub fn is_tcp(socket: impl AsFd) -> bool {
    use rustix::net::ipproto::{MPTCP, TCP};
    let family = sockopt::socket_domain(&socket);
    matches!(family, Ok(AddressFamily::INET | AddressFamily::INET6))
        && matches!(sockopt::socket_type(&socket), Ok(SocketType::STREAM))
        && sockopt::socket_protocol(&socket)
            .is_ok_and(|protocol| [Some(TCP), Some(MPTCP)].contains(&protocol))
}

/// Whether it is an end of a channel; it does not block from now on.
fn is_channel(end: impl AsFd) -> bool {
    matches!(sockopt::socket_domain(&end), Ok(AddressFamily::UNIX))
        && matches!(sockopt::socket_type(&end), Ok(SocketType::SEQPACKET))
        && rustix::io::ioctl_fionbio(&end, true).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::net::TcpListener;

    fn socket() -> Foreign {
        OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap()).into()
    }

    fn end() -> Foreign {
        sys::seqpacket::pair().unwrap().0.into()
    }

    fn kinds(messages: &[GateMessage]) -> Vec<&LauncherToGate> {
        messages.iter().map(|(message, _)| message).collect()
    }

    #[test]
    fn each_socket_of_the_server_is_a_partition() {
        let mut listeners = Listeners::new(Vec::new(), Terms::default());
        let messages = listeners.listening(7, socket()).unwrap();
        assert!(matches!(
            kinds(&messages)[..],
            [_, LauncherToGate::Listen { index: 0 }, LauncherToGate::Route { partition: 0, .. }]
        ));
        let (first, messages) = listeners.accepting(7, end()).unwrap().unwrap();
        assert!(matches!(kinds(&messages)[..], [LauncherToGate::AttachShared { partition: 0 }]));
        let messages = listeners.listening(9, socket()).unwrap();
        assert!(matches!(kinds(&messages)[2], LauncherToGate::Route { listener: 1, partition: 1, .. }));
        listeners.accepting(9, end()).unwrap().unwrap();
        assert_eq!(listeners.at_first().unwrap().len(), 6);
        assert_eq!(listeners.then().unwrap().len(), 2);
        assert_eq!(listeners.closed(first), Some(7));
        assert_eq!(listeners.at_first().unwrap().len(), 3);
        assert!(listeners.accepting(7, end()).unwrap().is_none(), "no such socket any more");
    }

    #[test]
    fn with_sockets_of_our_own_all_of_the_servers_are_one() {
        let mut listeners = Listeners::new(vec![socket().into_inner()], Terms::default());
        assert!(listeners.own && !listeners.listens());
        assert!(listeners.listening(3, socket()).unwrap().is_empty());
        let (one, _) = listeners.accepting(3, end()).unwrap().unwrap();
        let (two, _) = listeners.accepting(4, end()).unwrap().unwrap();
        assert_eq!(listeners.then().unwrap().len(), 2);
        assert_eq!((listeners.closed(one), listeners.closed(two)), (None, None));
        assert_eq!(listeners.at_first().unwrap().len(), 3, "clients still come");
    }

    #[test]
    fn the_capacity_is_told_before_anything_comes() {
        let first = |messages: Vec<GateMessage>| messages.into_iter().next().map(|(message, _)| message);
        let mut listeners = Listeners::new(Vec::new(), Terms { capacity: Some(20), unfiltered: true });
        let capacity = LauncherToGate::Capacity { partition: 0, connections: 20 };
        assert_eq!(first(listeners.listening(7, socket()).unwrap()), Some(capacity));
        let again = LauncherToGate::Capacity { partition: 0, connections: 20 };
        let messages = listeners.at_first().unwrap();
        // Before the route, with which accepting begins.
        assert!(matches!(
            kinds(&messages)[3..],
            [LauncherToGate::Unfiltered { listener: 0 }, LauncherToGate::Route { .. }]
        ));
        assert_eq!(first(messages), Some(again));
    }

    #[test]
    fn so_many_sockets_are_taken_and_no_more() {
        let mut listeners = Listeners::new(Vec::new(), Terms::default());
        let taken =
            |number| (number, GuardedListener { number: None, sockets: Vec::new(), shared: Vec::new() });
        listeners.listeners.extend((1..LISTENERS_MAX as u16).map(taken));
        assert!(!listeners.listening(1, socket()).unwrap().is_empty());
        assert_eq!(listeners.listeners.len(), LISTENERS_MAX);
        assert!(listeners.listening(2, socket()).unwrap().is_empty());
    }

    #[test]
    fn what_is_no_socket_is_not_passed_on() {
        let mut listeners = Listeners::new(Vec::new(), Terms::default());
        let file = || Foreign::from(OwnedFd::from(File::open("/dev/null").unwrap()));
        assert!(listeners.listening(1, file()).unwrap().is_empty());
        assert!(listeners.listening(1, end()).unwrap().is_empty());
        listeners.listening(1, socket()).unwrap();
        assert!(listeners.accepting(1, file()).unwrap().is_none());
        assert!(listeners.accepting(1, socket()).unwrap().is_none());
        assert!(listeners.process(file()).unwrap().is_none());
        let (process, messages) = listeners.process(end()).unwrap().unwrap();
        assert!(matches!(kinds(&messages)[..], [LauncherToGate::AttachProcess { .. }]));
        assert!(listeners.end(process).is_some());
        assert_eq!(listeners.closed(process), None);
        assert!(listeners.accepting(1, end()).unwrap().is_some(), "a socket that has no channel yet stays");
    }
}
