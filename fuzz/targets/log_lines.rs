//! From a batch to the lines of a log: each record is one line of printable ASCII, whatever a client makes up.
//!
//! The first byte chooses the format.

use libfuzzer_sys::Corpus;
use logger::{Format, format_batch};

pub fn fuzz(data: &[u8]) -> Corpus {
    let Some((number, bytes)) = data.split_first() else {
        return Corpus::Reject;
    };
    let Some(format) = Format::from_number(*number) else {
        return Corpus::Reject;
    };
    let (mut out, mut lines) = (Vec::new(), 0);
    let _ = format_batch(bytes, format, &mut out, &mut lines);
    assert_eq!(out.iter().filter(|&&byte| byte == b'\n').count(), lines);
    assert!(out.is_empty() || out.ends_with(b"\n"));
    assert!(out.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n')));
    Corpus::Keep
}
