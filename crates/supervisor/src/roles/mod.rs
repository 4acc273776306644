//! What the launcher does for the processes of one role alone: a file for each role, and what is a fact in `wire::Role`'s row.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: has a role without a policy of system calls.

mod admin;
mod broker;
mod connector;
mod dataproxy;
mod gate;
mod guest;
mod launcher;
mod logger;
mod publisher;
mod signer;
mod site;
mod stapler;

use std::os::fd::OwnedFd;

use config::Config;
use jail::Limits;
use jail::policy::Policy;
use wire::{Message, Role};

use crate::Supervisor;
use crate::error::Error;
use crate::spawn::Origin;
use crate::spawn::cgroup::Share;
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::view::View;

/// What is done for the processes of one role alone.
pub(crate) trait RoleKind: Sync {
    /// How many processes of a role of the whole server there are to be, where so many gates are asked for.
    fn count(&self, _config: &Config, _gates: usize) -> usize {
        1
    }

    /// Asks a process for its counters, if it has any.
    fn ask(&self, supervisor: &mut Supervisor, serial: u64);

    /// Sends a new process what it must know before it serves. Empty for roles that are sent what only the launcher's components have.
    fn configure(&self, _supervisor: &mut Supervisor, _serial: u64) -> Result<(), Error> {
        Ok(())
    }

    /// Makes the channels between a new process, of any role, and those of this role or the other way round.
    fn connect(&self, _supervisor: &mut Supervisor, _serial: u64) -> Result<(), Error> {
        Ok(())
    }

    /// Which system calls a process may make.
    fn policy(&self, context: &SpawnContext, spec: &ProcessSpec) -> Policy;

    /// Lets a process reach what it needs beside its program.
    fn let_reach(
        &self,
        _context: &SpawnContext,
        _spec: &ProcessSpec,
        _program: (&OwnedFd, Origin),
        _view: &mut View,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// The layers of a jail that a process does without.
    fn without(&self) -> &'static [&'static str] {
        &[]
    }

    /// Changes the limits that a role of ours has.
    fn limit(&self, _context: &SpawnContext, _spec: &ProcessSpec, _limits: &mut Limits) {}

    /// Changes the share of the machine that a role of ours has.
    fn share(&self, _context: &SpawnContext, _spec: &ProcessSpec, _share: &mut Share) {}
}

/// How many processes of a role of the whole server there are to be, where so many gates are asked for.
pub(crate) fn count(role: Role, config: &Config, gates: usize) -> usize {
    kind(role).count(config, gates)
}

impl Supervisor {
    /// Sends a new process what it must know before it serves, as far as that follows from the configuration.
    pub fn configure_by_role(&mut self, serial: u64) -> Result<(), Error> {
        kind(self.spec_of(serial).role).configure(self, serial)
    }

    /// Makes the channels between a new process and everyone that it works with, to what others need first: who gets requests can pass
    /// them on.
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

/// What is done for the processes of a role alone.
pub(crate) const fn kind(role: Role) -> &'static dyn RoleKind {
    match role {
        Role::Launcher => &launcher::Launcher,
        Role::Gate => &gate::Gate,
        Role::Site => &site::Site,
        Role::Service => &guest::Guest::Service,
        Role::Logger => &logger::Logger,
        Role::Admin => &admin::Admin,
        Role::Filter => &guest::Guest::Filter,
        Role::Signer => &signer::Signer,
        Role::Connector => &connector::Connector,
        Role::Stapler => &stapler::Stapler,
        Role::Broker => &broker::Broker,
        Role::DataProxy => &dataproxy::DataProxy,
        Role::Publisher => &publisher::Publisher,
    }
}
