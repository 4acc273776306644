//! Messages `ToGuard`: what a guard reads of the server that it guards.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::ToGuard>(data);
}
