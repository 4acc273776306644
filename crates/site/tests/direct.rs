//! Requests that are passed on as they came, on a pair that was kept: nobody can tell them from others.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Answer, BIG, Server};

/// All that a client sees but the time.
fn seen(answer: Answer) -> (u16, Vec<String>, Vec<u8>) {
    let mut fields: Vec<String> = answer
        .head
        .split("\r\n")
        .skip(1)
        .filter(|line| !line.starts_with("date:"))
        .map(str::to_owned)
        .collect();
    fields.sort_unstable();
    (answer.status, fields, answer.body)
}

#[test]
fn a_kept_pair_carries_what_a_new_one_does() {
    let cases = ["early", "text", "chunks", "big", "close", "head?a=b", "where", "none"];
    for path in cases.map(|path| format!("/svc/{path}")) {
        let server = Server::start();
        let lines = "User-Agent: u\r\nX-Two: a\r\nx-two: b\r\nX-Real-IP: 6.6.6.6\r\nRange: bytes=0-1\r\n";
        let mut peer = server.connect();
        let new = seen(peer.ask("GET", &path, lines));
        for round in 0..3 {
            assert_eq!(seen(peer.ask("GET", &path, lines)), new, "{path}, {round}");
            assert_eq!(seen(server.get(&path, lines)).2, new.2, "{path}, {round}");
        }
        let head = seen(peer.ask("HEAD", &path, lines));
        assert_eq!(seen(peer.ask("HEAD", &path, lines)), head, "{path}");
        assert_eq!(server.records().len(), 9, "{path}");
    }
}

#[test]
fn a_client_that_goes_takes_its_request_with_it() {
    let server = Server::start();
    let mut peer = server.connect();
    assert_eq!(peer.ask("GET", "/svc/early", "").status, 200);
    // On a connection that was watched before.
    peer.send("GET /svc/never HTTP/1.1\r\nHost: a\r\n\r\n");
    server.started(2);
    drop(peer);
    server.dropped(2);
    // On a new one, and behind a next request.
    assert_eq!(server.get("/svc/early", "").status, 200);
    for next in ["", "GET /small.txt HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let (started, dropped) =
            (*server.shared.relay_started.lock().unwrap(), *server.shared.relay_dropped.lock().unwrap());
        let mut peer = server.connect();
        peer.send("GET /svc/never HTTP/1.1\r\nHost: a\r\n\r\n");
        server.started(started + 1);
        peer.send(next);
        drop(peer);
        server.dropped(dropped + 1);
        assert_eq!(server.get("/svc/early", "").status, 200);
    }
    let gone = server.records().into_iter().filter(|record| record.2 == 499).count();
    assert_eq!(gone, 3);
}

#[test]
fn a_large_response_that_a_kept_pair_brings_is_whole() {
    let server = Server::start();
    let mut peer = server.connect();
    for _ in 0..5 {
        assert_eq!(peer.ask("GET", "/svc/early", "").text(), "early");
        assert_eq!(peer.ask("GET", "/svc/big", "").body.len(), BIG);
    }
}

#[test]
fn requests_that_follow_at_once_are_answered_in_turn() {
    let server = Server::start();
    let mut peer = server.connect();
    assert_eq!(peer.ask("GET", "/svc/early", "").text(), "early");
    let mixed = ["/svc/early", "/svc/slow", "/small.txt", "/svc/early", "/svc/chunks"];
    let all: String = mixed.iter().map(|path| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    peer.send(&all);
    for body in ["early", "slow", "0123456789", "early", "chunk 2;chunk 1;chunk 0;"] {
        assert_eq!(peer.answer(false).text(), body);
    }
}
