//! Reads written responses again, as a client reads them: the same responses, and no byte besides. Shared by the tests
//! and a fuzz target.
//!
//! The reader knows nothing of the writer: heads are httparse's to read, bodies are read by the rules of RFC 9112 6.3.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};

use super::outgoing::ResponseOutput;
use super::response::{BodySize, RequestTraits, StartedResponse, encode_head};

/// Choices, made by the bytes of the input; 0 when those are used up.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        let (&first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        first
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::from(self.byte()) % of.len()]
    }

    fn bool(&mut self) -> bool {
        self.byte() % 2 == 1
    }
}

/// A backend's response, and the options that its request had.
#[derive(Debug)]
struct RoundTrip {
    traits: RequestTraits,
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    /// Whether all of the body came that was announced.
    is_whole: bool,
}

/// The response as a client understands it.
#[derive(Debug, PartialEq, Eq)]
struct Understood {
    status: u16,
    body: Vec<u8>,
    is_whole: bool,
    /// Whether another response may follow.
    keep: bool,
}

/// Writes responses that `data` describes on one connection, and reads them again.
pub(crate) fn check(data: &[u8]) {
    let mut choices = Choices(data);
    let (mut wire, mut all) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let (made, begun) = respond(&mut choices, &mut wire);
        let goes_on = begun.keep && made.is_whole;
        all.push((made, begun));
        if !goes_on {
            break;
        }
    }
    let mut rest = &wire[..];
    for (made, begun) in &all {
        let (understood, after) = read(rest, made);
        rest = after;
        assert_eq!(
            (understood.status, understood.is_whole),
            (made.status, made.is_whole),
            "{made:?} {begun:?}"
        );
        assert!(understood.body == made.body, "{made:?} {begun:?}");
        assert_eq!(understood.keep, begun.keep && made.is_whole, "{made:?} {begun:?}");
    }
    assert!(rest.is_empty(), "bytes behind the last response");
}

/// Has one response made and written, in steps of any size.
fn respond(choices: &mut Choices<'_>, wire: &mut Vec<u8>) -> (RoundTrip, StartedResponse) {
    let traits = RequestTraits {
        is_head: choices.byte() % 8 == 7,
        minor: choices.one(&[1, 1, 1, 0]),
        keep: choices.byte() % 8 != 7,
    };
    let status =
        StatusCode::from_u16(choices.one(&[200, 200, 404, 304, 204, 206, 500, 599])).unwrap_or_default();
    let pieces: Vec<usize> =
        (0..choices.byte() % 4).map(|_| choices.one(&[1, 0, 10, 4095, 4096, 4097, 20_000, 70_000])).collect();
    let total: usize = pieces.iter().sum();
    let mut headers = HeaderMap::new();
    let own =
        [("connection", "close"), ("connection", "upgrade, keep-alive"), ("transfer-encoding", "chunked")];
    for (name, value) in own {
        if choices.byte() % 8 == 7 {
            headers.append(name, HeaderValue::from_static(value));
        }
    }
    headers.insert(HeaderName::from_static("x-own"), HeaderValue::from(u16::from(choices.byte())));
    // A backend may announce too much, or too little.
    let declared = choices.one(&[None, Some(total), Some(total + 1), Some(total.saturating_sub(1))]);
    if let Some(declared) = declared {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(declared));
    }
    let size = if choices.bool() { BodySize::Known(total as u64) } else { BodySize::Unknown };
    let breaks = choices.byte() % 8 == 7;
    let mut head = Vec::new();
    let begun = encode_head(&mut head, traits, status, None, &headers, size);
    let mut made = RoundTrip { traits, status: status.as_u16(), headers, body: Vec::new(), is_whole: true };
    let mut outgoing = ResponseOutput::new(head, begun.body);
    for (number, &length) in pieces.iter().enumerate() {
        send(&mut outgoing, choices, wire);
        if !outgoing.is_open() {
            break;
        }
        let data: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let is_last = number + 1 == pieces.len() && !breaks && choices.bool();
        let count = outgoing.push(Bytes::from(data.clone()), is_last);
        made.body.extend_from_slice(&data[..count]);
    }
    if outgoing.is_open() {
        if breaks { outgoing.break_off() } else { outgoing.end() }
    }
    while outgoing.is_unsent() {
        send(&mut outgoing, choices, wire);
    }
    made.is_whole = !outgoing.is_broken();
    (made, begun)
}

/// Sends some of what waits, or all of it.
fn send(outgoing: &mut ResponseOutput, choices: &mut Choices<'_>, wire: &mut Vec<u8>) {
    let mut steps = 1 + choices.byte() % 3;
    while outgoing.is_unsent() && (steps > 0 || !outgoing.has_room()) {
        steps = steps.saturating_sub(1);
        if choices.bool() {
            outgoing.pack();
        }
        let all = outgoing.slices().concat();
        let count = choices.one(&[all.len(), 1, 100, 5000]).clamp(1, all.len());
        wire.extend_from_slice(&all[..count]);
        outgoing.advance(count);
    }
}

/// Reads a response as the client does that asked for it, to the end of the connection if need be.
fn read<'a>(wire: &'a [u8], made: &RoundTrip) -> (Understood, &'a [u8]) {
    let mut lines = [httparse::EMPTY_HEADER; 16];
    let mut head = httparse::Response::new(&mut lines);
    let length = match head.parse(wire) {
        Ok(httparse::Status::Complete(length)) => length,
        other => panic!("{other:?}: {:?}", String::from_utf8_lossy(wire)),
    };
    assert_eq!(head.version, Some(made.traits.minor));
    let all = |name: &str| -> Vec<&[u8]> {
        head.headers
            .iter()
            .filter(|line| line.name.eq_ignore_ascii_case(name))
            .map(|line| line.value)
            .collect()
    };
    assert_eq!(all("x-own"), [made.headers["x-own"].as_bytes()]);
    let (lengths, codings, connection) = (all("content-length"), all("transfer-encoding"), all("connection"));
    assert!(lengths.len() + codings.len() <= 1 && connection.len() <= 1, "one framing");
    let names = |option: &str| {
        let options = connection.iter().flat_map(|line| line.split(|&byte| byte == b','));
        options.map(<[u8]>::trim_ascii).any(|one| one.eq_ignore_ascii_case(option.as_bytes()))
    };
    let stays = if made.traits.minor == 1 { !names("close") } else { names("keep-alive") };
    let status = head.code.unwrap_or_default();
    let rest = &wire[length..];
    let method = if made.traits.is_head { Method::HEAD } else { Method::GET };
    let (body, after, is_whole, may_stay) = match (lengths.first(), codings.first()) {
        _ if method == Method::HEAD || matches!(status, 204 | 304) => (Vec::new(), rest, true, true),
        (_, Some(coding)) => {
            assert_eq!((*coding, made.traits.minor), (&b"chunked"[..], 1));
            match chunks(rest) {
                Some((body, after)) => (body, after, true, true),
                None => (data_of(rest), &[][..], false, false),
            }
        }
        (Some(length), None) => {
            let length = std::str::from_utf8(length).ok().and_then(|text| text.parse().ok());
            let length: usize = length.unwrap_or_else(|| panic!("a number"));
            let came = length.min(rest.len());
            (rest[..came].to_vec(), &rest[came..], came == length, true)
        }
        // The end of the connection is the end of the body: that it is whole cannot be told.
        (None, None) => (rest.to_vec(), &[][..], made.is_whole, false),
    };
    (Understood { status, body, is_whole, keep: stays && may_stay && is_whole }, after)
}

/// The data of a whole chunked body, and what follows it.
fn chunks(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).ok()?, 16).ok()?;
        rest = &rest[end + 2..];
        let data = rest.get(..size)?;
        assert_eq!(rest.get(size..size + 2)?, b"\r\n");
        rest = &rest[size + 2..];
        if size == 0 {
            return Some((body, rest));
        }
        body.extend_from_slice(data);
    }
}

/// The data of a chunked body that broke off.
fn data_of(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let size =
            std::str::from_utf8(&rest[..end]).ok().and_then(|text| usize::from_str_radix(text, 16).ok());
        let Some(size) = size else { panic!("a size") };
        rest = &rest[end + 2..];
        body.extend_from_slice(&rest[..size]);
        rest = &rest[size + 2..];
    }
    body
}
