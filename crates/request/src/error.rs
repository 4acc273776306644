//! The answers that a server makes itself: one page, and one response of HTTP/1.1 that ends its connection.
//! Gates, site workers and services say the same.
//!
//! Untrusted input: none. Must never: repeat anything of a request, unescaped or at all.

use std::fmt::Write as _;

use http::StatusCode;

use crate::date::DATE_BYTES;

/// The value of `Server` in all responses.
pub const SERVER: &str = "bulkhead";

/// The type of [`page`].
pub const CONTENT_TYPE: &str = "text/html; charset=utf-8";

/// LIMIT: seconds after which a client that was refused for overload may come back.
const RETRY_AFTER_S: u16 = 5;

/// The page for a status, with a sentence for people, which may be empty.
pub fn page(status: StatusCode, sentence: &str) -> String {
    let (code, reason) = (status.as_str(), reason(status));
    let mut page = format!("<!doctype html>\n<title>{code} {reason}</title>\n<h1>{code} {reason}</h1>\n");
    if !sentence.is_empty() {
        // INVARIANT: writing to a string does not fail.
        let _ = writeln!(page, "<p>{sentence}</p>");
    }
    page
}

/// After how many seconds a client may ask again that gets this status, where that is any use: what was overloaded has
/// done some of its work by then, and a rate limit has room for at least one request.
pub fn retry_after(status: StatusCode) -> Option<u16> {
    match status {
        StatusCode::SERVICE_UNAVAILABLE => Some(RETRY_AFTER_S),
        StatusCode::TOO_MANY_REQUESTS => Some(1),
        _ => None,
    }
}

/// A whole response of HTTP/1.1 with [`page`], after which the connection ends, and how many bytes of it are the page:
/// none for a client that asks by `HEAD`. `lines` are further header lines, each with its end.
pub fn closing(
    status: StatusCode,
    sentence: &str,
    date: &[u8; DATE_BYTES],
    lines: &str,
    is_head: bool,
) -> (String, usize) {
    let (code, reason, page) = (status.as_str(), reason(status), page(status, sentence));
    let (date, length) = (String::from_utf8_lossy(date), page.len());
    let mut text = format!(
        "HTTP/1.1 {code} {reason}\r\nServer: {SERVER}\r\nDate: {date}\r\nConnection: close\r\n\
         Content-Type: {CONTENT_TYPE}\r\nContent-Length: {length}\r\nX-Content-Type-Options: nosniff\r\n{lines}"
    );
    if let Some(seconds) = retry_after(status) {
        let _ = write!(text, "Retry-After: {seconds}\r\n");
    }
    text.push_str("\r\n");
    if is_head {
        return (text, 0);
    }
    text.push_str(&page);
    (text, length)
}

fn reason(status: StatusCode) -> &'static str {
    status.canonical_reason().unwrap_or("Error")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_whole_and_says_its_length() {
        let (text, length) = closing(StatusCode::NOT_FOUND, "None.", &[b'0'; DATE_BYTES], "A: b\r\n", false);
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 404 Not Found\r\n") && head.contains("\r\nA: b"));
        assert!(head.contains(&format!("\r\nContent-Length: {length}\r\n")) && !head.contains("Retry-After"));
        assert_eq!((body.len(), body.ends_with("<h1>404 Not Found</h1>\n<p>None.</p>\n")), (length, true));
    }

    #[test]
    fn one_that_is_overloaded_says_when_to_come_again() {
        let (text, length) = closing(StatusCode::SERVICE_UNAVAILABLE, "", &[b'0'; DATE_BYTES], "", true);
        assert!(text.ends_with("\r\nRetry-After: 5\r\n\r\n") && length == 0);
        assert_eq!(retry_after(StatusCode::TOO_MANY_REQUESTS), Some(1));
    }
}
