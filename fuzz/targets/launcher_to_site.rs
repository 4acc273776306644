//! Messages `LauncherToSite`: what a site reads of the launcher.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::LauncherToSite>(data);
}
