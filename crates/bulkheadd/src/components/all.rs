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

/// Declares the components: a field for each, and a list of all of them.
macro_rules! components {
    ($($field:ident: $component:ident),* $(,)?) => {
        /// The launcher's work besides looking after processes.
        #[derive(Debug)]
        pub(crate) struct Components { $(pub(crate) $field: $component),* }

        impl Components {
            /// All of them.
            pub(crate) fn all(&mut self) -> [&mut dyn Component; [$(stringify!($field)),*].len()] {
                [$(&mut self.$field),*]
            }
        }
    };
}

components! {
    admin_commands: AdminCommands,
    certificates: Certificates,
    ticket_keys: TicketKeys,
    conditioning_report: ConditioningReport,
    bans: Bans,
    probes: Probes,
    core_copies: CoreCopies,
    log_rotation: LogRotation,
    registry: Registry,
    stderr_drain: StderrDrain,
    health: Health,
    rehearsal: Rehearsal,
    configuration_examination: ConfigurationExamination,
    service_manager: ServiceManager,
    good_copies: GoodCopies,
}
