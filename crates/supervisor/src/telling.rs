//! Telling processes something. One that cannot be told is ended.
//!
//! Runs in: the launcher, as root. Sees no untrusted bytes. Never: waits for a process; leaves one that lacks a message.

use std::fmt::Display;
use std::os::fd::OwnedFd;

use rustix::event::epoll;
use wire::{LauncherToAdmin, Message, Outcome, Role, Text};

use crate::Supervisor;
use crate::outbox::Passed;
use crate::process::Process;

impl Supervisor {
    /// Answers a command of the administrator.
    pub fn answer(&mut self, ticket: u32, outcome: Outcome, reason: &str) {
        let current = self.specs.iter().position(|spec| spec.role == Role::Admin);
        if let Some(admin) = current.and_then(|slot| self.slots[slot].current) {
            self.answer_to(admin, ticket, outcome, reason);
        }
    }

    /// Answers a command that came from this admin process.
    pub fn answer_to(&mut self, admin: u64, ticket: u32, outcome: Outcome, reason: &str) {
        let answer = LauncherToAdmin::Answer { ticket, outcome, reason: Text::new(reason) };
        self.send(admin, &answer, None);
    }

    /// Sends a message to a process, now or as soon as its channel has room; ends a process that does not keep up.
    pub fn send(&mut self, serial: u64, message: &impl Message, descriptor: Option<OwnedFd>) {
        self.pass(serial, message, descriptor.map(Passed::Own));
    }

    /// The same, with a descriptor that the launcher may keep.
    pub fn pass(&mut self, serial: u64, message: &impl Message, descriptor: Option<Passed>) {
        let Some(process) = self.processes.get_mut(&serial) else {
            return;
        };
        let sent = process.send(message, descriptor);
        if process.has_waiting() {
            self.unsent.insert(serial);
        }
        if let Err(why) = sent {
            self.log_cut_off(serial, &why);
        }
    }

    /// Sends a process what waits for it, as far as there is room.
    pub(crate) fn flush(&mut self, serial: u64) {
        if let Some(Err(why)) = self.processes.get_mut(&serial).map(Process::flush) {
            self.log_cut_off(serial, &why);
        }
    }

    /// Ends a process that goes on with what was, as it could not be told of a change; its successor is told all.
    pub fn cut_off(&mut self, serial: u64, why: &impl Display) {
        if let Some(process) = self.processes.get_mut(&serial) {
            process.cut_off();
            self.log_cut_off(serial, why);
        }
    }

    fn log_cut_off(&mut self, serial: u64, why: &impl Display) {
        let (pid, title) = (self.processes[&serial].child.pid, self.spec_of(serial).title());
        self.log.warning(format!("{title} (pid {pid}) {why} and was ended"));
    }

    /// Watches the channels for room to which something waits to be sent.
    pub fn watch_for_room(&mut self) {
        let candidates: Vec<u64> = self.unsent.union(&self.watched).copied().collect();
        for serial in candidates {
            let process = self.processes.get(&serial);
            let Some((process, control)) = process.and_then(|process| Some((process, process.control()?)))
            else {
                self.unsent.remove(&serial);
                continue;
            };
            let wants = process.has_waiting();
            if !wants {
                self.unsent.remove(&serial);
            }
            if wants != self.watched.contains(&serial) {
                let room = if wants { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
                let data = epoll::EventData::new_u64(serial * 2);
                let _ = epoll::modify(&self.epoll, control, data, epoll::EventFlags::IN | room);
                if wants {
                    self.watched.insert(serial)
                } else {
                    self.watched.remove(&serial)
                };
            }
        }
    }
}
