//! Addresses as a service passes them to `connect`, and the lengths that it says they have.
//!
//! Runs in: `fuzz/run`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| broker::address::check(data));
