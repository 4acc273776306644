//! The network that services are granted: what their connectors and brokers are sent, and the channel between the two.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: answers a call of a service, or looks at
//! one; the listeners of their calls are kept only to be given to a broker that takes another's place.

use std::os::fd::OwnedFd;
use wire::{LauncherToBroker, LauncherToConnector, NO_PARTITION, Role, Text};

use crate::Supervisor;
use crate::error::{Error, during};
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;

/// The networks in which any host is.
const ANY: [&str; 2] = ["0.0.0.0/0", "::/0"];

impl SpawnContext {
    /// What the connector of a service is sent of what it may do.
    pub fn grants_setup(&self, spec: &ProcessSpec) -> Vec<LauncherToConnector> {
        let Some(service) = self.granted(spec) else {
            return Vec::new();
        };
        let mut messages = Vec::new();
        for grant in &service.network.tcp {
            let networks = grant.network.as_deref().map_or(ANY.to_vec(), |network| vec![network]);
            messages.extend(
                networks.into_iter().map(|network| LauncherToConnector::Grant {
                    network: Text::new(network),
                    port: grant.port,
                }),
            );
        }
        messages.extend(service.network.udp.then_some(LauncherToConnector::GrantUdp {}));
        messages
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

impl Supervisor {
    /// Says to a new broker what it must know, and gives it the calls of its service's processes.
    pub fn configure_broker(&mut self, serial: u64) -> Result<(), Error> {
        for message in self.context().broker_setup() {
            self.send(serial, &message, None);
        }
        let partition = self.spec_of(serial).partition;
        let own =
            |spec: &usize| self.spec(*spec).role == Role::Service && self.spec(*spec).partition == partition;
        let services =
            self.processes().values().filter(|process| process.is_configured && own(&process.slot));
        let services = services.filter_map(|process| Some((process.child.pid, process.calls.as_ref()?)));
        let listeners: Result<Vec<(u32, OwnedFd)>, _> =
            services.map(|(pid, calls)| Ok((pid, calls.again()?))).collect();
        for (leader, listener) in listeners.map_err(during::<std::io::Error>("duplicate a descriptor"))? {
            self.send(serial, &LauncherToBroker::Listener { leader }, Some(listener));
        }
        Ok(())
    }

    /// Gives the brokers of its service the calls of a new process, if it has any that a broker answers.
    pub fn hand_own_calls(&mut self, serial: u64) -> Result<(), Error> {
        let Some(process) = self.process_mut(serial) else { return Ok(()) };
        let (slot, leader) = (process.slot, process.child.pid);
        let Some(calls) = process.calls.take() else { return Ok(()) };
        let handed = self.hand_calls(slot, leader, &calls);
        if let Some(process) = self.process_mut(serial) {
            process.calls = Some(calls);
        }
        handed
    }

    /// Gives the brokers of a service the calls of a new process of it.
    pub fn hand_calls(
        &mut self,
        spec: usize,
        leader: u32,
        calls: &sys::notify::Listener,
    ) -> Result<(), Error> {
        let partition = self.spec(spec).partition;
        for broker in self.of_partition(Role::Broker, partition) {
            let listener = calls.again().map_err(during("duplicate a descriptor"))?;
            self.send(broker, &LauncherToBroker::Listener { leader }, Some(listener));
        }
        Ok(())
    }

    /// Makes the channels between a new broker and the connectors of its service, or the other way round.
    pub(crate) fn connect_broker(&mut self, serial: u64) -> Result<(), Error> {
        let spec = self.spec_of(serial);
        let partition = spec.partition;
        let (brokers, connectors) = match spec.role {
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
        let own = |serial: &u64| self.spec_of(*serial).partition == partition;
        self.active(role, None).into_iter().filter(own).collect()
    }
}
