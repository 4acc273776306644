//! A connection of HTTP/2: the same requests are found, and the same is sent, however the bytes are cut; limits hold.

pub fn fuzz(data: &[u8]) {
    http2::fuzz(data);
}
