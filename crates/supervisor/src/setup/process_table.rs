//! Which processes there are to be: the roles, the sites and their services, each with its name and identity.
//!
//! Runs in: the launcher. Sees: the checked configuration. Never: gives a number to two partitions.

use config::Config;
use wire::{NO_PARTITION, Role};

use crate::error::Error;
use crate::numbers::NumberSet;
use crate::roles;
use crate::spawn::process_spec::{BROKER_OF, CONNECTOR_OF, DATA_OF, ProcessSpec, TEMPLATES_OF};
use crate::spawn::uids::Uids;

/// Every process, in the order in which they start, the last to go first: the logger, so that nothing that is said is
/// lost; what sites are to have at once before the sites; the gates at last, which are told where the chain of filters
/// begins and where it ends.
pub fn process_table(
    config: &Config,
    gates: usize,
    identities: Option<&mut Uids>,
) -> Result<Vec<ProcessSpec>, Error> {
    let sites = (0..config.sites.len() as u16).collect();
    let mut table = ProcessTable::new(config, identities, sites);
    for &role in Role::STOP_ORDER.iter().rev() {
        match role {
            Role::Site => (0..config.sites.len()).try_for_each(|site| table.add_site(site, site))?,
            role if role.is_of_a_site() => {}
            role => (0..roles::kind(role).count(config, gates))
                .try_for_each(|index| table.add_role(role, index))?,
        }
    }
    Ok(table.specs)
}

/// Processes that are to run.
pub struct ProcessTable<'a> {
    config: &'a Config,
    identities: Option<&'a mut Uids>,
    /// The numbers of partitions that are in use.
    partitions: NumberSet,
    /// The number from which on the next partition's is looked for.
    next: u16,
    /// The generation of filters that are added.
    pub generation: u32,
    /// The processes.
    pub specs: Vec<ProcessSpec>,
}

impl<'a> ProcessTable<'a> {
    /// An empty table; the partitions that it numbers have none of the numbers in `partitions`.
    pub fn new(config: &'a Config, identities: Option<&'a mut Uids>, partitions: NumberSet) -> Self {
        Self { config, identities, partitions, next: 0, generation: 0, specs: Vec::new() }
    }

    /// A number that no partition has.
    pub fn next_partition(&mut self) -> usize {
        while self.partitions.contains(self.next) {
            self.next += 1;
        }
        self.next += 1;
        usize::from(self.next) - 1
    }

    /// Adds a process that belongs to no site.
    pub fn add_role(&mut self, role: Role, index: usize) -> Result<(), Error> {
        let none = usize::from(NO_PARTITION);
        self.add(role, role.name(), none, none, index)
    }

    /// Adds the processes of a site, whose own partition is `partition`.
    pub fn add_site(&mut self, site: usize, partition: usize) -> Result<(), Error> {
        let about = &self.config.sites[site];
        self.add(Role::Site, &about.name, partition, site, 0)?;
        self.add_workers(about.workers.max);
        // Before the services, which may call at once.
        for (index, data) in about.data.iter().enumerate() {
            let name = format!("{}/{}{DATA_OF}", about.name, data.name);
            // Before the proxy, which is connected at once.
            if data.target().is_some() {
                let connector = format!("{name}{CONNECTOR_OF}");
                self.add(Role::Connector, &connector, usize::from(NO_PARTITION), site, index)?;
            }
            self.add(Role::DataProxy, &name, usize::from(NO_PARTITION), site, index)?;
        }
        // Before the services, which wait for it.
        if about.templates.is_some() {
            let name = format!("{}{TEMPLATES_OF}", about.name);
            self.add(Role::Publisher, &name, usize::from(NO_PARTITION), site, 0)?;
        }
        for (index, service) in about.services.iter().enumerate() {
            let (name, partition) = (format!("{}/{}", about.name, service.name), self.next_partition());
            // Before the service, which may connect at once.
            if service.network.is_granted() {
                self.add(Role::Connector, &format!("{name}{CONNECTOR_OF}"), partition, site, index)?;
                self.add(Role::Broker, &format!("{name}{BROKER_OF}"), partition, site, index)?;
            }
            self.add(Role::Service, &name, partition, site, index)?;
            self.add_workers(service.workers.max);
        }
        if about.backends().next().is_some() {
            let name = format!("{}{CONNECTOR_OF}", about.name);
            self.add(Role::Connector, &name, usize::from(NO_PARTITION), site, 0)?;
        }
        Ok(())
    }

    /// Has the process that was added last be the first of `count` of the same partition, which share its uid.
    fn add_workers(&mut self, count: u16) {
        if let Some(first) = self.specs.last().cloned() {
            self.specs.extend((1..count).map(|worker| ProcessSpec { worker, ..first.clone() }));
        }
    }

    fn add(
        &mut self,
        role: Role,
        name: &str,
        partition: usize,
        site: usize,
        index: usize,
    ) -> Result<(), Error> {
        let mut spec = ProcessSpec {
            role,
            name: name.into(),
            partition: partition as u16,
            site: site as u16,
            index,
            worker: 0,
            generation: if role == Role::Filter { self.generation } else { 0 },
            identity: None,
        };
        let user = match role {
            Role::Site => self.config.sites[site].worker.user.as_deref(),
            _ => None,
        };
        let identity = self.identities.as_deref_mut().map(|table| match user {
            Some(user) => table.account(user, name),
            None => table.identity(&spec.owner()),
        });
        spec.identity = identity.transpose()?;
        self.specs.push(spec);
        Ok(())
    }
}
