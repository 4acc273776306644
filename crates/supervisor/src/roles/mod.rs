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

use jail::Limits;
use jail::policy::Policy;
use wire::Role;

use crate::Supervisor;
use crate::error::Error;
use crate::spawn::Origin;
use crate::spawn::cgroup::Share;
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::view::View;

/// What is done for the processes of one role alone.
pub(crate) trait RoleKind: Sync {
    /// Asks a process for its counters, if it has any.
    fn ask(&self, supervisor: &mut Supervisor, serial: u64);

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
