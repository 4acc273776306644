//! A guarded server behind a gate: its processes, played by the test, share one channel, and each says on one of its
//! own what it holds.
//!
//! Runs in: tests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use common::{Gate, Limits, conditioning_message, get, is_closed, pause, policies, read_all, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wire::{Bundle, Bytes, Conditioning, FromGuarded, LauncherToGate, Message, Text, ToGuarded, ToWorker};

/// The server's end of a channel of a kind.
async fn attach(gate: &Gate, message: LauncherToGate) -> OwnedFd {
    let (ours, theirs) = sys::seqpacket::pair().unwrap();
    gate.control.send(&message, Some(theirs.as_fd())).await.unwrap();
    ours
}

/// A gate before a server that answers everything, for which `a.test` stands.
async fn guard(limits: Limits, conditioning: Conditioning) -> (Gate, OwnedFd) {
    let gate = Gate::start_with(limits, vec![conditioning_message(conditioning)]).await;
    let shared = attach(&gate, LauncherToGate::AttachShared { partition: 1 }).await;
    pause(20).await;
    (gate, shared)
}

async fn process(gate: &Gate) -> OwnedFd {
    attach(gate, LauncherToGate::AttachProcess { partition: 1 }).await
}

fn say(process: &OwnedFd, message: &FromGuarded, stream: Option<&OwnedFd>) {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    sys::seqpacket::send(process, &bytes, stream.map(|stream| stream.as_fd())).unwrap();
}

/// Takes what waits in the shared channel, as `accept` does.
fn accept_now(shared: &OwnedFd) -> Option<(Bundle, OwnedFd)> {
    let mut buffer = vec![0; wire::MESSAGE_MAX];
    let got = sys::seqpacket::receive(shared, &mut buffer).ok()?.expect("the channel is open");
    let message = ToWorker::decode(&buffer[..got.len]).unwrap();
    let ToWorker::Connection { bundle } = message else {
        panic!("guarded servers get one connection a message: {message:?}");
    };
    Some((bundle, got.descriptor.unwrap()))
}

async fn accept(shared: &OwnedFd) -> (Bundle, OwnedFd) {
    loop {
        match accept_now(shared) {
            Some(accepted) => return accepted,
            None => pause(2).await,
        }
    }
}

async fn accept_and_tell(shared: &OwnedFd, process: &OwnedFd) -> (Bundle, OwnedFd) {
    let (bundle, stream) = accept(shared).await;
    say(process, &FromGuarded::Took { id: bundle.id, peer: bundle.peer }, None);
    (bundle, stream)
}

fn stream(descriptor: &OwnedFd) -> TcpStream {
    TcpStream::from_std(std::net::TcpStream::from(descriptor.try_clone().unwrap())).unwrap()
}

#[test]
fn kept_connections_come_back_between_requests() {
    run(async {
        let (gate, shared) = guard(Limits::default(), policies()).await;
        let process = process(&gate).await;
        let mut client = gate.client(&get("a.test")).await;
        for _ in 0..3 {
            let (bundle, descriptor) = accept_and_tell(&shared, &process).await;
            assert_eq!(bundle.peer, client.local_addr().unwrap());
            assert_eq!((bundle.local, bundle.preread.0.len()), (gate.address, 0));
            let mut server = stream(&descriptor);
            let mut head = vec![0; get("a.test").len()];
            server.read_exact(&mut head).await.unwrap();
            assert_eq!(head, get("a.test"));
            server.write_all(b"ok").await.unwrap();
            say(&process, &FromGuarded::Back { id: bundle.id, preread: Bytes(vec![]) }, Some(&descriptor));
            drop((server, descriptor));
            client.read_exact(&mut [0; 2]).await.unwrap();
            // It idles in the gate, and not in the server.
            gate.until(|shed| shed.incomplete_now == 1).await;
            assert!(accept_now(&shared).is_none());
            client.write_all(&get("a.test")).await.unwrap();
        }
    });
}

#[test]
fn a_server_that_takes_nothing_is_sent_no_more_than_a_handful() {
    run(async {
        let (gate, shared) = guard(Limits::default(), policies()).await;
        let mut clients = Vec::new();
        for _ in 0..50 {
            clients.push(gate.client(&get("a.test")).await);
        }
        gate.until(|shed| shed.admitted + u64::from(shed.waiting_now) == 50).await;
        let (shed, _) = gate.shed().await;
        assert!((1..=8).contains(&shed.admitted), "{shed:?}");
        // Once it takes them, it gets them all, each one once.
        let mut peers: Vec<SocketAddr> = Vec::new();
        for _ in 0..50 {
            peers.push(accept(&shared).await.0.peer);
        }
        let mut expected: Vec<_> = clients.iter().map(|client| client.local_addr().unwrap()).collect();
        peers.sort();
        expected.sort();
        assert_eq!(peers, expected);
        pause(20).await;
        assert!(accept_now(&shared).is_none());
        assert_eq!(gate.counters().await.connections_now, 0);
    });
}

#[test]
fn a_server_gets_no_more_than_it_can_serve_and_the_others_wait_in_order() {
    run(async {
        let limit = LauncherToGate::Capacity { partition: 1, connections: 2 };
        let gate = Gate::start_with(Limits::default(), vec![conditioning_message(policies()), limit]).await;
        let shared = attach(&gate, LauncherToGate::AttachShared { partition: 1 }).await;
        let process = process(&gate).await;
        pause(20).await;
        let head = get("a.test");
        let mut clients = Vec::new();
        let mut held = Vec::new();
        for _ in 0..2 {
            clients.push(gate.client_from([127, 1, 0, 1], &head).await);
            held.push(accept_and_tell(&shared, &process).await);
        }
        // Those of one range wait first, and one of another, which has had nothing yet, after them.
        for _ in 0..5 {
            clients.push(gate.client_from([127, 1, 0, 1], &head).await);
        }
        gate.until(|shed| shed.waiting_now == 5).await;
        let other = gate.client_from([127, 2, 0, 1], &head).await;
        gate.until(|shed| shed.waiting_now == 6).await;
        pause(30).await;
        assert!(accept_now(&shared).is_none(), "it holds as many as it can serve");
        let (first, descriptor) = held.remove(0);
        say(&process, &FromGuarded::Done { id: first.id }, None);
        drop(descriptor);
        let (next, _) = accept_and_tell(&shared, &process).await;
        assert_eq!(next.peer, other.local_addr().unwrap());
        pause(30).await;
        assert!(accept_now(&shared).is_none());
        // One that comes back makes room as well.
        let (second, descriptor) = held.remove(0);
        stream(&descriptor).read_exact(&mut vec![0; head.len()]).await.unwrap();
        say(&process, &FromGuarded::Back { id: second.id, preread: Bytes(vec![]) }, Some(&descriptor));
        assert_eq!(accept(&shared).await.0.peer.ip().to_string(), "127.1.0.1");
        gate.until(|shed| shed.waiting_now == 4).await;
    });
}

#[test]
fn shares_are_of_what_the_server_can_serve() {
    run(async {
        // A tenth of the gate's thousand connections would be a hundred.
        let conditioning = conditioning_message(Conditioning { share_24: 100, ..policies() });
        let limit = LauncherToGate::Capacity { partition: 1, connections: 20 };
        let gate = Gate::start_with(Limits::default(), vec![limit, conditioning]).await;
        let shared = attach(&gate, LauncherToGate::AttachShared { partition: 1 }).await;
        let process = process(&gate).await;
        let mut clients = Vec::new();
        for host in 1..=6 {
            clients.push(gate.client_from([127, 1, 0, host], &get("a.test")).await);
        }
        gate.until(|shed| shed.delayed == 4).await;
        clients.push(gate.client_from([127, 2, 0, 1], &get("a.test")).await);
        let mut peers = Vec::new();
        for _ in 0..3 {
            peers.push(accept_and_tell(&shared, &process).await.0.peer.ip().to_string());
        }
        assert_eq!(peers.iter().filter(|peer| peer.starts_with("127.1.0.")).count(), 2);
        assert!(peers.contains(&"127.2.0.1".to_owned()));
    });
}

#[test]
fn what_the_server_can_serve_is_shared_by_all_that_it_listens_on() {
    run(async {
        let limits = [1, 2].map(|partition| LauncherToGate::Capacity { partition, connections: 1 });
        let first = [vec![conditioning_message(policies())], limits.to_vec()].concat();
        let gate = Gate::start_with(Limits::default(), first).await;
        let one = attach(&gate, LauncherToGate::AttachShared { partition: 1 }).await;
        let two = attach(&gate, LauncherToGate::AttachShared { partition: 2 }).await;
        let process = process(&gate).await;
        let mut clients = vec![gate.client(&get("a.test")).await];
        let mut held = accept_and_tell(&one, &process).await;
        for host in ["a.test", "a.test", "b.test", "b.test"] {
            clients.push(gate.client(&get(host)).await);
            gate.until(|shed| shed.waiting_now == clients.len() as u32 - 1).await;
        }
        // Each has its turn, and whoever has had it waits for the other.
        for channel in [&two, &one, &two, &one] {
            pause(20).await;
            assert!(accept_now(&one).is_none() && accept_now(&two).is_none());
            say(&process, &FromGuarded::Done { id: held.0.id }, None);
            held = accept_and_tell(channel, &process).await;
        }
    });
}

#[test]
fn what_was_said_to_another_gate_is_about_nothing() {
    run(async {
        let limit = || LauncherToGate::Capacity { partition: 1, connections: 1 };
        let mut gates = Vec::new();
        for _ in 0..2 {
            let gate =
                Gate::start_with(Limits::default(), vec![conditioning_message(policies()), limit()]).await;
            let shared = attach(&gate, LauncherToGate::AttachShared { partition: 1 }).await;
            gates.push((process(&gate).await, gate, shared));
        }
        let [(_, old, old_shared), (process, new, shared)] = &gates[..] else { panic!("two gates") };
        let _clients = [old.client(&get("a.test")).await, new.client(&get("a.test")).await];
        let (of_old, _) = accept(old_shared).await;
        let (of_new, _) = accept_and_tell(shared, process).await;
        let _waits = new.client(&get("a.test")).await;
        new.until(|shed| shed.waiting_now == 1).await;
        say(process, &FromGuarded::Done { id: of_old.id }, None);
        pause(50).await;
        assert!(accept_now(shared).is_none());
        say(process, &FromGuarded::Done { id: of_new.id }, None);
        accept(shared).await;
    });
}

#[test]
fn a_socket_that_the_server_closes_is_gone() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let (host, path) = (Text::new("*"), Text::new("/"));
        let listen = async |number, partition, address: &str| {
            let listener = std::net::TcpListener::bind(address).unwrap();
            listener.set_nonblocking(true).unwrap();
            let message = LauncherToGate::Listen { index: number };
            gate.control.send(&message, Some(listener.as_fd())).await.unwrap();
            let (host, path) = (host.clone(), path.clone());
            gate.say(LauncherToGate::Route { listener: number, host, path, partition, site: 0 }).await;
            let shared = attach(&gate, LauncherToGate::AttachShared { partition }).await;
            pause(20).await;
            (listener, shared)
        };
        let (old, old_shared) = listen(7, 7, "127.0.0.1:0").await;
        let address = old.local_addr().unwrap();
        let mut kept = TcpStream::connect(address).await.unwrap();
        kept.write_all(&get("a.test")[..5]).await.unwrap();
        gate.until(|shed| shed.incomplete_now == 1).await;
        let before = descriptors();
        // The gate has a descriptor of it, and sees that it listens no more.
        rustix::net::shutdown(&old, rustix::net::Shutdown::Both).unwrap();
        drop(old);
        while descriptors() > before - 2 {
            pause(5).await;
        }
        // A client that came by it gets the answer that the server is away.
        kept.write_all(&get("a.test")[5..]).await.unwrap();
        assert!(read_all(&mut kept).await.starts_with("HTTP/1.1 503 "));
        // Another one at the same address is another one.
        let (_new, shared) = listen(8, 8, &address.to_string()).await;
        let client = {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(&get("a.test")).await.unwrap();
            client
        };
        assert_eq!(accept(&shared).await.0.peer, client.local_addr().unwrap());
        assert!(accept_now(&old_shared).is_none());
        // It was not worth a word.
        let mut buffer = vec![0; wire::MESSAGE_MAX];
        pause(50).await;
        while let Ok(Some(got)) = sys::seqpacket::receive(&gate.log, &mut buffer) {
            let words = String::from_utf8_lossy(&buffer[..got.len]).into_owned();
            assert!(!words.contains("cannot accept"), "{words}");
        }
    });
}

/// How many descriptors this thread's process has that are TCP sockets at nobody's but our own numbers.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_process_that_dies_releases_what_it_held() {
    run(async {
        // One client address may have two connections of twenty.
        let conditioning = Conditioning { share_24: 100, ..policies() };
        let limits = Limits { connections: 20, ..Limits::default() };
        let (gate, shared) = guard(limits, conditioning).await;
        let (dying, other) = (process(&gate).await, process(&gate).await);
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(gate.client(&get("a.test")).await);
        }
        let held = [accept_and_tell(&shared, &dying).await, accept_and_tell(&shared, &other).await];
        // A fork of the other one holds what it held.
        let fork = process(&gate).await;
        say(&fork, &FromGuarded::Took { id: held[1].0.id, peer: held[1].0.peer }, None);
        gate.until(|shed| shed.delayed == 2).await;
        pause(30).await;
        assert!(accept_now(&shared).is_none());
        drop(dying);
        let third = accept_and_tell(&shared, &fork).await;
        // A connection that two processes hold is held until both have let it go.
        drop(other);
        pause(50).await;
        assert!(accept_now(&shared).is_none());
        say(&fork, &FromGuarded::Done { id: held[1].0.id }, None);
        let fourth = accept(&shared).await;
        assert_ne!(third.0.peer, fourth.0.peer);
    });
}

#[test]
fn nonsense_of_a_process_costs_it_its_channel_and_nobody_else() {
    run(async {
        let (gate, shared) = guard(Limits::default(), policies()).await;
        let (bad, good) = (process(&gate).await, process(&gate).await);
        // Numbers that are nobody's are not worth a word; what is no message is.
        for id in 0..1000 {
            say(&bad, &FromGuarded::Took { id: 1_000_000 + id, peer: gate.address }, None);
            say(&bad, &FromGuarded::Done { id }, None);
            tokio::task::yield_now().await;
        }
        let mut closed = false;
        for _ in 0..1000 {
            match sys::seqpacket::send(&bad, &[7; 9], None) {
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => closed = true,
                _ => tokio::task::yield_now().await,
            }
        }
        assert!(closed);
        let mut client = gate.client(&get("a.test")).await;
        let (bundle, descriptor) = accept_and_tell(&shared, &good).await;
        stream(&descriptor).write_all(b"good").await.unwrap();
        say(&good, &FromGuarded::Done { id: bundle.id }, None);
        drop(descriptor);
        let mut got = [0; 4];
        client.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"good");
    });
}

#[test]
fn a_server_may_listen_late_and_speak_tls() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        gate.control.send(&LauncherToGate::Listen { index: 7 }, Some(listener.as_fd())).await.unwrap();
        // A client that comes before the gate knows where the socket leads waits.
        let mut plain = TcpStream::connect(address).await.unwrap();
        plain.write_all(&get("whatever.test")).await.unwrap();
        pause(50).await;
        assert_eq!(gate.counters().await.connections, 0);
        let (host, path) = (Text::new("*"), Text::new("/"));
        gate.say(LauncherToGate::Route { listener: 7, host, path, partition: 9, site: 0 }).await;
        let shared = attach(&gate, LauncherToGate::AttachShared { partition: 9 }).await;
        assert_eq!(accept(&shared).await.0.peer, plain.local_addr().unwrap());
        // A handshake goes on when its first record is whole.
        let mut record = vec![0x16, 3, 1, 2, 0];
        record.resize(5 + 512, 0xaa);
        let mut tls = TcpStream::connect(address).await.unwrap();
        tls.write_all(&record[..300]).await.unwrap();
        pause(50).await;
        assert!(accept_now(&shared).is_none());
        tls.write_all(&record[300..]).await.unwrap();
        let (bundle, descriptor) = accept(&shared).await;
        assert_eq!(bundle.peer, tls.local_addr().unwrap());
        let mut got = vec![0; record.len()];
        stream(&descriptor).read_exact(&mut got).await.unwrap();
        assert_eq!(got, record);
        // Elsewhere it is no request.
        assert!(gate.ask(&record).await.starts_with("HTTP/1.1 400 "));
    });
}

#[test]
fn a_server_that_is_gone_is_waited_for() {
    run(async {
        let limits = Limits { start_timeout_ms: 300, ..Limits::default() };
        let (gate, shared) = guard(limits, policies()).await;
        let mut lost = gate.client(&get("a.test")).await;
        gate.until(|shed| shed.admitted == 1).await;
        drop(shared);
        assert!(is_closed(&mut lost).await);
        pause(20).await;
        let mut patient = gate.client(&get("a.test")).await;
        gate.until(|shed| shed.waiting_now == 1).await;
        let again = attach(&gate, LauncherToGate::AttachShared { partition: 1 }).await;
        assert_eq!(accept(&again).await.0.peer, patient.local_addr().unwrap());
        drop(again);
        let _ = patient.read(&mut [0; 1]).await;
        pause(20).await;
        let got = tokio::time::timeout(Duration::from_secs(2), async {
            read_all(&mut gate.client(&get("a.test")).await).await
        });
        assert!(got.await.unwrap().starts_with("HTTP/1.1 503 "));
        assert_eq!(gate.shed().await.0.unavailable, 1);
    });
}

/// How many connections the process may keep, if the gate has said something.
fn received_keep(process: &OwnedFd) -> Option<(u32, u32)> {
    let mut buffer = [0; 64];
    let got = sys::seqpacket::receive(process, &mut buffer).ok()?.expect("the channel is open");
    let ToGuarded::Keep { connections, head_bytes } = ToGuarded::decode(&buffer[..got.len]).unwrap();
    Some((connections, head_bytes))
}

async fn receive_keep(process: &OwnedFd) -> (u32, u32) {
    loop {
        match received_keep(process) {
            Some(said) => return said,
            None => pause(2).await,
        }
    }
}

#[test]
fn a_server_keeps_connections_until_others_wait() {
    run(async {
        let limits = Limits::default();
        let head_bytes = limits.head_bytes;
        let (gate, shared) = guard(limits, policies()).await;
        let (able, other) = (process(&gate).await, process(&gate).await);
        say(&able, &FromGuarded::Keeps {}, None);
        assert_eq!(receive_keep(&able).await, (256, head_bytes));
        say(&able, &FromGuarded::Keeps {}, None);
        let mut clients = Vec::new();
        for _ in 0..30 {
            clients.push(gate.client(&get("a.test")).await);
        }
        assert_eq!(receive_keep(&able).await, (0, head_bytes));
        let late = process(&gate).await;
        say(&late, &FromGuarded::Keeps {}, None);
        pause(60).await;
        assert_eq!((received_keep(&able), received_keep(&late)), (None, None), "something waits");
        for _ in 0..30 {
            accept_and_tell(&shared, &able).await;
        }
        assert_eq!(
            (receive_keep(&able).await, receive_keep(&late).await),
            ((256, head_bytes), (256, head_bytes))
        );
        assert_eq!(received_keep(&other), None, "it has not said that it can");
        let (before, _) = gate.shed().await;
        say(&able, &FromGuarded::Served { requests: 70 }, None);
        gate.until(|shed| shed.admitted == before.admitted + 70).await;
    });
}

#[test]
fn nothing_is_kept_where_every_request_is_to_be_seen() {
    run(async {
        let rate = Conditioning { rate_max: 1000, rate_burst: 1000, ..policies() };
        let limit = || LauncherToGate::Capacity { partition: 1, connections: 2 };
        for (conditioning, more) in [(rate, vec![]), (policies(), vec![limit()])] {
            let messages = [vec![conditioning_message(conditioning)], more].concat();
            let gate = Gate::start_with(Limits::default(), messages).await;
            let _shared = attach(&gate, LauncherToGate::AttachShared { partition: 1 }).await;
            let process = process(&gate).await;
            say(&process, &FromGuarded::Keeps {}, None);
            pause(60).await;
            assert_eq!(received_keep(&process), None);
        }
    });
}
