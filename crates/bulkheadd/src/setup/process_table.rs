//! Which processes there are to be: the roles, the sites and their services, each with its name and identity.
//!
//! Runs in: the launcher. Sees: the checked configuration. Never: changes after the start.

use config::Config;
use wire::{NO_PARTITION, Role};

use crate::error::Error;
use crate::setup::stapler;
use crate::spawn::process_spec::{BROKER_OF, CONNECTOR_OF, ProcessSpec};
use crate::spawn::uids::Uids;

/// Every process, in the order in which they start: the logger first, so that nothing that is said is lost.
pub fn process_table(
    config: &Config,
    gates: usize,
    mut identities: Option<&mut Uids>,
) -> Result<Vec<ProcessSpec>, Error> {
    let mut specs = Vec::new();
    let mut slot = |role: Role, name: &str, partition: usize, site: usize, index: usize| {
        let owner = match role {
            Role::Site | Role::Service => format!("{}/{name}", role.name()),
            Role::Connector => format!("connector/{}", name.trim_end_matches(CONNECTOR_OF)),
            // It reads what the service's calls point at, which the kernel lets those of the same uid do.
            Role::Broker => format!("service/{}", name.trim_end_matches(BROKER_OF)),
            // A place in the chain: its filters are apart from each other, as those before it are from the gates.
            Role::Filter => format!("filter/{index}"),
            _ => format!("role/{name}"),
        };
        let user = match role {
            Role::Site => config.sites[site].worker.user.as_deref(),
            _ => None,
        };
        let identity = identities.as_deref_mut().map(|table| match user {
            Some(user) => table.account(user, name),
            None => table.identity(&owner),
        });
        let identity = identity.transpose()?;
        let (partition, site) = (partition as u16, site as u16);
        specs.push(ProcessSpec { role, name: name.into(), partition, site, index, identity });
        Ok::<(), Error>(())
    };
    let none = usize::from(NO_PARTITION);
    slot(Role::Logger, "logger", none, none, 0)?;
    slot(Role::Admin, "admin", none, none, 0)?;
    // Before the sites, which are to have their certificates at once.
    if config.sites.iter().any(|site| site.tls.is_some()) {
        slot(Role::Signer, "signer", none, none, 0)?;
    }
    if stapler::is_wanted(config) {
        slot(Role::Stapler, "stapler", none, none, 0)?;
    }
    let mut services = config.sites.len();
    for (site, about) in config.sites.iter().enumerate() {
        slot(Role::Site, &about.name, site, site, 0)?;
        for (index, service) in about.services.iter().enumerate() {
            let name = format!("{}/{}", about.name, service.name);
            // Before the service, which may connect at once.
            if service.network.is_granted() {
                slot(Role::Connector, &format!("{name}{CONNECTOR_OF}"), services, site, index)?;
                slot(Role::Broker, &format!("{name}{BROKER_OF}"), services, site, index)?;
            }
            slot(Role::Service, &name, services, site, index)?;
            services += 1;
        }
        if about.backends().next().is_some() {
            slot(Role::Connector, &format!("{}{CONNECTOR_OF}", about.name), none, site, 0)?;
        }
    }
    // Before the gates, which are told where the chain begins and where it ends.
    for filter in 0..config.conditioning.filters.len() {
        slot(Role::Filter, "filter", none, none, filter)?;
    }
    for gate in 0..gates {
        slot(Role::Gate, "gate", none, none, gate)?;
    }
    Ok(specs)
}
