//! Messages `LauncherToBroker`: what one end of a broker's channel reads of the other.
//!
//! Runs in: `fuzz/run`. See `message`.
#![no_main]

mod message;

libfuzzer_sys::fuzz_target!(|data: &[u8]| message::check::<wire::LauncherToBroker>(data));
