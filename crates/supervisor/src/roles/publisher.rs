//! Publishers, each of which reads the templates of one site.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: gives a publisher a path: it has its folder
//! by descriptor alone.

use std::os::fd::OwnedFd;

use jail::Access;
use jail::policy::Policy;
use wire::templates::LauncherToPublisher;

use super::kind::RoleKind;
use crate::Supervisor;
use crate::error::Error;
use crate::spawn::Origin;
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::view::View;

/// See the file's head.
pub(super) struct PublisherRole;

impl RoleKind for PublisherRole {
    fn ask(&self, supervisor: &mut Supervisor, serial: u64) {
        supervisor.send(serial, &LauncherToPublisher::Report {}, None);
    }

    fn connect(&self, supervisor: &mut Supervisor, serial: u64) -> Result<(), Error> {
        supervisor.connect_publisher(serial)
    }

    fn policy(&self, _: &SpawnContext, _: &ProcessSpec) -> Policy {
        Policy::Publisher
    }

    fn let_reach(
        &self,
        context: &SpawnContext,
        spec: &ProcessSpec,
        _: (&OwnedFd, Origin),
        view: &mut View,
    ) -> Result<(), Error> {
        view.reach.paths.push((context.templates_folder(spec)?, Access::Read));
        Ok(())
    }
}
