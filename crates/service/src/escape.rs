//! Text as it may stand in HTML and in URLs.
//!
//! Runs in: a service's worker. Sees: text that a client may have made up. Never: lets a character of it take
//! part in the markup around it.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// RFC 3986 2.3: the unreserved characters mean the same encoded or not; all others are encoded.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Text that is escaped when formatted; see [`escape`].
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(&'a str);

/// Escapes `text` so that it may stand anywhere in HTML where text or a quoted attribute's value may.
///
/// ```
/// assert_eq!(
///     bulkhead_service::escape("<b>\"Tom\" & 'Ann'").to_string(),
///     "&lt;b&gt;&quot;Tom&quot; &amp; &#39;Ann&#39;"
/// );
/// ```
pub fn escape(text: &str) -> Escaped<'_> {
    Escaped(text)
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(place) = rest.find(['&', '<', '>', '"', '\'']) {
            f.write_str(&rest[..place])?;
            f.write_str(match rest.as_bytes()[place] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                _ => "&#39;",
            })?;
            rest = &rest[place + 1..];
        }
        f.write_str(rest)
    }
}

/// Text that is percent-encoded when formatted; see [`url_encode`].
#[derive(Clone, Copy, Debug)]
pub struct UrlEncoded<'a>(&'a str);

/// Percent-encodes `text` so that it may stand as one segment of a path, or in a query.
///
/// ```
/// assert_eq!(bulkhead_service::url_encode("g++ & co").to_string(), "g%2B%2B%20%26%20co");
/// ```
pub fn url_encode(text: &str) -> UrlEncoded<'_> {
    UrlEncoded(text)
}

impl fmt::Display for UrlEncoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        utf8_percent_encode(self.0, RESERVED).fmt(f)
    }
}
