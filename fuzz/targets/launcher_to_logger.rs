//! Messages `LauncherToLogger`: what the logger reads of the launcher.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::LauncherToLogger>(data);
}
