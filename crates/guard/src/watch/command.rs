//! The command that is guarded: its start, what it says of its sockets, and its end, which is the guard's.
//!
//! Runs in: the guard. Sees: small messages of the command's processes, its exit, signals. Never: waits for the
//! command, or goes on for long without it.

use std::time::{Duration, Instant};

use sys::process::{Child, Exit};
use wire::{Message, ToGuard};

use super::Guard;
use crate::notify::Supervisor;
use crate::reactor::EventSource;
use crate::stderr_relay::say;
use supervisor::error::Error;
use supervisor::foreign::Foreign;

/// How long the gate has for its last report.
const LAST_REPORT: Duration = Duration::from_millis(500);
/// LIMIT: told of the server before others get their turn.
const MESSAGES_PER_TURN: usize = 256;
/// The exit status of shells for a command that a signal has ended, less the signal.
const SIGNAL_BASE: i32 = 128;

impl Guard {
    /// Starts the command, once: when the gate accepts for the first time.
    pub(super) fn start_command(&mut self) -> Result<(), Error> {
        let Some(order) = self.order.take() else {
            return Ok(());
        };
        let running = order.start(&self.context, &self.reactor.gate.spec)?;
        self.reactor.must_watch(&running.control, EventSource::Control, 0)?;
        self.reactor.must_watch(running.child.pidfd(), EventSource::Command, 0)?;
        self.control = Some(running.control);
        self.command = Some(running.child);
        if let Some(listener) = running.listener {
            self.reactor.must_watch(&listener, EventSource::Calls, 0)?;
            self.supervisor = Some(Supervisor::new(listener));
        }
        Ok(())
    }

    pub(super) fn on_signal(&mut self) {
        while let Ok(Some(sent)) = sys::signals::next_sent(&self.signals) {
            self.asked |= sent.ends;
            match &self.command {
                // A terminal's keys reach the command themselves.
                Some(command) if sent.by_process => command.pass_on(sent.number),
                Some(_) => {}
                None if sent.ends => self.end(SIGNAL_BASE + sent.number),
                None => {}
            }
        }
    }

    /// Handles a message of the server's process about its sockets.
    pub(super) fn on_control(&mut self) {
        let mut buffer = [0; 64];
        for _ in 0..MESSAGES_PER_TURN {
            let Some(control) = &self.control else { return };
            let got = match sys::seqpacket::receive(control, &mut buffer) {
                Ok(Some(got)) => got,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => continue,
                Ok(None) | Err(_) => return self.on_control_end(),
            };
            match (ToGuard::decode(&buffer[..got.len]), got.descriptor.map(Foreign::from)) {
                (Ok(ToGuard::Listening { number }), Some(socket)) => self.reactor.listening(number, socket),
                (Ok(ToGuard::Accepting { number }), Some(end)) => self.reactor.accepting(number, end),
                (Ok(ToGuard::Process {}), Some(end)) => self.reactor.process(end),
                _ => say("a process of the server sent a message that makes no sense"),
            }
        }
    }

    /// Nobody is left who could listen or accept.
    fn on_control_end(&mut self) {
        if let Some(control) = self.control.take() {
            self.reactor.unwatch(&control);
            sys::seqpacket::empty(&control);
        }
        if self.command.is_none() {
            self.end(0);
        }
    }

    pub(super) fn on_command_end(&mut self) {
        let Some(Ok(Some(exit))) = self.command.as_ref().map(Child::try_wait) else {
            return;
        };
        if let Some(command) = self.command.take() {
            self.reactor.unwatch(command.pidfd());
        }
        // A server that put itself into the background has left its sockets to a process that goes on.
        let goes_on =
            exit == Exit::Clean && !self.asked && self.control.is_some() && self.reactor.listeners.listens();
        if goes_on {
            return say(
                "the command has ended and left a server in the background, which is guarded until it ends",
            );
        }
        self.end(match exit {
            Exit::Clean => 0,
            Exit::Status(status) => status,
            Exit::Signal(signal) => SIGNAL_BASE + signal,
        });
    }

    /// Begins the end: the gate is asked for its report.
    fn end(&mut self, code: i32) {
        if self.ending.is_none() {
            let timeout = if self.reactor.gate.is_ready() { LAST_REPORT } else { Duration::ZERO };
            self.ending = Some((code as u8, Instant::now() + timeout));
            self.reactor.ask_for_report();
        }
    }

    /// Without a gate the command is of no use; it ends in its own way.
    pub(super) fn give_up(&mut self) {
        match &self.command {
            Some(command) => command.pass_on(rustix::process::Signal::TERM.as_raw()),
            None => self.end(1),
        }
    }
}
