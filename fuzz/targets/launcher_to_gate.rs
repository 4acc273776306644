//! Messages `LauncherToGate`: what a gate reads of the launcher.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::LauncherToGate>(data);
}
