//! Workers that are not what they should be: each may harm its own partition, and no other.
//!
//! Runs in: tests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use common::{
    Gate, Limits, answer, conditioning_message, get, grant, is_closed, pause, policies, read_all, run,
};
use wire::{Bundle, Bytes, Conditioning, FromWorker, LauncherToGate, Message, Text, ToWorker};
use worker::receiver::Receiver;

/// Whose connection a worker has.
const CLIENT: [u8; 4] = [127, 1, 0, 1];

fn bytes(message: &FromWorker) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(&mut out);
    out
}

/// Fails unless partition 2 answers at once.
async fn others_go_on(gate: &Gate, worker: &Rc<Receiver>) {
    let begun = Instant::now();
    let mut client = gate.client(&get("b.test")).await;
    answer(worker, "b").await;
    assert_eq!(read_all(&mut client).await, "b");
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
}

/// Sends until the gate has closed the channel; false if it never does.
async fn until_closed(line: &OwnedFd, message: &[u8], descriptor: bool) -> bool {
    for _ in 0..2000 {
        match sys::seqpacket::send(line, message, descriptor.then(|| line.as_fd())) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => pause(1).await,
            Err(_) => return true,
            Ok(()) => tokio::task::yield_now().await,
        }
    }
    false
}

#[test]
fn nonsense_costs_a_worker_its_channel() {
    let returns = FromWorker::Returns { credits: 1, done: vec![99] };
    let credits = FromWorker::Returns { credits: u16::MAX, done: Vec::new() };
    let back = FromWorker::Back { id: 5, preread: Bytes(Vec::new()) };
    for (what, descriptor) in [
        (vec![7; 40], false),
        (vec![1], true),
        (bytes(&returns), false),
        (bytes(&credits), false),
        (bytes(&back), false),
        (bytes(&FromWorker::Drain {}), true),
    ] {
        run(async move {
            let gate = Gate::start(Limits::default()).await;
            let worker = gate.worker(2).await;
            let line = gate.line(1).await;
            pause(20).await;
            assert!(until_closed(&line, &what, descriptor).await, "{what:?}");
            others_go_on(&gate, &worker).await;
            // Its successor is not to blame.
            let successor = gate.worker(1).await;
            let mut client = gate.client(&get("a.test")).await;
            answer(&successor, "a").await;
            assert_eq!(read_all(&mut client).await, "a");
        });
    }
}

#[test]
fn a_worker_that_dies_holding_connections_is_forgotten() {
    run(async {
        let gate = Gate::start(Limits { start_timeout_ms: 200, ..Limits::default() }).await;
        let line = gate.line(1).await;
        grant(&line, 10, Vec::new());
        pause(30).await;
        let mut client = gate.client(&get("a.test")).await;
        pause(30).await;
        drop(line);
        // The connections that it held end with it; the next one waits for its successor.
        let mut none = [0; 1];
        assert_ne!(tokio::io::AsyncReadExt::read(&mut client, &mut none).await.ok(), Some(1));
        assert!(gate.ask(&get("a.test")).await.starts_with("HTTP/1.1 503 "));
        assert_eq!(gate.counters().await.connections_now, 0);
    });
}

#[test]
fn what_is_handed_back_must_be_a_connection() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let worker = gate.worker(2).await;
        let line = gate.line(1).await;
        let (pair, _other) = sys::seqpacket::stream_pair().unwrap();
        let listener: OwnedFd = std::net::TcpListener::bind("127.0.0.1:0").unwrap().into();
        let file: OwnedFd = std::fs::File::open("/dev/zero").unwrap().into();
        for descriptor in [&pair, &listener, &file, &line] {
            let back = FromWorker::Back { id: 0, preread: Bytes(get("b.test")) };
            sys::seqpacket::send(&line, &bytes(&back), Some(descriptor.as_fd())).unwrap();
        }
        pause(50).await;
        assert_eq!(gate.counters().await.connections_now, 0);
        others_go_on(&gate, &worker).await;
    });
}

#[test]
fn whose_a_proxys_connection_was_is_what_the_gate_knows() {
    run(async {
        let proxied = LauncherToGate::ProxyTrusted { listener: 0, network: Text::new("127.0.0.1/32") };
        let gate = Gate::start_with(Limits::default(), vec![proxied]).await;
        let line = gate.line(1).await;
        grant(&line, 9, Vec::new());
        let request = [b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 80\r\n", &get("a.test")[..]].concat();
        // With the number of another connection, its client may be claimed; with that of none, nobody's.
        for (number, known) in [(None, true), (Some(77), false), (Some(wire::NUMBERLESS), false)] {
            let mut client = gate.client(&request).await;
            let (bundle, stream) = connection(&line).await;
            let back = FromWorker::Back { id: number.unwrap_or(bundle.id), preread: Bytes(get("a.test")) };
            sys::seqpacket::send(&line, &bytes(&back), Some(stream.as_fd())).unwrap();
            drop(stream);
            if known {
                let (again, _) = connection(&line).await;
                assert_eq!(again.peer, "192.0.2.7:4711".parse().unwrap());
            } else {
                assert!(is_closed(&mut client).await);
            }
        }
    });
}

/// The next connection on a bare channel.
async fn connection(line: &OwnedFd) -> (Bundle, OwnedFd) {
    let mut buffer = vec![0; wire::MESSAGE_MAX];
    loop {
        match sys::seqpacket::receive(line, &mut buffer) {
            Ok(Some(got)) => {
                let message = ToWorker::decode(&buffer[..got.len]).unwrap();
                let ToWorker::Connection { bundle } = message else {
                    panic!("there is one connection, and here are more: {message:?}");
                };
                return (bundle, got.descriptor.unwrap());
            }
            Ok(None) => panic!("the gate has closed the channel"),
            Err(_) => pause(2).await,
        }
    }
}

#[test]
fn a_flood_of_empty_messages_does_not_stop_the_gate() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let worker = gate.worker(2).await;
        let line = gate.line(1).await;
        let flood = std::thread::spawn(move || {
            let nothing = bytes(&FromWorker::Returns { credits: 0, done: Vec::new() });
            let end = Instant::now() + Duration::from_secs(2);
            let mut sent = 0_u64;
            while Instant::now() < end {
                match sys::seqpacket::send(&line, &nothing, None) {
                    Ok(()) => sent += 1,
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(_) => break,
                }
            }
            sent
        });
        let mut asked = 0;
        while !flood.is_finished() {
            others_go_on(&gate, &worker).await;
            asked += 1;
        }
        eprintln!("{} empty messages, {asked} requests", flood.join().unwrap());
    });
}

/// A gate that bans who offends three times, and the channel of a worker that takes connections.
async fn gate_that_bans() -> (Gate, OwnedFd) {
    let conditioning = Conditioning { ban_after: 3, ban_time_ms: 60_000, ..policies() };
    let gate = Gate::start_with(Limits::default(), vec![conditioning_message(conditioning)]).await;
    let line = gate.line(1).await;
    grant(&line, 10, Vec::new());
    (gate, line)
}

/// A worker that was taken over holds a client's connection, and hands that back with whatever counts against clients.
/// A worker that was taken over can have another hand back what it has said in a client's place.
#[test]
fn what_a_worker_has_read_is_nobodys_offence() {
    run(async {
        let (gate, line) = gate_that_bans().await;
        let _client = gate.client_from(CLIENT, &get("a.test")).await;
        let (bundle, stream) = connection(&line).await;
        let preread = b"\x00\r\n\r\n".to_vec();
        let back = bytes(&FromWorker::Back { id: bundle.id, preread: Bytes(preread) });
        for _ in 0..20 {
            while sys::seqpacket::send(&line, &back, Some(stream.as_fd())).is_err() {
                pause(1).await;
            }
        }
        gate.until(|shed| shed.malformed >= 20).await;
        let _again = gate.client_from(CLIENT, &get("a.test")).await;
        connection(&line).await;
    });
}

#[test]
fn what_a_gate_reads_after_a_worker_counts_for_its_partition() {
    run(async {
        let (gate, line) = gate_that_bans().await;
        for count in 1..=3 {
            let mut client = gate.client_from(CLIENT, &get("a.test")).await;
            let (bundle, stream) = connection(&line).await;
            let back = bytes(&FromWorker::Back { id: bundle.id, preread: Bytes(Vec::new()) });
            // The request is the worker's; what comes behind it is the gate's.
            rustix::net::recv(&stream, &mut [0; 4096], rustix::net::RecvFlags::empty()).unwrap();
            sys::seqpacket::send(&line, &back, Some(stream.as_fd())).unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut client, b"\x00\r\n\r\n").await.unwrap();
            gate.until(|shed| shed.malformed >= count).await;
        }
        assert_eq!(read_all(&mut gate.client_from(CLIENT, &get("a.test")).await).await, "");
    });
}

#[test]
fn what_a_worker_hands_back_counts_for_its_own_partition() {
    hand_back(1, b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", (2, "b.test"));
}

#[test]
fn what_a_service_hands_back_counts_for_its_own_partition() {
    hand_back(3, b"GET /app HTTP/1.1\r\nHost: b.test\r\n\r\n", (1, "a.test"));
}

/// Has the worker of a partition, which a request leads to, hand back whatever counts against clients; the client is
/// heard at another one.
fn hand_back(own: u16, request: &'static [u8], (others, host): (u16, &'static str)) {
    let flood = get(host);
    let kinds: [(&str, Vec<u8>); 5] = [
        ("no head", b"\x00\r\n\r\n".to_vec()),
        ("a head that is too long", [b"GET / HTTP/1.1\r\nX: ", &[b'y'; 9000][..]].concat()),
        (
            "a strange head",
            [b"GET ".to_vec(), vec![b'/'; 2000], format!("x HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()]
                .concat(),
        ),
        ("half a head", b"GET / HT".to_vec()),
        ("requests of another site", flood),
    ];
    for (kind, preread) in kinds {
        run(async move {
            let conditioning = Conditioning {
                rate_max: 20,
                rate_burst: 20,
                ban_after: 3,
                ban_time_ms: 60_000,
                ..policies()
            };
            let limits = Limits { head_timeout_ms: 100, ..Limits::default() };
            let gate = Gate::start_with(limits, vec![conditioning_message(conditioning)]).await;
            let (other, line) = (gate.worker(others).await, gate.line(own).await);
            grant(&line, 10, Vec::new());
            let client = gate.client_from(CLIENT, request).await;
            let (bundle, stream) = connection(&line).await;
            let back = bytes(&FromWorker::Back { id: bundle.id, preread: Bytes(preread) });
            for _ in 0..110 {
                while sys::seqpacket::send(&line, &back, Some(stream.as_fd())).is_err() {
                    pause(1).await;
                }
                tokio::task::yield_now().await;
            }
            // The part of it that came through is answered; then the client is heard elsewhere, as before.
            let drain = async {
                while let Some(arrival) = other.next().await {
                    let (mut stream, preread, _guard) = common::open(arrival);
                    if preread.is_empty() {
                        let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 4096]).await;
                    }
                    // One that a refusal has ended before takes nothing more.
                    let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"b").await;
                }
            };
            let asks = async {
                gate.until(|shed| kind.contains("another site") || shed.malformed + shed.late_head > 3).await;
                pause(200).await;
                for _ in 0..3 {
                    let got = read_all(&mut gate.client_from(CLIENT, &get(host)).await).await;
                    assert_eq!(got, "b", "{kind}");
                }
                assert_eq!(gate.shed().await.0.bans, 0, "{kind}");
            };
            tokio::select! { () = drain => {}, () = asks => {} }
            drop((client, line));
        });
    }
}

#[test]
fn one_connection_handed_back_a_thousand_times_fills_no_gate() {
    run(async {
        let gate = Gate::start(Limits { connections: 500, ..Limits::default() }).await;
        let worker = gate.worker(2).await;
        let line = gate.line(1).await;
        // A worker has one client's connection, and as many descriptors of it as it likes.
        let client = gate.client(&get("b.test")).await;
        let arrival = worker.next().await.unwrap();
        let (mut stream, _, _lease) = common::open(arrival);
        tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 4096]).await.unwrap();
        let back = bytes(&FromWorker::Back { id: 0, preread: Bytes(Vec::new()) });
        for _ in 0..1000 {
            let _ = sys::seqpacket::send(&line, &back, Some(stream.as_fd()));
            tokio::task::yield_now().await;
        }
        pause(50).await;
        others_go_on(&gate, &worker).await;
        drop(client);
    });
}

/// A socket whose closing takes a day, and who does not read what it sends.
fn lingering() -> (OwnedFd, std::net::TcpListener) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stream.set_nonblocking(true).unwrap();
    while std::io::Write::write(&mut stream, &[0; 65_536]).is_ok() {}
    let day = Some(Duration::from_secs(86_400));
    rustix::net::sockopt::set_socket_linger(&stream, day).unwrap();
    (stream.into(), listener)
}

#[test]
fn what_lingers_is_waited_for_by_nobody() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let worker = gate.worker(2).await;
        let back = |preread: &[u8]| bytes(&FromWorker::Back { id: 0, preread: Bytes(preread.to_vec()) });
        let (begun, mut kept) = (Instant::now(), Vec::new());
        // A connection that is answered and closed, one that goes on, a message that is none, and many at once.
        for (message, count) in
            [(back(b"GET / HTTP/9\r\n\r\n"), 1), (back(b"GET"), 1), (vec![7; 9], 1), (back(b""), 60)]
        {
            let line = gate.line(1).await;
            for reads in [true, false] {
                let (sockets, listeners): (Vec<_>, Vec<_>) = (0..count).map(|_| lingering()).unzip();
                let borrowed: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
                sys::seqpacket::send_many(&line, &message, &borrowed).unwrap();
                drop(sockets);
                kept.push(listeners);
                if reads {
                    pause(20).await;
                }
            }
            // The last is still unread, and its sender gone.
            drop(line);
        }
        others_go_on(&gate, &worker).await;
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    });
}
