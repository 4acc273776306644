//! Messages `SignerToSite`: what a site reads of the signer.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::tls::SignerToSite>(data);
}
