//! Messages `StaplerToSite`: what a site reads of the stapler.
//!
//! Runs in: `fuzz/run`. See `message`.
#![no_main]

mod message;

libfuzzer_sys::fuzz_target!(|data: &[u8]| message::check::<wire::stapler::StaplerToSite>(data));
