//! The processes of a server that the guard answers for, and what connections each of them holds.
//!
//! Runs in: the guard, where it answers system calls itself. Sees: numbers of threads and descriptors, from the kernel.
//! Never: takes one process for another; each is known by its pidfd, and gone with it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};
use sys::foreign::Foreign;
use wire::{FromGuarded, Message};

use supervisor::outbox::Outbox;

/// One process.
#[derive(Debug)]
pub struct ServerProcess {
    /// The descriptor by which its end is seen.
    pub pidfd: OwnedFd,
    /// Our end of its channel to the gate, once it has taken something; and what did not fit into it.
    channel: Option<OwnedFd>,
    outbox: Outbox,
    /// Connections that it holds, by its own numbers for them.
    held: HashMap<RawFd, u64>,
}

/// All that are known.
#[derive(Debug, Default)]
pub struct Servers {
    /// By process id.
    servers: HashMap<i32, ServerProcess>,
    /// The processes of threads that have called.
    process_of: HashMap<i32, i32>,
}

impl Servers {
    /// The process to which `thread` belongs; `None` if it is gone.
    pub fn process_of(&mut self, thread: i32) -> Option<i32> {
        // The number may have become another's; asking costs little.
        if let Some(&process) = self.process_of.get(&thread)
            && sys::notify::is_thread_of(process, thread)
        {
            return Some(process);
        }
        let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
        let process = line.trim().parse().ok()?;
        self.process_of.insert(thread, process);
        Some(process)
    }

    /// The process `id`, if it is known.
    pub fn known(&mut self, id: i32) -> Option<&mut ServerProcess> {
        self.servers.get_mut(&id)
    }

    /// The process `id`; `watch` is called with the pidfd of a new one.
    pub fn get(
        &mut self,
        id: i32,
        watch: impl FnOnce(&OwnedFd) -> io::Result<()>,
    ) -> io::Result<&mut ServerProcess> {
        match self.servers.entry(id) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                let pid = Pid::from_raw(id).ok_or(io::ErrorKind::InvalidInput)?;
                let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
                watch(&pidfd)?;
                let (outbox, held) = (Outbox::default(), HashMap::new());
                Ok(new.insert(ServerProcess { pidfd, channel: None, outbox, held }))
            }
        }
    }

    /// It has ended, and with it all that it held.
    pub fn gone(&mut self, id: i32) {
        self.servers.remove(&id);
        self.process_of.retain(|_, process| *process != id);
    }

    /// Says what has waited for room; returns whether something still does.
    pub fn flush(&mut self) -> bool {
        self.servers.values_mut().fold(false, |waits, server| server.flush() | waits)
    }
}

impl ServerProcess {
    /// Another descriptor of what the process has at `number`.
    pub fn descriptor(&self, number: RawFd) -> io::Result<Foreign> {
        Ok(rustix::process::pidfd_getfd(&self.pidfd, number, PidfdGetfdFlags::empty())?.into())
    }

    /// Makes its channel, if it has none; the gate's end is for the gate.
    pub fn connect(&mut self) -> io::Result<Option<OwnedFd>> {
        if self.channel.is_some() {
            return Ok(None);
        }
        let (own, gates) = sys::seqpacket::pair()?;
        self.channel = Some(own);
        Ok(Some(gates))
    }

    /// It has taken a connection, at this number of its own.
    pub fn took(&mut self, number: RawFd, id: u64, peer: std::net::SocketAddr) {
        // It was closed in a way that was not seen, or the number would not be free.
        self.closed(number);
        self.send(&FromGuarded::Took { id, peer }, None);
        self.held.insert(number, id);
    }

    /// It closes what is at this number of its own.
    pub fn closed(&mut self, number: RawFd) {
        if let Some(id) = self.held.remove(&number) {
            self.send(&FromGuarded::Done { id }, None);
        }
    }

    /// Whether a connection is at this number of its own.
    pub fn holds(&self, number: RawFd) -> bool {
        self.held.contains_key(&number)
    }

    /// Gives a connection back that it did not get.
    pub fn back(&mut self, bundle: wire::Bundle, connection: OwnedFd) {
        self.send(&FromGuarded::Took { id: bundle.id, peer: bundle.peer }, None);
        self.send(&FromGuarded::Back { id: bundle.id, preread: bundle.preread }, Some(connection));
    }

    fn send(&mut self, message: &FromGuarded, descriptor: Option<OwnedFd>) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        self.outbox.push(bytes, descriptor.map(Into::into), false);
        self.flush();
    }

    fn flush(&mut self) -> bool {
        let Some(channel) = &self.channel else {
            return false;
        };
        // There is no gate to be told.
        if self.outbox.flush(channel.as_fd()).is_err() {
            self.outbox.clear();
        }
        self.outbox.has_waiting()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(end: &OwnedFd) -> FromGuarded {
        let mut buffer = [0; 64];
        let got = sys::seqpacket::receive(end, &mut buffer).unwrap().unwrap();
        FromGuarded::decode(&buffer[..got.len]).unwrap()
    }

    #[test]
    fn a_process_says_what_it_holds() {
        let own = std::process::id() as i32;
        let mut servers = Servers::default();
        assert_eq!(servers.process_of(own), Some(own));
        assert_eq!(servers.process_of(i32::MAX), None);
        let mut watched = 0;
        let watch = |_: &OwnedFd| {
            watched += 1;
            Ok(())
        };
        let server = servers.get(own, watch).unwrap();
        assert!(server.descriptor(0).is_ok() && server.descriptor(1 << 20).is_err());
        let gate = server.connect().unwrap().unwrap();
        assert!(server.connect().unwrap().is_none());
        let peer = "10.0.0.1:2".parse().unwrap();
        server.took(7, 1, peer);
        assert_eq!(told(&gate), FromGuarded::Took { id: 1, peer });
        // The same number again: the first is gone.
        server.took(7, 2, peer);
        assert_eq!(told(&gate), FromGuarded::Done { id: 1 });
        assert_eq!(told(&gate), FromGuarded::Took { id: 2, peer });
        server.closed(8);
        server.closed(7);
        assert_eq!(told(&gate), FromGuarded::Done { id: 2 });
        servers.get(own, |_| panic!("it is watched")).unwrap();
        servers.gone(own);
        assert_eq!(watched, 1);
        assert!(sys::seqpacket::receive(&gate, &mut [0; 8]).unwrap().is_none(), "the end of the process");
    }

    #[test]
    fn what_does_not_fit_waits() {
        let own = std::process::id() as i32;
        let mut servers = Servers::default();
        let server = servers.get(own, |_| Ok(())).unwrap();
        let gate = server.connect().unwrap().unwrap();
        let peer = "10.0.0.1:2".parse().unwrap();
        for id in 0..5000 {
            server.took(7, id, peer);
        }
        assert!(servers.flush());
        let mut last = None;
        for _ in 0..9999 {
            if let FromGuarded::Took { id, .. } = told(&gate) {
                last = Some(id);
            }
            servers.flush();
        }
        assert_eq!(last, Some(4999));
    }
}
