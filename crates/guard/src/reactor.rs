//! What every part of the guard acts on: the descriptors that are watched, the server's sockets, the gate.
//!
//! Runs in: the guard. Sees: descriptors from the server's processes, as `listeners` has checked them. Never: waits.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll;
use wire::LauncherToGate;

use crate::gate::Gate;
use crate::listeners::{Listeners, Told};
use crate::stderr_relay::say;
use bulkheadd::error::{Error, during};

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Signals to the guard.
    Signals,
    /// What the server's processes say of their sockets.
    Control,
    /// The end of the command.
    Command,
    /// The gate's end.
    GateEnd,
    /// What the gate says.
    Gate,
    /// What the gate writes to standard error.
    GateStderr,
    /// The end of this filter.
    FilterEnd(u32),
    /// What this filter writes to standard error.
    FilterStderr(u32),
    /// Calls of a server that wait for an answer.
    Calls,
    /// A channel on which a call waits for a connection.
    Waiting,
    /// The end of a process of the server.
    Server(i32),
    /// A channel of the gate's whose other side may have closed.
    End(u32),
}

impl Key {
    /// As a number for epoll: the kind, and which of them.
    pub fn number(self) -> u64 {
        let (kind, which) = match self {
            Self::Signals => (0, 0),
            Self::Control => (1, 0),
            Self::Command => (2, 0),
            Self::GateEnd => (3, 0),
            Self::Gate => (4, 0),
            Self::GateStderr => (5, 0),
            Self::FilterEnd(which) => (6, which),
            Self::FilterStderr(which) => (7, which),
            Self::Calls => (8, 0),
            Self::Waiting => (9, 0),
            Self::Server(which) => (10, which as u32),
            Self::End(which) => (11, which),
        };
        kind << 32 | u64::from(which)
    }

    /// The key of a number that was made so.
    pub fn of(number: u64) -> Self {
        let which = number as u32;
        match number >> 32 {
            0 => Self::Signals,
            1 => Self::Control,
            2 => Self::Command,
            3 => Self::GateEnd,
            4 => Self::Gate,
            5 => Self::GateStderr,
            6 => Self::FilterEnd(which),
            7 => Self::FilterStderr(which),
            8 => Self::Calls,
            9 => Self::Waiting,
            10 => Self::Server(which as i32),
            _ => Self::End(which),
        }
    }
}

/// See the file.
#[derive(Debug)]
pub struct Reactor {
    /// The descriptors that are watched.
    pub epoll: OwnedFd,
    /// The server's sockets.
    pub listeners: Listeners,
    /// The gate.
    pub gate: Gate,
}

impl Reactor {
    /// Watches a descriptor until it is readable.
    pub fn watch(&self, descriptor: impl AsFd, key: Key) -> io::Result<()> {
        let data = epoll::EventData::new_u64(key.number());
        Ok(epoll::add(&self.epoll, descriptor, data, epoll::EventFlags::IN)?)
    }

    /// The same, for what the guard cannot be without.
    pub fn must_watch(&self, descriptor: impl AsFd, key: Key) -> Result<(), Error> {
        self.watch(descriptor, key).map_err(during("watch a descriptor"))
    }

    /// Watches a descriptor no more: closing is not enough where another process has it too.
    pub fn unwatch(&self, descriptor: impl AsFd) {
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// The server listens on `socket`.
    pub fn listening(&mut self, number: u64, socket: OwnedFd) {
        match self.listeners.listening(number, socket) {
            Ok(messages) => self.send(messages),
            Err(error) => say(error),
        }
    }

    /// What is accepted on `number` goes to `end`.
    pub fn accepting(&mut self, number: u64, end: OwnedFd) {
        let came = self.listeners.accepting(number, end);
        self.new_end(came);
    }

    /// A new process of the server speaks on `end`.
    pub fn process(&mut self, end: OwnedFd) {
        let came = self.listeners.process(end);
        self.new_end(came);
    }

    fn new_end(&mut self, came: Result<Option<(u32, Vec<Told>)>, Error>) {
        match came {
            Ok(Some((number, messages))) => {
                self.send(messages);
                // A hang-up is always reported; nothing else is asked for, as the gate reads what comes.
                let data = epoll::EventData::new_u64(Key::End(number).number());
                let watched = self
                    .listeners
                    .end(number)
                    .map(|end| epoll::add(&self.epoll, end, data, epoll::EventFlags::empty()));
                if let Some(Err(error)) = watched {
                    say(format_args!("cannot watch a channel: {error}"));
                }
            }
            Ok(None) => say("a process of the server sent what is no socket or channel, or one too many"),
            Err(error) => say(error),
        }
    }

    /// The server has closed its side of a channel; the number of the socket comes back that is gone with it.
    pub fn closed(&mut self, end: u32) -> Option<u64> {
        if let Some(end) = self.listeners.end(end) {
            // The gate may have it still.
            self.unwatch(end);
        }
        self.listeners.closed(end)
    }

    /// Tells the gate; one that is not there is sent everything when it is.
    pub fn send(&mut self, messages: Vec<Told>) {
        for (message, descriptor) in messages {
            self.gate.send(&message, descriptor);
        }
    }

    /// Asks the gate for what it has shed.
    pub fn ask_for_report(&mut self) {
        self.gate.send(&LauncherToGate::ReportShed {}, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_numbers_and_back() {
        let keys =
            [Key::Signals, Key::GateStderr, Key::FilterEnd(3), Key::Server(i32::MAX), Key::End(u32::MAX)];
        for key in keys {
            assert_eq!(Key::of(key.number()), key);
        }
    }
}
