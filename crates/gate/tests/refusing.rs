//! The answers that a gate gives itself, and the cases in which it closes without an answer.
//!
//! Runs in: tests.

mod common;

use std::time::{Duration, Instant};

use common::{Gate, Limits, answer, get, pause, read_all, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::LauncherToGate;
use wire::log::{Batch, Record};

#[test]
fn each_bad_head_has_its_status() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        gate.say(LauncherToGate::Broken { partition: 3, broken: true }).await;
        let long = format!("GET /{} HTTP/1.1\r\nHost: a.test\r\n\r\n", "x".repeat(9000));
        let lines = format!("GET / HTTP/1.1\r\nHost: a.test\r\n{}\r\n", "A: b\r\n".repeat(200));
        for (head, status) in [
            ("GET / HTTP/1.1\r\nHost: nobody.test\r\n\r\n", "404 Not Found"),
            ("GET / HTTP/1.0\r\n\r\n", "404 Not Found"),
            ("GET /app HTTP/1.1\r\nHost: b.test\r\n\r\n", "500 Internal Server Error"),
            ("GET /%61pp/x HTTP/1.1\r\nHost: B.Test.:80\r\n\r\n", "500 Internal Server Error"),
            ("GET / HTTP/1.1\r\n\r\n", "400 Bad Request"),
            ("GET / HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n", "400 Bad Request"),
            ("GET http://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "400 Bad Request"),
            ("GET / HTTP/1.1\nHost: a.test\n\n", "400 Bad Request"),
            ("\x16\x03\x01\x02\x00\x01\x00\x01\x7c\x03\x03", "400 Bad Request"),
            ("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n", "501 Not Implemented"),
            ("GET / HTTP/2.0\r\nHost: a.test\r\n\r\n", "505 HTTP Version Not Supported"),
            (&long, "414 URI Too Long"),
            (&lines, "431 Request Header Fields Too Large"),
        ] {
            let got = gate.ask(head.as_bytes()).await;
            assert!(got.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{head:?}: {got}");
            assert!(got.contains("\r\nConnection: close\r\n"), "{got}");
            let (head, body) = got.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("\r\nContent-Length: {}", body.len())), "{got}");
        }
        assert_eq!(gate.counters().await.requests, 13);
    });
}

#[test]
fn head_has_no_body() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let got = gate.ask(b"HEAD / HTTP/1.1\r\nHost: nobody.test\r\n\r\n").await;
        assert!(got.starts_with("HTTP/1.1 404 ") && got.ends_with("\r\n\r\n"), "{got}");
        assert!(!got.contains("Content-Length: 0"), "{got}");
    });
}

#[test]
fn a_head_that_stays_away_is_408_and_silence_is_silence() {
    run(async {
        let limits = Limits { head_timeout_ms: 200, ..Limits::default() };
        let gate = Gate::start(limits).await;
        let mut silent = gate.client(b"").await;
        let begun = Instant::now();
        let late = gate.ask(b"GET / HTTP/1.1\r\nHost: a.te").await;
        assert!(late.starts_with("HTTP/1.1 408 "), "{late}");
        assert!(begun.elapsed() >= Duration::from_millis(190));
        assert_eq!(read_all(&mut silent).await, "");
    });
}

#[test]
fn more_bytes_do_not_buy_more_time() {
    run(async {
        let limits = Limits { head_timeout_ms: 300, ..Limits::default() };
        let gate = Gate::start(limits).await;
        let (mut reader, mut writer) = gate.client(b"GET / HTTP/1.1\r\nA: ").await.into_split();
        let dribble = tokio::task::spawn_local(async move {
            while writer.write_all(b"x").await.is_ok() {
                pause(20).await;
            }
        });
        let begun = Instant::now();
        let mut got = [0; 12];
        reader.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"HTTP/1.1 408");
        assert!(begun.elapsed() < Duration::from_millis(1500));
        dribble.abort();
    });
}

#[test]
fn a_client_that_stops_sending_in_the_middle_costs_nothing() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let begun = Instant::now();
        // Its bytes stay readable, so only the event loop can tell that no more will come.
        let mut half = gate.client(b"GET / HTTP/1.1\r\nHost: a.te").await;
        pause(50).await;
        half.shutdown().await.unwrap();
        // Closed, by a reset since there are bytes that nobody read, and not by a deadline.
        let mut none = [0; 1];
        assert_ne!(half.read(&mut none).await.ok(), Some(1));
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        assert_eq!(gate.counters().await.connections_now, 0);
        // One that had asked for something before is answered.
        let worker = gate.worker(1).await;
        let mut whole = gate.client(&get("a.test")).await;
        whole.shutdown().await.unwrap();
        answer(&worker, "fine").await;
        assert_eq!(read_all(&mut whole).await, "fine");
    });
}

#[test]
fn answers_survive_what_the_client_still_sends() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let mut request = b"POST / HTTP/1.1\r\nHost: nobody.test\r\nContent-Length: 40000\r\n\r\n".to_vec();
        request.resize(request.len() + 40_000, b'x');
        for _ in 0..20 {
            let got = gate.ask(&request).await;
            assert!(got.starts_with("HTTP/1.1 404 "), "{got}");
        }
    });
}

#[test]
fn what_there_is_no_room_for_is_503_at_once_until_a_worker_is_attached() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        // One that waits already is answered as well.
        let mut client = gate.client(b"GET /app HTTP/1.1\r\nHost: b.test\r\n\r\n").await;
        gate.until(|shed| shed.waiting_now == 1).await;
        gate.say(LauncherToGate::NoRoom { partition: 3 }).await;
        let begun = Instant::now();
        let waited = read_all(&mut client).await;
        let got = gate.ask(b"GET /app HTTP/1.1\r\nHost: b.test\r\n\r\n").await;
        for got in [waited, got] {
            assert!(got.starts_with("HTTP/1.1 503 ") && got.contains("\r\nRetry-After: 5\r\n"), "{got}");
        }
        assert!(begun.elapsed() < Duration::from_secs(2));
        let receiver = gate.worker(3).await;
        let mut client = gate.client(b"GET /app HTTP/1.1\r\nHost: b.test\r\n\r\n").await;
        answer(&receiver, "here").await;
        assert!(read_all(&mut client).await.ends_with("here"));
    });
}

#[test]
fn own_answers_are_logged() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        gate.say(LauncherToGate::Broken { partition: 3, broken: true }).await;
        gate.ask(b"GET /app?q=1 HTTP/1.1\r\nHost: b.test\r\nUser-Agent: t\r\nReferer: r\r\n\r\n").await;
        gate.ask(b"\x00\r\n\r\n").await;
        let mut found = Vec::new();
        while found.len() < 2 {
            pause(20).await;
            let mut buffer = vec![0; wire::MESSAGE_MAX];
            let Ok(Some(got)) = sys::seqpacket::receive(&gate.log, &mut buffer) else {
                continue;
            };
            for record in Batch::decode(&buffer[..got.len]).unwrap() {
                if let Record::Access(access) = record.unwrap() {
                    found.push((access.status, access.site, access.version, access.target.to_vec()));
                }
            }
        }
        assert_eq!(found[0], (500, 3, 1, b"/app?q=1".to_vec()));
        assert_eq!((found[1].0, found[1].1, found[1].2), (400, wire::NO_PARTITION, 255));
    });
}
