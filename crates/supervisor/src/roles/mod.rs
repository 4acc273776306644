//! The launcher's part for each role, in a file of its own; the facts are in the rows of `wire::Role`.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: has a role without a policy of system calls.

mod admin;
mod broker;
mod connector;
mod dataproxy;
mod gate;
mod guest;
mod kind;
mod launcher;
mod logger;
mod publisher;
mod signer;
mod site;
mod stapler;

use std::os::fd::OwnedFd;

use wire::{Message, Role};

use self::kind::RoleKind;
use crate::Supervisor;
use crate::error::Error;

impl Supervisor {
    /// Sends a new process what it must know before it serves, as far as that follows from the configuration.
    pub fn configure_by_role(&mut self, serial: u64) -> Result<(), Error> {
        kind(self.spec_of(serial).role).configure(self, serial)
    }

    /// Makes the channels between a new process and everyone that it works with, to what others need first: who gets
    /// requests can pass them on.
    pub fn connect(&mut self, serial: u64) -> Result<(), Error> {
        Role::REPLACEMENT_ORDER.into_iter().try_for_each(|role| kind(role).connect(self, serial))
    }

    /// Sends a process these messages.
    pub(crate) fn send_all<M: Message>(
        &mut self,
        serial: u64,
        messages: impl IntoIterator<Item = (M, Option<OwnedFd>)>,
    ) {
        messages.into_iter().for_each(|(message, descriptor)| self.send(serial, &message, descriptor));
    }
}

/// The functions of a role.
pub(crate) const fn kind(role: Role) -> &'static dyn RoleKind {
    match role {
        Role::Launcher => &launcher::LauncherRole,
        Role::Gate => &gate::GateRole,
        Role::Site => &site::SiteRole,
        Role::Service => &guest::GuestRole::Service,
        Role::Logger => &logger::LoggerRole,
        Role::Admin => &admin::AdminRole,
        Role::Filter => &guest::GuestRole::Filter,
        Role::Signer => &signer::SignerRole,
        Role::Connector => &connector::ConnectorRole,
        Role::Stapler => &stapler::StaplerRole,
        Role::Broker => &broker::BrokerRole,
        Role::DataProxy => &dataproxy::DataProxyRole,
        Role::Publisher => &publisher::PublisherRole,
    }
}
