//! Messages `SignerToStapler`: what the stapler reads of the signer.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::stapler::SignerToStapler>(data);
}
