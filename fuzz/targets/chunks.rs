//! The framing of a chunked body, as a site worker looks at it before hyper does.
//!
//! Runs in: `fuzz/run`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| request::chunks::fuzz(data));
