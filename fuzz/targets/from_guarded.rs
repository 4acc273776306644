//! Messages `FromGuarded`: what a gate reads of a guarded server, whose own program is anybody's.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::FromGuarded>(data);
}
