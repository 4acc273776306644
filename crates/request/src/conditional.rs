//! Conditional requests of RFC 9110 13.
//!
//! Untrusted input: the header values. Must never: answer 304
//! or 206 for a state of the file that the client does not have.

use http::header::{self, HeaderMap, HeaderName};

/// The result of a request's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionVerdict {
    /// Answer as if there were none.
    Proceed,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

/// The validators of a file.
pub struct Validators<'a> {
    /// The strong entity tag, with its quotes.
    pub etag: &'a str,
    /// Seconds since 1970 of the last change.
    pub modified: u64,
    /// The same as the value of `Last-Modified`.
    pub last_modified: &'a [u8],
}

/// Evaluates the conditions of a `GET` or `HEAD`, in the order of RFC 9110 13.2.2.
pub fn evaluate(headers: &HeaderMap, file: &Validators<'_>) -> ConditionVerdict {
    if headers.contains_key(header::IF_MATCH) {
        if !listed(headers, header::IF_MATCH, file.etag, Compare::Strong) {
            return ConditionVerdict::Failed;
        }
    } else if seconds(headers, header::IF_UNMODIFIED_SINCE).is_some_and(|limit| file.modified > limit) {
        return ConditionVerdict::Failed;
    }
    if headers.contains_key(header::IF_NONE_MATCH) {
        if listed(headers, header::IF_NONE_MATCH, file.etag, Compare::Weak) {
            return ConditionVerdict::NotModified;
        }
    } else if seconds(headers, header::IF_MODIFIED_SINCE).is_some_and(|limit| file.modified <= limit) {
        return ConditionVerdict::NotModified;
    }
    ConditionVerdict::Proceed
}

/// Whether `Range` is to be heeded: there is no `If-Range`, or it names the present state.
pub fn range_applies(headers: &HeaderMap, file: &Validators<'_>) -> bool {
    let mut values = headers.get_all(header::IF_RANGE).iter();
    match (values.next(), values.next()) {
        (None, _) => true,
        // RFC 9110 13.1.5: the strong comparison, and for dates an exact match.
        (Some(value), None) => {
            value.as_bytes() == file.etag.as_bytes() || value.as_bytes() == file.last_modified
        }
        _ => false,
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Compare {
    Strong,
    Weak,
}

fn listed(headers: &HeaderMap, name: HeaderName, etag: &str, compare: Compare) -> bool {
    headers.get_all(name).iter().any(|value| in_list(value.as_bytes(), etag.as_bytes(), compare))
}

fn in_list(list: &[u8], etag: &[u8], compare: Compare) -> bool {
    if list.trim_ascii() == b"*" {
        return true;
    }
    let mut rest = list;
    loop {
        while let [b' ' | b'\t' | b',', tail @ ..] = rest {
            rest = tail;
        }
        let (weak, tag) = match rest {
            [b'W', b'/', tail @ ..] => (true, tail),
            tail => (false, tail),
        };
        // A comma may stand within the quotes; whoever does not quote is not understood.
        let [b'"', inner @ ..] = tag else { return false };
        let Some(end) = inner.iter().position(|&b| b == b'"') else {
            return false;
        };
        if &tag[..end + 2] == etag && (!weak || compare == Compare::Weak) {
            return true;
        }
        rest = &tag[end + 2..];
    }
}

/// A date that cannot be read, or several, are no condition.
fn seconds(headers: &HeaderMap, name: HeaderName) -> Option<u64> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    let time = httpdate::parse_http_date(value.to_str().ok()?).ok()?;
    Some(time.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Validators<'_> = Validators {
        etag: "\"a,b\"",
        modified: 784_111_777,
        last_modified: b"Sun, 06 Nov 1994 08:49:37 GMT",
    };
    const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";

    fn verdict(lines: &[(&str, &str)]) -> ConditionVerdict {
        evaluate(&map(lines), &FILE)
    }

    fn map(lines: &[(&str, &str)]) -> HeaderMap {
        let parse = |(name, value): &(&str, &str)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap())
        };
        lines.iter().map(parse).collect()
    }

    #[test]
    fn table() {
        use ConditionVerdict::{Failed, NotModified, Proceed};
        let cases: &[(&[(&str, &str)], ConditionVerdict)] = &[
            (&[], Proceed),
            (&[("if-match", "*")], Proceed),
            (&[("if-match", "\"x\", \"a,b\"")], Proceed),
            (&[("if-match", "W/\"a,b\"")], Failed),
            (&[("if-match", "\"x\"")], Failed),
            (&[("if-none-match", "W/\"a,b\"")], NotModified),
            (&[("if-none-match", "\"x\",\"a,b\"")], NotModified),
            (&[("if-none-match", "*")], NotModified),
            (&[("if-none-match", "a,b")], Proceed),
            (&[("if-none-match", "\"x\""), ("if-modified-since", SAME)], Proceed),
            (&[("if-modified-since", SAME)], NotModified),
            (&[("if-modified-since", BEFORE)], Proceed),
            (&[("if-modified-since", "yesterday")], Proceed),
            (&[("if-unmodified-since", SAME)], Proceed),
            (&[("if-unmodified-since", BEFORE)], Failed),
            (&[("if-match", "\"a,b\""), ("if-unmodified-since", BEFORE)], Proceed),
            (&[("if-match", "\"x\""), ("if-none-match", "\"a,b\"")], Failed),
        ];
        for (lines, expected) in cases {
            assert_eq!(verdict(lines), *expected, "{lines:?}");
        }
    }

    #[test]
    fn if_range() {
        assert!(range_applies(&map(&[]), &FILE));
        assert!(range_applies(&map(&[("if-range", "\"a,b\"")]), &FILE));
        assert!(range_applies(&map(&[("if-range", SAME)]), &FILE));
        for value in ["W/\"a,b\"", "\"x\"", BEFORE] {
            assert!(!range_applies(&map(&[("if-range", value)]), &FILE), "{value}");
        }
    }
}
