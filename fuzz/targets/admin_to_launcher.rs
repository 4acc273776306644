//! Messages `AdminToLauncher`: what the launcher reads of the admin role.
//!
//! Runs in: `fuzz/run`. See `message`.
#![no_main]

mod message;

libfuzzer_sys::fuzz_target!(|data: &[u8]| message::check::<wire::AdminToLauncher>(data));
