//! Messages `LauncherToAdmin`: what the admin role reads of the launcher.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::LauncherToAdmin>(data);
}
