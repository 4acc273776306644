//! The heads of HTTP/2 frames as they pass: the same are found however the bytes are cut, and counting never panics.

// The module needs nothing else of the site worker, which is large.
#[allow(dead_code)]
#[path = "../../crates/site/src/http2/frames.rs"]
mod frames;

pub fn fuzz(data: &[u8]) {
    frames::fuzz_frames(data);
}
