//! What the supervisor does besides starting, restarting and ending processes: one file for each concern.

pub(crate) mod admin_commands;
pub(crate) mod admin_socket;
pub(crate) mod bans;
pub(crate) mod certificates;
pub(crate) mod conditioning_report;
pub(crate) mod core_copies;
pub(crate) mod fan_out;
pub(crate) mod file_reload;
pub(crate) mod log_rotation;
pub(crate) mod probes;
pub(crate) mod stderr_drain;
pub(crate) mod ticket_keys;
