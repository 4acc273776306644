//! The life of a connection: fast and general path in turn, bodies, errors, deadlines, hand-over.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use common::{BIG, Server, big};

#[test]
fn keeps_alive_across_both_paths() {
    let server = Server::start();
    let mut peer = server.connect();
    for round in 0..20 {
        assert_eq!(peer.ask("GET", "/small.txt", "").text(), "0123456789", "{round}");
        assert_eq!(peer.ask("GET", "/none", "").status, 404);
        assert_eq!(peer.ask("HEAD", "/small.txt", "").field("content-length"), Some("10"));
        assert_eq!(peer.ask("HEAD", "/none", "").status, 404);
        assert_eq!(peer.ask("GET", "/big.bin", "").body.len(), BIG);
        assert_eq!(peer.ask("HEAD", "/big.bin", "").status, 200);
        assert_eq!(peer.ask("GET", "/empty.txt", "").body, b"");
        assert_eq!(peer.ask("GET", "/small.txt", "Range: bytes=1-1\r\n").text(), "1");
        assert_eq!(peer.ask("GET", "/svc/chunks", "").text(), "chunk 2;chunk 1;chunk 0;");
        assert_eq!(peer.ask("GET", "/svc/slow", "").text(), "slow");
        assert_eq!(peer.ask("HEAD", "/svc/slow", "").status, 200);
        peer.send("POST /svc/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
        std::thread::sleep(Duration::from_millis(5));
        peer.send("lo");
        assert_eq!(peer.answer(false).text(), "hello");
        peer.send("POST /svc/mirror HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(peer.answer(false).text(), "hello");
    }
    assert_eq!(server.records().len(), 260);
    assert_eq!(*server.shared.ended.lock().unwrap(), 0);
}

#[test]
fn pipelined_mixture_in_any_pieces() {
    let server = Server::start();
    let parts = [
        ("GET /small.txt HTTP/1.1\r\nHost: a\r\n\r\n", "0123456789"),
        ("POST /svc/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "abc"),
        ("GET /sub/ HTTP/1.1\r\nHost: a\r\n\r\n", "sub home"),
        ("\r\nGET /svc/slow HTTP/1.1\r\nHost: a\r\n\r\n", "slow"),
        ("GET /svc/chunks HTTP/1.1\r\nHost: a\r\n\r\n", "chunk 2;chunk 1;chunk 0;"),
        ("GET /small.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1\r\n\r\n", "01"),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "<h1>home</h1>"),
    ];
    let all: String = parts.iter().map(|(text, _)| *text).collect();
    for step in [all.len(), 1, 7, 40, 100] {
        let mut peer = server.connect();
        peer.stream.set_nodelay(true).unwrap();
        for piece in all.as_bytes().chunks(step) {
            peer.stream.write_all(piece).unwrap();
            if step < all.len() {
                std::thread::sleep(Duration::from_micros(300));
            }
        }
        for (text, body) in parts {
            let answer = peer.answer(false);
            assert_eq!(answer.text(), body, "{text} in steps of {step}");
            assert_eq!(answer.field("connection"), None);
        }
        assert_eq!(peer.ask("GET", "/small.txt", "").status, 200);
    }
}

#[test]
fn many_pipelined_on_the_fast_path() {
    let server = Server::start();
    let mut peer = server.connect();
    peer.send(&"GET /small.txt HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3000));
    for _ in 0..3000 {
        assert_eq!(peer.answer(false).text(), "0123456789");
    }
}

#[test]
fn a_client_that_reads_late_gets_all() {
    let server = Server::start();
    let big = big();
    common::put(&server.root.join("medium.bin"), &big[..200_000]);
    for path in ["/medium.bin", "/big.bin"] {
        let mut peer = server.connect();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        peer.send(&request.repeat(40));
        std::thread::sleep(Duration::from_millis(300));
        for _ in 0..40 {
            let answer = peer.answer(false);
            assert!(answer.body == big[..answer.body.len()] && answer.body.len() >= 200_000);
        }
        peer.send("GET /small.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(peer.answer(false).text(), "0123456789");
        assert!(peer.closed());
    }
}

#[test]
fn a_client_that_never_reads_is_given_up() {
    let server = Server::start();
    for path in ["/big.bin", "/small.txt"] {
        let mut peer = server.connect();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        peer.stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        for _ in 0..50_000 {
            if peer.stream.write_all(request.as_bytes()).is_err() {
                break;
            }
        }
        let began = Instant::now();
        while *server.shared.ended.lock().unwrap() == 0 {
            assert!(began.elapsed() < Duration::from_secs(20), "{path}");
            std::thread::sleep(Duration::from_millis(20));
        }
        *server.shared.ended.lock().unwrap() = 0;
    }
}

#[test]
fn closing_and_old_versions() {
    let server = Server::start();
    for path in ["/small.txt", "/none", "/svc/slow", "/big.bin", "/svc/chunks", "/svc/never?"] {
        if path == "/svc/never?" {
            continue;
        }
        let mut peer = server.connect();
        let answer = peer.ask("GET", path, "Connection: close\r\n");
        assert_eq!(answer.field("connection"), Some("close"), "{path}");
        assert!(peer.closed(), "{path}");
        let mut peer = server.connect();
        peer.send(&format!("GET {path} HTTP/1.0\r\n\r\n"));
        let answer = peer.answer(false);
        assert!([200, 404].contains(&answer.status) && !answer.body.is_empty(), "{path}");
        assert!(peer.closed(), "{path}");
    }
    let mut peer = server.connect();
    for path in ["/small.txt", "/none", "/svc/slow", "/small.txt"] {
        peer.send(&format!("GET {path} HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"));
        assert_eq!(peer.answer(false).field("connection"), Some("keep-alive"), "{path}");
    }
    assert_eq!(server.get("/svc/close", "").field("x-secret"), None);
}

#[test]
fn bodies_within_and_beyond_the_limit() {
    let server = Server::start();
    let body = "x".repeat(100_000);
    let mut peer = server.connect();
    peer.send(&format!("POST /svc/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n{body}"));
    assert_eq!(peer.answer(false).text(), body);
    // Refused by its length, before a byte of it.
    peer.send("POST /svc/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100001\r\n\r\n");
    let answer = peer.answer(false);
    assert_eq!((answer.status, answer.field("connection")), (413, Some("close")));
    assert!(peer.closed());
    // Refused in the midst of being sent: the answer must survive.
    let mut peer = server.connect();
    peer.send(&format!("POST /svc/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n{body}"));
    assert_eq!(peer.answer(false).status, 413);
    // Refused by count.
    let mut peer = server.connect();
    peer.send("POST /svc/echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    peer.send(&format!("{:x}\r\n{body}\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len(), body.len()));
    let answer = peer.answer(false);
    assert_eq!((answer.status, answer.field("connection")), (413, Some("close")));
    // Chunked within the limit.
    let mut peer = server.connect();
    peer.send(
        "POST /svc/echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    );
    let answer = peer.answer(false);
    assert_eq!((answer.text(), answer.field("connection")), ("abc", Some("close")));
    assert!(peer.closed());
}

#[test]
fn expect_continue() {
    let server = Server::start();
    let mut peer = server.connect();
    for _ in 0..3 {
        peer.send("POST /svc/echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
        assert_eq!(peer.answer(false).status, 100);
        peer.send("abc");
        assert_eq!(peer.answer(false).text(), "abc");
    }
    // Nobody wants the body: a final answer at once.
    peer.send("POST /small.txt HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    let answer = peer.answer(false);
    assert_eq!((answer.status, answer.field("connection")), (405, Some("close")));
    assert!(peer.closed());
    let mut peer = server.connect();
    peer.send("POST /svc/echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 999999\r\n\r\n");
    assert_eq!(peer.answer(false).status, 413);
}

#[test]
fn an_early_answer_survives_an_unread_body() {
    let server = Server::start();
    for _ in 0..20 {
        let mut peer = server.connect();
        peer.send("POST /svc/early HTTP/1.1\r\nHost: a\r\nContent-Length: 90000\r\n\r\n");
        // So much comes before a backend hears of it.
        let _ = peer.stream.write_all(&[b'x'; 64 << 10]);
        std::thread::sleep(Duration::from_millis(5));
        let answer = peer.answer(false);
        assert_eq!((answer.text(), answer.field("connection")), ("early", Some("close")));
        assert!(peer.closed());
    }
}

#[test]
fn a_client_that_leaves_ends_the_work_for_it() {
    let server = Server::start();
    let mut peer = server.connect();
    peer.send("GET /svc/never HTTP/1.1\r\nHost: a\r\n\r\n");
    server.started(1);
    assert_eq!(*server.shared.relay_dropped.lock().unwrap(), 0);
    drop(peer);
    let records = server.records();
    server.dropped(1);
    assert_eq!(records, [("GET".into(), "/svc/never".into(), 499, 0)]);
    // In the midst of its body.
    let mut peer = server.connect();
    peer.send("POST /svc/mirror HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    std::thread::sleep(Duration::from_millis(50));
    drop(peer);
    // In the midst of an answer.
    let mut peer = server.connect();
    peer.send("GET /big.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut some = [0; 1000];
    peer.stream.read_exact(&mut some).unwrap();
    drop(peer);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(*server.shared.ended.lock().unwrap(), 3);
    // One that only closes its sending side still gets its file.
    let mut peer = server.connect();
    peer.send("GET /big.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    peer.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(peer.answer(false).body.len(), BIG);
}

#[test]
fn a_failing_service_breaks_the_connection_off() {
    let server = Server::start();
    let mut peer = server.connect();
    peer.send("GET /svc/fail HTTP/1.1\r\nHost: a\r\n\r\n");
    let text = peer.rest();
    assert!(!text.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&text));
}

#[test]
fn services_see_a_clean_head() {
    let server = Server::start();
    let answer = server.ask(
        "GET http://A.example:80/svc/head?x=/y HTTP/1.1\r\nHost: a.EXAMPLE\r\nX_Forwarded_For: 1\r\n\
         Upgrade: websocket\r\nX-Two: b\r\n\r\n",
    );
    assert_eq!(answer.text(), "GET /svc/head?x=/y\nhost=\"a.EXAMPLE\"\nx-two=\"b\"");
}

#[test]
fn deadlines() {
    let server = Server::start();
    let start = Instant::now();
    // Silent: closed without a word.
    let mut silent = server.connect();
    assert!(silent.closed());
    assert!(start.elapsed() > Duration::from_millis(700));
    // A head that trickles in: 408, counted from its first byte.
    let mut slow = server.connect();
    let start = Instant::now();
    for piece in ["GE", "T ", "/ ", "HT", "TP", "/1"] {
        let _ = slow.stream.write_all(piece.as_bytes());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(slow.answer(false).status, 408);
    assert!(start.elapsed() < Duration::from_millis(900));
    // After a request, idle.
    let mut peer = server.connect();
    for _ in 0..4 {
        assert_eq!(peer.ask("GET", "/small.txt", "").status, 200);
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(peer.closed());
    // A body that stops.
    let mut peer = server.connect();
    peer.send("POST /svc/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    assert_eq!(peer.answer(false).status, 408);
    assert!(peer.closed());
}

#[test]
fn hands_back_foreign_requests_whole() {
    let server = Server::start();
    let mut peer = server.connect();
    let foreign = "GET / HTTP/1.1\r\nHost: Other.Example.:8080\r\n\r\nand more";
    peer.send(&format!("GET /small.txt HTTP/1.1\r\nHost: a\r\n\r\n{foreign}"));
    assert_eq!(peer.answer(false).status, 200);
    assert_eq!(peer.rest(), b"HANDED BACK");
    let mut peer = server.connect();
    peer.send(&format!("POST /svc/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc{foreign}"));
    assert_eq!(peer.answer(false).text(), "abc");
    assert_eq!(peer.rest(), b"HANDED BACK");
    for preread in server.shared.handed_back.lock().unwrap().iter() {
        assert_eq!(std::str::from_utf8(preread), Ok(foreign));
    }
}

#[test]
fn hands_back_idle_connections_when_draining() {
    let server = Server::start();
    let mut idle = server.connect();
    assert_eq!(idle.ask("GET", "/small.txt", "").status, 200);
    let mut busy = server.connect();
    busy.send("GET /svc/slow HTTP/1.1\r\nHost: a\r\n\r\n");
    std::thread::sleep(Duration::from_millis(30));
    server.drain();
    assert_eq!(idle.rest(), b"HANDED BACK");
    assert_eq!(busy.answer(false).text(), "slow");
    assert_eq!(busy.rest(), b"HANDED BACK");
}

#[test]
fn records_everything() {
    let server = Server::start();
    server.get("/small.txt", "");
    server.get("/small.txt", "Range: bytes=0-1\r\n");
    server.ask("HEAD /small.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    server.get("/svc/slow", "");
    server.ask("GET /  HTTP/1.1\r\n\r\n");
    let expected = [
        ("GET", "/small.txt", 200, 10),
        ("GET", "/small.txt", 206, 2),
        ("HEAD", "/small.txt", 200, 0),
        ("GET", "/svc/slow", 200, 4),
    ];
    let records = server.records();
    for (record, (method, target, status, bytes)) in records.iter().zip(expected) {
        assert_eq!(record, &(method.into(), target.into(), status, bytes));
    }
    assert_eq!((records.len(), records[4].2), (5, 400));
}

#[test]
fn a_response_of_unknown_length_ends_as_its_version_knows() {
    let server = Server::start();
    for lines in ["", "Connection: keep-alive\r\n"] {
        let mut peer = server.connect();
        peer.send(&format!("GET /svc/chunks HTTP/1.0\r\n{lines}\r\n"));
        let answer = peer.answer(false);
        assert!(answer.head.starts_with("HTTP/1.0 200 OK\r\n"));
        assert_eq!((answer.field("connection"), answer.field("transfer-encoding")), (Some("close"), None));
        assert_eq!(answer.text(), "chunk 2;chunk 1;chunk 0;");
    }
    // The length in an answer to HEAD is no framing, and the connection goes on.
    let mut peer = server.connect();
    let answer = peer.ask("HEAD", "/svc/chunks", "");
    assert_eq!((answer.field("content-length"), answer.field("transfer-encoding")), (None, None));
    assert_eq!(peer.ask("HEAD", "/svc/text", "").field("content-length"), Some("4000"));
    assert_eq!(peer.ask("GET", "/svc/chunks", "").text(), "chunk 2;chunk 1;chunk 0;");
}

#[test]
fn a_chunked_body_may_come_in_any_pieces() {
    let server = Server::start();
    let body = "3;a=b\r\nabc\r\nA\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n";
    for cut in 0..=body.len() {
        let mut peer = server.connect();
        peer.stream.set_nodelay(true).unwrap();
        peer.send("POST /svc/echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        let (first, second) = body.split_at(cut);
        peer.send(first);
        std::thread::sleep(Duration::from_millis(2));
        peer.send(second);
        let answer = peer.answer(false);
        assert_eq!((answer.text(), answer.field("connection")), ("abc0123456789", Some("close")), "{cut}");
        assert!(peer.closed());
    }
    // A body that breaks off in the framing is refused, also in the midst.
    for (first, second) in [("3\r\nabc\r\n", "x\r\n"), ("", "3 \r\nabc\r\n0\r\n\r\n"), ("3\r\nab", "cd\r\n")]
    {
        let mut peer = server.connect();
        peer.send("POST /svc/echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        peer.send(first);
        std::thread::sleep(Duration::from_millis(20));
        let _ = peer.stream.write_all(second.as_bytes());
        assert!(!peer.rest().starts_with(b"HTTP/1.1 200"), "{first:?} {second:?}");
    }
}

#[test]
fn a_client_that_has_said_all_is_answered() {
    let server = Server::start();
    for (head, status) in [
        ("GET /none HTTP/1.1\r\nHost: a\r\n\r\n", 404),
        ("GET /small.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1\r\n\r\n", 206),
        ("DELETE /small.txt HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("POST /svc/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100001\r\n\r\n", 413),
    ] {
        let mut peer = server.connect();
        peer.send(head);
        peer.stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(peer.answer(false).status, status);
        assert!(peer.closed());
    }
}

#[test]
fn an_interim_response_comes_with_the_wish_for_the_body_alone() {
    let server = Server::start();
    let mut peer = server.connect();
    // Without a body there is nothing to wait for.
    peer.send("GET /none HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(peer.answer(false).status, 404);
    // Nor in HTTP/1.0.
    peer.send(
        "POST /svc/echo HTTP/1.0\r\nConnection: keep-alive\r\nExpect: 100-continue\r\nContent-Length: \
        3\r\n\r\nabc",
    );
    assert_eq!(peer.answer(false).text(), "abc");
    peer.send(
        "POST /svc/echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    assert_eq!(peer.answer(false).status, 100);
    peer.send("3\r\nabc\r\n0\r\n\r\n");
    assert_eq!(peer.answer(false).text(), "abc");
}

#[test]
fn what_is_refused_is_logged_as_far_as_its_head_is_known() {
    let server = Server::start();
    assert_eq!(
        server.ask("POST /svc/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100001\r\n\r\n").status,
        413
    );
    let broken = "POST /svc/mirror HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx";
    assert_eq!(server.ask(broken).status, 400);
    assert_eq!(server.ask("GET /small.txt HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n").status, 400);
    let records = server.records();
    let heads: Vec<_> = records.iter().map(|one| (one.0.as_str(), one.1.as_str(), one.2)).collect();
    assert_eq!(heads, [("POST", "/svc/echo", 413), ("POST", "/svc/mirror", 400), ("", "", 400)]);
}
