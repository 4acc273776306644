//! The file by which commands find this guard.
//!
//! Runs in: the guard. Sees: addresses of sockets. Never: fails a start: what cannot be written down is still guarded.

use std::ffi::OsString;

use instances::{InstanceEntry, InstanceKind, InstanceState, ProcessIdentity, Registration};

use crate::listeners::Listeners;
use crate::stderr_relay::say;

/// See the file's head.
#[derive(Debug)]
pub struct Registry {
    registration: Option<Registration>,
    /// The version of the listeners that the file names, and whether the gate was ready then.
    shown: (u64, bool),
}

impl Registry {
    /// Writes down that `command` is guarded, or the program that has started the guard.
    pub fn new(command: Option<OsString>, listeners: &Listeners) -> Self {
        let entry = |process| InstanceEntry {
            command,
            listeners: listeners.addresses(),
            ..InstanceEntry::new(process, InstanceKind::Guard)
        };
        let entry = ProcessIdentity::own().map(entry).map_err(|error| error.to_string());
        let registration =
            entry.and_then(|entry| Registration::new(entry).map_err(|fault| fault.to_string()));
        if let Err(reason) = &registration {
            say(format_args!("`bulkhead ps` does not show this guard: {reason}"));
        }
        Self { registration: registration.ok(), shown: (listeners.version(), false) }
    }

    /// Has the file say what the server listens on now, and whether connections reach it.
    pub fn keep(&mut self, listeners: &Listeners, is_ready: bool) {
        let now = (listeners.version(), is_ready);
        if self.shown == now {
            return;
        }
        self.shown = now;
        let Some(registration) = &mut self.registration else { return };
        let serves = is_ready && listeners.listens();
        let updated = registration.update(|entry| {
            entry.state = if serves { InstanceState::Serving } else { InstanceState::Starting };
            entry.listeners = listeners.addresses();
        });
        if let Err(fault) = updated {
            say(format_args!("`bulkhead ps` shows this guard as it was: {fault}"));
        }
    }
}
