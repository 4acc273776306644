//! `Accept-Encoding` in a site worker: no encoding is chosen twice, and what is remembered is what was read.

pub fn fuzz(data: &[u8]) {
    request::accept_encoding::fuzz_accept_encoding(data);
}
