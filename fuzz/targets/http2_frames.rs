//! The heads of HTTP/2 frames as they pass: the same are found however the bytes are cut, and counting never panics.
//!
//! Runs in: `fuzz/run`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| site::http2::frames::fuzz_frames(data));
