//! Telling processes something. One that cannot be told is ended.
//!
//! Runs in: the launcher, as root. Sees no untrusted bytes. Never: waits for a process; leaves one that lacks a
//! message.

use std::borrow::Cow;
use std::fmt::Display;
use std::os::fd::OwnedFd;

use rustix::event::epoll;
use wire::{LauncherToAdmin, Message, Outcome, REASON_MAX, Role, Text};

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
        let answer = LauncherToAdmin::Answer { ticket, outcome, reason: Text::new(shortened(reason)) };
        self.send(admin, &answer, None);
    }

    /// Sends a message to a process, now or as soon as its channel has room; ends a process that does not keep up.
    pub fn send(&mut self, serial: u64, message: &impl Message, descriptor: Option<OwnedFd>) {
        self.pass(serial, message, descriptor.map(Passed::from));
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
                let (data, socket) = (epoll::EventData::new_u64(serial * 2), control.socket());
                let _ = match (control.pipe(), wants) {
                    (None, _) => epoll::modify(&self.epoll, socket, data, epoll::EventFlags::IN | room),
                    // One that takes nothing would be ready to be read for ever.
                    (Some(_), true) => epoll::add(&self.epoll, socket, data, room),
                    (Some(_), false) => epoll::delete(&self.epoll, socket),
                };
                if wants {
                    self.watched.insert(serial)
                } else {
                    self.watched.remove(&serial)
                };
            }
        }
    }
}

/// A reason as far as an answer has room for it: whole lines, and how many are missing.
fn shortened(reason: &str) -> Cow<'_, str> {
    if reason.len() <= REASON_MAX {
        return reason.into();
    }
    let note = |missing: usize| format!("lines left out: {missing}; `bulkhead check` shows them all");
    let lines = reason.lines().count();
    let room = REASON_MAX - note(lines).len();
    // Up to the last end of a line that there is room for.
    let Some(end) = reason.as_bytes()[..room].iter().rposition(|&byte| byte == b'\n') else {
        // A single line: the message cuts it.
        return reason.into();
    };
    let (kept, _) = reason.split_at(end + 1);
    format!("{kept}{}", note(lines - kept.lines().count())).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_says_how_much_of_it_is_missing() {
        assert_eq!(shortened("one\ntwo"), "one\ntwo");
        let all: Vec<String> =
            (0..1000).map(|number| format!("mistake {number}: {}", "x".repeat(40))).collect();
        let said = shortened(&all.join("\n")).into_owned();
        let (kept, note) = said.rsplit_once('\n').unwrap();
        let shown = kept.lines().count();
        assert!(all.iter().map(String::as_str).take(shown).eq(kept.lines()), "whole lines");
        assert_eq!(note, format!("lines left out: {}; `bulkhead check` shows them all", 1000 - shown));
        assert!(said.len() <= REASON_MAX && said.len() + 100 > REASON_MAX, "{}", said.len());
        // One that is a single line is cut where there is no room for more.
        assert_eq!(shortened(&"x".repeat(REASON_MAX * 2)).len(), REASON_MAX * 2);
    }
}
