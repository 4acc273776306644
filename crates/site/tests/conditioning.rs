//! Actions by which no client can harm the others: to read or send slowly, to sit about, to send harmful requests.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use common::{BIG, Peer, Server, limits};
use site::{ClientLimits, MinRate};

const LOOPBACK: [u8; 4] = [127, 0, 0, 1];

/// A server that wants 50 kB/s, and is patient for two seconds.
fn impatient() -> Server {
    let rate = MinRate::new(50_000, Duration::from_millis(600));
    Server::with(ClientLimits { body_rate: rate, response_rate: rate, ..limits() })
}

#[test]
fn an_answer_that_is_taken_too_slowly_is_ended() {
    let server = impatient();
    let small = "GET /small.txt HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100_000);
    for (path, more) in [("/big.bin", ""), ("/svc/huge", ""), ("/small.txt", small.as_str())] {
        let mut peer = server.connect_from(LOOPBACK);
        peer.stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n{more}");
        let _ = peer.stream.write_all(request.as_bytes());
        let before = *server.shared.ended.lock().unwrap();
        let began = Instant::now();
        // 5 kB/s, without a pause.
        while *server.shared.ended.lock().unwrap() == before && began.elapsed() < Duration::from_secs(8) {
            let _ = peer.stream.read(&mut [0; 100]);
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(began.elapsed() < Duration::from_secs(5), "{path}");
    }
    assert_eq!(server.shared.shed.lock().unwrap()[3], 3);
}

#[test]
fn an_answer_that_is_taken_fast_enough_is_not() {
    let server = impatient();
    for path in ["/big.bin", "/svc/big"] {
        let mut peer = server.connect_from(LOOPBACK);
        peer.send(&format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        let (mut count, mut buffer) = (0, [0; 4000]);
        loop {
            match peer.stream.read(&mut buffer).unwrap() {
                0 => break,
                some => count += some,
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        assert!(count > BIG, "{path}: {count}");
    }
    assert_eq!(server.shared.shed.lock().unwrap()[3], 0);
}

#[test]
fn a_body_that_comes_too_slowly_is_refused() {
    let server = impatient();
    for framing in ["Content-Length: 50000", "Transfer-Encoding: chunked"] {
        let mut peer = server.connect();
        peer.send(&format!("POST /svc/echo HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
        let began = Instant::now();
        for _ in 0..60 {
            if peer.stream.write_all(b"1\r\nx\r\n").is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        assert_eq!(peer.answer(false).status, 408, "{framing}");
        assert!(began.elapsed() < Duration::from_secs(3));
        assert!(peer.closed());
    }
    assert_eq!(server.records().iter().filter(|record| record.2 == 408).count(), 2);
    assert_eq!(server.shared.shed.lock().unwrap()[2], 2);
}

#[test]
fn a_body_that_comes_fast_enough_is_not() {
    let server = impatient();
    let mut peer = server.connect();
    peer.send("POST /svc/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    for _ in 0..25 {
        peer.stream.write_all(&[b'x'; 4000]).unwrap();
        std::thread::sleep(Duration::from_millis(25));
    }
    assert_eq!(peer.answer(false).body.len(), 100_000);
    // Without a body nothing is awaited, however long the answer takes.
    assert_eq!(peer.ask("GET", "/svc/slow", "").text(), "slow");
}

fn crowded(connections: u32) -> Server {
    // Neither is these tests' matter, and a busy machine takes its time.
    let (idle_timeout, head_timeout) = (Duration::from_secs(30), Duration::from_secs(30));
    Server::with(ClientLimits { connections, idle_timeout, head_timeout, ..limits() })
}

fn is_open(peer: &mut Peer) -> bool {
    peer.stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let open = peer.stream.read(&mut [0; 1]).is_err();
    peer.stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    open
}

#[test]
fn idle_connections_make_room_the_oldest_of_the_heaviest_range_first() {
    let server = crowded(16);
    let mut lone = server.connect_from([127, 9, 9, 9]);
    assert_eq!(lone.ask("GET", "/small.txt", "").status, 200);
    let mut many: Vec<Peer> = (0..40_u8)
        .map(|last| {
            let mut peer = server.connect_from([127, 0, 0, 1 + last % 3]);
            if last % 2 == 0 {
                assert_eq!(peer.ask("GET", "/small.txt", "").status, 200, "{last}");
            } else {
                peer.send("GET / HT");
            }
            std::thread::sleep(Duration::from_millis(5));
            peer
        })
        .collect();
    assert_eq!(lone.ask("GET", "/small.txt", "").status, 200);
    // A lone one and a reserve of two beside them; a busy machine may need a moment for that.
    let mut open = Vec::new();
    for _ in 0..100 {
        open = many.iter_mut().map(is_open).collect();
        if open.iter().filter(|&&open| open).count() == 13 {
            break;
        }
    }
    assert_eq!(open.iter().filter(|&&open| open).count(), 13, "{open:?}");
    assert!(open[..16].iter().all(|open| !open) && open[39], "{open:?}");
}

#[test]
fn connections_in_use_are_not_closed_for_others() {
    let server = crowded(8);
    let begin = |_| {
        let mut peer = server.connect();
        peer.send("POST /svc/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na");
        peer
    };
    let mut busy: Vec<Peer> = (0..8).map(begin).collect();
    std::thread::sleep(Duration::from_millis(50));
    for _ in 0..20 {
        assert_eq!(server.get("/small.txt", "").status, 200);
    }
    for peer in &mut busy {
        peer.send("b");
        assert_eq!(peer.answer(false).text(), "ab");
    }
}

#[test]
fn later_heads_are_checked_like_the_first() {
    let server = Server::with(ClientLimits { checks: conditioning::checks::Setting::Strict, ..limits() });
    for path in ["/svc/../../x", "/svc/a%2fb", "/svc/%00", "/////////////////////////"] {
        let mut peer = server.connect();
        assert_eq!(peer.ask("GET", "/small.txt", "").status, 200);
        assert_eq!(peer.ask("GET", "/svc/slow", "").status, 200);
        assert_eq!(peer.ask("GET", path, "").status, 400, "{path}");
        assert!(peer.closed(), "{path}");
    }
    assert_eq!(server.get("/svc/slow", &"X: y\r\n".repeat(70)).status, 400);
    assert_eq!(server.records().iter().filter(|record| record.2 == 400).count(), 5);
    assert_eq!(server.shared.shed.lock().unwrap()[1], 5);
    // An answer that lies ready is given: nobody else will see the head.
    assert_eq!(server.get("/small.txt", &"X: y\r\n".repeat(70)).status, 200);
}
