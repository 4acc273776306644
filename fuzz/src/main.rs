//! All fuzz targets: those of the folder `targets`, each a function `fuzz` of bytes.
//!
//! FUZZ_TARGET names the one that runs. One program for all of them is built in a fraction of the time of one for each.
#![no_main]

mod message;

use std::sync::LazyLock;

use libfuzzer_sys::{Corpus, fuzz_target};

include!(concat!(env!("OUT_DIR"), "/targets.rs"));

static TARGET: LazyLock<fn(&[u8]) -> Corpus> = LazyLock::new(|| {
    let wanted = std::env::var("FUZZ_TARGET").unwrap_or_default();
    match TARGETS.iter().find(|(name, _)| *name == wanted) {
        Some((_, target)) => *target,
        None => {
            let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
            eprintln!("fuzz: FUZZ_TARGET must be one of: {}", names.join(" "));
            std::process::exit(2);
        }
    }
});

fuzz_target!(|data: &[u8]| -> Corpus { TARGET(data) });
