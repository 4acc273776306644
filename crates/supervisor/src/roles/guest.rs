//! Services and filters, which are programs of the operator's.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: lets such a program reach what its table
//! does not name.

use std::os::fd::OwnedFd;

use config::Config;
use jail::Limits;
use jail::policy::Policy;
use wire::LauncherToService;

use super::kind::RoleKind;
use crate::Supervisor;
use crate::error::Error;
use crate::spawn::Origin;
use crate::spawn::cgroup::Share;
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::view::View;

/// See the file's head.
pub(super) enum GuestRole {
    /// It has a channel to the launcher.
    Service,
    /// Any program, which says nothing.
    Filter,
}

impl RoleKind for GuestRole {
    fn count(&self, config: &Config, _: usize) -> usize {
        match self {
            Self::Service => 0,
            Self::Filter => config.conditioning.filters.len(),
        }
    }

    fn ask(&self, supervisor: &mut Supervisor, serial: u64) {
        if let Self::Service = self {
            supervisor.send(serial, &LauncherToService::Report {}, None);
        }
    }

    fn configure(&self, supervisor: &mut Supervisor, serial: u64) -> Result<(), Error> {
        match self {
            Self::Service => {
                let setup = supervisor.context().messages().service_setup(supervisor.spec_of(serial));
                supervisor.send_all(serial, setup.into_iter().map(|message| (message, None)));
            }
            Self::Filter => supervisor.on_filter_there(serial),
        }
        Ok(())
    }

    fn policy(&self, context: &SpawnContext, spec: &ProcessSpec) -> Policy {
        Policy::Service(context.grants(spec))
    }

    fn let_reach(
        &self,
        context: &SpawnContext,
        spec: &ProcessSpec,
        program: (&OwnedFd, Origin),
        view: &mut View,
    ) -> Result<(), Error> {
        match context.guest(spec) {
            Some(service) => context.let_guest_reach(service, spec, program, view),
            None => Ok(()),
        }
    }

    fn limit(&self, context: &SpawnContext, spec: &ProcessSpec, limits: &mut Limits) {
        context.limit_guest(spec, limits);
    }

    fn share(&self, context: &SpawnContext, spec: &ProcessSpec, share: &mut Share) {
        context.share_with_guest(spec, share);
    }
}
