//! Parameters of a FastCGI request: a server reads the pairs that were written, each name once, and none that a client
//! chose.
//!
//! The lines are the script, what follows it, the host, and header fields.

use std::collections::HashSet;

use fastcgi::parameters::{Circumstances, ParameterSource, Script, begin, begin_of_lines};
use http::{HeaderMap, HeaderName, HeaderValue};
use request::head::{CheckedHead, Room, check_lines};

/// Variables that no field of a client becomes, whatever its name: those of other programs, and those of proxies.
const NEVER: [&[u8]; 6] = [
    b"HTTP_PROXY",
    b"HTTP_CONTENT_LENGTH",
    b"HTTP_X_FORWARDED_FOR",
    b"HTTP_CONNECTION",
    b"HTTP_TRANSFER_ENCODING",
    b"HTTP_X_ACCEL_REDIRECT",
];

pub fn fuzz(data: &[u8]) {
    let mut lines = data.split(|&byte| byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let script = Script { name: line().to_vec(), info: line().to_vec() };
    let host = line();
    let (mut parts, ()) = http::Request::new(()).into_parts();
    for field in lines {
        let Some(colon) = field.iter().position(|&byte| byte == b':') else { continue };
        let name = HeaderName::from_bytes(&field[..colon]);
        let value = HeaderValue::from_bytes(field[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            parts.headers.append(name, value);
        }
    }
    let around = Circumstances {
        software: "bulkhead",
        peer: ([192, 0, 2, 1], 5).into(),
        local: ([127, 0, 0, 1], 80).into(),
        tls: data.len() % 2 == 0,
        root: "/srv/www",
        script: &script,
        filename: None,
        length: None,
    };
    let by_lines = by_lines(&around, &parts.headers);
    let (requested, failed, set) = (None, None, &[]);
    let records = begin(&mut ParameterSource { around, parts: &mut parts, requested, failed, host, set });
    let all = read(&records);
    if let Some((host, records)) = by_lines {
        // The same variables, if the host is.
        let of_fields = |name: &[u8]| name.starts_with(b"HTTP_") && name != b"HTTP_HOST";
        let fields = |all: Vec<(Vec<u8>, Vec<u8>)>| -> HashSet<_> {
            all.into_iter().filter(|(name, _)| of_fields(name)).collect()
        };
        let own = read(&records);
        assert!(own.contains(&(b"HTTP_HOST".to_vec(), host)));
        assert_eq!(fields(own), fields(all.clone()));
    }
    let names: HashSet<_> = all.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), all.len(), "a name that is there twice");
    assert!(names.iter().all(|name| !NEVER.contains(&name.as_slice())));
    let upper = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
    assert!(names.iter().all(|name| name.iter().all(upper)));
}

/// What the lines of a head with these fields say, and its host; `None` if they are not for that way.
fn by_lines(around: &Circumstances<'_>, fields: &HeaderMap) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut raw = b"POST / HTTP/1.1\r\nhost: a.example\r\n".to_vec();
    for (name, value) in fields.iter().filter(|(name, _)| *name != http::header::HOST) {
        raw.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    raw.extend(b"\r\n");
    let mut room = Room::default();
    let (CheckedHead::Whole(head), lines) = check_lines(&raw, usize::MAX, &mut room) else { return None };
    Some((b"a.example".to_vec(), begin_of_lines(Vec::new(), around, &head, lines)?))
}

/// Reads the records of the beginning of a request, as a server does.
fn read(mut records: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut content = Vec::new();
    while let [1, kind, 0, 1, high, low, padding, _, rest @ ..] = records {
        let (own, rest) = rest.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        match kind {
            1 => assert_eq!(own, [0, 1, 1, 0, 0, 0, 0, 0], "a responder on a kept connection"),
            4 => content.extend_from_slice(own),
            kind => panic!("a record of kind {kind}"),
        }
        records = &rest[usize::from(*padding)..];
    }
    assert!(records.is_empty());
    let (mut rest, mut pairs) = (&content[..], Vec::new());
    while !rest.is_empty() {
        let (name, value) = (length(&mut rest), length(&mut rest));
        let (name, more) = rest.split_at(name);
        let (value, more) = more.split_at(value);
        pairs.push((name.to_vec(), value.to_vec()));
        rest = more;
    }
    pairs
}

fn length(rest: &mut &[u8]) -> usize {
    let (length, more) = match *rest {
        [short @ 0..128, more @ ..] => (usize::from(*short), more),
        [a, b, c, d, more @ ..] => (u32::from_be_bytes([*a & 127, *b, *c, *d]) as usize, more),
        _ => panic!("a pair without its lengths"),
    };
    *rest = more;
    length
}
