//! Messages `ChildToLauncher`: what the launcher reads of every role but admin.
//!
//! Runs in: `fuzz/run`. See `message`.
#![no_main]

mod message;

libfuzzer_sys::fuzz_target!(|data: &[u8]| message::check::<wire::ChildToLauncher>(data));
