//! Batches of log records: there and back, what is cut, and what a compromised client cannot do with one.
//!
//! Runs in: `cargo test`.

use wire::DecodeError;
use wire::log::{
    Access, BATCH_MAX, Batch, HEADER_MAX, HOST_MAX, Level, METHOD_MAX, RECORD_MAX, Record, TARGET_MAX,
    TEXT_MAX, append, begin,
};

/// Bytes before the first record: version and sequence number.
const HEAD_BYTES: usize = 9;

const LONG: &[u8] = &[b'a'; 70_000];

fn access<'a>(field: impl Fn(usize) -> &'a [u8]) -> Record<'a> {
    Record::Access(Access {
        time_us: u64::MAX,
        duration_us: u32::MAX,
        site: u16::MAX,
        peer: "[2001:db8::1]:65535".parse().expect("an address"),
        status: 404,
        body_bytes: u64::MAX,
        version: 255,
        method: field(METHOD_MAX),
        target: field(TARGET_MAX),
        host: field(HOST_MAX),
        referer: field(HEADER_MAX),
        agent: field(HEADER_MAX),
    })
}

fn event(level: Level, text: &[u8]) -> Record<'_> {
    Record::Event { time_us: 1, level, text }
}

fn samples() -> Vec<Record<'static>> {
    vec![
        access(|_| b""),
        access(|_| b"\0\xff\n"),
        access(|limit| &LONG[..limit]),
        event(Level::Error, b""),
        event(Level::Warning, b"a\nb"),
        event(Level::Info, &LONG[..TEXT_MAX]),
    ]
}

fn batch(sequence: u64, records: &[Record<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    begin(&mut out, sequence);
    records.iter().for_each(|record| append(&mut out, record));
    out
}

fn read(bytes: &[u8]) -> Vec<Result<Record<'_>, DecodeError>> {
    Batch::decode(bytes).expect("the head is whole").collect()
}

#[test]
fn there_and_back() {
    let bytes = batch(u64::MAX - 7, &samples());
    let got = Batch::decode(&bytes).unwrap();
    assert_eq!(got.sequence, u64::MAX - 7);
    assert_eq!(got.collect::<Result<Vec<_>, _>>().unwrap(), samples());
}

#[test]
fn a_batch_may_be_empty() {
    assert_eq!(batch(3, &[]).len(), HEAD_BYTES);
    assert_eq!(read(&batch(3, &[])), []);
}

#[test]
fn longer_fields_are_cut() {
    let bytes = batch(0, &[access(|_| LONG), event(Level::Info, LONG)]);
    let whole = [access(|limit| &LONG[..limit]), event(Level::Info, &LONG[..TEXT_MAX])];
    assert_eq!(read(&bytes), whole.map(Ok));
}

/// Writers hand a buffer over when RECORD_MAX more bytes might not fit.
#[test]
fn the_longest_record_keeps_its_limit() {
    for record in [access(|_| LONG), event(Level::Info, LONG)] {
        let length = batch(0, &[record]).len() - HEAD_BYTES;
        assert!(length <= RECORD_MAX, "{length} bytes");
    }
    const { assert!(HEAD_BYTES + RECORD_MAX <= BATCH_MAX) };
    const { assert!(BATCH_MAX <= wire::MESSAGE_MAX) };
}

#[test]
fn every_truncated_head_is_refused() {
    let bytes = batch(1, &[]);
    for end in 0..HEAD_BYTES {
        assert_eq!(Batch::decode(&bytes[..end]).err(), Some(DecodeError::Short));
    }
}

#[test]
fn another_version_is_refused() {
    let mut bytes = batch(1, &samples());
    for version in (0..=u8::MAX).filter(|&version| version != 1) {
        bytes[0] = version;
        assert_eq!(Batch::decode(&bytes).err(), Some(DecodeError::Version(version)));
    }
}

/// Whatever is cut off, the records before it are whole and the reading ends with one error.
#[test]
fn every_truncation_ends_the_reading() {
    let records = samples();
    let bytes = batch(1, &records);
    let mut borders = vec![HEAD_BYTES];
    for count in 1..=records.len() {
        borders.push(batch(1, &records[..count]).len());
    }
    for end in HEAD_BYTES..bytes.len() {
        let got = read(&bytes[..end]);
        let whole = borders.iter().filter(|&&border| border <= end).count() - 1;
        let mut expected: Vec<_> = records[..whole].iter().copied().map(Ok).collect();
        if !borders.contains(&end) {
            expected.push(Err(DecodeError::Short));
        }
        assert_eq!(got, expected, "{end} bytes");
    }
}

/// A record with a byte more or less than its length says is refused, and nothing after it is believed.
#[test]
fn a_record_must_fill_its_length() {
    for record in samples() {
        for (change, error) in [(-1, DecodeError::Short), (1, DecodeError::Long)] {
            let mut bytes = batch(1, &[record, event(Level::Info, b"after")]);
            let length = u16::from_le_bytes([bytes[HEAD_BYTES], bytes[HEAD_BYTES + 1]]);
            let changed = length.wrapping_add_signed(change).to_le_bytes();
            bytes[HEAD_BYTES..HEAD_BYTES + 2].copy_from_slice(&changed);
            assert_eq!(read(&bytes), [Err(error)]);
        }
    }
}

#[test]
fn another_kind_is_refused() {
    for kind in 2..=u8::MAX {
        let mut bytes = batch(1, &[event(Level::Info, b"x"), event(Level::Info, b"after")]);
        bytes[HEAD_BYTES + 2] = kind;
        assert_eq!(read(&bytes), [Err(DecodeError::Type(kind))]);
    }
}

#[test]
fn another_level_is_refused() {
    for level in 3..=u8::MAX {
        let mut bytes = batch(1, &[event(Level::Info, b"x")]);
        bytes[HEAD_BYTES + 2 + 1 + 8] = level;
        assert_eq!(read(&bytes), [Err(DecodeError::Value("level"))]);
    }
}

/// A client that does not cut is refused: the logger's lines have a limit that does not depend on its clients.
#[test]
fn a_field_over_its_limit_is_refused() {
    let over = |limit: usize| ((limit + 1) as u16).to_le_bytes();
    let record = |start: &[u8], limit: usize| {
        let body = [start, &over(limit), &LONG[..limit + 1]].concat();
        [&batch(1, &[])[..], &(body.len() as u16).to_le_bytes(), &body].concat()
    };
    let event = [&[1][..], &[0; 9]].concat();
    assert_eq!(read(&record(&event, TEXT_MAX)), [Err(DecodeError::Limit(TEXT_MAX))]);
    let fixed_bytes = 8 + 4 + 2 + 18 + 2 + 8 + 1;
    for (before, limit) in [METHOD_MAX, TARGET_MAX, HOST_MAX, HEADER_MAX, HEADER_MAX].into_iter().enumerate()
    {
        let start = vec![0; 1 + fixed_bytes + 2 * before];
        assert_eq!(read(&record(&start, limit)), [Err(DecodeError::Limit(limit))]);
    }
}
