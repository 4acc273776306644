//! The framing of a chunked body, as a site worker looks at it before hyper does.

pub fn fuzz(data: &[u8]) {
    request::chunks::fuzz(data);
}
