//! Request heads, which gates and site workers check alike: what is accepted can be read in one way only.
//!
//! Three comparisons: with the same head in parts (`fuzz_head`), with the same head when
//! more or less of what follows has arrived (a gate and a worker rarely see the same number of bytes), and with
//! a reader that knows nothing but lines, which stands for whatever is behind.

use request::head::{CheckedHead, Framing, RequestHead, Room, check, check_lines, fuzz_head};
use request::target::split_host;

const HEAD_BYTES: usize = 16 << 10;

pub fn fuzz(data: &[u8]) {
    fuzz_head(data);
    let CheckedHead::Whole(head) = check(data, HEAD_BYTES) else {
        return;
    };
    let bytes = &data[..head.length];
    assert!(bytes.ends_with(b"\r\n\r\n"), "a gate waits for this end");
    same_without_what_follows(bytes, &head);
    for end in [0, 1, bytes.len() / 2, bytes.len() - 2, bytes.len() - 1] {
        let early = check(&data[..end], HEAD_BYTES);
        assert!(
            matches!(early, CheckedHead::Partial),
            "{end} of {} bytes: {early:?}",
            bytes.len()
        );
    }
    read_by_lines(bytes, &head);
}

fn same_without_what_follows(bytes: &[u8], head: &RequestHead<'_>) {
    let CheckedHead::Whole(alone) = check(bytes, HEAD_BYTES) else {
        panic!("refused without what follows")
    };
    assert_eq!(format!("{alone:?}"), format!("{head:?}"));
}

/// Reads a head as a program would that has no parser: lines, and what is before and after the first colon.
fn read_by_lines(bytes: &[u8], head: &RequestHead<'_>) {
    let mut lines: Vec<&[u8]> = Vec::new();
    let mut rest = bytes;
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        lines.push(&rest[..end]);
        rest = &rest[end + 2..];
    }
    assert!(rest.is_empty(), "bytes after the last line");
    assert!(
        lines
            .iter()
            .all(|line| !line.contains(&b'\n') && !line.contains(&0)),
        "two lines in one"
    );
    let mut lines = lines.into_iter().skip_while(|line| line.is_empty());
    let request: Vec<&[u8]> = lines
        .next()
        .unwrap_or_default()
        .split(|&byte| byte == b' ')
        .collect();
    assert_eq!(request[..2], [head.method.as_bytes(), head.target.as_bytes()]);
    assert_eq!(request.len(), 3);
    let minor = request[2]
        .strip_prefix(b"HTTP/1.")
        .expect("no other major version is served");
    // RFC 9110, 2.5: a later minor version is served as the latest that is known.
    assert!(minor.len() == 1 && minor[0].is_ascii_digit());
    assert_eq!(head.minor, u8::from(minor != b"0"));

    let (mut hosts, mut lengths, mut codings) = (Vec::new(), Vec::new(), Vec::new());
    let headers: Vec<&[u8]> = lines.collect();
    let (last, headers) = headers.split_last().expect("the empty line");
    assert!(last.is_empty());
    let mut room = Room::default();
    let (_, checked) = check_lines(bytes, HEAD_BYTES, &mut room);
    assert_eq!(checked.len(), headers.len(), "the lines that a request is made of");
    for (line, checked) in headers.iter().zip(checked) {
        let colon = line
            .iter()
            .position(|&byte| byte == b':')
            .expect("a colon in every line");
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        let token = |byte: &u8| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(byte);
        assert!(!name.is_empty() && name.iter().all(token), "not a name: {name:?}");
        assert_eq!((checked.name.as_bytes(), checked.value), (name, value));
        match name.to_ascii_lowercase().as_slice() {
            b"host" => hosts.push(value),
            b"content-length" => lengths.push(value),
            b"transfer-encoding" => codings.push(value),
            _ => {}
        }
    }
    assert!(hosts.len() <= 1 && codings.len() <= 1);
    if let Some((name, _)) = hosts.first().and_then(|host| split_host(host)) {
        assert!(name.eq_ignore_ascii_case(head.host), "two hosts");
    }
    assert_eq!(head.framing == Framing::Chunked, !codings.is_empty());
    assert!(codings.is_empty() || lengths.is_empty(), "two framings");
    for length in lengths {
        let length: u64 = std::str::from_utf8(length)
            .ok()
            .and_then(|text| text.parse().ok())
            .expect("a number");
        let expected = if length == 0 {
            Framing::None
        } else {
            Framing::Length(length)
        };
        assert_eq!(head.framing, expected);
    }
}
