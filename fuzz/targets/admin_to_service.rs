//! Messages `AdminToService`: what a service reads of the administrator's orders.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::orders::AdminToService>(data);
}
