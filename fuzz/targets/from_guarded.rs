//! Messages `FromGuarded`: what a gate reads of a guarded server, whose own program is anybody's.
//!
//! Runs in: `fuzz/run`. See `message`.
#![no_main]

mod message;

libfuzzer_sys::fuzz_target!(|data: &[u8]| message::check::<wire::FromGuarded>(data));
