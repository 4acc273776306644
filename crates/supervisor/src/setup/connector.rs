//! Servers behind a site or a data proxy: what the connector and the worker are sent of them, and the channel between
//! the two.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: connects to a server itself.

use std::os::fd::OwnedFd;

use config::{ProxyHeader, Site, Speech, Target};
use wire::data::LauncherToDataProxy;
use wire::{Backend, LauncherToConnector, LauncherToSite, Role, Text};

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
                buffer: talk.buffer,
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
    /// Makes the channels between a new process and its connector, or between a connector and those that it connects;
    /// those that retire included.
    pub(crate) fn connect_backends(&mut self, serial: u64) -> Result<(), Error> {
        let role = self.spec_of(serial).role;
        let connects = |launcher: &Self, connector: u64, client: u64| {
            launcher.spec_of(connector).connects_for(launcher.spec_of(client))
        };
        let pairs: Vec<(u64, u64)> = match role {
            Role::Site | Role::DataProxy => {
                let connectors = self.hearing(Role::Connector).into_iter();
                connectors
                    .filter(|&other| connects(self, other, serial))
                    .map(|other| (serial, other))
                    .collect()
            }
            Role::Connector => {
                let clients = self.hearing(Role::Site).into_iter().chain(self.hearing(Role::DataProxy));
                clients.filter(|&other| connects(self, serial, other)).map(|other| (other, serial)).collect()
            }
            _ => Vec::new(),
        };
        for (client, connector) in pairs {
            let of_connector = (connector, &LauncherToConnector::Attach {});
            match self.spec_of(client).role {
                Role::Site => self.join((client, &LauncherToSite::Connector {}), of_connector)?,
                _ => self.join((client, &LauncherToDataProxy::Connector {}), of_connector)?,
            }
        }
        Ok(())
    }
}
