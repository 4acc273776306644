//! Brokers, which answer a service's calls for sockets.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: starts a broker that cannot look at its
//! service.

use jail::policy::Policy;
use wire::LauncherToBroker;

use super::kind::RoleKind;
use crate::Supervisor;
use crate::error::Error;
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;

/// See the file's head.
pub(super) struct BrokerRole;

impl RoleKind for BrokerRole {
    fn ask(&self, supervisor: &mut Supervisor, serial: u64) {
        supervisor.send(serial, &LauncherToBroker::Report {}, None);
    }

    fn configure(&self, supervisor: &mut Supervisor, serial: u64) -> Result<(), Error> {
        supervisor.configure_broker(serial)
    }

    fn connect(&self, supervisor: &mut Supervisor, serial: u64) -> Result<(), Error> {
        supervisor.connect_broker(serial)
    }

    fn policy(&self, _: &SpawnContext, _: &ProcessSpec) -> Policy {
        Policy::Broker
    }

    /// Landlock forbids to look at processes outside of one's own domain, and a process is known to those alone that
    /// share its PID namespace or are above.
    fn without(&self) -> &'static [&'static str] {
        &["pid namespace", "landlock"]
    }
}
