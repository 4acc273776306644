//! Messages `ToConnector`: what one end of a connector's channel reads of the other.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::ToConnector>(data);
}
