//! The part of a role that is no fact: functions of the launcher, which each role may have its own of.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: has a role without a policy of system calls.

use std::os::fd::OwnedFd;

use config::Config;
use jail::Limits;
use jail::policy::Policy;

use crate::Supervisor;
use crate::error::Error;
use crate::spawn::Origin;
use crate::spawn::cgroup::Share;
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::view::View;

/// The functions that a role may have its own of.
pub(crate) trait RoleKind: Sync {
    /// How many processes of a role of the whole server there are to be, where so many gates are asked for.
    fn count(&self, _config: &Config, _gates: usize) -> usize {
        1
    }

    /// Asks a process for its counters, if it has any.
    fn ask(&self, supervisor: &mut Supervisor, serial: u64);

    /// Sends a new process what it must know before it serves. Empty for roles that are sent what only the launcher's
    /// components have.
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
