//! The state that every part of the guard acts on: the descriptors that are watched, the server's sockets, the gate.
//!
//! Runs in: the guard. Sees: descriptors from the server's processes, as `listeners` has checked them. Never: waits.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll;
use sys::foreign::Foreign;
use wire::LauncherToGate;

use crate::gate::GateProcess;
use crate::listeners::{GateMessage, Listeners};
use crate::stderr_relay::say;
use supervisor::error::{Error, during};

/// The object of an event; of some there are several, by a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSource {
    /// Signals to the guard.
    Signals,
    /// Messages of the server's processes about their sockets.
    Control,
    /// The end of the command.
    Command,
    /// The gate's end.
    GateEnd,
    /// Messages of the gate.
    Gate,
    /// The standard error of the gate.
    GateStderr,
    /// The end of this filter.
    FilterEnd,
    /// The standard error of this filter.
    FilterStderr,
    /// Calls of a server that wait for an answer.
    Calls,
    /// A channel on which a call waits for a connection.
    Waiting,
    /// The end of this process of the server.
    Server,
    /// This channel of the gate's, whose other side may have closed.
    End,
    /// A socket that clients connect to, and one has; said once after [`Reactor::await_arrival`].
    Arrival,
}

impl EventSource {
    /// All of them, in their order.
    const ALL: [Self; 13] = [
        Self::Signals,
        Self::Control,
        Self::Command,
        Self::GateEnd,
        Self::Gate,
        Self::GateStderr,
        Self::FilterEnd,
        Self::FilterStderr,
        Self::Calls,
        Self::Waiting,
        Self::Server,
        Self::End,
        Self::Arrival,
    ];

    /// As a number for epoll: the source, and which of them.
    fn key(self, which: u32) -> u64 {
        (self as u64) << 32 | u64::from(which)
    }

    /// The source of an event, and which of them.
    pub fn of(event: &epoll::Event) -> (Self, u32) {
        let number = event.data.u64();
        (Self::ALL[(number >> 32) as usize], number as u32)
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
    pub gate: GateProcess,
}

impl Reactor {
    /// Watches a descriptor until it is readable.
    pub fn watch(&self, descriptor: impl AsFd, source: EventSource, which: u32) -> io::Result<()> {
        let data = epoll::EventData::new_u64(source.key(which));
        Ok(epoll::add(&self.epoll, descriptor, data, epoll::EventFlags::IN)?)
    }

    /// The same, for what the guard cannot be without.
    pub fn must_watch(&self, descriptor: impl AsFd, source: EventSource, which: u32) -> Result<(), Error> {
        self.watch(descriptor, source, which).map_err(during("watch a descriptor"))
    }

    /// Watches a descriptor no more: closing is not enough where another process has it too.
    pub fn unwatch(&self, descriptor: impl AsFd) {
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// The server listens on `socket`.
    pub fn listening(&mut self, number: u64, socket: Foreign) {
        match self.listeners.listening(number, socket) {
            Ok(messages) => {
                self.send(messages);
                self.await_arrival(Some(number));
            }
            Err(error) => say(error),
        }
    }

    /// Has the next connection be seen that waits for the gate: at any socket, or at that which the server calls so. Of
    /// a socket that does not listen any more, one event at most comes after its end.
    pub fn await_arrival(&self, number: Option<u64>) {
        let data = epoll::EventData::new_u64(EventSource::Arrival.key(0));
        let once = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        for socket in self.listeners.sockets(number) {
            if epoll::modify(&self.epoll, socket, data, once) == Err(rustix::io::Errno::NOENT) {
                let _ = epoll::add(&self.epoll, socket, data, once);
            }
        }
    }

    /// Sends connections that are accepted on `number` to `end`.
    pub fn accepting(&mut self, number: u64, end: Foreign) {
        let came = self.listeners.accepting(number, end);
        self.new_end(came);
    }

    /// A new process of the server speaks on `end`.
    pub fn process(&mut self, end: Foreign) {
        let came = self.listeners.process(end);
        self.new_end(came);
    }

    fn new_end(&mut self, came: Result<Option<(u32, Vec<GateMessage>)>, Error>) {
        match came {
            Ok(Some((number, messages))) => {
                self.send(messages);
                // A hang-up is always reported; nothing else is asked for, as the gate reads what comes.
                let data = epoll::EventData::new_u64(EventSource::End.key(number));
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
    pub fn send(&mut self, messages: Vec<GateMessage>) {
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
    fn every_source_has_a_number_of_its_own() {
        for (index, source) in EventSource::ALL.into_iter().enumerate() {
            assert_eq!(source as usize, index);
        }
    }
}
