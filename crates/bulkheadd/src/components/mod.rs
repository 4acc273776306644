//! What the launcher does besides starting, restarting and ending processes: one file for each concern.
//!
//! A component has fields of its own, and gets the supervisor while it works: it cannot reach the fields of another. A
//! new one is a file here, and a field of `all::Components`.

pub(crate) mod admin_commands;
pub(crate) mod admin_socket;
pub(crate) mod all;
pub(crate) mod bans;
pub(crate) mod certificates;
pub(crate) mod conditioning_report;
pub(crate) mod configuration_examination;
pub(crate) mod core_copies;
pub(crate) mod fan_out;
pub(crate) mod file_reload;
pub(crate) mod good_copies;
pub(crate) mod health;
mod health_checks;
pub(crate) mod log_rotation;
pub(crate) mod notifier;
pub(crate) mod probes;
pub(crate) mod registry;
pub(crate) mod rehearsal;
pub(crate) mod republishing;
pub(crate) mod sending;
pub(crate) mod service_manager;
pub(crate) mod status_page;
pub(crate) mod stderr_drain;
pub(crate) mod targets;
pub(crate) mod ticket_keys;

use std::time::Instant;

use supervisor::Supervisor;
use supervisor::restart::Ended;

/// One concern of the launcher.
pub(crate) trait Component {
    /// When `on_time` is to be called, at the latest.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Does what is due.
    fn on_time(&mut self, _supervisor: &mut Supervisor, _now: Instant) {}

    /// A process has ended: nothing of what was expected of the process comes any more.
    fn on_exit(&mut self, _supervisor: &mut Supervisor, _ended: &mut Ended) {}

    /// Whether `serial` is a process that this component has started besides those of the supervisor, and that may have
    /// ended.
    fn on_helper_exit(&mut self, _supervisor: &mut Supervisor, _serial: u64) -> bool {
        false
    }

    /// Whether this component has yet to do something that names a slot.
    fn holds(&self, _slot: usize) -> bool {
        false
    }

    /// Whether the launcher may end without waiting for this component.
    fn is_idle(&self) -> bool {
        true
    }

    /// Whether nothing is under way here that a successor of the launcher would not know of.
    fn is_quiet(&self) -> bool {
        self.is_idle()
    }
}
