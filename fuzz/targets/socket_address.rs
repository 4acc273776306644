//! Addresses as a service passes them to `connect`, and the lengths that it says they have.

pub fn fuzz(data: &[u8]) {
    broker::address::check(data);
}
