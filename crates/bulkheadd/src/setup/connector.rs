//! Servers behind a site: what its connector and its worker are sent of them, and the channel between the two.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: connects to a server itself, or lets a
//! connector reach more than the directories of its sockets and the ports of its addresses.

use std::os::fd::OwnedFd;
use std::path::Path;

use config::{ProxyHeader, Site, Speech, Target};
use jail::policy::Policy;
use jail::{Access, Reach};
use wire::{Backend, LauncherToConnector, LauncherToSite, NO_PARTITION, Role, Text};

use crate::directories;
use crate::error::Error;
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;
use crate::supervisor::Supervisor;

/// What a connector is sent, in order.
type Setup = Vec<(LauncherToConnector, Option<OwnedFd>)>;

impl SpawnContext {
    /// All servers of a connector's site, with the number of their target.
    fn servers(&self, spec: &ProcessSpec) -> impl Iterator<Item = (u16, &Target)> {
        let of_site = spec.role == Role::Connector && spec.partition == NO_PARTITION;
        let site = self.config.sites.get(usize::from(spec.site)).filter(|_| of_site);
        let backends = site.into_iter().flat_map(Site::backends);
        backends.flat_map(|(target, backend)| backend.servers.iter().map(move |server| (target, server)))
    }

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
                Target::Unix(path) => {
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    let directory = self.view_of(folder_of(path))?;
                    (LauncherToConnector::Unix { target, name: Text::new(name) }, Some(directory))
                }
            });
        }
        messages.extend(self.grants_setup(spec).into_iter().map(|message| (message, None)));
        messages.push((LauncherToConnector::Begin {}, None));
        Ok(messages)
    }

    /// What a connector may do, by what it has to reach.
    pub(crate) fn connector_policy(&self, spec: &ProcessSpec) -> Policy {
        if let Some(service) = self.granted(spec) {
            let tcp = !service.network.tcp.is_empty();
            return Policy::Connector { unix: false, tcp, udp: service.network.udp };
        }
        let tcp = self.servers(spec).any(|(_, server)| matches!(server, Target::Tcp(_)));
        let unix = self.servers(spec).any(|(_, server)| matches!(server, Target::Unix(_)));
        Policy::Connector { unix, tcp, udp: false }
    }

    /// Lets a connector reach its servers.
    pub(crate) fn let_connector_reach(&self, spec: &ProcessSpec, reach: &mut Reach) -> Result<(), Error> {
        for (_, server) in self.servers(spec) {
            match server {
                Target::Tcp(address) => reach.ports.connect.push(address.port()),
                Target::Unix(path) => {
                    let directory = directories::directory(folder_of(path))?;
                    reach.paths.push((directory, Access::Connect));
                }
            }
        }
        let grants = self.granted(spec).into_iter().flat_map(|service| &service.network.tcp);
        reach.ports.connect.extend(grants.map(|grant| grant.port));
        Ok(())
    }

    /// What a site's worker is sent of the servers behind it.
    pub(crate) fn backends_setup(&self, site: &Site) -> Vec<LauncherToSite> {
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
        if let Some(root) = site.folder().filter(|_| !messages.is_empty()) {
            messages.push(LauncherToSite::RootPath { path: Text::new(root.to_string_lossy()) });
        }
        messages
    }
}

/// The directory of a socket.
fn folder_of(socket: &Path) -> &Path {
    socket.parent().unwrap_or(Path::new("/"))
}

impl Supervisor {
    /// Makes the channels between a new process and the connector, or the workers, of its site.
    pub(crate) fn connect_backends(&mut self, serial: u64) -> Result<(), Error> {
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
            launcher.active(role, None).into_iter().filter(of_site).collect()
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
