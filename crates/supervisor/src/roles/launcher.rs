//! The launcher itself, which nobody starts but the operator or the launcher before it.
//!
//! Runs in: the launcher, as root. Sees nothing. Never: is asked anything.

use jail::policy::{Grants, Policy};

use super::kind::RoleKind;
use crate::Supervisor;
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;

/// See the file's head.
pub(super) struct LauncherRole;

impl RoleKind for LauncherRole {
    fn ask(&self, _: &mut Supervisor, _: u64) {}

    fn policy(&self, _: &SpawnContext, _: &ProcessSpec) -> Policy {
        Policy::Service(Grants { tcp: false, udp: false, jit: false })
    }
}
