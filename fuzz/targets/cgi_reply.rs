//! The head of a CGI answer: what a site worker reads of a script.
//!
//! Runs in: `fuzz/run`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| site::proxy::fastcgi::reply::fuzz(data));
