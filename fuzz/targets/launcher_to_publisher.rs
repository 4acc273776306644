//! Messages `LauncherToPublisher`: what a publisher is told.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::templates::LauncherToPublisher>(data);
}
