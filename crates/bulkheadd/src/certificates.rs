//! What is known of certificates, for the administrator: what the signer has said of each, and what the stapler says.
//!
//! Runs in: the launcher. Sees: enumerations and integers of the signer, and of the stapler, which may be compromised.
//! Never: reads a certificate, keeps what is said of one that does not exist, or waits for one that does not answer.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use wire::stapler::{LauncherToStapler, Staple, Stapled, Trouble};
use wire::tls::{Holding, Verdict};
use wire::{LauncherToAdmin, Role, Text};

use crate::launcher::Launcher;
use crate::process::Stage;

/// How long a list waits for a stapler that does not answer.
const STAPLES_WAIT: Duration = Duration::from_millis(200);
/// The most lists that wait.
const WAITING_MAX: usize = 64;

/// The list that is being made, and who waits for it.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    until: Option<Instant>,
    waiting: VecDeque<(u64, u32)>,
    /// By site and number.
    staples: BTreeMap<(u16, u16), Staple>,
}

impl Certificates {
    /// By when something is to be done here.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.until
    }
}

impl Launcher {
    /// Lists all certificates, once the stapler has said what it knows of them.
    pub(crate) fn begin_certificates(&mut self, admin: u64, ticket: u32) {
        if self.certificates.waiting.len() >= WAITING_MAX {
            return;
        }
        self.certificates.waiting.push_back((admin, ticket));
        if self.certificates.until.is_some() {
            return;
        }
        self.certificates.until = Some(Instant::now() + STAPLES_WAIT);
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
            self.tell(stapler, &LauncherToStapler::ReportStaples {}, None);
        }
    }

    /// Takes what a stapler knows of a certificate.
    pub(crate) fn on_staple(&mut self, serial: u64, place: (u16, u16), staple: Staple) {
        let owed = self.processes.get(&serial).is_some_and(|process| process.owes_staples);
        if !owed || !self.rereading.certificates().any(|(known, ..)| known == place) {
            return self.nonsense(serial);
        }
        // What comes too late is for nobody; what comes twice is to keep this process busy.
        if self.certificates.until.is_some() && self.certificates.staples.insert(place, staple).is_some() {
            self.nonsense(serial);
        }
    }

    /// A stapler has said all.
    pub(crate) fn on_staples_end(&mut self, serial: u64) {
        match self.processes.get_mut(&serial) {
            Some(process) if process.owes_staples => process.owes_staples = false,
            // Nobody asked.
            _ => return self.nonsense(serial),
        }
        self.staples_without();
    }

    /// One that was waited for has answered, or is gone.
    pub(crate) fn staples_without(&mut self) {
        let owed = self.processes.values().any(|process| process.owes_staples);
        if self.certificates.until.is_some() && !owed {
            self.finish_certificates();
        }
    }

    /// Does what is due.
    pub(crate) fn certificates_on_time(&mut self, now: Instant) {
        if self.certificates.until.is_some_and(|at| at <= now) {
            self.finish_certificates();
        }
    }

    fn finish_certificates(&mut self) {
        let Certificates { waiting, mut staples, .. } = std::mem::take(&mut self.certificates);
        let trouble = if self.ground.config.tls.ocsp { Trouble::Unsaid } else { Trouble::Off };
        let unsaid = Staple { stapled: Stapled::Nothing, trouble, until: 0, asked: 0 };
        let sites = &self.ground.config.sites;
        let known = self.rereading.certificates().map(|(place, path, verdict, holding)| Known {
            name: Text::new(&sites[usize::from(place.0)].name),
            file: Text::new(path.to_string_lossy()),
            verdict,
            holding,
            staple: staples.remove(&place).unwrap_or_else(|| unsaid.clone()),
        });
        let known: Vec<Known> = known.collect();
        for (admin, ticket) in waiting {
            for Known { name, file, verdict, holding, staple } in known.iter().cloned() {
                let line = LauncherToAdmin::Certificate { ticket, name, file, verdict, holding, staple };
                self.tell(admin, &line, None);
            }
            self.tell(admin, &LauncherToAdmin::CertificatesEnd { ticket }, None);
        }
    }
}

/// A line of the list; the fields are those of the message.
#[derive(Clone)]
struct Known {
    name: Text<128>,
    file: Text<4096>,
    verdict: Verdict,
    holding: Holding,
    staple: Staple,
}
