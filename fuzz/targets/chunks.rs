//! The framing of a chunked body, which a site worker reads.

pub fn fuzz(data: &[u8]) {
    request::chunks::fuzz(data);
}
