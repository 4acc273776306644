//! `Authorization` and files of users in a site worker.
//!
//! Runs in: `fuzz/run`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| site::router::access::users::fuzz_authorization(data));
