//! The signer, which holds private keys.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: sends what is another role's.

use config::Config;
use jail::policy::Policy;
use wire::tls::LauncherToSigner;

use super::kind::RoleKind;
use crate::Supervisor;
use crate::error::Error;
use crate::setup::links::signs;
use crate::spawn::context::SpawnContext;
use crate::spawn::process_spec::ProcessSpec;

/// See the file's head.
pub(super) struct SignerRole;

impl RoleKind for SignerRole {
    fn count(&self, config: &Config, _: usize) -> usize {
        signs(config).into()
    }

    fn ask(&self, supervisor: &mut Supervisor, serial: u64) {
        supervisor.send(serial, &LauncherToSigner::Report {}, None);
    }

    fn connect(&self, supervisor: &mut Supervisor, serial: u64) -> Result<(), Error> {
        supervisor.connect_signer(serial)
    }

    fn policy(&self, _: &SpawnContext, _: &ProcessSpec) -> Policy {
        Policy::Signer
    }
}
