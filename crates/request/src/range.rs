//! `Range` of RFC 9110 14.
//!
//! Untrusted input: the header value. Must never: let a client
//! ask for more bytes than the file has (RFC 9110 17.15).

/// LIMIT: ranges in one request; nobody with good reasons needs more, and each costs a part of its own.
pub const RANGES_MAX: usize = 16;

/// A piece of a file: `length` bytes, at least one, from `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// The first byte.
    pub start: u64,
    /// Bytes.
    pub length: u64,
}

/// The ranges to be answered.
#[derive(Debug, PartialEq, Eq)]
pub enum RangeAnswer {
    /// The whole: the header is not for us, malformed, or asks for too many pieces.
    Whole,
    /// These pieces, in ascending order, none touching another.
    Spans(Vec<Span>),
    /// None of the pieces exists: 416.
    Unsatisfiable,
}

/// Reads a `Range` value for a file of `size` bytes.
pub fn parse(value: &[u8], size: u64) -> RangeAnswer {
    let Some((unit, list)) = value.split_at_checked(6) else {
        return RangeAnswer::Whole;
    };
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return RangeAnswer::Whole;
    }
    let mut spans = Vec::new();
    let mut seen = 0;
    for spec in list.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
        // RFC 9110 5.6.1: a recipient takes empty list elements for nothing.
        if spec.is_empty() {
            continue;
        }
        seen += 1;
        if seen > RANGES_MAX {
            return RangeAnswer::Whole;
        }
        match span(spec, size) {
            Some(Some(span)) => spans.push(span),
            Some(None) => {}
            None => return RangeAnswer::Whole,
        }
    }
    match (seen, spans.is_empty()) {
        (0, _) => RangeAnswer::Whole,
        (_, true) => RangeAnswer::Unsatisfiable,
        _ => RangeAnswer::Spans(merge(spans)),
    }
}

/// `None` if the syntax is wrong, or the range exists but cannot be told (all of an empty file);
/// `Some(None)` if there is no such range.
fn span(spec: &[u8], size: u64) -> Option<Option<Span>> {
    let dash = spec.iter().position(|&b| b == b'-')?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    if first.is_empty() {
        let suffix = number(last)?;
        let length = suffix.min(size);
        return match (suffix, length) {
            (0, _) => Some(None),
            (_, 0) => None,
            _ => Some(Some(Span { start: size - length, length })),
        };
    }
    let start = number(first)?;
    let last = if last.is_empty() { u64::MAX } else { number(last)? };
    if last < start {
        return None;
    }
    Some((start < size).then(|| Span { start, length: last.min(size - 1) - start + 1 }))
}

/// Digits only; numbers beyond all files are as good as the largest.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let step = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(digits.iter().fold(0, step))
}

fn merge(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut merged: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.start <= last.start + last.length => {
                last.length = last.length.max(span.start + span.length - last.start);
            }
            _ => merged.push(span),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(start: u64, length: u64) -> RangeAnswer {
        RangeAnswer::Spans(vec![Span { start, length }])
    }

    #[test]
    fn table() {
        assert_eq!(parse(b"bytes=0-0", 10), one(0, 1));
        assert_eq!(parse(b"Bytes=2-", 10), one(2, 8));
        assert_eq!(parse(b"bytes=-3", 10), one(7, 3));
        assert_eq!(parse(b"bytes=-30", 10), one(0, 10));
        assert_eq!(parse(b"bytes=5-99999999999999999999999", 10), one(5, 5));
        assert_eq!(parse(b"bytes=0-4, 5-7,", 10), one(0, 8));
        for value in ["bytes=10-", "bytes=-0", "bytes=99-100,-0"] {
            assert_eq!(parse(value.as_bytes(), 10), RangeAnswer::Unsatisfiable, "{value}");
        }
        for value in ["", "bytes", "bytes=", "bytes=,", "bytes=a-", "bytes=4-2", "lines=0-1", "bytes=--1"] {
            assert_eq!(parse(value.as_bytes(), 10), RangeAnswer::Whole, "{value}");
        }
        assert_eq!(parse(b"bytes=0-", 0), RangeAnswer::Unsatisfiable);
        assert_eq!(parse(b"bytes=-5", 0), RangeAnswer::Whole);
        let many = format!("bytes={}", "0-1,".repeat(17));
        assert_eq!(parse(many.as_bytes(), 10), RangeAnswer::Whole);
    }

    /// Against a model that marks single bytes: the spans cover exactly what was asked for, once.
    #[test]
    fn covers_what_was_asked() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        for _ in 0..5000 {
            let size = random(30);
            let mut marks = vec![false; 30];
            let mut value = String::from("bytes=");
            let mut whole = false;
            for _ in 0..=random(6) {
                let (a, b) = (random(40), random(40));
                match random(3) {
                    0 => {
                        value += &format!("{a}-{b},");
                        whole |= b < a;
                        (a..=b).filter(|&i| i < size).for_each(|i| marks[i as usize] = true);
                    }
                    1 => {
                        value += &format!("{a}-,");
                        (a..size).for_each(|i| marks[i as usize] = true);
                    }
                    _ => {
                        value += &format!("-{a},");
                        whole |= size == 0 && a > 0;
                        (size.saturating_sub(a)..size).for_each(|i| marks[i as usize] = true);
                    }
                }
            }
            match parse(value.as_bytes(), size) {
                RangeAnswer::Whole => assert!(whole, "{value} of {size}"),
                RangeAnswer::Unsatisfiable => assert!(!marks.contains(&true), "{value} of {size}"),
                RangeAnswer::Spans(spans) => {
                    assert!(spans.windows(2).all(|w| w[0].start + w[0].length < w[1].start));
                    let mut covered = vec![false; 30];
                    for span in &spans {
                        (span.start..span.start + span.length).for_each(|i| covered[i as usize] = true);
                    }
                    assert_eq!(covered, marks, "{value} of {size}");
                }
            }
        }
    }
}
