//! Paths in a site worker: what is resolved stays below the root and has one spelling.
//!
//! Runs in: `fuzz/run`. Paths are those that a head can have: `request` refuses control characters and the like.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use request::target::{Place, split};
use site::path::{encode, resolve};

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(target) = std::str::from_utf8(data) else {
        return Corpus::Reject;
    };
    let Ok(Place { path: raw, .. }) = split("GET", target) else {
        return Corpus::Reject;
    };
    let Ok(path) = resolve(raw) else {
        return Corpus::Keep;
    };
    assert!(!path.bytes.contains(&0));
    if !path.bytes.is_empty() {
        for segment in path.bytes.split(|&byte| byte == b'/') {
            assert!(
                !segment.is_empty() && segment != b"." && segment != b"..",
                "{path:?}"
            );
        }
    }
    let spelt = encode(&path);
    assert!(
        spelt.starts_with('/') && !spelt.starts_with("//"),
        "a Location to another host: {spelt}"
    );
    assert!(spelt.bytes().all(|byte| byte.is_ascii_graphic()), "{spelt}");
    let again = resolve(&spelt).expect("its own spelling");
    assert_eq!(
        (&again.bytes, again.slash, again.canonical),
        (&path.bytes, path.slash, true)
    );
    assert_eq!(path.canonical, spelt == raw);
    Corpus::Keep
});
