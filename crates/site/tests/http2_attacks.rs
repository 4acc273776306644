//! Attacks that cost a client of HTTP/2 nothing: each is bounded, and ends the connection.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::Read;
use std::time::{Duration, Instant};

use common::Server;
use common::h2c::{
    ACK, CALM, CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PRIORITY, PROTOCOL_ERROR,
    RST_STREAM, Raw, SETTINGS, WINDOW_UPDATE, block, field, frame,
};

/// Sends what `attack` makes, round after round, until the server has had enough; the reason that the server gives.
fn attack(server: &Server, mut attack: impl FnMut(u32) -> Vec<u8>) -> Option<u32> {
    let mut peer = Raw::connect(server);
    peer.wait(SETTINGS, 0).unwrap();
    peer.send(&frame(SETTINGS, ACK, 0, &[]));
    let mut rounds = 0;
    while rounds < 20_000 && peer.send(&attack(rounds)) {
        rounds += 1;
    }
    peer.ended()
}

fn stream(round: u32) -> u32 {
    2 * round + 1
}

/// The reason may be lost where the client goes on sending after the end.
fn calmed(server: &Server, reason: Option<u32>) {
    assert!(matches!(reason, None | Some(CALM)), "{reason:?}");
    // How many rounds come before the end is a matter of the kernel's buffers.
    let began = Instant::now();
    while *server.shared.ended.lock().unwrap() == 0 {
        assert!(began.elapsed() < Duration::from_secs(30), "the connection does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(*server.shared.abusive.lock().unwrap(), 1);
    // It serves others.
    assert_eq!(server.get("/small.txt", "").status, 200);
}

#[test]
fn rapid_reset() {
    let server = Server::start();
    let reason = attack(&server, |round| {
        let mut bytes =
            frame(HEADERS, END_HEADERS | END_STREAM, stream(round), &block("GET", "/svc/never", &[]));
        bytes.extend(frame(RST_STREAM, 0, stream(round), &CANCEL.to_be_bytes()));
        bytes
    });
    calmed(&server, reason);
    assert!(*server.shared.relay_dropped.lock().unwrap() <= 201);
}

#[test]
fn resets_that_the_server_is_made_to_send() {
    let server = Server::start();
    // A window that becomes larger than windows can be is an error of the stream.
    let reason = attack(&server, |round| {
        let mut bytes =
            frame(HEADERS, END_HEADERS | END_STREAM, stream(round), &block("GET", "/svc/never", &[]));
        bytes.extend(frame(WINDOW_UPDATE, 0, stream(round), &0x7fff_ffff_u32.to_be_bytes()));
        bytes
    });
    calmed(&server, reason);
    assert!(
        *server.shared.relay_dropped.lock().unwrap() <= 200,
        "{}",
        server.shared.relay_dropped.lock().unwrap()
    );
}

#[test]
fn continuation_without_end() {
    for piece in [1, 1000] {
        let server = Server::start();
        let reason = attack(&server, |round| match round {
            0 => frame(HEADERS, END_STREAM, 1, &block("GET", "/small.txt", &[])),
            _ => frame(CONTINUATION, 0, 1, &field("x", &"y".repeat(100)).repeat(piece / 100 + 1)),
        });
        calmed(&server, reason);
    }
}

#[test]
fn floods_of_small_frames() {
    let floods: [fn(u32) -> Vec<u8>; 6] = [
        |_| frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]),
        |round| frame(PING, 0, 0, &u64::from(round).to_be_bytes()),
        |_| frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1]),
        |_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
        |round| match round {
            0 => frame(HEADERS, END_HEADERS, 1, &block("POST", "/svc/echo", &[])),
            _ => frame(DATA, 0, 1, &[]),
        },
        // Nobody knows this kind.
        |_| frame(0x77, 0, 0, &[1]),
    ];
    for flood in floods {
        let server = Server::start();
        let reason = attack(&server, flood);
        calmed(&server, reason);
    }
}

#[test]
fn small_things_that_decompress_into_large_ones() {
    let server = Server::start();
    let mut peer = Raw::connect(&server);
    peer.wait(SETTINGS, 0).unwrap();
    // A field of 100 bytes in the table, and then a block that names it 4000 times: 400 kB out of 4 kB.
    let mut first = block("GET", "/small.txt", &[]);
    first.extend([0x40, 1, b'x', 100]);
    first.extend([b'y'; 100]);
    peer.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &first));
    assert!(peer.wait(HEADERS, 1).is_some());
    let mut bomb = block("GET", "/small.txt", &[]);
    bomb.extend([0x80 | 62; 4000]);
    peer.send(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &bomb));
    // Refused, by status or by reset, and the request reaches nobody.
    let refused = loop {
        match peer.next() {
            Some(frame) if frame.stream == 3 && frame.kind == RST_STREAM => break true,
            Some(frame) if frame.stream == 3 && frame.kind == HEADERS => break frame.flags & END_STREAM != 0,
            Some(_) => {}
            None => break true,
        }
    };
    assert!(refused);
    assert_eq!(server.records().len(), 1);
}

#[test]
fn readers_without_a_window_are_given_up() {
    let server = Server::start();
    let stream = server.connect().stream;
    let mut peer = Raw::over(stream, &[(4, 0)]);
    for number in 0..100 {
        peer.request(2 * number + 1, "GET", "/big.bin", &[]);
    }
    let began = Instant::now();
    let mut resets = 0;
    while resets < 100 {
        let Some(frame) = peer.next() else { break };
        resets += u32::from(frame.kind == RST_STREAM && frame.number() == CANCEL);
    }
    assert_eq!(resets, 100);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    drop(peer);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(server.shared.shed.lock().unwrap()[3], 100);
}

/// KiB of this process, of which the server is part.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn what_stalled_streams_hold() {
    let server = Server::start();
    let before = resident();
    // Ten connections with 128 streams, each of which may have one byte.
    let peers: Vec<_> = (0..10)
        .map(|_| {
            let mut peer = Raw::over(server.connect().stream, &[(4, 1)]);
            for number in 0..128 {
                peer.request(2 * number + 1, "GET", "/big.bin", &[]);
            }
            peer
        })
        .collect();
    std::thread::sleep(Duration::from_millis(1000));
    let held = resident() - before;
    // 32 KiB for a stream, what else it needs, and the tests that run beside this one.
    assert!(held < 1280 * 80, "{held} KiB");
    drop(peers);
}

#[test]
fn readers_that_do_not_read_are_given_up() {
    let server = Server::start();
    let stream = server.connect_from([127, 0, 0, 1]).stream;
    let mut peer = Raw::over(stream, &[(4, (1 << 31) - 1)]);
    peer.send(&frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes()));
    common::put(&server.root.join("huge.bin"), &vec![b'x'; 20 << 20]);
    for number in 0..20 {
        peer.request(2 * number + 1, "GET", "/huge.bin", &[]);
    }
    let began = Instant::now();
    while *server.shared.ended.lock().unwrap() == 0 && began.elapsed() < Duration::from_secs(8) {
        let _ = peer.stream.read(&mut [0; 10]);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    assert!(server.shared.shed.lock().unwrap()[3] >= 1);
}

#[test]
fn more_streams_than_there_may_be_are_refused() {
    let server = Server::start();
    let mut peer = Raw::connect(&server);
    for number in 0..160 {
        peer.request(2 * number + 1, "GET", "/svc/never", &[]);
    }
    let mut refused = 0;
    while refused < 32 {
        let frame = peer.next().unwrap();
        if frame.kind == RST_STREAM {
            assert_eq!(frame.number(), 7);
            refused += 1;
        }
    }
    server.started(128);
    drop(peer);
    server.dropped(128);
}

#[test]
fn what_belongs_to_connections_of_http1_is_an_error() {
    let server = Server::start();
    for (name, value) in [
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "x"),
        ("te", "gzip"),
        ("X-Upper", "1"),
    ] {
        let mut peer = Raw::connect(&server);
        peer.request(1, "GET", "/svc/head", &[(name, value)]);
        let answer = loop {
            match peer.next() {
                Some(frame) if frame.stream == 1 => break Some(frame),
                Some(frame) if frame.kind == common::h2c::GOAWAY => break None,
                Some(_) => {}
                None => break None,
            }
        };
        assert!(
            answer.is_none_or(|frame| frame.kind == RST_STREAM && frame.number() == PROTOCOL_ERROR),
            "{name}"
        );
    }
    assert_eq!(*server.shared.relay_dropped.lock().unwrap(), 0);
}

/// The outcome of the request on stream 1: its status as sent, or the reason of a reset, or nothing at all.
fn outcome(peer: &mut Raw) -> Result<Vec<u8>, u32> {
    loop {
        match peer.next() {
            Some(frame) if frame.stream == 1 && frame.kind == RST_STREAM => return Err(frame.number()),
            Some(frame) if frame.stream == 1 && frame.kind == HEADERS => return Ok(frame.payload),
            Some(frame) if frame.kind == common::h2c::GOAWAY => return Err(0),
            Some(_) => {}
            None => return Err(0),
        }
    }
}

#[test]
fn nothing_becomes_another_request_on_the_way_to_a_service() {
    let server = Server::start();
    const SMUGGLED: &str = "a\r\n\r\nGET /svc/head HTTP/1.1\r\nHost: a.example";
    type Fields = &'static [(&'static str, &'static str)];
    let cases: [(&str, &str, Fields); 9] = [
        ("GET", "/svc/head", &[("x-one", SMUGGLED)]),
        ("GET", "/svc/head", &[("x-one", "a\nb: c")]),
        ("GET", "/svc/head", &[("x-one\r\nb", "c")]),
        ("GET", "/svc/head HTTP/1.1\r\nX: y", &[]),
        ("GET", "/svc/head x", &[]),
        ("GET / HTTP/1.1\r\nX:", "/svc/head", &[]),
        ("GET", "/svc/head", &[(":authority", "a.example\r\nX: y")]),
        ("GET", "/svc/head", &[(":authority", "a.example"), ("host", "other.example")]),
        ("GET", "/svc/head", &[("content-length", "+5")]),
    ];
    for (method, path, more) in cases {
        let mut peer = Raw::connect(&server);
        peer.request(1, method, path, more);
        // The status 400 is entry 12 of the static table.
        let refused = outcome(&mut peer).map_or(true, |block| block[0] == 0x8c);
        assert!(refused, "{method:?} {path:?} {more:?}");
    }
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(*server.shared.relay_dropped.lock().unwrap(), 0);
    // Lengths that are not true: the service never sees such a body as whole.
    for (length, body) in [("5", &b"abc"[..]), ("2", b"abc"), ("0", b"abc")] {
        let mut peer = Raw::connect(&server);
        peer.request(1, "POST", "/svc/mirror", &[("content-length", length)]);
        peer.send(&frame(DATA, END_STREAM, 1, body));
        let mut whole = false;
        while let Some(frame) = peer.next() {
            whole |= frame.stream == 1 && frame.kind != RST_STREAM && frame.flags & END_STREAM != 0;
            if frame.stream == 1 && (frame.kind == RST_STREAM || frame.flags & END_STREAM != 0) {
                break;
            }
        }
        let records = server.records();
        let status = records.last().map_or(0, |record| record.2);
        assert!(!whole || status >= 400, "{length}: {status}");
    }
}
