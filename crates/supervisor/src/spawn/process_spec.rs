//! One process that is to run: its role, its name, its identity.
//!
//! Runs in: the launcher, as root, and the guard. Sees: the checked configuration.

use config::{Config, DataSource, Service, Site};
use jail::Identity;
use wire::{NO_PARTITION, Role, Scope};

/// The end of a connector's name.
pub const CONNECTOR_OF: &str = Role::Connector.facts().suffix;
/// The end of the name of a service's broker.
pub const BROKER_OF: &str = Role::Broker.facts().suffix;
/// The end of a data proxy's name.
pub const DATA_OF: &str = Role::DataProxy.facts().suffix;
/// The end of the name of a site's publisher.
pub const TEMPLATES_OF: &str = Role::Publisher.facts().suffix;
/// What is between a name and the number of one of its workers; no name has it.
pub const WORKER_OF: char = '#';

/// One process that is to run.
#[derive(Clone, Debug)]
pub struct ProcessSpec {
    /// What it does.
    pub role: Role,
    /// Its name, as people write it: `gate`, `packages`, `packages/search`.
    pub name: String,
    /// The number of its partition, or [`wire::NO_PARTITION`] for a role that has none; a broker and a connector of a
    /// service have the service's.
    pub partition: u16,
    /// Which site it belongs to, as an index into the configuration; [`wire::NO_PARTITION`] if to none.
    pub site: u16,
    /// Which service of the site (or whose), which of its data sources (or whose), which gate or which filter it is.
    pub index: usize,
    /// Which of the processes of its partition it is, from 0 on; 0 for everything but sites and services.
    pub worker: u16,
    /// Of which chain of filters it is, by the number of the configuration that has it; 0 for what is no filter.
    pub generation: u32,
    /// Its uid and gid; `None` in a rootless run.
    pub identity: Option<Identity>,
}

impl ProcessSpec {
    /// One that belongs to no site, and has no uid yet.
    pub fn of_the_server(role: Role, name: &str, index: usize) -> Self {
        let none = NO_PARTITION;
        Self {
            role,
            name: name.into(),
            partition: none,
            site: none,
            index,
            worker: 0,
            generation: 0,
            identity: None,
        }
    }

    /// Its name, and behind the first process of a partition which one it is: `blog`, `blog#2`.
    pub fn label(&self) -> String {
        match self.worker {
            0 => self.name.clone(),
            _ => self.numbered_name(),
        }
    }

    /// Its name, and which process of its partition it is, from 1 on: `blog#1`.
    pub fn numbered_name(&self) -> String {
        format!("{}{WORKER_OF}{}", self.name, self.worker + 1)
    }

    /// Whether it stands for all processes of its partition.
    pub fn is_first(&self) -> bool {
        self.worker == 0
    }

    /// Whether it is the connector of a data proxy.
    pub fn is_of_data(&self) -> bool {
        let name = self.name.strip_suffix(CONNECTOR_OF);
        self.role == Role::Connector && name.is_some_and(|name| name.ends_with(DATA_OF))
    }

    /// The number of the site that it belongs to, in the configuration.
    pub fn site_number(&self) -> Option<usize> {
        (self.site != NO_PARTITION).then_some(self.site.into())
    }

    /// The site that it belongs to. A process that an upgrade has taken over may be of a site that the configuration
    /// has no more.
    pub fn site<'c>(&self, config: &'c Config) -> Option<&'c Site> {
        config.sites.get(self.site_number()?).map(|site| &**site)
    }

    /// The service that it runs, or works for.
    pub fn service<'c>(&self, config: &'c Config) -> Option<&'c Service> {
        let is_its = match self.role {
            Role::Service | Role::Broker => true,
            Role::Connector => self.partition != NO_PARTITION,
            _ => false,
        };
        self.site(config)?.services.get(self.index).filter(|_| is_its)
    }

    /// The data source that it has, or works for.
    pub fn data_source<'c>(&self, config: &'c Config) -> Option<&'c DataSource> {
        let is_its = self.role == Role::DataProxy || self.is_of_data();
        self.site(config)?.data.get(self.index).filter(|_| is_its)
    }

    /// Whether it is the connector, or the broker, of another process.
    pub fn connects_for(&self, other: &Self) -> bool {
        let has_partition = self.partition != NO_PARTITION;
        let is_its = match other.role {
            Role::Site => !has_partition && !self.is_of_data(),
            Role::DataProxy => self.is_of_data() && self.index == other.index,
            Role::Service => has_partition && self.partition == other.partition,
            _ => false,
        };
        is_its && matches!(self.role, Role::Connector | Role::Broker) && self.site == other.site
    }

    /// How messages about it begin.
    pub fn title(&self) -> String {
        let facts = self.role.facts();
        match facts.scope {
            Scope::Server if facts.is_numbered => format!("{} {}", facts.name, self.index),
            Scope::Server => self.name.clone(),
            Scope::Site => format!("{} {}", facts.name, self.role.base(&self.label())),
        }
    }

    /// The name of its uid in the table of uids: processes of one name share it.
    pub fn owner(&self) -> String {
        let of = self.role.facts().uid_of;
        match self.role {
            // A place in the chain: its filters are apart from each other, as those before it are from the gates.
            Role::Filter => format!("{of}/{}", self.index),
            role => format!("{of}/{}", role.base(&self.name)),
        }
    }
}
