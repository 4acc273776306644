//! Listeners that speak TLS, HTTP/2 without it, or only say where there is https.
//!
//! Runs in: tests. The hello is what OpenSSL 3 sends for www.a.test, once in one record and once in many.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::net::Ipv4Addr;
use std::time::Duration;

use common::{Gate, Limits, is_closed, pause, read_all, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wire::{Kind, LauncherToGate, Text};

const HELLO: &[u8] = include_bytes!("../../../fuzz/seeds/client_hello/openssl-0");
const RECORDS: &[u8] = include_bytes!("../../../fuzz/seeds/client_hello/records");
const NAMELESS: &[u8] = include_bytes!("../../../fuzz/seeds/client_hello/openssl-1");
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn route(host: &str, partition: u16) -> LauncherToGate {
    let (host, path) = (Text::new(host), Text::new("/"));
    LauncherToGate::Route { listener: 0, host, path, partition, site: partition }
}

fn protocol(tls: bool, h2c: bool) -> LauncherToGate {
    LauncherToGate::Protocol { listener: 0, tls, h2c }
}

async fn tls(more: Vec<LauncherToGate>) -> Gate {
    let orders = [vec![protocol(true, false), route("*.a.test", 7)], more].concat();
    Gate::start_with(Limits { head_timeout_ms: 300, ..Limits::default() }, orders).await
}

async fn bytes_of(client: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(5), client.read_to_end(&mut all)).await.unwrap();
    all
}

#[test]
fn a_hello_goes_untouched_to_the_site_of_its_name() {
    run(async {
        let gate = tls(Vec::new()).await;
        let (named, first) = (gate.worker(7).await, gate.worker(1).await);
        for (hello, worker) in [(HELLO, &named), (RECORDS, &named), (NAMELESS, &first)] {
            let _client = gate.client(hello).await;
            let arrival = worker.next().await.unwrap();
            assert!(arrival.kind == Kind::Tls && arrival.preread.is_empty());
            let (mut stream, ..) = common::open(arrival);
            let mut got = vec![0; hello.len()];
            stream.read_exact(&mut got).await.unwrap();
            assert_eq!(got, hello);
        }
    });
}

#[test]
fn a_hello_in_pieces_is_waited_for() {
    run(async {
        let gate = tls(Vec::new()).await;
        let worker = gate.worker(7).await;
        let mut client = gate.client(&RECORDS[..3]).await;
        for piece in RECORDS[3..].chunks(40) {
            pause(5).await;
            client.write_all(piece).await.unwrap();
        }
        assert_eq!(worker.next().await.unwrap().kind, Kind::Tls);
        // One that never becomes whole has its deadline, and its end is an alert.
        let mut late = gate.client(&HELLO[..100]).await;
        assert_eq!(bytes_of(&mut late).await, [21, 3, 3, 0, 2, 2, 80]);
        assert_eq!(gate.shed().await.0.late_head, 1);
    });
}

#[test]
fn what_cannot_be_passed_on_gets_an_alert() {
    run(async {
        let gate = Gate::start_with(Limits::default(), vec![protocol(true, false)]).await;
        let mut unknown = gate.client(HELLO).await;
        assert_eq!(bytes_of(&mut unknown).await, [21, 3, 3, 0, 2, 2, 112], "unrecognized_name");
        let mut bad = gate.client(&[22, 3, 1, 0, 4, 2, 0, 0, 0]).await;
        assert_eq!(bytes_of(&mut bad).await, [21, 3, 3, 0, 2, 2, 50], "decode_error");
        gate.say(LauncherToGate::Broken { partition: 1, broken: true }).await;
        let mut broken = gate.client(NAMELESS).await;
        assert_eq!(bytes_of(&mut broken).await, [21, 3, 3, 0, 2, 2, 80], "internal_error");
        let mut plain = gate.client(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
        let answer = read_all(&mut plain).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("This port speaks TLS"), "{answer}");
    });
}

#[test]
fn a_worker_that_does_not_come_is_not_waited_for_longer_than_allowed() {
    run(async {
        let limits = Limits { start_timeout_ms: 100, ..Limits::default() };
        let gate = Gate::start_with(limits, vec![protocol(true, false)]).await;
        let mut client = gate.client(NAMELESS).await;
        assert_eq!(bytes_of(&mut client).await, [21, 3, 3, 0, 2, 2, 80]);
    });
}

#[test]
fn who_tampered_is_refused_by_that_site_alone() {
    run(async {
        let address = u128::from(Ipv4Addr::new(127, 9, 9, 9).to_ipv6_mapped());
        let (address_high, address_low) = ((address >> 64) as u64, address as u64);
        let ban = |seconds| LauncherToGate::Ban { partition: 7, address_high, address_low, seconds };
        let gate = tls(vec![LauncherToGate::TamperExempt { network: Text::new("127.0.0.0/16") }]).await;
        let (named, first) = (gate.worker(7).await, gate.worker(1).await);
        gate.say(ban(3600)).await;
        gate.counters().await;
        assert!(is_closed(&mut gate.client_from([127, 9, 9, 9], HELLO).await).await);
        assert_eq!(gate.shed().await.0.banned, 1);
        let _other = gate.client_from([127, 9, 9, 8], HELLO).await;
        assert_eq!(named.next().await.unwrap().kind, Kind::Tls);
        let _elsewhere = gate.client_from([127, 9, 9, 9], NAMELESS).await;
        assert_eq!(first.next().await.unwrap().kind, Kind::Tls);
        gate.say(ban(0)).await;
        gate.counters().await;
        let _pardoned = gate.client_from([127, 9, 9, 9], HELLO).await;
        assert_eq!(named.next().await.unwrap().kind, Kind::Tls);
    });
}

#[test]
fn http2_without_tls_goes_to_the_first_site() {
    run(async {
        let gate = Gate::start_with(Limits::default(), vec![protocol(false, true)]).await;
        let (first, other) = (gate.worker(1).await, gate.worker(2).await);
        let mut client = gate.client(&PREFACE[..5]).await;
        pause(20).await;
        client.write_all(&PREFACE[5..]).await.unwrap();
        let arrival = first.next().await.unwrap();
        assert!(arrival.kind == Kind::Http2 && arrival.preread.is_empty());
        // And HTTP/1.1 as ever, also a method that begins in the same way.
        for method in ["GET", "PROPFIND"] {
            let head = format!("{method} / HTTP/1.1\r\nHost: b.test\r\n\r\n");
            let _client = gate.client(head.as_bytes()).await;
            assert_ne!(other.next().await.unwrap().kind, Kind::Http2);
        }
    });
}

#[test]
fn requests_are_redirected_for_hosts_that_have_https() {
    run(async {
        let redirect = |path, port| {
            let (host, path) = (Text::new("a.test"), Text::new(path));
            LauncherToGate::Redirect { listener: 0, host, path, port }
        };
        let redirects = vec![redirect("/", 8443), redirect("/open/", 0)];
        let gate = Gate::start_with(Limits::default(), redirects).await;
        let got = gate.ask(b"GET /x/y?z=%20 HTTP/1.1\r\nHost: A.test:80\r\n\r\n").await;
        assert!(got.starts_with("HTTP/1.1 301 "), "{got}");
        assert!(got.contains("\r\nLocation: https://a.test:8443/x/y?z=%20\r\n"), "{got}");
        let got = gate.ask(b"POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n").await;
        assert!(got.starts_with("HTTP/1.1 308 "), "{got}");
        for path in ["/open", "/open/../x", "/openly/x"] {
            let got = gate.ask(format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n").as_bytes()).await;
            assert!(got.starts_with("HTTP/1.1 301 "), "{got}");
        }
        let worker = gate.worker(2).await;
        let _client = gate.client(b"GET / HTTP/1.1\r\nHost: b.test\r\n\r\n").await;
        assert_ne!(worker.next().await.unwrap().kind, Kind::Tls);
    });
}
