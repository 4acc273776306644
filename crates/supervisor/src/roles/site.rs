//! The workers of sites.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: lets a worker reach folders that are not its
//! site's.

use std::os::fd::OwnedFd;

use jail::policy::Policy;
use jail::{Access, Limits};
use wire::LauncherToSite;

use super::kind::RoleKind;
use crate::Supervisor;
use crate::error::Error;
use crate::spawn::Origin;
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::view::View;

/// See the file's head.
pub(super) struct SiteRole;

impl RoleKind for SiteRole {
    fn ask(&self, supervisor: &mut Supervisor, serial: u64) {
        supervisor.send(serial, &LauncherToSite::Report {}, None);
    }

    fn connect(&self, supervisor: &mut Supervisor, serial: u64) -> Result<(), Error> {
        supervisor.connect_workers(serial)
    }

    fn policy(&self, _: &SpawnContext, _: &ProcessSpec) -> Policy {
        Policy::Site
    }

    fn let_reach(
        &self,
        context: &SpawnContext,
        spec: &ProcessSpec,
        _: (&OwnedFd, Origin),
        view: &mut View,
    ) -> Result<(), Error> {
        for folder in context.config.sites[usize::from(spec.site)].folders() {
            view.reach.paths.push((context.published(folder)?, Access::Read));
        }
        Ok(())
    }

    fn limit(&self, context: &SpawnContext, spec: &ProcessSpec, limits: &mut Limits) {
        // SECURITY: with one file that it writes to, and no right to make others, a worker fills no disk.
        limits.file_bytes = Some(context.spool_bytes(spec));
    }
}
