//! Connectors, which make connections for a site, a service or a data proxy.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: lets a connector reach more than its
//! servers.

use std::os::fd::OwnedFd;

use jail::policy::Policy;
use wire::LauncherToConnector;

use super::kind::RoleKind;
use crate::Supervisor;
use crate::error::Error;
use crate::spawn::Origin;
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::view::View;

/// See the file's head.
pub(super) struct ConnectorRole;

impl RoleKind for ConnectorRole {
    fn ask(&self, supervisor: &mut Supervisor, serial: u64) {
        supervisor.send(serial, &LauncherToConnector::Report {}, None);
    }

    fn configure(&self, supervisor: &mut Supervisor, serial: u64) -> Result<(), Error> {
        let messages = supervisor.context().connector_setup(supervisor.spec_of(serial))?;
        supervisor.send_all(serial, messages);
        Ok(())
    }

    fn connect(&self, supervisor: &mut Supervisor, serial: u64) -> Result<(), Error> {
        supervisor.connect_backends(serial)
    }

    fn policy(&self, context: &SpawnContext, spec: &ProcessSpec) -> Policy {
        context.connector_policy(spec)
    }

    fn let_reach(
        &self,
        context: &SpawnContext,
        spec: &ProcessSpec,
        _: (&OwnedFd, Origin),
        view: &mut View,
    ) -> Result<(), Error> {
        context.let_connector_reach(spec, &mut view.reach)
    }
}
