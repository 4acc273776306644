//! FastCGI records: what a site worker reads of a server behind it.

use fastcgi::record::{RecordDecoder, RecordError, RecordPart};

/// What a server has said, without the places where it was cut.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    ends: Vec<(usize, bool)>,
}

fn decode(data: &[u8], step: usize) -> (Said, Option<RecordError>, bool) {
    let (mut decoder, mut said) = (RecordDecoder::default(), Said::default());
    for mut piece in data.chunks(step) {
        loop {
            match decoder.take(&mut piece) {
                Ok(Some(RecordPart::Stdout(bytes))) => said.stdout.extend_from_slice(bytes),
                Ok(Some(RecordPart::Stderr(bytes))) => said.stderr.extend_from_slice(bytes),
                Ok(Some(RecordPart::End { complete })) => said.ends.push((said.stdout.len(), complete)),
                Ok(None) => break,
                Err(bad) => return (said, Some(bad), false),
            }
        }
        assert!(piece.is_empty(), "what arrives is taken");
    }
    (said, None, decoder.is_empty())
}

pub fn fuzz(data: &[u8]) {
    // The same records, however the bytes arrive.
    let whole = decode(data, data.len().max(1));
    assert_eq!(decode(data, 1), whole);
    assert_eq!(decode(data, 7), whole);
}
