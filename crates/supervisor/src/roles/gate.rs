//! The gates, which accept connections.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: sends what is another role's.

use config::Config;
use jail::policy::Policy;
use wire::LauncherToGate;

use super::kind::RoleKind;
use crate::Supervisor;
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;

/// See the file's head.
pub(super) struct GateRole;

impl RoleKind for GateRole {
    fn count(&self, _: &Config, gates: usize) -> usize {
        gates
    }

    fn ask(&self, supervisor: &mut Supervisor, serial: u64) {
        supervisor.send(serial, &LauncherToGate::Report {}, None);
    }

    fn policy(&self, _: &SpawnContext, _: &ProcessSpec) -> Policy {
        Policy::Gate
    }
}
