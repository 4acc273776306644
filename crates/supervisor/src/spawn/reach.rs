//! What connectors and staplers may reach: servers behind sites, the networks of grants, responders.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: connects to a server itself, or lets a
//! connector reach more than the directories of its sockets and the ports of its addresses, and DNS only if a server
//! has a name.

use std::path::Path;

use config::{Service, Target};
use jail::policy::Policy;
use jail::{Access, Reach};
use wire::data::DATABASE_TARGET;
use wire::{NO_PARTITION, Role};

use crate::error::Error;
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;

/// Where DNS servers listen; they are asked over TCP.
const NAMES_PORT: u16 = 53;

impl SpawnContext {
    /// All servers that a connector connects to, with the number of their target: those behind its site, or that of a
    /// database.
    pub fn servers(&self, spec: &ProcessSpec) -> impl Iterator<Item = (u16, &Target)> {
        let of_site = spec.role == Role::Connector && spec.partition == NO_PARTITION && !spec.is_of_data();
        let site = self.config.sites.get(usize::from(spec.site)).filter(|_| of_site);
        let backends = site.into_iter().flat_map(|site| site.backends());
        let database =
            self.data_source(spec).and_then(|source| source.target()).filter(|_| spec.is_of_data());
        backends
            .flat_map(|(target, backend)| backend.servers.iter().map(move |server| (target, server)))
            .chain(database.map(|target| (DATABASE_TARGET, target)))
    }

    /// The service for which `spec` connects or answers.
    pub fn granted(&self, spec: &ProcessSpec) -> Option<&Service> {
        let serves = matches!(spec.role, Role::Broker | Role::Connector);
        spec.service(&self.config).filter(|_| serves)
    }

    /// What a connector may do, by what it has to reach.
    pub fn connector_policy(&self, spec: &ProcessSpec) -> Policy {
        if let Some(service) = self.granted(spec) {
            let tcp = !service.network.tcp.is_empty();
            return Policy::Connector { unix: false, tcp, udp: service.network.udp, names: false };
        }
        let tcp = self.servers(spec).any(|(_, server)| !matches!(server, Target::Unix(_)));
        let unix = self.servers(spec).any(|(_, server)| matches!(server, Target::Unix(_)));
        Policy::Connector { unix, tcp, udp: false, names: self.looks_names_up(spec) }
    }

    /// Whether a process connects to servers that have names.
    pub fn looks_names_up(&self, spec: &ProcessSpec) -> bool {
        self.servers(spec).any(|(_, server)| matches!(server, Target::Name(..)))
    }

    /// Lets a connector reach its servers.
    pub fn let_connector_reach(&self, spec: &ProcessSpec, reach: &mut Reach) -> Result<(), Error> {
        for (_, server) in self.servers(spec) {
            match server {
                Target::Tcp(address) => reach.ports.connect.push(address.port()),
                Target::Name(_, port) => reach.ports.connect.extend([*port, NAMES_PORT]),
                Target::Unix(path) => {
                    let directory = self.published(folder_of(path))?;
                    reach.paths.push((directory, Access::Connect));
                }
            }
        }
        let grants = self.granted(spec).into_iter().flat_map(|service| &service.network.tcp);
        reach.ports.connect.extend(grants.map(|grant| grant.port));
        Ok(())
    }

    /// Lets the stapler reach responders and DNS servers.
    pub fn let_stapler_reach(&self, reach: &mut Reach) {
        reach.ports.connect.extend(&self.config.tls.ocsp_ports);
        reach.ports.connect.push(NAMES_PORT);
    }
}

/// The directory of a socket.
pub fn folder_of(socket: &Path) -> &Path {
    socket.parent().unwrap_or(Path::new("/"))
}
