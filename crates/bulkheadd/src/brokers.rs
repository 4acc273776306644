//! The network that services are granted: what their connectors and brokers are told, and the channel between the two.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: answers a call of a service, or looks at one;
//! the listeners of their calls are kept only to be given to a broker that takes another's place.

use config::Service;
use std::os::fd::OwnedFd;
use wire::{LauncherToBroker, LauncherToConnector, NO_PARTITION, Role, Text};

use crate::error::{Error, during};
use crate::launch::Ground;
use crate::launcher::Launcher;
use crate::roster::Post;

/// The networks in which any host is.
const ANY: [&str; 2] = ["0.0.0.0/0", "::/0"];

impl Ground {
    /// The service for which `post` connects or answers.
    pub(crate) fn granted(&self, post: &Post) -> Option<&Service> {
        let serves = matches!(post.role, Role::Broker | Role::Connector) && post.partition != NO_PARTITION;
        let site = self.config.sites.get(usize::from(post.site)).filter(|_| serves)?;
        site.services.get(post.index)
    }

    /// What the connector of a service is told of what it may do.
    pub(crate) fn grants_setup(&self, post: &Post) -> Vec<LauncherToConnector> {
        let Some(service) = self.granted(post) else {
            return Vec::new();
        };
        let mut told = Vec::new();
        for grant in &service.network.tcp {
            let networks = grant.network.as_deref().map_or(ANY.to_vec(), |network| vec![network]);
            told.extend(
                networks.into_iter().map(|network| LauncherToConnector::Grant {
                    network: Text::new(network),
                    port: grant.port,
                }),
            );
        }
        told.extend(service.network.udp.then_some(LauncherToConnector::GrantUdp {}));
        told
    }

    fn broker_setup(&self) -> [LauncherToBroker; 2] {
        let limits = &self.config.limits;
        let limits = LauncherToBroker::Limits {
            waiting_max: limits.connections,
            connect_timeout_ms: limits.start_timeout_ms,
            flush_ms: self.config.log.flush_ms,
        };
        [limits, LauncherToBroker::Begin {}]
    }
}

impl Launcher {
    /// Says to a new broker what it must know, and gives it the calls of its service's processes.
    pub(crate) fn introduce_broker(&mut self, serial: u64) -> Result<(), Error> {
        for message in self.ground.broker_setup() {
            self.tell(serial, &message, None);
        }
        let partition = self.posts[self.processes[&serial].post].partition;
        let own = |post: &usize| {
            self.posts[*post].role == Role::Service && self.posts[*post].partition == partition
        };
        let services = self.processes.values().filter(|process| own(&process.post));
        let services = services.filter_map(|process| Some((process.child.pid, process.calls.as_ref()?)));
        let probes = self.probes.values().filter(|probe| own(&probe.post));
        let probes = probes.filter_map(|probe| Some((probe.child.pid, probe.calls.as_ref()?)));
        let listeners: Result<Vec<(u32, OwnedFd)>, _> =
            services.chain(probes).map(|(pid, calls)| Ok((pid, calls.again()?))).collect();
        for (leader, listener) in listeners.map_err(during("duplicate a descriptor"))? {
            self.tell(serial, &LauncherToBroker::Listener { leader }, Some(listener));
        }
        Ok(())
    }

    /// Gives the brokers of a service the calls of a new process of it.
    pub(crate) fn hand_calls(
        &mut self,
        post: usize,
        leader: u32,
        calls: &sys::notify::Listener,
    ) -> Result<(), Error> {
        let partition = self.posts[post].partition;
        for broker in self.of_partition(Role::Broker, partition) {
            let listener = calls.again().map_err(during("duplicate a descriptor"))?;
            self.tell(broker, &LauncherToBroker::Listener { leader }, Some(listener));
        }
        Ok(())
    }

    /// Makes the channels between a new broker and the connectors of its service, or the other way round.
    pub(crate) fn connect_broker(&mut self, serial: u64) -> Result<(), Error> {
        let post = &self.posts[self.processes[&serial].post];
        let partition = post.partition;
        let (brokers, connectors) = match post.role {
            Role::Broker => (vec![serial], self.of_partition(Role::Connector, partition)),
            Role::Connector if partition != NO_PARTITION => {
                (self.of_partition(Role::Broker, partition), vec![serial])
            }
            _ => return Ok(()),
        };
        for &broker in &brokers {
            for &connector in &connectors {
                let of_connector = LauncherToConnector::AttachBroker {};
                self.join((broker, &LauncherToBroker::Connector {}), (connector, &of_connector))?;
            }
        }
        Ok(())
    }

    fn of_partition(&self, role: Role, partition: u16) -> Vec<u64> {
        let own = |serial: &u64| self.posts[self.processes[serial].post].partition == partition;
        self.active(role, None).into_iter().filter(own).collect()
    }
}
