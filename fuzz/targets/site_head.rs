//! Request heads in a site worker: what is accepted and passed on is accepted again and means the same.
//!
//! Runs in: `fuzz/run`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| site::head::fuzz_head(data));
