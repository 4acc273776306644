//! Messages `FromWorker`: what a gate reads of sites and services, and a site of its services.
//!
//! Runs in: `fuzz/run`. See `message`.
#![no_main]

mod message;

libfuzzer_sys::fuzz_target!(|data: &[u8]| message::check::<wire::FromWorker>(data));
