//! Asking processes for their counters.
//!
//! Runs in: the launcher. Sees no untrusted bytes. Never: asks a process more than twice that has not answered.

use wire::data::LauncherToDataProxy;
use wire::stapler::LauncherToStapler;
use wire::templates::LauncherToPublisher;
use wire::tls::LauncherToSigner;
use wire::{LauncherToAdmin, LauncherToBroker, LauncherToConnector, LauncherToGate, LauncherToLogger};
use wire::{LauncherToService, LauncherToSite, Role};

use crate::Supervisor;
use crate::process::Stage;

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

    /// Asks a process once more that has not answered: its answer may have been lost, as nobody waits for room in a channel.
    pub fn remind_of_report(&mut self, serial: u64) {
        let Some(process) = self.processes.get_mut(&serial) else { return };
        if process.owes_report && !std::mem::replace(&mut process.was_reminded, true) {
            let role = self.specs[process.slot].role;
            self.send_question(serial, role);
        }
    }

    fn send_question(&mut self, serial: u64, role: Role) {
        match role {
            Role::Gate => self.send(serial, &LauncherToGate::Report {}, None),
            Role::Site => self.send(serial, &LauncherToSite::Report {}, None),
            Role::Service => self.send(serial, &LauncherToService::Report {}, None),
            Role::Logger => self.send(serial, &LauncherToLogger::Report {}, None),
            Role::Admin => self.send(serial, &LauncherToAdmin::Report {}, None),
            Role::Signer => self.send(serial, &LauncherToSigner::Report {}, None),
            Role::Connector => self.send(serial, &LauncherToConnector::Report {}, None),
            Role::Stapler => self.send(serial, &LauncherToStapler::Report {}, None),
            Role::Broker => self.send(serial, &LauncherToBroker::Report {}, None),
            Role::DataProxy => self.send(serial, &LauncherToDataProxy::Report {}, None),
            Role::Publisher => self.send(serial, &LauncherToPublisher::Report {}, None),
            Role::Filter | Role::Launcher => {}
        }
    }
}
