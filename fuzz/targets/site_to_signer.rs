//! Messages `SiteToSigner`: what the signer reads of a site.

pub fn fuzz(data: &[u8]) {
    crate::message::check::<wire::tls::SiteToSigner>(data);
}
