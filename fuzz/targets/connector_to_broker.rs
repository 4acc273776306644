//! Messages `ConnectorToBroker`: what one end of a broker's channel reads of the other.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::ConnectorToBroker>(data);
}
