//! Messages `ChildToLauncher`: what the launcher reads of every role but admin.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::ChildToLauncher>(data);
}
