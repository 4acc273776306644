//! All components of the launcher.
//!
//! Runs in: the launcher, as root. Sees: nothing itself. Never: leaves one out.

use super::Component;
use super::admin_commands::AdminCommands;
use super::bans::Bans;
use super::certificates::Certificates;
use super::conditioning_report::ConditioningReport;
use super::configuration_examination::ConfigurationExamination;
use super::core_copies::CoreCopies;
use super::good_copies::GoodCopies;
use super::health::Health;
use super::log_rotation::LogRotation;
use super::probes::Probes;
use super::registry::Registry;
use super::rehearsal::Rehearsal;
use super::service_manager::ServiceManager;
use super::stderr_drain::StderrDrain;
use super::ticket_keys::TicketKeys;

/// The launcher's work besides looking after processes.
#[derive(Debug)]
pub(crate) struct Components {
    pub(crate) admin_commands: AdminCommands,
    pub(crate) certificates: Certificates,
    pub(crate) ticket_keys: TicketKeys,
    pub(crate) conditioning_report: ConditioningReport,
    pub(crate) bans: Bans,
    pub(crate) probes: Probes,
    pub(crate) core_copies: CoreCopies,
    pub(crate) log_rotation: LogRotation,
    pub(crate) registry: Registry,
    pub(crate) stderr_drain: StderrDrain,
    pub(crate) health: Health,
    pub(crate) rehearsal: Rehearsal,
    pub(crate) configuration_examination: ConfigurationExamination,
    pub(crate) service_manager: ServiceManager,
    pub(crate) good_copies: GoodCopies,
}

impl Components {
    /// All of them. The compiler says if one is missing here.
    pub(crate) fn all(&mut self) -> [&mut dyn Component; 15] {
        let Self {
            admin_commands,
            certificates,
            ticket_keys,
            conditioning_report,
            bans,
            probes,
            core_copies,
            log_rotation,
            registry,
            stderr_drain,
            health,
            rehearsal,
            configuration_examination,
            service_manager,
            good_copies,
        } = self;
        [
            admin_commands,
            certificates,
            ticket_keys,
            conditioning_report,
            bans,
            probes,
            core_copies,
            log_rotation,
            registry,
            stderr_drain,
            health,
            rehearsal,
            configuration_examination,
            service_manager,
            good_copies,
        ]
    }
}
