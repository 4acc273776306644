//! Messages `ServiceToAdmin`: what the admin role reads of a service's answers.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::orders::ServiceToAdmin>(data);
}
