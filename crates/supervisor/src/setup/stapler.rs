//! The stapler: what it is sent, and its channels to the signer and the sites.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: reads a certificate; learns who is asked.

use std::os::fd::OwnedFd;

use config::Config;
use wire::stapler::LauncherToStapler;
use wire::tls::LauncherToSigner;
use wire::{LauncherToSite, Role, Text};

use crate::Supervisor;
use crate::error::Error;
use crate::setup::names::NamesFile;
use crate::spawn::context::SpawnContext;

/// Whether there is anybody for it to work for.
pub fn is_wanted(config: &Config) -> bool {
    config.tls.ocsp && config.sites.iter().any(|site| site.tls.is_some())
}

impl SpawnContext {
    /// What the certificates of these sites are called.
    pub fn stapler_certificates(&self, is_meant: impl Fn(u16) -> bool) -> Vec<LauncherToStapler> {
        let sites = (0u16..).zip(&self.config.sites).filter(|(site, _)| is_meant(*site));
        let certificates = sites.flat_map(|(site, about)| {
            let files = about.tls.iter().flat_map(|tls| &tls.certificates);
            (0u16..).zip(files).map(move |(number, files)| {
                let path = files.certificate.display();
                let name = Text::new(format!("`certificates` {path} of site {}", about.name));
                LauncherToStapler::Certificate { site, number, name }
            })
        });
        certificates.collect()
    }

    /// What a stapler is sent before it asks anybody.
    pub fn stapler_setup(&self) -> Vec<(LauncherToStapler, Option<OwnedFd>)> {
        let mut messages = vec![LauncherToStapler::Limits { flush_ms: self.config.log.flush_ms }];
        messages.extend(self.config.tls.ocsp_ports.iter().map(|&port| LauncherToStapler::Port { port }));
        messages.extend(self.stapler_certificates(|_| true));
        let messages = messages.into_iter().map(|message| (message, None));
        let names = NamesFile::opened().map(|(which, file)| (which.for_stapler(), Some(file)));
        messages.chain(names).chain([(LauncherToStapler::Begin {}, None)]).collect()
    }
}

impl Supervisor {
    /// Makes the channels between a new stapler and the signers and sites that have certificates, or the other way
    /// round.
    pub(crate) fn connect_stapler(&mut self, serial: u64) -> Result<(), Error> {
        let staplers = self.active(Role::Stapler, None);
        let (staplers, signers, workers) = match self.spec_of(serial).role {
            Role::Stapler => (vec![serial], self.active(Role::Signer, None), self.active(Role::Site, None)),
            Role::Signer => (staplers, vec![serial], vec![]),
            Role::Site => (staplers, vec![], vec![serial]),
            _ => return Ok(()),
        };
        for stapler in staplers {
            for &signer in &signers {
                let of_stapler = LauncherToStapler::Signer {};
                self.join((signer, &LauncherToSigner::Stapler {}), (stapler, &of_stapler))?;
            }
            for &worker in &workers {
                if let Some(site) = self.site_with_tls(worker) {
                    let of_stapler = LauncherToStapler::Client { site };
                    self.join((stapler, &of_stapler), (worker, &LauncherToSite::Stapler {}))?;
                }
            }
        }
        Ok(())
    }
}
