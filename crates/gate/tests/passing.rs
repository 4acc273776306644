//! Connections on their way through a gate: to workers, back from them, to their successors, at the end.
//!
//! Runs in: tests.

mod common;

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use common::{Gate, Limits, answer, get, open, pause, read_all, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::{ChildToLauncher, LauncherToGate};

#[test]
fn a_worker_gets_the_connection_untouched() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let worker = gate.worker(1).await;
        let request = b"POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbody";
        let mut client = gate.client(request).await;
        let arrival = worker.next().await.unwrap();
        assert_eq!(arrival.peer, client.local_addr().unwrap());
        assert_eq!(arrival.local, gate.address);
        assert!(arrival.preread.is_empty() && !arrival.relayed);
        let (mut stream, _, guard) = open(arrival);
        let mut got = vec![0; request.len()];
        stream.read_exact(&mut got).await.unwrap();
        assert_eq!(got, request);
        // The gate has kept no copy: what the worker closes is closed.
        stream.write_all(b"done").await.unwrap();
        drop((stream, guard));
        assert_eq!(read_all(&mut client).await, "done");
        assert_eq!(gate.counters().await.connections_now, 0);
    });
}

#[test]
fn a_worker_is_wanted_once_and_in_use_when_it_has_come() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let said = async || gate.control.receive().await.unwrap().unwrap().0;
        let mut clients = vec![gate.client(&get("a.test")).await];
        assert_eq!(said().await, ChildToLauncher::Wanted { partition: 1 });
        clients.push(gate.client(&get("a.test")).await);
        loop {
            gate.say(LauncherToGate::Report {}).await;
            match said().await {
                ChildToLauncher::Counters { counters } if counters.connections_now == 2 => break,
                ChildToLauncher::Counters { .. } => pause(5).await,
                other => panic!("{other:?}"),
            }
        }
        let worker = gate.worker(1).await;
        for client in &mut clients {
            answer(&worker, "come").await;
            assert_eq!(read_all(client).await, "come");
        }
        assert_eq!(said().await, ChildToLauncher::Used { partition: 1 });
    });
}

#[test]
fn a_head_may_come_byte_by_byte() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let worker = gate.worker(1).await;
        let mut client = gate.client(b"").await;
        client.set_nodelay(true).unwrap();
        for byte in get("a.test") {
            client.write_all(&[byte]).await.unwrap();
            pause(1).await;
        }
        assert_eq!(answer(&worker, "slow").await, get("a.test"));
        assert_eq!(read_all(&mut client).await, "slow");
    });
}

#[test]
fn each_partition_gets_its_own() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let workers = [gate.worker(1).await, gate.worker(2).await, gate.worker(3).await];
        for (host, path, worker) in [
            ("a.test", "/app", 0),
            ("b.test", "/", 1),
            ("b.test", "/apple", 1),
            ("b.test", "/app", 2),
            ("b.test", "/%61pp/x?y", 2),
            ("b.test", "/app/../x", 1),
        ] {
            let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let mut client = gate.client(head.as_bytes()).await;
            assert_eq!(answer(&workers[worker], path).await, head.as_bytes());
            assert_eq!(read_all(&mut client).await, path);
        }
    });
}

#[test]
fn a_stuck_partition_is_503_and_holds_up_nobody() {
    run(async {
        let limits = Limits { start_timeout_ms: 300, ..Limits::default() };
        let gate = Gate::start(limits).await;
        let _never_grants = gate.line(1).await;
        let worker = gate.worker(2).await;
        let begun = Instant::now();
        let mut stuck = gate.client(&get("a.test")).await;
        for _ in 0..10 {
            let mut client = gate.client(&get("b.test")).await;
            answer(&worker, "b").await;
            assert_eq!(read_all(&mut client).await, "b");
        }
        assert!(begun.elapsed() < Duration::from_millis(250), "{:?}", begun.elapsed());
        let got = read_all(&mut stuck).await;
        assert!(got.starts_with("HTTP/1.1 503 ") && got.contains("\r\nRetry-After: 5\r\n"), "{got}");
        assert!(begun.elapsed() >= Duration::from_millis(290));
    });
}

#[test]
fn those_who_wait_are_served_in_order_by_a_worker_that_comes() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let mut clients = Vec::new();
        for _ in 0..5 {
            clients.push(gate.client(&get("a.test")).await);
            pause(10).await;
        }
        assert_eq!(gate.counters().await.connections_now, 5);
        let worker = gate.worker(1).await;
        for client in &mut clients {
            let arrival = worker.next().await.unwrap();
            assert_eq!(arrival.peer, client.local_addr().unwrap());
            let (mut stream, ..) = open(arrival);
            stream.read_exact(&mut vec![0; get("a.test").len()]).await.unwrap();
            stream.write_all(b"at last").await.unwrap();
            drop(stream);
            assert_eq!(read_all(client).await, "at last");
        }
    });
}

#[test]
fn the_queue_of_a_partition_has_an_end() {
    run(async {
        let gate = Gate::start(Limits { connections: 2048, ..Limits::default() }).await;
        let mut waiting = Vec::new();
        for _ in 0..1024 {
            waiting.push(gate.client(&get("a.test")).await);
        }
        while gate.counters().await.connections_now < 1024 {
            pause(5).await;
        }
        let got = gate.ask(&get("a.test")).await;
        assert!(got.starts_with("HTTP/1.1 503 "), "{got}");
    });
}

#[test]
fn a_connection_that_is_handed_back_goes_on() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let (a, b) = (gate.worker(1).await, gate.worker(2).await);
        // Idle: nothing was read, the next request comes later.
        let mut client = gate.client(&get("a.test")).await;
        let (mut stream, _, guard) = open(a.next().await.unwrap());
        stream.read_exact(&mut vec![0; get("a.test").len()]).await.unwrap();
        let back = std::os::fd::OwnedFd::from(stream.into_std().unwrap());
        guard.hand_back(back, Vec::new()).await.unwrap();
        pause(30).await;
        client.write_all(&get("b.test")).await.unwrap();
        let arrival = b.next().await.unwrap();
        assert_eq!(arrival.peer, client.local_addr().unwrap());
        // Half of the next head was read, the rest is on its way.
        let (mut stream, _, guard) = open(arrival);
        stream.read_exact(&mut vec![0; get("b.test").len()]).await.unwrap();
        let next = get("a.test");
        client.write_all(&next[..20]).await.unwrap();
        let mut preread = vec![0; 20];
        stream.read_exact(&mut preread).await.unwrap();
        let back = std::os::fd::OwnedFd::from(stream.into_std().unwrap());
        guard.hand_back(back, preread).await.unwrap();
        pause(30).await;
        client.write_all(&next[20..]).await.unwrap();
        let (mut stream, preread, _lease) = open(a.next().await.unwrap());
        let mut rest = vec![0; next.len() - 20];
        stream.read_exact(&mut rest).await.unwrap();
        assert_eq!([preread, rest].concat(), next);
        stream.write_all(b"both").await.unwrap();
        drop(stream);
        assert_eq!(read_all(&mut client).await, "both");
        // All of it was read.
        let mut client = gate.client(&get("a.test")).await;
        let (mut stream, _, guard) = open(a.next().await.unwrap());
        stream.read_exact(&mut vec![0; get("a.test").len()]).await.unwrap();
        let back = std::os::fd::OwnedFd::from(stream.into_std().unwrap());
        guard.hand_back(back, get("b.test")).await.unwrap();
        assert_eq!(answer(&b, "whole").await, get("b.test"));
        assert_eq!(read_all(&mut client).await, "whole");
    });
}

#[test]
fn a_relaunch_loses_nothing() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let old = gate.worker(1).await;
        let mut first = gate.client(&get("a.test")).await;
        let held = old.next().await.unwrap();
        let new = gate.worker(1).await;
        pause(30).await;
        let mut second = gate.client(&get("a.test")).await;
        answer(&new, "new").await;
        assert_eq!(read_all(&mut second).await, "new");
        old.drain();
        // The gate ends its side of the channel, so that the old worker knows that nothing more will come.
        assert!(old.next().await.is_none());
        let (mut stream, _, guard) = open(held);
        stream.read_exact(&mut vec![0; get("a.test").len()]).await.unwrap();
        stream.write_all(b"old").await.unwrap();
        drop((stream, guard));
        assert_eq!(read_all(&mut first).await, "old");
        let mut third = gate.client(&get("a.test")).await;
        answer(&new, "new").await;
        assert_eq!(read_all(&mut third).await, "new");
    });
}

#[test]
fn a_gate_takes_back_what_its_predecessor_passed_on() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let (before, inherited) = sys::seqpacket::pair().unwrap();
        let worker = worker::receiver::Receiver::new(10);
        worker.attach(inherited, false).unwrap();
        worker.attach(gate.line(1).await, false).unwrap();
        let other = gate.worker(2).await;
        // The predecessor passed on what this gate accepted, which stands for what an earlier one did; then it went.
        let mut client = gate.client(&get("b.test")).await;
        let passed = other.next().await.unwrap();
        let bundle = wire::Bundle {
            id: 77,
            peer: passed.peer,
            local: gate.address,
            kind: wire::Kind::Plain,
            preread: wire::Bytes(Vec::new()),
        };
        let mut message = Vec::new();
        wire::Message::encode(&wire::ToWorker::Connection { bundle }, &mut message);
        sys::seqpacket::send(&before, &message, Some(passed.stream.as_fd())).unwrap();
        drop((before, passed.stream));
        let arrival = worker.next().await.unwrap();
        pause(30).await;
        arrival.guard.hand_back(arrival.stream, get("b.test")).await.unwrap();
        // The bytes in the socket are still there, after those that came along.
        let (mut stream, preread, _lease) = open(other.next().await.unwrap());
        assert_eq!(preread, get("b.test"));
        stream.write_all(b"b").await.unwrap();
        let mut got = [0; 1];
        client.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"b");
    });
}

#[test]
fn no_more_are_held_than_allowed() {
    run(async {
        let gate = Gate::start(Limits { connections: 4, ..Limits::default() }).await;
        let worker = gate.worker(1).await;
        // Whole requests, for partitions without a worker: none of them is ended to make room.
        let mut waiting = Vec::new();
        for head in [get("b.test"), b"GET /app HTTP/1.1\r\nHost: b.test\r\n\r\n".to_vec()] {
            for _ in 0..2 {
                waiting.push(gate.client(&head).await);
            }
        }
        gate.until(|shed| shed.waiting_now == 4).await;
        let mut fifth = gate.client(&get("a.test")).await;
        pause(50).await;
        assert_eq!(gate.counters().await.connections_now, 4);
        let other = gate.worker(2).await;
        answer(&other, "b").await;
        assert_eq!(read_all(&mut waiting[0]).await, "b");
        answer(&worker, "fifth").await;
        assert_eq!(read_all(&mut fifth).await, "fifth");
    });
}

#[test]
fn a_retiring_gate_finishes_what_it_has() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let worker = gate.worker(1).await;
        let mut client = gate.client(b"GET / HTTP/1.1\r\n").await;
        pause(30).await;
        drop(gate.control);
        pause(30).await;
        client.write_all(b"Host: a.test\r\n\r\n").await.unwrap();
        answer(&worker, "last").await;
        assert_eq!(read_all(&mut client).await, "last");
        gate.run.await.unwrap().unwrap();
    });
}

#[test]
fn a_retiring_gate_passes_on_what_comes_back_and_says_when_it_takes_nothing_more() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let worker = gate.worker(1).await;
        let request = get("a.test");
        let (mut clients, mut arrived) = (Vec::new(), Vec::new());
        for word in ["first", "second"] {
            clients.push((gate.client(&request).await, word));
            let (mut stream, _, guard) = open(worker.next().await.unwrap());
            stream.read_exact(&mut vec![0; request.len()]).await.unwrap();
            arrived.push((OwnedFd::from(stream.into_std().unwrap()), guard));
        }
        let [(first, of_first), (second, of_second)] = <[_; 2]>::try_from(arrived).ok().unwrap();
        // On its way when the gate is told to leave, and to be read by a worker all the same.
        of_first.hand_back(first, request.clone()).await.unwrap();
        drop(gate.control);
        answer(&worker, "first").await;
        gate.run.await.unwrap().unwrap();
        // One that comes too late stays with the worker.
        let second = of_second.hand_back(second, request).await.expect_err("nobody takes it");
        let mut second = tokio::net::TcpStream::from_std(second.into()).unwrap();
        second.write_all(b"second").await.unwrap();
        drop(second);
        for (client, word) in &mut clients {
            assert_eq!(read_all(client).await, *word);
        }
    });
}

#[test]
fn nonsense_from_the_launcher_ends_a_gate() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        gate.say(LauncherToGate::Commit {}).await;
        assert!(gate.run.await.unwrap().is_err());
    });
}
