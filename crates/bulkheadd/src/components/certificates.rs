//! What is known of certificates, for the administrator: what the signer has said of each, and what the stapler says.
//!
//! Runs in: the launcher. Sees: enumerations and integers of the signer, and of the stapler, which may be compromised.
//! Never: reads a certificate, keeps what is said of one that does not exist, or waits for one that does not answer.

use std::collections::BTreeMap;
use std::time::Instant;

use config::Config;
use wire::stapler::{LauncherToStapler, Staple, Stapled, Trouble};
use wire::{LauncherToAdmin, Role, Text};

use crate::components::Component;
use crate::components::fan_out::FanOut;
use crate::components::file_reload::FileReload;
use supervisor::Supervisor;
use supervisor::process::Stage;
use supervisor::restart::Ended;
use supervisor::upgrade::Handed;

/// The list that is being made.
#[derive(Debug)]
pub(crate) struct Certificates {
    /// The files that the list is of.
    pub(crate) files: FileReload,
    fan_out: FanOut,
    /// By site and number.
    staples: BTreeMap<(u16, u16), Staple>,
}

impl Certificates {
    /// Of every certificate that the configuration names.
    pub(crate) fn of(config: &Config) -> Self {
        Self { files: FileReload::of(config), fan_out: FanOut::default(), staples: BTreeMap::new() }
    }

    /// The same, with what the launcher before knew of them.
    pub(crate) fn resume(handed: &Handed, config: &Config) -> Self {
        Self {
            files: FileReload::resume(handed, config),
            fan_out: FanOut::default(),
            staples: BTreeMap::new(),
        }
    }
}

impl Component for Certificates {
    fn deadline(&self) -> Option<Instant> {
        self.files.deadline().into_iter().chain(self.fan_out.deadline()).min()
    }

    fn on_time(&mut self, supervisor: &mut Supervisor, now: Instant) {
        self.files.on_time(supervisor, now);
        if self.fan_out.is_due(now) {
            self.finish_certificates(supervisor);
        }
    }

    fn is_quiet(&self) -> bool {
        !self.fan_out.is_open() && !self.files.is_giving()
    }

    fn on_exit(&mut self, supervisor: &mut Supervisor, ended: &mut Ended) {
        self.files.on_exit(supervisor, ended);
        self.staples_without(supervisor);
    }
}

impl Certificates {
    /// Lists all certificates, once the stapler has said what it knows of them.
    pub(crate) fn begin_certificates(&mut self, supervisor: &mut Supervisor, admin: u64, ticket: u32) {
        if !self.fan_out.join((admin, ticket)) {
            return;
        }
        let staplers = supervisor.active(Role::Stapler, None).into_iter();
        let serving = staplers.filter(|stapler| supervisor.processes()[stapler].stage == Stage::Serving);
        if let Some(stapler) = serving.max() {
            self.ask_for_staples(supervisor, stapler);
        }
        self.staples_without(supervisor);
    }

    fn ask_for_staples(&mut self, supervisor: &mut Supervisor, stapler: u64) {
        let Some(process) = supervisor.process_mut(stapler) else { return };
        // One that has not answered the last time is not asked again, or questions would pile up.
        if !std::mem::replace(&mut process.owes_staples, true) {
            supervisor.send(stapler, &LauncherToStapler::ReportStaples {}, None);
        }
    }

    /// Takes what a stapler knows of a certificate.
    pub(crate) fn on_staple(
        &mut self,
        supervisor: &mut Supervisor,
        serial: u64,
        place: (u16, u16),
        staple: Staple,
    ) {
        let owed = supervisor.process(serial).is_some_and(|process| process.owes_staples);
        if !owed || !self.files.has_certificate(place) {
            return supervisor.protocol_violation(serial);
        }
        // What comes too late is for nobody; what comes twice is to keep this process busy.
        if self.fan_out.is_open() && self.staples.insert(place, staple).is_some() {
            supervisor.protocol_violation(serial);
        }
    }

    /// A stapler has said all.
    pub(crate) fn on_staples_end(&mut self, supervisor: &mut Supervisor, serial: u64) {
        match supervisor.process_mut(serial) {
            Some(process) if process.owes_staples => process.owes_staples = false,
            // Nobody asked.
            _ => return supervisor.protocol_violation(serial),
        }
        self.staples_without(supervisor);
    }

    /// One that was waited for has answered, or is gone.
    fn staples_without(&mut self, supervisor: &mut Supervisor) {
        let owed = supervisor.processes().values().any(|process| process.owes_staples);
        if self.fan_out.is_open() && !owed {
            self.finish_certificates(supervisor);
        }
    }

    fn finish_certificates(&mut self, supervisor: &mut Supervisor) {
        let staples = std::mem::take(&mut self.staples);
        for (admin, ticket) in self.fan_out.end() {
            for line in self.certificate_lines(supervisor, ticket, &staples) {
                supervisor.send(admin, &line, None);
            }
            supervisor.send(admin, &LauncherToAdmin::CertificatesEnd { ticket }, None);
        }
    }

    /// One line for each certificate.
    fn certificate_lines(
        &self,
        supervisor: &Supervisor,
        ticket: u32,
        staples: &BTreeMap<(u16, u16), Staple>,
    ) -> Vec<LauncherToAdmin> {
        let config = &supervisor.context().config;
        let trouble = if config.tls.ocsp { Trouble::Unsaid } else { Trouble::Off };
        let unsaid = Staple { stapled: Stapled::Nothing, trouble, until: 0, asked: 0 };
        let lines = self.files.certificates().map(|(place, path, verdict, holding)| {
            let name = Text::new(&config.sites[usize::from(place.0)].name);
            let file = Text::new(path.to_string_lossy());
            let staple = staples.get(&place).unwrap_or(&unsaid).clone();
            LauncherToAdmin::Certificate { ticket, name, file, verdict, holding, staple }
        });
        lines.collect()
    }
}
