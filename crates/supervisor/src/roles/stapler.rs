//! The stapler, which asks authorities about certificates.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: lets the stapler reach more than the ports
//! of responders and of DNS.

use std::os::fd::OwnedFd;

use config::Config;
use jail::policy::Policy;
use wire::stapler::LauncherToStapler;

use super::kind::RoleKind;
use crate::Supervisor;
use crate::error::Error;
use crate::setup::stapler;
use crate::spawn::Origin;
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::view::View;

/// See the file's head.
pub(super) struct StaplerRole;

impl RoleKind for StaplerRole {
    fn count(&self, config: &Config, _: usize) -> usize {
        stapler::is_wanted(config).into()
    }

    fn ask(&self, supervisor: &mut Supervisor, serial: u64) {
        supervisor.send(serial, &LauncherToStapler::Report {}, None);
    }

    fn configure(&self, supervisor: &mut Supervisor, serial: u64) -> Result<(), Error> {
        let messages = supervisor.context().stapler_setup();
        supervisor.send_all(serial, messages);
        Ok(())
    }

    fn connect(&self, supervisor: &mut Supervisor, serial: u64) -> Result<(), Error> {
        supervisor.connect_stapler(serial)
    }

    fn policy(&self, _: &SpawnContext, _: &ProcessSpec) -> Policy {
        Policy::Stapler
    }

    fn let_reach(
        &self,
        context: &SpawnContext,
        _: &ProcessSpec,
        _: (&OwnedFd, Origin),
        view: &mut View,
    ) -> Result<(), Error> {
        context.let_stapler_reach(&mut view.reach);
        Ok(())
    }
}
