//! Messages `ServiceToPublisher`: what one end of a publisher's channel reads of the other.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::templates::ServiceToPublisher>(data);
}
