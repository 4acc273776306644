//! Messages `DataProxyToService`: what one end of a data proxy's channel reads of the other.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::data::DataProxyToService>(data);
}
