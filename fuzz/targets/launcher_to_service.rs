//! Messages `LauncherToService`: what a service reads of the launcher.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::LauncherToService>(data);
}
