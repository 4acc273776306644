//! Messages `ToGuard`: what a guard reads of the server that it guards.
//!
//! Runs in: `fuzz/run`. See `message`.
#![no_main]

mod message;

libfuzzer_sys::fuzz_target!(|data: &[u8]| message::check::<wire::ToGuard>(data));
