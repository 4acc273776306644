//! The head of a CGI answer: what a site worker reads of a script.
//!
//! Runs in: `fuzz/run`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fastcgi::reply::fuzz(data));
