//! What the launcher waits for: signals, messages and exits of children, pipes into which children print.
//!
//! Runs in: the launcher, as root. Sees: messages of children, which may be compromised: here only their length. Never:
//! lets the nonsense of one child cost another.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use sys::signals::Signal;

use crate::error::{Error, during};
use crate::{ARRIVALS, BEGINNINGS, PIPES, REAPER, SIGNALS, Supervisor, watch};

/// How much nonsense a child may send before it is ended.
const VIOLATIONS_MAX: u32 = 100;

/// Something that has happened.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// The launcher got a signal.
    Signal,
    /// Children have printed something.
    Pipes,
    /// The reaper has ended.
    Reaper,
    /// A child executes its program, or never will.
    Beginning,
    /// A client has connected; said once after [`Supervisor::await_arrival`].
    Arrival,
    /// A child has ended.
    Exit(u64),
    /// A child has sent something, or its channel has room.
    Channel(u64),
}

impl From<&epoll::Event> for Event {
    fn from(event: &epoll::Event) -> Self {
        match event.data.u64() {
            SIGNALS => Self::Signal,
            PIPES => Self::Pipes,
            REAPER => Self::Reaper,
            BEGINNINGS => Self::Beginning,
            ARRIVALS => Self::Arrival,
            key if key % 2 == 1 => Self::Exit(key / 2),
            key => Self::Channel(key / 2),
        }
    }
}

/// What a child has sent.
#[derive(Clone, Copy, Debug)]
pub enum Received {
    /// A message of so many bytes.
    Message(usize),
    /// What no child may send.
    Violation,
    /// Nothing more for now.
    Nothing,
}

/// Waits until something happens to what `epoll` watches, for `left` at most.
pub fn wait(epoll: &OwnedFd, events: &mut Vec<epoll::Event>, left: Option<Duration>) -> Result<(), Error> {
    // A time beyond the kernel's numbers is for ever.
    let timeout = left.and_then(|left| Timespec::try_from(left).ok());
    events.clear();
    match epoll::wait(epoll, rustix::buffer::spare_capacity(events), timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(during("wait for events")(error)),
    }
}

impl Supervisor {
    /// Watches the pipes into which children print, by an epoll of their own.
    pub fn watch_pipes(&self, pipes: &OwnedFd) -> Result<(), Error> {
        watch(&self.epoll, pipes, PIPES)
    }

    /// Has the next connection be seen that waits for a gate at any listening socket; more than one if there are
    /// several sockets.
    pub fn await_arrival(&self) {
        let (data, once) =
            (epoll::EventData::new_u64(ARRIVALS), epoll::EventFlags::IN | epoll::EventFlags::ONESHOT);
        for socket in self.listeners.iter().flatten() {
            if epoll::modify(&self.epoll, socket, data, once) == Err(rustix::io::Errno::NOENT) {
                let _ = epoll::add(&self.epoll, socket, data, once);
            }
        }
    }

    /// Waits until something happens, for `left` at most.
    pub fn wait(&self, events: &mut Vec<epoll::Event>, left: Option<Duration>) -> Result<(), Error> {
        wait(&self.epoll, events, left)
    }

    /// Takes the signals that have come, and begins the end if one asks for it; returns the others.
    pub fn on_signal(&mut self) -> Vec<Signal> {
        let mut asked = Vec::new();
        while let Ok(Some(signal)) = sys::signals::next_signal(&self.signals) {
            if signal == Signal::Stop {
                if self.stopping.is_some() {
                    self.log.warning("asked to stop a second time: ending every process at once");
                    self.processes.values().for_each(|process| process.child.kill());
                }
                self.stop();
            } else {
                asked.push(signal);
            }
        }
        asked
    }

    /// Takes the next message of a child, and sends it what waits.
    pub fn receive(&mut self, serial: u64, buffer: &mut [u8]) -> Received {
        self.flush(serial);
        let Some(control) = self.processes.get(&serial).and_then(|process| process.control()) else {
            return Received::Nothing;
        };
        match control.receive(buffer) {
            Ok(Some(length)) => Received::Message(length),
            // What is there stays there where there is no memory for it; it is asked for again.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::OutOfMemory) => {
                Received::Nothing
            }
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                self.protocol_violation(serial);
                Received::Violation
            }
            Ok(None) | Err(_) => {
                self.on_closed(serial);
                Received::Nothing
            }
        }
    }

    /// A child sent what no child sends. Only the child pays for it.
    pub fn protocol_violation(&mut self, serial: u64) {
        let Some(process) = self.processes.get_mut(&serial) else {
            return;
        };
        process.protocol_violations += 1;
        let title = self.specs[process.slot].title();
        if process.protocol_violations == 1 {
            self.log.warning(format!("{title} sent a message that it may not send"));
        } else if process.protocol_violations == VIOLATIONS_MAX {
            process.child.kill();
            self.log.warning(format!("{title} sent {VIOLATIONS_MAX} such messages and was ended"));
        }
    }
}
