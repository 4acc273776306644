//! Messages `LauncherToConnector`: what one end of a connector's channel reads of the other.
//!
//! Runs in: `fuzz/run`. See `message`.
#![no_main]

mod message;

libfuzzer_sys::fuzz_target!(|data: &[u8]| message::check::<wire::LauncherToConnector>(data));
