//! Messages `AdminToLauncher`: what the launcher reads of the admin role.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::AdminToLauncher>(data);
}
