//! HTTP dates of RFC 9110 5.6.7.
//!
//! Untrusted input: none. Must never: panic on a time that no HTTP date can tell.

use std::time::{Duration, UNIX_EPOCH};

/// Bytes of an HTTP date.
pub const DATE_BYTES: usize = 29;

/// LIMIT: the last second that an HTTP date can tell, the end of the year 9999.
const SECONDS_MAX: u64 = 253_402_300_799;

/// Formats seconds since 1970 as an HTTP date; what it cannot tell becomes the last that it can.
pub fn date(seconds: u64) -> [u8; DATE_BYTES] {
    let time = UNIX_EPOCH + Duration::from_secs(seconds.min(SECONDS_MAX));
    let mut out = [b' '; DATE_BYTES];
    let text = httpdate::fmt_http_date(time);
    let length = text.len().min(DATE_BYTES);
    out[..length].copy_from_slice(&text.as_bytes()[..length]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_at_the_edges() {
        assert_eq!(&date(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(&date(u64::MAX), b"Fri, 31 Dec 9999 23:59:59 GMT");
    }
}
