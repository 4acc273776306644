use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::*;
use crate::frame::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED, PING, PRIORITY,
};
use crate::frame::{RST_STREAM, SETTINGS, WINDOW_UPDATE};
use crate::hpack;
use crate::{SharedConnection, Stream, StreamReset};

const LIMITS: StreamLimits = StreamLimits {
    streams: 4,
    stream_window: 65_536,
    connection_window: 262_144,
    list_bytes: 4096,
    send_bytes: 32 << 10,
    provoked: 100,
    turn: u32::MAX,
};

fn raw(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::head(&mut out, kind, flags, stream, payload.len());
    out.extend_from_slice(payload);
    out
}

fn block(more: &[(&str, &str)]) -> Vec<u8> {
    let get = [(":method", "GET"), (":scheme", "https"), (":authority", "a.example"), (":path", "/")];
    let mut block = Vec::new();
    for (name, value) in get.iter().chain(more) {
        hpack::field(&mut block, name.as_bytes(), value.as_bytes());
    }
    block
}

fn request(stream: u32, flags: u8) -> Vec<u8> {
    raw(HEADERS, flags | END_HEADERS, stream, &block(&[]))
}

fn number(kind: u8, stream: u32, number: u32) -> Vec<u8> {
    raw(kind, 0, stream, &number.to_be_bytes())
}

fn setting(name: u16, value: u32) -> Vec<u8> {
    raw(SETTINGS, 0, 0, &[&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
}

/// A frame of ours: kind, flags, stream, payload.
type Sent = (u8, u8, u32, Vec<u8>);

struct Peer {
    shared: SharedConnection,
    head: Http2Head,
}

impl Peer {
    fn new() -> Self {
        let mut peer =
            Self { shared: Rc::new(RefCell::new(Connection::new(LIMITS))), head: Http2Head::default() };
        assert_eq!(peer.send(&[&PREFACE[..], &raw(SETTINGS, 0, 0, &[])].concat()), ReceiveResult::Nothing);
        peer.receive_all();
        peer
    }

    fn send(&mut self, mut bytes: &[u8]) -> ReceiveResult {
        let received = self.shared.borrow_mut().receive(&mut bytes, &mut self.head, Instant::now());
        assert!(bytes.is_empty() || received == ReceiveResult::Over);
        received
    }

    fn open(&mut self, stream: u32, flags: u8) -> Stream {
        assert_eq!(self.send(&request(stream, flags)), ReceiveResult::Request);
        Stream::open(&self.shared, &self.head)
    }

    fn receive_all(&mut self) -> Vec<Sent> {
        let mut connection = self.shared.borrow_mut();
        connection.fill(usize::MAX, Instant::now());
        let mut sent = Vec::new();
        let mut out = connection.output();
        while let Some(head) = FrameHead::parse(out) {
            let (bytes, rest) = out.split_at(HEAD_BYTES + head.length);
            sent.push((head.kind, head.flags, head.stream, bytes[HEAD_BYTES..].to_vec()));
            out = rest;
        }
        assert!(out.is_empty());
        let count = connection.output().len();
        connection.sent(count);
        sent
    }

    /// Its answer to `bytes`: that the connection ends, or a stream, for a reason; 0 for nothing of that.
    fn fault(&mut self, bytes: &[u8]) -> (u8, u32) {
        self.send(bytes);
        let reason = |payload: &[u8]| u32::from_be_bytes(*payload.last_chunk().unwrap());
        let faults = self.receive_all().into_iter().filter(|(kind, ..)| matches!(*kind, GOAWAY | RST_STREAM));
        faults.map(|(kind, _, _, payload)| (kind, reason(&payload))).next().unwrap_or((0, 0))
    }
}

fn cx() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn ok(stream: &Stream, body: &[u8]) {
    stream.send_head(StatusCode::OK, &HeaderMap::new(), false).unwrap();
    stream.send_data(Bytes::copy_from_slice(body), true).unwrap();
}

#[test]
fn what_a_connection_begins_with() {
    let mut connection = Connection::new(LIMITS);
    let frames = connection.output().to_vec();
    assert_eq!(FrameHead::parse(&frames).unwrap().length, 24);
    assert_eq!(frames[33..], number(WINDOW_UPDATE, 0, 262_144 - 65_535));
    let received =
        connection.receive(&mut &b"GET / HTTP/1.1\r\n\r\n"[..], &mut Http2Head::default(), Instant::now());
    assert_eq!((received, connection.is_over(), connection.has_begun()), (ReceiveResult::Over, true, false));
    let mut early = Connection::new(LIMITS);
    let bytes = [&PREFACE[..], &raw(PING, 0, 0, &[0; 8])].concat();
    assert_eq!(
        early.receive(&mut &bytes[..], &mut Http2Head::default(), Instant::now()),
        ReceiveResult::Over
    );
}

#[test]
fn a_cached_answer_goes_out_at_once() {
    let mut peer = Peer::new();
    let bytes = [request(1, END_STREAM), request(3, END_STREAM)].concat();
    let mut input = &bytes[..];
    let body = vec![b'x'; 20_000];
    for stream in [1, 3] {
        let mut connection = peer.shared.borrow_mut();
        assert_eq!(connection.receive(&mut input, &mut peer.head, Instant::now()), ReceiveResult::Request);
        assert_eq!((peer.head.stream, peer.head.is_whole(), peer.head.method()), (stream, true, "GET"));
        assert!(connection.has_room(body.len()));
        connection.answer(&peer.head, &body, Instant::now(), |block| block.push(0x88));
        assert_eq!(connection.streams.len(), 0);
    }
    assert!(!peer.shared.borrow().has_room(25_500));
    let sent = peer.receive_all();
    // The window of the connection is 65,535 bytes.
    assert!(peer.shared.borrow().has_room(25_535) && !peer.shared.borrow().has_room(25_536));
    let heads: Vec<_> =
        sent.iter().map(|(kind, flags, stream, payload)| (*kind, *flags, *stream, payload.len())).collect();
    let each = |stream| {
        [(HEADERS, END_HEADERS, stream, 1), (DATA, 0, stream, 16_384), (DATA, END_STREAM, stream, 3616)]
    };
    assert_eq!(heads, [each(1), each(3)].concat());
}

#[test]
fn streams_send_in_turns_and_within_their_windows() {
    let mut peer = Peer::new();
    let (one, other) = (peer.open(1, END_STREAM), peer.open(3, END_STREAM));
    ok(&one, &[1; 40_000]);
    ok(&other, &[2; 40_000]);
    let data = |sent: Vec<Sent>| -> Vec<(u32, usize)> {
        sent.iter().filter(|one| one.0 == DATA).map(|one| (one.2, one.3.len())).collect()
    };
    assert_eq!(data(peer.receive_all()), [(1, 16_384), (3, 16_384), (1, 16_384), (3, 16_383)]);
    assert_eq!(peer.fault(&number(WINDOW_UPDATE, 0, 10)), (0, 0));
    peer.send(&number(WINDOW_UPDATE, 0, 100_000));
    assert_eq!(data(peer.receive_all()).iter().map(|one| one.1).sum::<usize>(), 80_000 - 65_535 - 10);
    drop((one, other));
    assert_eq!((peer.shared.borrow().streams.len(), peer.shared.borrow().open), (0, 0));
}

#[test]
fn windows_follow_the_settings() {
    let mut peer = Peer::new();
    peer.send(&setting(4, 3));
    let stream = peer.open(1, END_STREAM);
    stream.send_head(StatusCode::OK, &HeaderMap::new(), false).unwrap();
    stream.send_data(Bytes::from_static(b"abcdef"), false).unwrap();
    let bodies =
        |sent: Vec<Sent>| sent.into_iter().filter(|one| one.0 == DATA).map(|one| one.3).collect::<Vec<_>>();
    assert_eq!(bodies(peer.receive_all()), [b"abc"]);
    // Below nothing: what was sent stays sent.
    peer.send(&setting(4, 1));
    peer.send(&number(WINDOW_UPDATE, 1, 2));
    assert_eq!(bodies(peer.receive_all()).len(), 0);
    peer.send(&setting(4, 4));
    assert_eq!(bodies(peer.receive_all()), [b"def"]);
    peer.send(&number(WINDOW_UPDATE, 1, 0x7fff_ffff));
    assert_eq!(peer.fault(&number(WINDOW_UPDATE, 1, 2)), (RST_STREAM, 3));
    assert!(stream.poll_reset(&mut cx()).is_ready());
    assert_eq!(stream.send_data(Bytes::new(), true), Err(StreamReset));
}

#[test]
fn a_stream_has_room_for_so_much() {
    let mut peer = Peer::new();
    let stream = peer.open(1, END_STREAM);
    assert_eq!(stream.poll_room(&mut cx()), Poll::Ready(Some(32 << 10)));
    stream.send_head(StatusCode::OK, &HeaderMap::new(), false).unwrap();
    stream.send_data(vec![0; 32 << 10].into(), false).unwrap();
    assert_eq!(stream.poll_room(&mut cx()), Poll::Pending);
    peer.receive_all();
    assert_eq!(stream.poll_room(&mut cx()), Poll::Ready(Some(65_535 - (32 << 10))));
    drop(stream);
    let sent = peer.receive_all();
    assert_eq!(sent, [(RST_STREAM, 0, 1, vec![0, 0, 0, 8])]);
}

#[test]
fn bodies_are_taken_as_they_are_wanted() {
    let mut peer = Peer::new();
    let stream = peer.open(1, 0);
    for _ in 0..4 {
        peer.send(&raw(DATA, 0, 1, &[7; 16_384]));
    }
    assert!(peer.receive_all().is_empty() && !stream.is_end_stream());
    let Poll::Ready(Some(Ok(data))) = stream.poll_data(&mut cx()) else { panic!() };
    assert_eq!(data.len(), 65_536);
    stream.release(65_536);
    assert_eq!(peer.receive_all(), [(WINDOW_UPDATE, 0, 1, vec![0, 1, 0, 0])]);
    assert!(stream.poll_data(&mut cx()).is_pending());
    peer.send(&raw(DATA, END_STREAM | PADDED, 1, &[2, b'a', b'b', 0, 0]));
    assert_eq!(stream.poll_data(&mut cx()), Poll::Ready(Some(Ok(Bytes::from_static(b"ab")))));
    assert!(stream.is_end_stream() && stream.poll_data(&mut cx()) == Poll::Ready(None));
    // The window of a body that is no longer read is the connection's again.
    let other = peer.open(3, 0);
    peer.send(&raw(DATA, 0, 3, &[7; 16_384]));
    ok(&other, b"answer");
    drop(other);
    let sent = peer.receive_all();
    assert_eq!(sent.last().unwrap(), &(RST_STREAM, 0, 3, vec![0; 4]));
    for _ in 0..8 {
        assert_eq!(peer.fault(&raw(DATA, 0, 3, &[7; 16_384])), (0, 0));
    }
    assert!(peer.shared.borrow().receive_window > 100_000);
}

#[test]
fn more_than_the_window_is_an_error() {
    let mut peer = Peer::new();
    let _stream = peer.open(1, 0);
    let data = raw(DATA, 0, 1, &[0; 16_384]);
    assert_eq!([0; 4].map(|_| peer.fault(&data)), [(0, 0); 4]);
    assert_eq!(peer.fault(&raw(DATA, 0, 1, &[0])), (RST_STREAM, 3));
    let mut peer = Peer::new();
    let _streams = [1, 3, 5, 7].map(|id| peer.open(id, 0));
    for id in [1, 3, 5, 7].iter().flat_map(|id| [id; 4]) {
        assert_eq!(peer.fault(&raw(DATA, 0, *id, &[0; 16_384])), (0, 0));
    }
    assert_eq!(peer.fault(&raw(DATA, 0, 1, &[0])), (GOAWAY, 3));
}

#[test]
fn a_length_is_kept_to() {
    for (pieces, fault) in
        [(&[3][..], (0, 0)), (&[2, 1], (0, 0)), (&[2], (RST_STREAM, 1)), (&[4], (RST_STREAM, 1))]
    {
        let mut peer = Peer::new();
        let bytes = raw(HEADERS, END_HEADERS, 1, &block(&[("content-length", "3")]));
        assert_eq!(peer.send(&bytes), ReceiveResult::Request);
        let _stream = Stream::open(&peer.shared, &peer.head);
        let mut found = (0, 0);
        for (at, &piece) in pieces.iter().enumerate() {
            let flags = if at + 1 == pieces.len() { END_STREAM } else { 0 };
            found = peer.fault(&raw(DATA, flags, 1, &vec![0; piece]));
        }
        assert_eq!(found, fault, "{pieces:?}");
    }
}

#[test]
fn what_ends_a_connection() {
    let open = || request(1, 0);
    let cases: &[(&str, Vec<u8>, u32)] = &[
        ("data on no stream", raw(DATA, 0, 0, b"a"), 1),
        ("data on an idle stream", raw(DATA, 0, 1, b"a"), 1),
        ("a head on no stream", request(0, END_STREAM), 1),
        ("a head on a stream of ours", request(2, END_STREAM), 1),
        ("padding that is too long", raw(HEADERS, END_HEADERS | PADDED, 1, b"\x05abc"), 1),
        ("no block", raw(HEADERS, END_HEADERS, 1, b"\x80"), 9),
        ("a block without a head", raw(CONTINUATION, END_HEADERS, 1, b""), 1),
        ("a frame amid a block", [raw(HEADERS, 0, 1, b""), raw(PING, 0, 0, &[0; 8])].concat(), 1),
        ("another block amid a block", [raw(HEADERS, 0, 1, b""), raw(CONTINUATION, 0, 3, b"")].concat(), 1),
        ("a reset of an idle stream", number(RST_STREAM, 1, 8), 1),
        ("a reset of another size", [open(), raw(RST_STREAM, 0, 1, b"abc")].concat(), 6),
        ("a setting of another size", raw(SETTINGS, 0, 0, b"abc"), 6),
        ("an acknowledgement with something", raw(SETTINGS, ACK, 0, &[0; 6]), 6),
        ("a setting of a stream", raw(SETTINGS, 0, 1, b""), 1),
        ("a push that is neither", setting(2, 2), 1),
        ("a window that is too large", setting(4, 0x8000_0000), 3),
        ("a frame that is too small", setting(5, 16_383), 1),
        ("a frame that is too large", setting(5, 1 << 24), 1),
        ("a ping of another size", raw(PING, 0, 0, b"abc"), 6),
        ("a push", raw(5, END_HEADERS, 1, b"\0\0\0\x02"), 1),
        ("no window", number(WINDOW_UPDATE, 0, 0), 1),
        ("a window beyond all", number(WINDOW_UPDATE, 0, 0x7fff_ffff), 3),
        ("a window of another size", raw(WINDOW_UPDATE, 0, 0, b"abc"), 6),
        ("a long frame", raw(0x77, 0, 0, &[0; 16_385]), 6),
        ("an older stream", [request(5, END_STREAM), request(3, END_STREAM)].concat(), 1),
    ];
    for (name, bytes, reason) in cases {
        // In one piece, and byte by byte.
        for step in [bytes.len(), 1] {
            let mut peer = Peer::new();
            let mut streams = Vec::new();
            for mut piece in bytes.chunks(step) {
                while peer.shared.borrow_mut().receive(&mut piece, &mut peer.head, Instant::now())
                    == ReceiveResult::Request
                {
                    streams.push(Stream::open(&peer.shared, &peer.head));
                }
            }
            assert_eq!(peer.fault(b""), (GOAWAY, *reason), "{name}");
            assert!(peer.shared.borrow().is_over() && peer.receive_all().is_empty());
        }
    }
}

#[test]
fn what_ends_a_stream() {
    let head = |fields: &[(&str, &str)]| raw(HEADERS, END_HEADERS | END_STREAM, 3, &block(fields));
    let cases: &[(&str, Vec<u8>, u32)] = &[
        ("a malformed head", head(&[("connection", "x")]), 1),
        ("data after the end", raw(DATA, 0, 1, b"a"), 5),
        ("a head after the end", request(1, END_STREAM), 5),
        ("no window", number(WINDOW_UPDATE, 1, 0), 1),
        ("a window beyond all", number(WINDOW_UPDATE, 1, 0x7fff_ffff), 3),
        ("a stream that depends on itself", raw(PRIORITY, 0, 1, &[0, 0, 0, 1, 1]), 1),
        (
            "a new one that does",
            raw(HEADERS, END_HEADERS | END_STREAM | 0x20, 3, &[&[0, 0, 0, 3, 1][..], &block(&[])].concat()),
            1,
        ),
        ("a priority of another size", raw(PRIORITY, 0, 1, b"abcd"), 6),
    ];
    for (name, bytes, reason) in cases {
        let mut peer = Peer::new();
        let _stream = peer.open(1, END_STREAM);
        assert_eq!(peer.fault(bytes), (RST_STREAM, *reason), "{name}");
        assert_eq!(peer.send(&request(9, END_STREAM)), ReceiveResult::Request, "{name}");
    }
    // Trailers have no names of a request, and are the end.
    for (flags, fields, fault) in [
        (END_STREAM, vec![0, 1, b'x', 0], (0, 0)),
        (0, vec![0, 1, b'x', 0], (RST_STREAM, 1)),
        (END_STREAM, block(&[]), (RST_STREAM, 1)),
    ] {
        let mut peer = Peer::new();
        let stream = peer.open(1, 0);
        assert_eq!(peer.fault(&raw(HEADERS, END_HEADERS | flags, 1, &fields)), fault);
        assert_eq!(stream.is_end_stream(), fault == (0, 0));
    }
}

#[test]
fn there_are_so_many_streams() {
    let mut peer = Peer::new();
    let mut streams = [1, 3, 5, 7].map(|id| Some(peer.open(id, END_STREAM)));
    assert_eq!(peer.fault(&request(9, END_STREAM)), (RST_STREAM, 7));
    ok(streams[0].as_ref().unwrap(), b"x");
    peer.receive_all();
    assert_eq!(peer.send(&request(11, END_STREAM)), ReceiveResult::Request);
    streams[0] = None;
}

#[test]
fn a_list_that_is_too_long_is_refused() {
    let mut peer = Peer::new();
    // The fields of a bomb: one entry of the table, again and again.
    let mut bomb = block(&[]);
    bomb.extend([0x40, 1, b'x', 0x7f, 0x81, 0x17]);
    bomb.extend([b'y'; 127 + 0x81 - 0x80 + (0x17 << 7)]);
    bomb.extend([0xbe; 500]);
    assert_eq!(peer.send(&raw(HEADERS, END_HEADERS | END_STREAM, 1, &bomb)), ReceiveResult::Nothing);
    let sent = peer.receive_all();
    assert_eq!(
        (sent.len(), sent[0].0, sent[0].1, &sent[0].3[..]),
        (1, HEADERS, END_HEADERS | END_STREAM, &b"\x08\x03431"[..])
    );
    assert_eq!(peer.send(&request(3, END_STREAM)), ReceiveResult::Request);
}

/// The next block needs the table that this one has made, so that it is read to its end, and refused on its stream.
#[test]
fn a_block_over_the_limit_of_a_list_costs_its_stream_alone() {
    for bytes in [4000, 4200, 16_384, 100_000, 250_000] {
        let mut peer = Peer::new();
        let value = "v".repeat(1000);
        let long: Vec<_> = (0..bytes / 1000).map(|_| ("x", value.as_str())).collect();
        let whole = block(&long);
        let mut pieces = whole.chunks(16_384).enumerate().peekable();
        let mut frames = Vec::new();
        while let Some((at, piece)) = pieces.next() {
            let kind = if at == 0 { HEADERS } else { CONTINUATION };
            let flags = if at == 0 { END_STREAM } else { 0 };
            let last = if pieces.peek().is_none() { END_HEADERS } else { 0 };
            frames.extend(raw(kind, flags | last, 1, piece));
        }
        let is_long = bytes > 4000 - 200;
        assert_eq!(peer.send(&frames) == ReceiveResult::Nothing, is_long, "{bytes}");
        let sent = peer.receive_all();
        assert_eq!(sent.iter().map(|one| &one.3[..]).collect::<Vec<_>>(), [&b"\x08\x03431"[..]], "{bytes}");
        assert_eq!(peer.send(&request(3, END_STREAM)), ReceiveResult::Request, "{bytes}");
        assert!(peer.shared.borrow().excess().is_none());
    }
}

#[test]
fn data_for_a_stream_that_was_reset_ends_the_connection_in_the_end() {
    let mut peer = Peer::new();
    drop(peer.open(1, 0));
    assert!(peer.receive_all().iter().any(|(kind, _, stream, _)| (*kind, *stream) == (RST_STREAM, 1)));
    let rounds = (0..1000).find(|_| {
        peer.send(&raw(DATA, 0, 1, &[0; 16_384]));
        peer.receive_all();
        peer.shared.borrow().excess().is_some()
    });
    assert_eq!(rounds, Some(127));
}

/// Those that were sent in one piece, and how many were taken in each turn.
fn turns(frame: &[u8], count: usize) -> Vec<usize> {
    let mut peer = Peer::new();
    drop(peer.open(1, 0));
    peer.receive_all();
    let bytes = frame.repeat(count);
    let (mut input, mut turns) = (&bytes[..], Vec::new());
    loop {
        let before = input.len();
        let mut connection = peer.shared.borrow_mut();
        connection.limits.turn = 100;
        connection.begin_turn();
        let received = connection.receive(&mut input, &mut peer.head, Instant::now());
        turns.push((before - input.len()) / frame.len());
        if received != ReceiveResult::Enough {
            assert_eq!((received, input), (ReceiveResult::Nothing, &b""[..]));
            return turns;
        }
    }
}

#[test]
fn a_turn_is_bounded_in_frames_and_in_bytes() {
    assert_eq!(turns(&raw(DATA, 0, 1, b"a"), 250), [100, 100, 50]);
    assert_eq!(turns(&raw(DATA, 0, 1, &[0; 16_384]), 5), [2, 2, 1]);
    // One that is refused, with its cost.
    assert_eq!(turns(&request(1, END_STREAM), 12), [6, 6]);
}

#[test]
fn frames_of_a_byte_are_too_much() {
    let rounds = |bytes: &[u8]| {
        let mut peer = Peer::new();
        let stream = peer.open(1, 0);
        let data = raw(DATA, 0, 1, bytes).repeat(1000);
        (0..200).find(|_| {
            peer.shared.borrow_mut().receive(&mut &data[..], &mut peer.head, Instant::now());
            while let Poll::Ready(Some(Ok(data))) = stream.poll_data(&mut Context::from_waker(Waker::noop()))
            {
                stream.release(data.len());
            }
            peer.receive_all();
            peer.shared.borrow().excess().is_some()
        })
    };
    // 28 bytes of each count.
    assert_eq!(rounds(b"a"), Some(74));
    assert_eq!(rounds(&[b'a'; 8]), None);
}

#[test]
fn floods_are_too_much() {
    let first = |bytes: Vec<u8>| move |at: u32| if at == 0 { bytes.clone() } else { Vec::new() };
    let half = first(raw(HEADERS, END_STREAM, 1, &block(&[])));
    let opened = first(request(1, 0));
    type Flood = Box<dyn Fn(u32) -> Vec<u8>>;
    let floods: [(&str, Flood); 10] = [
        (
            "resets",
            Box::new(|at| [request(2 * at + 1, END_STREAM), number(RST_STREAM, 2 * at + 1, 8)].concat()),
        ),
        ("continuations", Box::new(move |at| [half(at), raw(CONTINUATION, 0, 1, b"")].concat())),
        ("settings", Box::new(|_| raw(SETTINGS, 0, 0, &[]))),
        ("pings", Box::new(|_| raw(PING, 0, 0, &[0; 8]))),
        ("acknowledged settings", Box::new(|_| raw(SETTINGS, ACK, 0, &[]))),
        ("acknowledged pings", Box::new(|_| raw(PING, ACK, 0, &[0; 8]))),
        ("priorities", Box::new(|_| raw(PRIORITY, 0, 1, &[0, 0, 0, 3, 1]))),
        ("windows", Box::new(|_| number(WINDOW_UPDATE, 0, 1))),
        ("empty data", Box::new(move |at| [opened(at), raw(DATA, 0, 1, b"")].concat())),
        ("made to reset", Box::new(|at| raw(HEADERS, END_HEADERS | END_STREAM, 2 * at + 1, b"\x82"))),
    ];
    for (name, flood) in floods {
        let mut peer = Peer::new();
        let mut streams = Vec::new();
        let rounds = (0..5000).find(|&at| {
            let bytes = flood(at);
            let mut input = &bytes[..];
            while peer.shared.borrow_mut().receive(&mut input, &mut peer.head, Instant::now())
                == ReceiveResult::Request
            {
                streams.push(Stream::open(&peer.shared, &peer.head));
            }
            peer.receive_all();
            peer.shared.borrow().excess().is_some()
        });
        assert!(rounds.is_some_and(|rounds| rounds < 1000), "{name}: {rounds:?}");
        assert_eq!(peer.send(b"x"), ReceiveResult::Over);
    }
}

#[test]
fn leaving_is_told_twice() {
    let mut peer = Peer::new();
    let stream = peer.open(1, END_STREAM);
    peer.shared.borrow_mut().leave();
    let sent = peer.receive_all();
    assert_eq!(sent[0], (GOAWAY, 0, 0, vec![0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]));
    let late = peer.open(3, END_STREAM);
    assert_eq!(peer.send(&raw(PING, ACK, 0, &sent[1].3)), ReceiveResult::Nothing);
    assert_eq!(peer.receive_all(), [(GOAWAY, 0, 0, vec![0, 0, 0, 3, 0, 0, 0, 0])]);
    // Too late.
    assert_eq!(
        (peer.send(&request(5, END_STREAM)), peer.shared.borrow().is_over()),
        (ReceiveResult::Nothing, false)
    );
    for stream in [stream, late] {
        ok(&stream, b"x");
        peer.receive_all();
    }
    assert!(peer.shared.borrow().is_over());
    let mut peer = Peer::new();
    assert_eq!(peer.send(&raw(GOAWAY, 0, 0, &[0; 8])), ReceiveResult::Over);
}

#[test]
fn a_smaller_table_is_confirmed_once() {
    let mut peer = Peer::new();
    peer.send(&setting(1, 0));
    peer.receive_all();
    let (one, other) = (peer.open(1, END_STREAM), peer.open(3, END_STREAM));
    one.send_head(StatusCode::OK, &HeaderMap::new(), true).unwrap();
    other.send_head(StatusCode::OK, &HeaderMap::new(), true).unwrap();
    let blocks: Vec<_> = peer.receive_all().into_iter().map(|one| one.3).collect();
    assert_eq!(blocks, [vec![0x20, 0x88], vec![0x88]]);
}

#[test]
fn an_idle_connection_has_no_buffers() {
    let mut peer = Peer::new();
    ok(&peer.open(1, END_STREAM), &[0; 30_000]);
    peer.receive_all();
    let mut connection = peer.shared.borrow_mut();
    connection.shrink();
    let Connection { partial, out, ready, resets, streams, .. } = &*connection;
    assert_eq!((partial.capacity(), out.capacity(), ready.capacity(), resets.capacity()), (0, 0, 0, 0));
    assert!(streams.is_empty() && size_of::<Connection>() < 512);
}

#[test]
fn fuzzing_finds_what_is_there() {
    let bytes = [
        raw(SETTINGS, 0, 0, &[]),
        request(1, END_STREAM),
        request(3, 0),
        raw(DATA, END_STREAM, 3, b"abc"),
        request(5, END_STREAM),
        raw(GOAWAY, 0, 0, &[0; 8]),
    ];
    crate::fuzz(&bytes.concat());
}
