//! Paths as rules, files and backends see them: each spelling of a path leads to one normal form.

use libfuzzer_sys::Corpus;
use request::path::{NormalPath, fuzz_path};
use request::target::{RequestTarget, split};
use request::script::{ends_with, split_script};

pub fn fuzz(data: &[u8]) -> Corpus {
    let Ok(target) = std::str::from_utf8(data) else {
        return Corpus::Reject;
    };
    let Ok(RequestTarget { path: raw, .. }) = split("GET", target) else {
        return Corpus::Reject;
    };
    fuzz_path(raw);
    let Ok(path) = NormalPath::parse(raw) else {
        return Corpus::Keep;
    };
    if let Some((script, rest)) = split_script(path.as_bytes(), ".php") {
        assert_eq!([script, rest].concat(), path.as_bytes());
        assert!(ends_with(script, ".php") && (rest.is_empty() || rest.starts_with(b"/")));
        // The first segment that is a script, however often its own name has the suffix.
        let folder = script.iter().rposition(|&byte| byte == b'/').map_or(&b""[..], |slash| &script[..slash]);
        assert!(split_script(folder, ".php").is_none());
    }
    Corpus::Keep
}
