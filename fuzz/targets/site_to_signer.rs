//! Messages `SiteToSigner`: what the signer reads of a site.
//!
//! Runs in: `fuzz/run`. See `message`.
#![no_main]

mod message;

libfuzzer_sys::fuzz_target!(|data: &[u8]| message::check::<wire::tls::SiteToSigner>(data));
