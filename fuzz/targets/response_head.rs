//! The head of a response of HTTP/1, which a site worker reads of a server behind it, and the trailer of its body.

pub fn fuzz(data: &[u8]) {
    request::response_head::fuzz(data);
}
