//! Conditional requests: 304, 412 and ranges only for the state of the file that the client names.
//!
//! The lines are the values of the five fields, an empty one being absent.

use http::header::{self, HeaderMap, HeaderValue};
use request::conditional::{Validators, ConditionVerdict, evaluate, range_applies};

const FILE: Validators<'_> = Validators {
    etag: "\"a,b\"",
    modified: 784_111_777,
    last_modified: b"Sun, 06 Nov 1994 08:49:37 GMT",
};

pub fn fuzz(data: &[u8]) {
    let names = [
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        header::IF_MODIFIED_SINCE,
        header::IF_UNMODIFIED_SINCE,
        header::IF_RANGE,
    ];
    let lines = data.split(|&byte| byte == b'\n').filter_map(|line| HeaderValue::from_bytes(line).ok());
    let fields = names.into_iter().zip(lines).filter(|(_, value)| !value.is_empty());
    let headers: HeaderMap = fields.collect();
    let text = |name| headers.get(name).map(HeaderValue::as_bytes);
    let matches = |name, weak_counts| text(name).map(|list| is_named(list, weak_counts));
    let later = |name| {
        let date = httpdate::parse_http_date(std::str::from_utf8(text(name)?).ok()?).ok()?;
        Some(date.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs() >= FILE.modified)
    };
    let precondition = matches(header::IF_MATCH, false).or(later(header::IF_UNMODIFIED_SINCE)).unwrap_or(true);
    let known = matches(header::IF_NONE_MATCH, true).or(later(header::IF_MODIFIED_SINCE)).unwrap_or(false);
    let expected = match (precondition, known) {
        (false, _) => ConditionVerdict::Failed,
        (true, true) => ConditionVerdict::NotModified,
        (true, false) => ConditionVerdict::Proceed,
    };
    assert_eq!(evaluate(&headers, &FILE), expected);
    let same = [FILE.etag.as_bytes(), FILE.last_modified];
    assert_eq!(range_applies(&headers, &FILE), text(header::IF_RANGE).is_none_or(|value| same.contains(&value)));
}

/// Whether a list of entity tags names the file: every second part between quotes is a tag.
fn is_named(list: &[u8], weak_counts: bool) -> bool {
    if list.trim_ascii() == b"*" {
        return true;
    }
    let parts: Vec<_> = list.split(|&byte| byte == b'"').collect();
    let tags = parts.chunks_exact(2).take(parts.len() / 2);
    for (at, two) in tags.enumerate() {
        let [before, tag] = two else { unreachable!("chunks of two") };
        let (before, weak) = before.strip_suffix(b"W/").map_or((*before, false), |before| (before, true));
        let closed = 2 * at + 2 < parts.len();
        if !before.iter().all(|byte| b" \t,".contains(byte)) || !closed {
            return false;
        }
        if *tag == b"a,b" && (weak_counts || !weak) {
            return true;
        }
    }
    false
}
