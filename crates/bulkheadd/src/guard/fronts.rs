//! What the guarded server listens on, and the channels by which its processes take and return connections.
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
use wire::{LauncherToGate, NO_PARTITION, Text};

use crate::error::Error;
use crate::launch::duplicate;

/// LIMIT: sockets that a server listens on at once; nginx with a hundred addresses and 8 processes has 800.
const FRONTS_MAX: usize = 4096;
/// LIMIT: processes of a server, each with a channel: as many as a gate hears.
const PROCESSES_MAX: usize = 4096;

/// A message to the gate.
pub type Told = (LauncherToGate, Option<OwnedFd>);

/// One socket that the server would accept on, or all of the guard's own.
#[derive(Debug)]
struct Front {
    /// The server's number for it; `None` for the guard's own.
    number: Option<u64>,
    sockets: Vec<(u16, OwnedFd)>,
    /// Gate's ends of channels, by the numbers under which their hang-up is noticed.
    shared: Vec<(u32, OwnedFd)>,
}

/// What holds for all that the server listens on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms {
    /// How many connections the server can serve at once, if that is known.
    pub capacity: Option<u32>,
    /// Whether connections on which filters see no requests may pass them by.
    pub unfiltered: bool,
}

/// Everything that the gate accepts on and sends to.
#[derive(Debug, Default)]
pub struct Fronts {
    /// By partition.
    fronts: BTreeMap<u16, Front>,
    /// Gate's ends of processes' own channels.
    processes: BTreeMap<u32, OwnedFd>,
    /// Whether the guard listens itself.
    own: bool,
    terms: Terms,
    next_listener: u16,
    next_partition: u16,
    next_end: u32,
}

impl Fronts {
    /// With sockets of the guard's own, on which the server's connections come; or without, on the server's.
    pub fn new(own: Vec<(SocketAddr, OwnedFd)>, terms: Terms) -> Self {
        let mut fronts = Self { own: !own.is_empty(), terms, ..Self::default() };
        if fronts.own {
            let sockets = own.into_iter().map(|(_, socket)| (fronts.listener(), socket)).collect();
            fronts.fronts.insert(0, Front { number: None, sockets, shared: Vec::new() });
            fronts.next_partition = 1;
        }
        fronts
    }

    /// Whether the guard listens itself.
    pub fn is_own(&self) -> bool {
        self.own
    }

    /// Whether the server listens on anything.
    pub fn listens(&self) -> bool {
        self.fronts.values().any(|front| !front.shared.is_empty())
    }

    /// What a gate is told before it begins.
    pub fn at_first(&self) -> Result<Vec<Told>, Error> {
        let mut told = Vec::new();
        for (partition, front) in &self.fronts {
            told.extend(front.opened(*partition, self.terms)?);
        }
        Ok(told)
    }

    /// What a gate is told once it has begun.
    pub fn then(&self) -> Result<Vec<Told>, Error> {
        let mut told = Vec::new();
        for (&partition, front) in &self.fronts {
            for (_, end) in &front.shared {
                told.push((LauncherToGate::AttachShared { partition }, Some(duplicate(end)?)));
            }
        }
        let partition = self.any();
        for end in self.processes.values() {
            told.push((LauncherToGate::AttachProcess { partition }, Some(duplicate(end)?)));
        }
        Ok(told)
    }

    /// The server listens on `socket`, which it calls `number`.
    pub fn listening(&mut self, number: u64, socket: OwnedFd) -> Result<Vec<Told>, Error> {
        if self.own || !is_listening(&socket) || self.fronts.len() >= FRONTS_MAX {
            return Ok(Vec::new());
        }
        let (partition, listener) = (self.partition(number), self.listener());
        let front = Front { number: Some(number), sockets: vec![(listener, socket)], shared: Vec::new() };
        let told = front.opened(partition, self.terms)?;
        self.fronts.insert(partition, front);
        Ok(told)
    }

    /// The gate's end of the channel for what is accepted on `number`; the number of this end comes back with it.
    pub fn accepting(&mut self, number: u64, end: OwnedFd) -> Result<Option<(u32, Vec<Told>)>, Error> {
        if !is_channel(&end) {
            return Ok(None);
        }
        let found = self.fronts.iter_mut().find(|(_, front)| front.number.is_none_or(|own| own == number));
        let Some((&partition, front)) = found else {
            return Ok(None);
        };
        self.next_end += 1;
        let told = vec![(LauncherToGate::AttachShared { partition }, Some(duplicate(&end)?))];
        front.shared.push((self.next_end, end));
        Ok(Some((self.next_end, told)))
    }

    /// The gate's end of a new process's own channel.
    pub fn process(&mut self, end: OwnedFd) -> Result<Option<(u32, Vec<Told>)>, Error> {
        if !is_channel(&end) || self.processes.len() >= PROCESSES_MAX {
            return Ok(None);
        }
        self.next_end += 1;
        let partition = self.any();
        let told = vec![(LauncherToGate::AttachProcess { partition }, Some(duplicate(&end)?))];
        self.processes.insert(self.next_end, end);
        Ok(Some((self.next_end, told)))
    }

    /// The end that was numbered so, to be watched.
    pub fn end(&self, number: u32) -> Option<&OwnedFd> {
        let shared = self.fronts.values().flat_map(|front| &front.shared);
        let shared = shared.filter(|(at, _)| *at == number).map(|(_, end)| end).next();
        shared.or_else(|| self.processes.get(&number))
    }

    /// The server's side of an end is closed. The number of the front comes back if it is gone with it.
    pub fn closed(&mut self, end: u32) -> Option<u64> {
        self.processes.remove(&end);
        let holds = |front: &Front| front.shared.iter().any(|(number, _)| *number == end);
        let (&partition, front) = self.fronts.iter_mut().find(|(_, front)| holds(front))?;
        front.shared.retain(|(number, _)| *number != end);
        if !front.shared.is_empty() || front.number.is_none() {
            return None;
        }
        let front = self.fronts.remove(&partition)?;
        for (_, socket) in &front.sockets {
            // The gate has it, too: it must not listen any more, so that the server can at the same address.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
        front.number
    }

    /// A partition of the server's: its processes take from all, and what they return is nobody's in particular.
    fn any(&self) -> u16 {
        self.fronts.keys().next().copied().unwrap_or(0)
    }

    fn listener(&mut self) -> u16 {
        let number = self.next_listener;
        self.next_listener = number.wrapping_add(1);
        number
    }

    /// The partition of the server's socket `number`: that which it has, or a new one.
    fn partition(&mut self, number: u64) -> u16 {
        let known = self.fronts.iter().find(|(_, front)| front.number == Some(number));
        if let Some((&partition, _)) = known {
            return partition;
        }
        while self.fronts.contains_key(&self.next_partition) || self.next_partition == NO_PARTITION {
            self.next_partition = self.next_partition.wrapping_add(1);
        }
        self.next_partition
    }
}

impl Front {
    fn opened(&self, partition: u16, terms: Terms) -> Result<Vec<Told>, Error> {
        let capacity = terms.capacity.map(|connections| LauncherToGate::Capacity { partition, connections });
        let mut told: Vec<Told> = capacity.into_iter().map(|message| (message, None)).collect();
        for (listener, socket) in &self.sockets {
            told.push((LauncherToGate::Listen { index: *listener }, Some(duplicate(socket)?)));
            if terms.unfiltered {
                told.push((LauncherToGate::Unfiltered { listener: *listener }, None));
            }
            let (host, path) = (Text::new("*"), Text::new("/"));
            let (listener, site) = (*listener, NO_PARTITION);
            told.push((LauncherToGate::Route { listener, host, path, partition, site }, None));
        }
        Ok(told)
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

    fn socket() -> OwnedFd {
        TcpListener::bind("127.0.0.1:0").unwrap().into()
    }

    fn end() -> OwnedFd {
        sys::seqpacket::pair().unwrap().0
    }

    fn kinds(told: &[Told]) -> Vec<&LauncherToGate> {
        told.iter().map(|(message, _)| message).collect()
    }

    #[test]
    fn each_socket_of_the_server_is_a_partition() {
        let mut fronts = Fronts::new(Vec::new(), Terms::default());
        let told = fronts.listening(7, socket()).unwrap();
        assert!(matches!(
            kinds(&told)[..],
            [LauncherToGate::Listen { index: 0 }, LauncherToGate::Route { partition: 0, .. }]
        ));
        let (first, told) = fronts.accepting(7, end()).unwrap().unwrap();
        assert!(matches!(kinds(&told)[..], [LauncherToGate::AttachShared { partition: 0 }]));
        let told = fronts.listening(9, socket()).unwrap();
        assert!(matches!(kinds(&told)[1], LauncherToGate::Route { listener: 1, partition: 1, .. }));
        fronts.accepting(9, end()).unwrap().unwrap();
        assert_eq!(fronts.at_first().unwrap().len(), 4);
        assert_eq!(fronts.then().unwrap().len(), 2);
        assert_eq!(fronts.closed(first), Some(7));
        assert_eq!(fronts.at_first().unwrap().len(), 2);
        assert!(fronts.accepting(7, end()).unwrap().is_none(), "no such socket any more");
    }

    #[test]
    fn with_sockets_of_our_own_all_of_the_servers_are_one() {
        let mut fronts = Fronts::new(vec![("127.0.0.1:1".parse().unwrap(), socket())], Terms::default());
        assert!(fronts.is_own() && !fronts.listens());
        assert!(fronts.listening(3, socket()).unwrap().is_empty());
        let (one, _) = fronts.accepting(3, end()).unwrap().unwrap();
        let (two, _) = fronts.accepting(4, end()).unwrap().unwrap();
        assert_eq!(fronts.then().unwrap().len(), 2);
        assert_eq!((fronts.closed(one), fronts.closed(two)), (None, None));
        assert_eq!(fronts.at_first().unwrap().len(), 2, "clients still come");
    }

    #[test]
    fn the_capacity_is_told_before_anything_comes() {
        let first = |told: Vec<Told>| told.into_iter().next().map(|(message, _)| message);
        let mut fronts = Fronts::new(Vec::new(), Terms { capacity: Some(20), unfiltered: true });
        let capacity = LauncherToGate::Capacity { partition: 0, connections: 20 };
        assert_eq!(first(fronts.listening(7, socket()).unwrap()), Some(capacity));
        let again = LauncherToGate::Capacity { partition: 0, connections: 20 };
        let told = fronts.at_first().unwrap();
        // Before the route, with which accepting begins.
        assert!(matches!(
            kinds(&told)[2..],
            [LauncherToGate::Unfiltered { listener: 0 }, LauncherToGate::Route { .. }]
        ));
        assert_eq!(first(told), Some(again));
    }

    #[test]
    fn what_is_no_socket_is_not_passed_on() {
        let mut fronts = Fronts::new(Vec::new(), Terms::default());
        let file = || OwnedFd::from(File::open("/dev/null").unwrap());
        assert!(fronts.listening(1, file()).unwrap().is_empty());
        assert!(fronts.listening(1, end()).unwrap().is_empty());
        fronts.listening(1, socket()).unwrap();
        assert!(fronts.accepting(1, file()).unwrap().is_none());
        assert!(fronts.accepting(1, socket()).unwrap().is_none());
        assert!(fronts.process(file()).unwrap().is_none());
        let (process, told) = fronts.process(end()).unwrap().unwrap();
        assert!(matches!(kinds(&told)[..], [LauncherToGate::AttachProcess { .. }]));
        assert!(fronts.end(process).is_some());
        assert_eq!(fronts.closed(process), None);
        assert!(fronts.accepting(1, end()).unwrap().is_some(), "a socket that has no channel yet stays");
    }
}
