//! The stapler: what it is told, which ports it may reach, and its channels to the signer and the sites.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: reads a certificate, or one of the files that
//! it opens for the stapler; learns who is asked.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use jail::Reach;
use wire::stapler::LauncherToStapler;
use wire::tls::LauncherToSigner;
use wire::{LauncherToSite, Role, Text};

use crate::error::{Error, during};
use crate::launch::Ground;
use crate::launcher::Launcher;
use crate::reread;

/// Where this machine says which servers know names, and which names it knows itself.
const NAMES: [(&str, LauncherToStapler); 2] =
    [("/etc/resolv.conf", LauncherToStapler::Resolver {}), ("/etc/hosts", LauncherToStapler::Hosts {})];
/// Where servers of names listen; the stapler asks them over TCP.
const NAMES_PORT: u16 = 53;

impl Ground {
    /// Lets the stapler reach responders and servers of names.
    pub(crate) fn let_stapler_reach(&self, reach: &mut Reach) {
        reach.ports.connect.extend(&self.config.tls.ocsp_ports);
        reach.ports.connect.push(NAMES_PORT);
    }

    /// What a stapler is told before it asks anybody, apart from files.
    fn stapler_setup(&self) -> Vec<LauncherToStapler> {
        let mut told = vec![LauncherToStapler::Limits { flush_ms: self.config.log.flush_ms }];
        told.extend(self.config.tls.ocsp_ports.iter().map(|&port| LauncherToStapler::Port { port }));
        for (site, about) in self.config.sites.iter().enumerate() {
            let files = about.tls.iter().flat_map(|tls| &tls.certificates);
            told.extend(files.enumerate().map(|(number, path)| {
                let name = Text::new(format!("`certificates` {} of site {}", path.display(), about.name));
                LauncherToStapler::Certificate { site: site as u16, number: number as u16, name }
            }));
        }
        told
    }
}

impl Launcher {
    /// Says to a new stapler what it must know.
    pub(crate) fn introduce_stapler(&mut self, stapler: u64) {
        for message in self.ground.stapler_setup() {
            self.tell(stapler, &message, None);
        }
        self.give_names(&[stapler]);
        self.tell(stapler, &LauncherToStapler::Begin {}, None);
    }

    /// Hands over the files about names as they are now; a machine may be without.
    pub(crate) fn give_names(&mut self, staplers: &[u64]) {
        for (path, message) in NAMES {
            let Ok(file) = reread::open(Path::new(path)) else { continue };
            for &stapler in staplers {
                if let Some(file) = File::try_clone(&file).ok().map(OwnedFd::from) {
                    self.tell(stapler, &message, Some(file));
                }
            }
        }
    }

    /// Makes the channels between a new stapler and the signers and sites that have certificates, or the other way round.
    pub(crate) fn connect_stapler(&mut self, serial: u64) -> Result<(), Error> {
        let staplers = self.active(Role::Stapler, None);
        match self.posts[self.processes[&serial].post].role {
            Role::Stapler => {
                for signer in self.active(Role::Signer, None) {
                    self.join_signer(signer, serial)?;
                }
                let sites = self.active(Role::Site, None);
                sites.into_iter().try_for_each(|site| self.join_site(serial, site))
            }
            Role::Signer => staplers.into_iter().try_for_each(|stapler| self.join_signer(serial, stapler)),
            Role::Site => staplers.into_iter().try_for_each(|stapler| self.join_site(stapler, serial)),
            _ => Ok(()),
        }
    }

    fn join_signer(&mut self, signer: u64, stapler: u64) -> Result<(), Error> {
        let (of_signer, of_stapler) = sys::seqpacket::pair().map_err(during("make a channel"))?;
        self.tell(signer, &LauncherToSigner::Stapler {}, Some(of_signer));
        self.tell(stapler, &LauncherToStapler::Signer {}, Some(of_stapler));
        Ok(())
    }

    fn join_site(&mut self, stapler: u64, worker: u64) -> Result<(), Error> {
        let site = self.posts[self.processes[&worker].post].site;
        if self.ground.config.sites[usize::from(site)].tls.is_none() {
            return Ok(());
        }
        let (of_stapler, of_site) = sys::seqpacket::pair().map_err(during("make a channel"))?;
        self.tell(stapler, &LauncherToStapler::Client { site }, Some(of_stapler));
        self.tell(worker, &LauncherToSite::Stapler {}, Some(of_site));
        Ok(())
    }
}
