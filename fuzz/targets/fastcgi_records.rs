//! FastCGI records: what a site worker reads of a server behind it.

use fastcgi::record::{Decoder, Record};

fn decode(data: &[u8], step: usize) -> (Vec<Record>, bool) {
    let (mut decoder, mut found) = (Decoder::default(), Vec::new());
    for part in data.chunks(step) {
        decoder.room().extend_from_slice(part);
        loop {
            match decoder.take() {
                Ok(Some(record)) => found.push(record),
                Ok(None) => break,
                Err(_) => return (found, true),
            }
        }
    }
    (found, false)
}

pub fn fuzz(data: &[u8]) {
    // The same records, however the bytes arrive.
    let whole = decode(data, data.len().max(1));
    assert_eq!(decode(data, 1), whole);
    assert_eq!(decode(data, 7), whole);
}
