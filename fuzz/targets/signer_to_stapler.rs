//! Messages `SignerToStapler`: what the stapler reads of the signer.
//!
//! Runs in: `fuzz/run`. See `message`.
#![no_main]

mod message;

libfuzzer_sys::fuzz_target!(|data: &[u8]| message::check::<wire::stapler::SignerToStapler>(data));
