//! Messages `ToWorker`: what a site reads of gates, and a service of gates and its site.
//!
//! Runs in: `fuzz/run`. See `message`.
#![no_main]

mod message;

libfuzzer_sys::fuzz_target!(|data: &[u8]| message::check::<wire::ToWorker>(data));
