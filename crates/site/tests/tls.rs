//! Connections under TLS: everything that plaintext ones can do, and what only they have.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::tls::{ends, get, over, secure};
use common::{BIG, HSTS, Server, big, limits};
use rustls::{HandshakeKind, ProtocolVersion};
use site::{ClientLimits, MinRate};

#[test]
fn keeps_alive_across_both_paths() {
    let (server, client) = Server::secure();
    let mut peer = secure(&server, &client);
    for round in 0..10 {
        for (method, path, status, body) in [
            ("GET", "/small.txt", 200, Some("0123456789")),
            ("GET", "/none", 404, None),
            ("HEAD", "/small.txt", 200, Some("")),
            ("HEAD", "/big.bin", 200, Some("")),
            ("GET", "/empty.txt", 200, Some("")),
            ("GET", "/svc/chunks", 200, Some("chunk 2;chunk 1;chunk 0;")),
            ("GET", "/svc/slow", 200, Some("slow")),
            ("GET", "/svc/where", 200, Some("over TLS")),
            ("GET", "/sub", 301, None),
        ] {
            let answer = peer.ask(method, path, "");
            assert_eq!(
                (answer.status, answer.field("strict-transport-security")),
                (status, Some(HSTS)),
                "{round}"
            );
            assert!(body.is_none_or(|body| body == answer.text()), "{path}");
        }
        let answer = peer.ask("GET", "/big.bin", "");
        assert!(answer.body == big() && answer.field("strict-transport-security") == Some(HSTS));
        assert_eq!(peer.ask("GET", "/small.txt", "Range: bytes=1-1\r\n").text(), "1");
        peer.send("POST /svc/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
        std::thread::sleep(Duration::from_millis(5));
        peer.send("lo");
        assert_eq!(peer.answer(false).text(), "hello");
    }
    assert_eq!(server.records().len(), 120);
    assert_eq!(*server.shared.ended.lock().unwrap(), 0);
    assert_eq!(server.shared.failed.lock().unwrap().len(), 0);
}

#[test]
fn pipelined_in_any_records() {
    let (server, client) = Server::secure();
    let parts = [
        ("GET /small.txt HTTP/1.1\r\nHost: a\r\n\r\n", "0123456789"),
        ("POST /svc/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "abc"),
        ("GET /sub/ HTTP/1.1\r\nHost: a\r\n\r\n", "sub home"),
        ("\r\nGET /svc/slow HTTP/1.1\r\nHost: a\r\n\r\n", "slow"),
        ("GET /small.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1\r\n\r\n", "01"),
    ];
    let all: String = parts.iter().map(|(text, _)| *text).collect();
    for step in [all.len(), 1, 7, 40, 100] {
        let mut peer = secure(&server, &client);
        peer.stream.sock.set_nodelay(true).unwrap();
        for piece in all.as_bytes().chunks(step) {
            peer.stream.write_all(piece).unwrap();
        }
        for (text, body) in parts {
            assert_eq!(peer.answer(false).text(), body, "{text} in steps of {step}");
        }
        assert_eq!(peer.ask("GET", "/small.txt", "").status, 200);
    }
    let mut peer = secure(&server, &client);
    peer.send(&"GET /small.txt HTTP/1.1\r\nHost: a\r\n\r\n".repeat(2000));
    for _ in 0..2000 {
        assert_eq!(peer.answer(false).text(), "0123456789");
    }
}

#[test]
fn records_may_come_byte_by_byte() {
    let (server, client) = Server::secure();
    let mut peer = secure(&server, &client);
    assert_eq!(peer.ask("GET", "/small.txt", "").status, 200);
    let (tls, tcp) = (&mut peer.stream.conn, &mut peer.stream.sock);
    tcp.set_nodelay(true).unwrap();
    tls.writer().write_all(b"GET /small.txt HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    tls.write_tls(&mut bytes).unwrap();
    for byte in bytes {
        tcp.write_all(&[byte]).unwrap();
        std::thread::sleep(Duration::from_micros(200));
    }
    assert_eq!(peer.answer(false).text(), "0123456789");
}

#[test]
fn a_client_that_reads_late_gets_all() {
    let (server, client) = Server::secure();
    let big = big();
    common::put(&server.root.join("medium.bin"), &big[..200_000]);
    for path in ["/medium.bin", "/big.bin", "/svc/big"] {
        let mut peer = secure(&server, &client);
        peer.send(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").repeat(10));
        std::thread::sleep(Duration::from_millis(300));
        for _ in 0..10 {
            let answer = peer.answer(false);
            assert!(answer.body == big[..answer.body.len()] && answer.body.len() >= 200_000);
        }
        peer.send("GET /small.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(peer.answer(false).text(), "0123456789");
        assert!(peer.closed());
    }
}

#[test]
fn slow_readers_are_ended_and_what_broke_off_does_not_look_whole() {
    let ends = ends();
    let rate = MinRate::new(50_000, Duration::from_millis(600));
    let limits = ClientLimits { body_rate: rate, response_rate: rate, ..limits() };
    let (server, client) = (Server::over(limits, Some(ends.server)), Arc::new(ends.client));
    let small = "GET /small.txt HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100_000);
    // More than the kernel keeps for a connection.
    common::put(&server.root.join("huge.bin"), &vec![b'x'; 20 << 20]);
    for (path, more) in [("/huge.bin", ""), ("/svc/huge", ""), ("/small.txt", small.as_str())] {
        let mut peer = over(server.connect_from([127, 0, 0, 1]).stream, &client);
        while peer.stream.conn.is_handshaking() {
            peer.stream.conn.complete_io(&mut peer.stream.sock).unwrap();
        }
        peer.stream.sock.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n{more}");
        let _ = peer.stream.write_all(request.as_bytes());
        let before = *server.shared.ended.lock().unwrap();
        let began = Instant::now();
        // 5 kB/s, without a pause.
        while *server.shared.ended.lock().unwrap() == before && began.elapsed() < Duration::from_secs(8) {
            let _ = peer.stream.sock.read(&mut [0; 100]);
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(began.elapsed() < Duration::from_secs(5), "{path}");
    }
    assert_eq!(server.shared.shed.lock().unwrap()[3], 3);
    // One that sends slowly.
    let mut peer = secure(&server, &client);
    peer.send("POST /svc/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n");
    for _ in 0..60 {
        if peer.stream.write_all(b"x").and_then(|()| peer.stream.flush()).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    assert_eq!(peer.answer(false).status, 408);
}

#[test]
fn a_broken_answer_ends_without_close_notify() {
    let (server, client) = Server::secure();
    let mut peer = secure(&server, &client);
    peer.send("GET /svc/fail HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut all = Vec::new();
    let error = peer.stream.read_to_end(&mut all).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{}", String::from_utf8_lossy(&all));
}

#[test]
fn ends_with_close_notify() {
    let (server, client) = Server::secure();
    // `closed` fails where the connection just breaks off.
    let mut idle = secure(&server, &client);
    assert_eq!(idle.ask("GET", "/small.txt", "").status, 200);
    assert!(idle.closed());
    for path in ["/small.txt", "/none", "/svc/slow", "/big.bin"] {
        let mut peer = secure(&server, &client);
        let answer = peer.ask("GET", path, "Connection: close\r\n");
        assert_eq!(answer.field("connection"), Some("close"), "{path}");
        assert!(peer.closed(), "{path}");
    }
    // Refused: after the answer, and once what is still being sent was thrown away.
    let mut peer = secure(&server, &client);
    peer.send("GET /  HTTP/1.1\r\n\r\n");
    let answer = peer.answer(false);
    assert_eq!((answer.status, answer.field("strict-transport-security")), (400, Some(HSTS)));
    assert!(peer.closed());
    // The client's word that it sends no more does not end what it waits for.
    let mut peer = secure(&server, &client);
    peer.send("GET /big.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    peer.stream.conn.send_close_notify();
    peer.stream.flush().unwrap();
    assert_eq!(peer.answer(false).body.len(), BIG);
    assert!(peer.closed());
}

#[test]
fn foreign_hosts_are_misdirected_and_nothing_is_handed_back() {
    let (server, client) = Server::secure();
    let mut peer = secure(&server, &client);
    assert_eq!(peer.ask("GET", "/small.txt", "").status, 200);
    peer.send("GET / HTTP/1.1\r\nHost: Other.Example.:8080\r\n\r\n");
    let answer = peer.answer(false);
    assert_eq!((answer.status, answer.field("connection")), (421, Some("close")));
    assert!(peer.closed());
    // Draining.
    let mut idle = secure(&server, &client);
    assert_eq!(idle.ask("GET", "/small.txt", "").status, 200);
    let mut busy = secure(&server, &client);
    busy.send("GET /svc/slow HTTP/1.1\r\nHost: a\r\n\r\n");
    std::thread::sleep(Duration::from_millis(30));
    server.drain();
    assert!(idle.closed());
    assert_eq!(busy.answer(false).text(), "slow");
    assert!(busy.closed());
    assert_eq!(server.shared.handed_back.lock().unwrap().len(), 0);
}

#[test]
fn a_client_that_leaves_ends_the_work_for_it() {
    let (server, client) = Server::secure();
    let mut peer = secure(&server, &client);
    peer.send("GET /svc/never HTTP/1.1\r\nHost: a\r\n\r\n");
    server.started(1);
    assert_eq!(*server.shared.relay_dropped.lock().unwrap(), 0);
    peer.stream.conn.send_close_notify();
    peer.stream.flush().unwrap();
    assert_eq!(server.records(), [("GET".into(), "/svc/never".into(), 499, 0)]);
    server.dropped(1);
}

#[test]
fn resumes_sessions_in_both_versions() {
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let ends = ends();
        let server = Server::over(limits(), Some(ends.server));
        let mut client = rustls::ClientConfig::builder_with_protocol_versions(&[version])
            .with_root_certificates(ends.roots)
            .with_no_client_auth();
        client.resumption = rustls::client::Resumption::in_memory_sessions(8);
        let client = Arc::new(client);
        for (round, kind) in
            [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed].iter().enumerate()
        {
            let mut peer = secure(&server, &client);
            assert_eq!(peer.ask("GET", "/small.txt", "").status, 200);
            assert_eq!(peer.stream.conn.handshake_kind(), Some(*kind), "{round}");
            let expected = if version.version == ProtocolVersion::TLSv1_2 { "TLSv1_2" } else { "TLSv1_3" };
            assert_eq!(format!("{:?}", peer.stream.conn.protocol_version().unwrap()), expected);
        }
    }
}

#[test]
fn handshakes_have_a_deadline_and_failures_are_told_of_once() {
    let (server, client) = Server::secure();
    let start = Instant::now();
    let mut silent = server.connect();
    silent.send("\x16\x03\x01");
    assert!(silent.closed());
    assert!(start.elapsed() < Duration::from_secs(3));
    // Not TLS at all.
    let mut plain = server.connect();
    plain.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let alert = plain.rest();
    assert_eq!(alert[..1], [21], "{alert:?}");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(server.shared.failed.lock().unwrap().len(), 1);
    assert_eq!(*server.shared.tampered.lock().unwrap(), 0);
    assert_eq!(get(&server, &client, "/small.txt", "").status, 200);
}

#[test]
fn records_that_were_changed_are_noticed() {
    let (server, client) = Server::secure();
    for before in [0, 1] {
        let mut peer = secure(&server, &client);
        for _ in 0..before {
            assert_eq!(peer.ask("GET", "/small.txt", "").status, 200);
        }
        let (tls, tcp) = (&mut peer.stream.conn, &mut peer.stream.sock);
        while tls.is_handshaking() {
            tls.complete_io(tcp).unwrap();
        }
        tls.writer().write_all(b"GET /small.txt HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut bytes = Vec::new();
        tls.write_tls(&mut bytes).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        tcp.write_all(&bytes).unwrap();
        let mut answer = Vec::new();
        let error = peer.stream.read_to_end(&mut answer).unwrap_err();
        assert!(error.to_string().contains("BadRecordMac"), "{error}");
        assert_eq!(answer, b"");
    }
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(*server.shared.tampered.lock().unwrap(), 2);
    assert_eq!(server.records().len(), 1);
}

#[test]
fn idle_connections_make_room_also_while_they_shake_hands() {
    let ends = ends();
    let limits = ClientLimits {
        connections: 16,
        idle_timeout: Duration::from_secs(30),
        head_timeout: Duration::from_secs(30),
        ..limits()
    };
    let (server, client) = (Server::over(limits, Some(ends.server)), Arc::new(ends.client));
    // Half of them have only begun.
    let mut half: Vec<_> = (0..7).map(|_| server.connect()).collect();
    half.iter_mut().for_each(|peer| peer.send("\x16\x03\x01"));
    let mut idle: Vec<_> = (0..7).map(|_| secure(&server, &client)).collect();
    for peer in &mut idle {
        assert_eq!(peer.ask("GET", "/small.txt", "").status, 200);
    }
    for _ in 0..14 {
        assert_eq!(secure(&server, &client).ask("GET", "/small.txt", "Connection: close\r\n").status, 200);
    }
    let mut newer: Vec<_> = (0..10).map(|_| secure(&server, &client)).collect();
    for peer in &mut newer {
        assert_eq!(peer.ask("GET", "/small.txt", "").status, 200);
    }
    assert!(half.iter_mut().all(common::Peer::closed));
    assert!(idle[0].closed());
    assert_eq!(newer[9].ask("GET", "/small.txt", "").status, 200);
}

/// Sends `count` bytes and takes as many, both as fast as the server lets it; tells how long nothing moved at most.
fn both_ways(peer: &mut common::Peer<common::tls::Secure>, count: usize) -> Duration {
    let stream = &mut peer.stream;
    stream.sock.set_nonblocking(true).unwrap();
    let (mut sent, mut taken, mut moved, mut longest) = (0, 0, Instant::now(), Duration::ZERO);
    // No byte of a head.
    let piece = [1; 16 << 10];
    while taken < count {
        let mut progress = false;
        if sent < count && !stream.conn.wants_write() {
            sent += stream.conn.writer().write(&piece[..piece.len().min(count - sent)]).unwrap();
        }
        progress |= stream.conn.write_tls(&mut stream.sock).is_ok_and(|count| count > 0);
        if stream.conn.read_tls(&mut stream.sock).is_ok_and(|count| count > 0) {
            stream.conn.process_new_packets().unwrap();
            let mut came = Vec::new();
            let _ = stream.conn.reader().read_to_end(&mut came);
            taken += came.iter().filter(|&&byte| byte == 1).count();
            progress = true;
        }
        longest = longest.max(moved.elapsed());
        match progress {
            true => moved = Instant::now(),
            false => std::thread::sleep(Duration::from_millis(1)),
        }
        assert!(moved.elapsed() < Duration::from_secs(20), "{sent} sent, {taken} taken");
    }
    longest
}

#[test]
fn a_body_and_its_answer_at_once() {
    let ends = ends();
    let limits = ClientLimits { body_bytes: 100 << 20, ..limits() };
    let (server, client) = (Server::over(limits, Some(ends.server)), Arc::new(ends.client));
    let count = 20 << 20;
    let mut peer = secure(&server, &client);
    peer.send(&format!("POST /svc/mirror HTTP/1.1\r\nHost: a\r\nContent-Length: {count}\r\n\r\n"));
    // The writer of the answer and the reader of the body are two tasks: neither takes the other's place with the
    // runtime.
    let longest = both_ways(&mut peer, count);
    assert!(longest < Duration::from_millis(700), "{longest:?}");
}
