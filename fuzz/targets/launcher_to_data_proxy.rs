//! Messages `LauncherToDataProxy`: what a data proxy is told.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::data::LauncherToDataProxy>(data);
}
