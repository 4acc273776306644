//! What is known of certificates, for the administrator: what the signer has said of each, and what the stapler says.
//!
//! Runs in: the launcher. Sees: enumerations and integers of the signer, and of the stapler, which may be compromised.
//! Never: reads a certificate, keeps what is said of one that does not exist, or waits for one that does not answer.

use std::collections::BTreeMap;
use std::time::Instant;

use wire::stapler::{LauncherToStapler, Staple, Stapled, Trouble};
use wire::{LauncherToAdmin, Role, Text};

use crate::components::fan_out::FanOut;
use crate::supervisor::Launcher;
use crate::supervisor::process::Stage;

/// The list that is being made.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    fan_out: FanOut,
    /// By site and number.
    staples: BTreeMap<(u16, u16), Staple>,
}

impl Certificates {
    /// By when something is to be done here.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.fan_out.deadline()
    }
}

impl Launcher {
    /// Lists all certificates, once the stapler has said what it knows of them.
    pub(crate) fn begin_certificates(&mut self, admin: u64, ticket: u32) {
        if !self.certificates.fan_out.join(admin, ticket) {
            return;
        }
        let staplers = self.active(Role::Stapler, None).into_iter();
        let serving = staplers.filter(|stapler| self.processes[stapler].stage == Stage::Serving);
        if let Some(stapler) = serving.max() {
            self.ask_for_staples(stapler);
        }
        self.staples_without();
    }

    fn ask_for_staples(&mut self, stapler: u64) {
        let Some(process) = self.processes.get_mut(&stapler) else { return };
        // One that has not answered the last time is not asked again, or questions would pile up.
        if !std::mem::replace(&mut process.owes_staples, true) {
            self.send(stapler, &LauncherToStapler::ReportStaples {}, None);
        }
    }

    /// Takes what a stapler knows of a certificate.
    pub(crate) fn on_staple(&mut self, serial: u64, place: (u16, u16), staple: Staple) {
        let owed = self.processes.get(&serial).is_some_and(|process| process.owes_staples);
        if !owed || !self.file_reload.has_certificate(place) {
            return self.protocol_violation(serial);
        }
        // What comes too late is for nobody; what comes twice is to keep this process busy.
        if self.certificates.fan_out.is_open() && self.certificates.staples.insert(place, staple).is_some() {
            self.protocol_violation(serial);
        }
    }

    /// A stapler has said all.
    pub(crate) fn on_staples_end(&mut self, serial: u64) {
        match self.processes.get_mut(&serial) {
            Some(process) if process.owes_staples => process.owes_staples = false,
            // Nobody asked.
            _ => return self.protocol_violation(serial),
        }
        self.staples_without();
    }

    /// One that was waited for has answered, or is gone.
    pub(crate) fn staples_without(&mut self) {
        let owed = self.processes.values().any(|process| process.owes_staples);
        if self.certificates.fan_out.is_open() && !owed {
            self.finish_certificates();
        }
    }

    /// Does what is due.
    pub(crate) fn certificates_on_time(&mut self, now: Instant) {
        if self.certificates.fan_out.is_due(now) {
            self.finish_certificates();
        }
    }

    fn finish_certificates(&mut self) {
        let Certificates { mut fan_out, staples } = std::mem::take(&mut self.certificates);
        for (admin, ticket) in fan_out.end() {
            for line in self.certificate_lines(ticket, &staples) {
                self.send(admin, &line, None);
            }
            self.send(admin, &LauncherToAdmin::CertificatesEnd { ticket }, None);
        }
    }

    /// One line for each certificate.
    fn certificate_lines(&self, ticket: u32, staples: &BTreeMap<(u16, u16), Staple>) -> Vec<LauncherToAdmin> {
        let config = &self.context.config;
        let trouble = if config.tls.ocsp { Trouble::Unsaid } else { Trouble::Off };
        let unsaid = Staple { stapled: Stapled::Nothing, trouble, until: 0, asked: 0 };
        let lines = self.file_reload.certificates().map(|(place, path, verdict, holding)| {
            let name = Text::new(&config.sites[usize::from(place.0)].name);
            let file = Text::new(path.to_string_lossy());
            let staple = staples.get(&place).unwrap_or(&unsaid).clone();
            LauncherToAdmin::Certificate { ticket, name, file, verdict, holding, staple }
        });
        lines.collect()
    }
}
