//! Asking processes for their counters.
//!
//! Runs in: the launcher. Sees no untrusted bytes. Never: asks a process more than twice that has not answered.

use wire::Role;

use crate::Supervisor;
use crate::process::Stage;
use crate::roles;

impl Supervisor {
    /// Asks a process for its counters.
    pub fn ask_for_report(&mut self, serial: u64) {
        let Some(process) = self.processes.get_mut(&serial) else {
            return;
        };
        // One that has not answered the last time is not asked again, or questions would pile up.
        if process.stage != Stage::Serving || process.owes_report {
            return;
        }
        let role = self.specs[process.slot].role;
        // Filters say nothing.
        process.owes_report = role != Role::Filter;
        self.send_question(serial, role);
    }

    /// Asks a process once more that has not answered: its answer may have been lost, as nobody waits for room in a
    /// channel.
    pub fn remind_of_report(&mut self, serial: u64) {
        let Some(process) = self.processes.get_mut(&serial) else { return };
        if process.owes_report && !std::mem::replace(&mut process.was_reminded, true) {
            let role = self.specs[process.slot].role;
            self.send_question(serial, role);
        }
    }

    fn send_question(&mut self, serial: u64, role: Role) {
        roles::kind(role).ask(self, serial);
    }
}
