//! Messages `LauncherToSigner`: what the signer reads of the launcher.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::tls::LauncherToSigner>(data);
}
