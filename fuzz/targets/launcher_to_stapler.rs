//! Messages `LauncherToStapler`: what the stapler reads of the launcher.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::stapler::LauncherToStapler>(data);
}
