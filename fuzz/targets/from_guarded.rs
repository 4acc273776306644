//! Messages `FromGuarded`: what a gate reads of a guarded server, whose own program is anybody's; and its answer.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::FromGuarded>(data);
    crate::message::check::<wire::ToGuarded>(data);
}
