//! Servers behind a site: what its connector and its worker are sent of them, and the channel between the two.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: connects to a server itself.

use std::os::fd::OwnedFd;

use config::{ProxyHeader, Site, Speech, Target};
use wire::{Backend, LauncherToConnector, LauncherToSite, NO_PARTITION, Role, Text};

use crate::Supervisor;
use crate::error::Error;
use crate::setup::Messages;
use crate::setup::names::NamesFile;
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::reach::folder_of;

/// What a connector is sent, in order.
type Setup = Vec<(LauncherToConnector, Option<OwnedFd>)>;

impl SpawnContext {
    /// What a connector is sent before it connects.
    pub fn connector_setup(&self, spec: &ProcessSpec) -> Result<Setup, Error> {
        let limits = &self.config.limits;
        let mut messages = vec![(
            LauncherToConnector::Limits {
                connect_timeout_ms: limits.start_timeout_ms,
                waiting_max: limits.connections,
                flush_ms: self.config.log.flush_ms,
            },
            None,
        )];
        for (target, server) in self.servers(spec) {
            messages.push(match server {
                Target::Tcp(address) => (LauncherToConnector::Tcp { target, address: *address }, None),
                Target::Name(name, port) => {
                    (LauncherToConnector::Name { target, name: Text::new(name), port: *port }, None)
                }
                Target::Unix(path) => {
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    let directory = self.view_of(folder_of(path))?;
                    (LauncherToConnector::Unix { target, name: Text::new(name) }, Some(directory))
                }
            });
        }
        if self.looks_names_up(spec) {
            let files = NamesFile::opened().map(|(which, file)| (which.for_connector(), Some(file)));
            messages.extend(files);
        }
        messages.extend(self.grants_setup(spec).into_iter().map(|message| (message, None)));
        messages.push((LauncherToConnector::Begin {}, None));
        Ok(messages)
    }
}

impl Messages<'_> {
    /// What a site's worker is sent of the servers behind it.
    pub fn backends_setup(&self, site: &Site) -> Vec<LauncherToSite> {
        let mut messages = Vec::new();
        for (target, backend) in site.backends() {
            let speech = match backend.speech {
                Speech::Http => wire::Speech::Http,
                Speech::FastCgi => wire::Speech::FastCgi,
            };
            let proxy_header = match backend.talk.proxy_header {
                ProxyHeader::None => wire::ProxyHeader::None,
                ProxyHeader::Version1 => wire::ProxyHeader::Version1,
                ProxyHeader::Version2 => wire::ProxyHeader::Version2,
            };
            let talk = backend.talk;
            let backend = Backend {
                speech,
                proxy_header,
                answer_timeout_ms: talk.answer_timeout_ms,
                requests: talk.requests.unwrap_or(0),
                script: Text::new(talk.script.as_deref().unwrap_or_default()),
            };
            messages.push(LauncherToSite::Backend { target, backend });
        }
        let is_needed = !messages.is_empty() || !site.follow_links.is_empty();
        if let Some(root) = site.folder().filter(|_| is_needed) {
            messages.push(LauncherToSite::RootPath { path: Text::new(root.to_string_lossy()) });
        }
        messages
    }
}

impl Supervisor {
    /// Makes the channels between a new process and the connector, or the workers, of its site; those that retire included.
    pub fn connect_backends(&mut self, serial: u64) -> Result<(), Error> {
        let (role, site) = {
            let spec = self.spec_of(serial);
            (spec.role, spec.site)
        };
        // A service's connector has no worker, and its own broker.
        if role == Role::Connector && self.spec_of(serial).partition != NO_PARTITION {
            return Ok(());
        }
        let others = |launcher: &Self, role| -> Vec<u64> {
            let spec = |other: &u64| launcher.spec_of(*other);
            let of_site = |other: &u64| {
                spec(other).site == site && (role != Role::Connector || spec(other).partition == NO_PARTITION)
            };
            launcher.hearing(role).into_iter().filter(of_site).collect()
        };
        let (workers, connectors) = match role {
            Role::Site => (vec![serial], others(self, Role::Connector)),
            Role::Connector => (others(self, Role::Site), vec![serial]),
            _ => return Ok(()),
        };
        for &worker in &workers {
            for &connector in &connectors {
                let of_connector = LauncherToConnector::Attach {};
                self.join((worker, &LauncherToSite::Connector {}), (connector, &of_connector))?;
            }
        }
        Ok(())
    }
}
