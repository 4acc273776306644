//! The end: role after role, so that who passes work on goes before who does it.
//!
//! Runs in: the launcher. Sees: exits of children and the clock. Never: cuts off what a process may still finish in
//! its time.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use wire::{LauncherToGate, LauncherToLogger, LauncherToSite, Role};

use crate::Supervisor;
use crate::process::{Process, Stage};
use crate::spawn::passed::PassedSockets;

impl Supervisor {
    /// Begins the end: nothing is started any more, and the first role is asked to go.
    pub fn stop(&mut self) {
        if self.stopping.is_some() {
            return;
        }
        self.log.info("stopping");
        self.stopping = Some((Instant::now(), 0));
        self.listeners.clear();
        self.passed = PassedSockets::default();
        self.leave_chain();
        self.starts.clear();
        self.room.clear();
        self.wanted.clear();
        self.pace.clear();
        self.has_kept = self.retire_role(Role::STOP_ORDER[0]);
        // No gate may be there whose end would be heard of: the last one has failed, and is not started again.
        self.go_on_stopping();
    }

    /// Asks the next role to go once the one before is gone.
    pub fn go_on_stopping(&mut self) {
        while let Some((began, phase)) = self.stopping {
            let role = Role::STOP_ORDER[phase];
            if self.index.of_role(role).next().is_some() {
                if self.has_kept {
                    // Those that others relayed to, once these are gone.
                    self.has_kept = self.retire_role(role);
                }
                return;
            }
            if phase + 1 == Role::STOP_ORDER.len() {
                return;
            }
            self.stopping = Some((began, phase + 1));
            self.has_kept = self.retire_role(Role::STOP_ORDER[phase + 1]);
        }
    }

    /// Has all processes of a role end, but for those to which another that is left relays; whether there are such.
    fn retire_role(&mut self, role: Role) -> bool {
        let relays_to: HashSet<usize> =
            self.processes.values().flat_map(|process| &process.relays_to).copied().collect();
        let stays = |serial: &u64| relays_to.contains(&self.processes[serial].slot);
        let (kept, going): (Vec<u64>, Vec<u64>) = self.index.of_role(role).partition(stays);
        for serial in going {
            if role == Role::Logger {
                self.send(serial, &LauncherToLogger::Last {}, None);
            }
            self.retire(serial);
        }
        !kept.is_empty()
    }

    /// Asks a process to finish and go.
    pub fn retire(&mut self, serial: u64) {
        let drain = Duration::from_millis(self.context.config.limits.drain_timeout_ms.into());
        if self.processes.get(&serial).is_none_or(|process| process.stage == Stage::Retiring) {
            return;
        }
        let deadline = Instant::now() + drain;
        self.set_deadline(serial, Some(deadline));
        let Some(process) = self.processes.get_mut(&serial) else { return };
        process.retire(deadline);
        if process.control().is_none() {
            self.watched.remove(&serial);
            return;
        }
        match self.spec_of(serial).role {
            Role::Gate => self.send(serial, &LauncherToGate::Retire {}, None),
            Role::Site => self.send(serial, &LauncherToSite::Retire {}, None),
            _ => {}
        }
    }

    /// A process says that it takes `Retire`.
    pub fn on_takes_retire(&mut self, serial: u64) {
        let may = matches!(self.spec_of(serial).role, Role::Gate | Role::Site);
        match self.processes.get_mut(&serial) {
            Some(process) if may && process.stage == Stage::Starting && !process.takes_retire => {
                process.takes_retire = true;
            }
            _ => self.protocol_violation(serial),
        }
    }

    /// A process has closed its channel: it is ending, or wants to be ended.
    pub(crate) fn on_closed(&mut self, serial: u64) {
        self.retire(serial);
        self.close(serial);
    }

    /// Tells a process nothing more.
    fn close(&mut self, serial: u64) {
        self.watched.remove(&serial);
        self.processes.get_mut(&serial).into_iter().for_each(Process::close);
    }

    /// Ends a process that is of no use, at once; its end is seen as that of one which retires.
    pub fn give_up(&mut self, serial: u64) {
        self.retire(serial);
        self.close(serial);
        self.set_deadline(serial, None);
        self.processes.get(&serial).into_iter().for_each(|process| process.child.kill());
    }
}
