//! `Range`: what is sent of a file is what another reader finds in the field, each byte of it once.
//!
//! The first byte is the size of the file.

use request::range::{RANGES_MAX, Span, RangeAnswer, parse};

pub fn fuzz(data: &[u8]) {
    let Some((&size, value)) = data.split_first() else { return };
    let read = read_bytewise(value, usize::from(size));
    match parse(value, size.into()) {
        RangeAnswer::Whole => assert_eq!(read, None),
        RangeAnswer::Unsatisfiable => assert_eq!(read, Some(vec![false; size.into()])),
        RangeAnswer::Spans(spans) => {
            assert!(!spans.is_empty() && spans.len() <= RANGES_MAX);
            assert!(spans.windows(2).all(|two| two[0].start + two[0].length < two[1].start), "in order, and apart");
            let mut marks = vec![false; size.into()];
            for &Span { start, length } in &spans {
                assert!(length > 0);
                marks[start as usize..(start + length) as usize].fill(true);
            }
            assert_eq!(read, Some(marks));
            let again = spans.iter().map(|span| format!("{}-{}", span.start, span.start + span.length - 1));
            let again = format!("bytes={}", again.collect::<Vec<_>>().join(","));
            assert_eq!(parse(again.as_bytes(), size.into()), RangeAnswer::Spans(spans));
        }
    }
}

/// Marks the bytes that are asked for; nothing if the field is not heeded.
fn read_bytewise(value: &[u8], size: usize) -> Option<Vec<bool>> {
    let value = String::from_utf8_lossy(value).into_owned();
    let (unit, list) = value.split_once('=')?;
    let mut marks = vec![false; size];
    let blank = |character: char| character.is_ascii_whitespace();
    let specs: Vec<_> = list.split(',').map(|spec| spec.trim_matches(blank)).filter(|spec| !spec.is_empty()).collect();
    if unit.to_ascii_lowercase() != "bytes" || specs.is_empty() || specs.len() > RANGES_MAX {
        return None;
    }
    for spec in specs {
        let (first, last) = spec.split_once('-')?;
        let number = |text: &str| -> Option<usize> {
            let digits = !text.is_empty() && text.chars().all(|digit| digit.is_ascii_digit());
            digits.then(|| text.parse().unwrap_or(usize::MAX))
        };
        if first.is_empty() {
            let suffix = number(last)?;
            if suffix > 0 && size == 0 {
                return None;
            }
            marks[size.saturating_sub(suffix)..].fill(true);
            continue;
        }
        let (first, last) = (number(first)?, if last.is_empty() { usize::MAX } else { number(last)? });
        if last < first {
            return None;
        }
        marks.iter_mut().take(last.saturating_add(1)).skip(first).for_each(|mark| *mark = true);
    }
    Some(marks)
}
