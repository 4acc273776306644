//! Paths as the rules of a site worker see them: what leads to a file has the spelling that its rule was written in.
//!
//! Runs in: `fuzz/run`.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use request::target::{Place, split};
use site::path::resolve;
use site::rules::spelling::{SLASH, ends_with, spelt, split_script};

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(target) = std::str::from_utf8(data) else {
        return Corpus::Reject;
    };
    let Ok(Place { path: raw, .. }) = split("GET", target) else {
        return Corpus::Reject;
    };
    let Ok(path) = spelt(raw) else {
        return Corpus::Keep;
    };
    if !path.starts_with('/') {
        assert_eq!(raw, "*");
        return Corpus::Keep;
    }
    let inner = path[1..].strip_suffix('/').unwrap_or(&path[1..]);
    if !inner.is_empty() {
        for segment in inner.split('/') {
            assert!(!segment.is_empty() && segment != "." && segment != "..", "{path:?}");
        }
    }
    // Whatever file it leads to, the rules see that file's own path.
    if let Ok(file) = resolve(raw)
        && let Ok(name) = std::str::from_utf8(&file.bytes)
    {
        let slash = if file.slash && !name.is_empty() { "/" } else { "" };
        assert_eq!(path, format!("/{name}{slash}"));
        assert!(!path.contains(SLASH));
    }
    if let Some((script, rest)) = split_script(&path, ".php") {
        assert_eq!(format!("{script}{rest}"), path);
        assert!(ends_with(script, ".php") && (rest.is_empty() || rest.starts_with('/')));
        // The first segment that is a script, however often its own name has the suffix.
        let folder = script.rfind('/').map_or("", |slash| &script[..slash]);
        assert!(split_script(folder, ".php").is_none());
    }
    Corpus::Keep
});
