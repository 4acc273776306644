//! Malformed and unusual heads, against the check and over a connection.
#![allow(clippy::unwrap_used)]

mod common;

use common::Server;
use site::head::{CheckedHead, Framing, check, fuzz_head};

/// Heads that must be refused, with the status.
const BAD: &[(&str, u16)] = &[
    ("GET / HTTP/1.1\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost:\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a:x\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a:+80\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: [a]\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: .\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", 400),
    ("GET / HTTP/1.1\nHost: a\n\n", 400),
    ("GET / HTTP/1.1\r\nHost: a\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a\r\nX: b\rc\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a\r\nX: b\0c\r\n\r\n", 400),
    ("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /a\x01 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /a\x7f HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /a\\b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /\r\n\r\n", 400),
    ("G@T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET http://u@a/x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET http://b/x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET http://a:81/x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET ftp://a/x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET http://a/x HTTP/1.1\r\n\r\n", 400),
    ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", 400),
    ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
    ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n", 400),
    ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n", 400),
    ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
    ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\n", 400),
    ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\ncontent-length: 2\r\n\r\n", 400),
    ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 010\r\n\r\n", 400),
    ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 00\r\n\r\n", 400),
    ("get / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
    ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", 400),
    ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", 400),
    ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 400),
    ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", 400),
    ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", 400),
    ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n", 400),
    ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    ("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    ("POST / HTTP/1.1\r\nHost: a\r\nExpect: magic\r\n\r\n", 417),
    ("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 501),
    ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    ("GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505),
    ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    ("GET / http/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET / HTTP/11\r\nHost: a\r\n\r\n", 400),
    ("\x16\x03\x01\x02\x00\x01\x00\x01\x7c\x03", 400),
];

#[test]
fn the_check_refuses() {
    for (text, status) in BAD {
        match check(text.as_bytes(), 8192) {
            CheckedHead::Refused(refusal) => assert_eq!(refusal.status().as_u16(), *status, "{text:?}"),
            other => panic!("{text:?}: {other:?}"),
        }
    }
}

#[test]
fn the_server_refuses_and_closes() {
    let server = Server::start();
    for (text, status) in BAD {
        let mut peer = server.connect();
        // After a good request, as a smuggler would.
        assert_eq!(peer.ask("GET", "/small.txt", "").status, 200);
        peer.send(text);
        let answer = peer.answer(false);
        assert_eq!((answer.status, answer.field("connection")), (*status, Some("close")), "{text:?}");
        assert!(peer.closed(), "{text:?}");
    }
}

#[test]
fn too_large() {
    let server = Server::start();
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(9000));
    assert_eq!(server.ask(&long).status, 431);
    assert_eq!(server.ask(&long[..8500]).status, 431);
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(100));
    assert_eq!(server.ask(&many).status, 431);
    let enough = format!(
        "GET /none HTTP/1.1\r\nHost: a\r\n{}\r\n",
        (0..99).map(|n| format!("X-{n}: y\r\n")).collect::<String>()
    );
    assert_eq!(server.ask(&enough).status, 404);
}

#[test]
fn understands() {
    let head = |text: &'static str| match check(text.as_bytes(), 8192) {
        CheckedHead::Whole(head) => head,
        other => panic!("{text:?}: {other:?}"),
    };
    let plain = head("GET /a?b?c HTTP/1.1\r\nhost: Example.COM.:8080\r\n\r\nrest");
    assert_eq!((plain.path, plain.query, plain.host), ("/a", Some("b?c"), &b"Example.COM"[..]));
    assert!(plain.keep && !plain.unusual && plain.framing == Framing::None);
    assert_eq!(head("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n").host, b"[::1]");
    assert_eq!(head("GET / HTTP/1.0\r\n\r\n").host, b"");
    assert!(!head("GET / HTTP/1.0\r\n\r\n").keep);
    assert!(!head("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n").keep);
    let absolute = head("GET HTTP://a?q HTTP/1.1\r\nHost: A:80\r\n\r\n");
    assert_eq!((absolute.path, absolute.query, absolute.host), ("/", Some("q"), &b"a"[..]));
    let long = head("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n");
    assert_eq!(long.framing, Framing::Length(20));
    assert_eq!(
        head("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n").framing,
        Framing::Chunked
    );
    assert_eq!(head("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").framing, Framing::None);
    assert!(matches!(check(b"GET / HTTP/1.1\r\nHost: a\r\n\r", 8192), CheckedHead::Partial));
    assert!(matches!(check(b"", 8192), CheckedHead::Partial));
}

/// Every prefix is partial or refused; every change of one byte is answered without a panic.
#[test]
fn mutations() {
    let text = "POST http://a.example/x?y HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\
                Connection: close\r\nX_Y: z\r\nExpect: 100-continue\r\n\r\n";
    for end in 0..text.len() {
        assert!(matches!(check(&text.as_bytes()[..end], 8192), CheckedHead::Partial), "{end}");
    }
    for at in 0..text.len() {
        for byte in 0..=255 {
            let mut changed = text.as_bytes().to_vec();
            changed[at] = byte;
            fuzz_head(&changed);
            changed.remove(at);
            fuzz_head(&changed);
        }
    }
    for (bad, _) in BAD {
        fuzz_head(bad.as_bytes());
    }
}
