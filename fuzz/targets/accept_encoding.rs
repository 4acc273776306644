//! `Accept-Encoding` in a site worker: no encoding is chosen twice, and what is remembered is what was read.
//!
//! Runs in: `fuzz/run`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| request::accept_encoding::fuzz_accept_encoding(data));
