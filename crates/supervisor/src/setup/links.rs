//! Which two processes work with each other, by the configuration: of those whose roles have a channel, the launcher
//! connects these.
//!
//! Runs in: the launcher, and `bulkhead explain`; pure. Sees: the checked configuration. Never: links two processes of
//! different sites, but for those of one host under TLS.

use config::Config;
use wire::{Edge, Role};

use crate::spawn::process_spec::ProcessSpec;

/// Whether any site has certificates.
pub fn signs(config: &Config) -> bool {
    config.sites.iter().any(|site| site.tls.is_some())
}

/// Whether gates send clients' connections to a worker.
pub fn takes_connections(config: &Config, worker: &ProcessSpec) -> bool {
    match worker.role {
        Role::Service => worker.service(config).is_none_or(|service| service.takes_connections),
        role => role == Role::Site,
    }
}

/// Whether the worker of one site relays requests under TLS to another site, of which these are processes.
pub fn relays(config: &Config, front: &ProcessSpec, other: &ProcessSpec) -> bool {
    front.site(config).zip(other.site(config)).is_some_and(|(front, other)| config.relays(front, other))
}

/// Whether a service may have the source of a proxy, or of a proxy's connector.
pub fn has_data(config: &Config, service: &ProcessSpec, proxy: &ProcessSpec) -> bool {
    let is_service = service.role == Role::Service && service.site == proxy.site;
    let both = service.service(config).zip(proxy.data_source(config)).filter(|_| is_service);
    both.is_some_and(|(service, source)| service.data.contains(&source.name))
}

/// Whether a service has the templates of a publisher.
pub fn has_templates(config: &Config, service: &ProcessSpec, publisher: &ProcessSpec) -> bool {
    let are_meant =
        (service.role, publisher.role) == (Role::Service, Role::Publisher) && service.site == publisher.site;
    are_meant && service.service(config).is_some_and(|service| service.templates)
}

/// Whether a site's worker has certificates.
pub fn has_certificates(config: &Config, worker: &ProcessSpec) -> bool {
    worker.site(config).is_some_and(|site| site.tls.is_some())
}

/// Whether the launcher connects these two, whose roles have a channel on which the first sends this message to the
/// second.
pub fn are_linked(config: &Config, edge: &Edge, from: &ProcessSpec, to: &ProcessSpec) -> bool {
    // Connections go one way, and what is said of them the other.
    let (one, two) = if edge.message == "FromWorker" { (to, from) } else { (from, to) };
    match (one.role, two.role) {
        (Role::Gate, Role::Service) => takes_connections(config, two),
        (Role::Site, Role::Service) => one.site == two.site,
        (Role::Site, Role::Site) => relays(config, one, two),
        (Role::Connector, _) if two.role.is_of_a_site() => {
            one.connects_for(two) || are_of_a_service(one, two)
        }
        (_, Role::Connector) if one.role.is_of_a_site() => {
            two.connects_for(one) || are_of_a_service(one, two)
        }
        (Role::Service, Role::DataProxy) => has_data(config, one, two),
        (Role::DataProxy, Role::Service) => has_data(config, two, one),
        (Role::Service, Role::Publisher) => has_templates(config, one, two),
        (Role::Publisher, Role::Service) => has_templates(config, two, one),
        (Role::Site, Role::Signer | Role::Stapler) => has_certificates(config, one),
        (Role::Signer | Role::Stapler, Role::Site) => has_certificates(config, two),
        _ => true,
    }
}

/// Whether these two work for the same service: its broker and its connector.
fn are_of_a_service(one: &ProcessSpec, two: &ProcessSpec) -> bool {
    one.partition == two.partition && one.partition != wire::NO_PARTITION
}
