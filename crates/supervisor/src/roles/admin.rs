//! The process that passes the administrator's orders on.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: sends what is another role's.

use jail::policy::Policy;
use wire::LauncherToAdmin;

use super::kind::RoleKind;
use crate::Supervisor;
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;

/// See the file's head.
pub(super) struct AdminRole;

impl RoleKind for AdminRole {
    fn ask(&self, supervisor: &mut Supervisor, serial: u64) {
        supervisor.send(serial, &LauncherToAdmin::Report {}, None);
    }

    fn policy(&self, _: &SpawnContext, _: &ProcessSpec) -> Policy {
        Policy::Admin
    }
}
