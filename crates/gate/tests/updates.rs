//! Listeners and routes that change while connections are under way.
//!
//! Runs in: tests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};

use common::{Gate, Limits, answer, get, is_closed, open, pause, read_all, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wire::{ChildToLauncher, LauncherToGate, Text};

/// The launcher's own copies of listening sockets.
fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Says the listeners anew, each with its routes.
async fn say_update(gate: &Gate, listeners: &[(&TcpListener, &[(&str, u16)])]) {
    gate.say(LauncherToGate::Update {}).await;
    for (index, (socket, routes)) in (0..).zip(listeners) {
        gate.control.send(&LauncherToGate::Listen { index }, Some(socket.as_fd())).await.unwrap();
        for &(host, partition) in *routes {
            let (host, path) = (Text::new(host), Text::new("/"));
            let (listener, site) = (index, partition);
            gate.say(LauncherToGate::Route { listener, host, path, partition, site }).await;
        }
    }
}

async fn update(gate: &Gate, listeners: &[(&TcpListener, &[(&str, u16)])]) {
    say_update(gate, listeners).await;
    gate.say(LauncherToGate::Commit {}).await;
    assert_eq!(gate.answer().await, ChildToLauncher::Committed {});
}

async fn ask(address: SocketAddr, host: &str) -> String {
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(&get(host)).await.unwrap();
    read_all(&mut client).await
}

/// A gate whose sockets the test has, with a.test on one of two listeners, and a connection that is not routed yet.
async fn gate() -> (Gate, TcpListener, SocketAddr) {
    let gate = Gate::start(Limits::default()).await;
    let (socket, address) = listener();
    update(&gate, &[(&socket, &[("a.test", 1)])]).await;
    (gate, socket, address)
}

#[test]
fn an_update_adds_and_removes_routes_and_listeners() {
    run(async {
        let (gate, socket, address) = gate().await;
        // The listener of the start is closed.
        assert!(TcpStream::connect(gate.address).await.is_err());
        let (a, b) = (gate.worker(1).await, gate.worker(2).await);
        let (other, other_address) = listener();
        assert!(ask(address, "b.test").await.starts_with("HTTP/1.1 404 "));
        update(&gate, &[(&socket, &[("a.test", 1), ("b.test", 2)]), (&other, &[("b.test", 2)])]).await;
        for (address, host, worker) in
            [(address, "a.test", &a), (address, "b.test", &b), (other_address, "b.test", &b)]
        {
            let (got, _) = tokio::join!(ask(address, host), answer(worker, host));
            assert_eq!(got, host);
        }
        update(&gate, &[(&socket, &[("b.test", 2)])]).await;
        drop(other);
        assert!(TcpStream::connect(other_address).await.is_err());
        assert!(ask(address, "a.test").await.starts_with("HTTP/1.1 404 "));
        let (got, _) = tokio::join!(ask(address, "b.test"), answer(&b, "b"));
        assert_eq!(got, "b");
    });
}

#[test]
fn a_change_of_some_hosts_leaves_all_others() {
    run(async {
        let (gate, socket, address) = gate().await;
        update(&gate, &[(&socket, &[("a.test", 1), ("b.test", 1)])]).await;
        let (a, b) = (gate.worker(1).await, gate.worker(2).await);
        let route = |host: &str| {
            let (host, path) = (Text::new(host), Text::new("/"));
            LauncherToGate::Route { listener: 0, host, path, partition: 2, site: 2 }
        };
        let forget = |host: &str| LauncherToGate::Forget { listener: 0, host: Text::new(host) };
        for message in [LauncherToGate::Change {}, forget("b.test"), route("b.test"), route("c.test")] {
            gate.say(message).await;
        }
        // Nothing of it holds yet.
        assert!(ask(address, "c.test").await.starts_with("HTTP/1.1 404 "));
        let commit = async || {
            gate.say(LauncherToGate::Commit {}).await;
            assert_eq!(gate.answer().await, ChildToLauncher::Committed {});
        };
        commit().await;
        for (host, worker) in [("a.test", &a), ("b.test", &b), ("c.test", &b)] {
            let (got, _) = tokio::join!(ask(address, host), answer(worker, host));
            assert_eq!(got, host);
        }
        for message in [LauncherToGate::Change {}, forget("b.test"), forget("unknown.test")] {
            gate.say(message).await;
        }
        commit().await;
        assert!(ask(address, "b.test").await.starts_with("HTTP/1.1 404 "));
        let (got, _) = tokio::join!(ask(address, "c.test"), answer(&b, "c"));
        assert_eq!(got, "c");
    });
}

#[test]
fn a_gate_that_retires_hears_of_workers_and_routes_and_accepts_nothing() {
    run(async {
        let (gate, socket, address) = gate().await;
        let mut clients = Vec::new();
        for _ in 0..2 {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
            clients.push(client);
        }
        gate.until(|shed| shed.incomplete_now == 2).await;
        gate.say(LauncherToGate::Retire {}).await;
        let a = gate.worker(1).await;
        clients[0].write_all(b"Host: a.test\r\n\r\n").await.unwrap();
        answer(&a, "a").await;
        assert_eq!(read_all(&mut clients[0]).await, "a");
        update(&gate, &[(&socket, &[("c.test", 2)])]).await;
        let late = TcpStream::connect(address).await.unwrap();
        let c = gate.worker(2).await;
        clients[1].write_all(b"Host: c.test\r\n\r\n").await.unwrap();
        answer(&c, "c").await;
        assert_eq!(read_all(&mut clients[1]).await, "c");
        gate.run.await.unwrap().unwrap();
        assert!(socket.accept().is_ok(), "the next gate gets the connection that came late");
        drop(late);
    });
}

#[test]
fn connections_outlive_the_update_that_adds_and_removes_others() {
    run(async {
        let (gate, socket, address) = gate().await;
        let (a, (other, _)) = (gate.worker(1).await, listener());
        // One is with its worker, one idles after its first request, one has sent half a head, one nothing.
        let mut clients = Vec::new();
        for bytes in [get("a.test"), get("a.test"), get("a.test")[..9].to_vec(), Vec::new()] {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(&bytes).await.unwrap();
            clients.push(client);
        }
        let (mut download, _, _guard) = open(a.next().await.unwrap());
        let (mut stream, _, guard) = open(a.next().await.unwrap());
        for stream in [&mut download, &mut stream] {
            stream.read_exact(&mut vec![0; get("a.test").len()]).await.unwrap();
        }
        guard.hand_back(stream.into_std().unwrap().into(), Vec::new()).await.unwrap();
        for routes in [&[("a.test", 1), ("b.test", 2)][..], &[("a.test", 1)]] {
            update(&gate, &[(&socket, routes), (&other, routes)]).await;
        }
        update(&gate, &[(&socket, &[("a.test", 1), ("c.test", 3)])]).await;
        download.write_all(b"the rest").await.unwrap();
        drop((download, _guard));
        clients[1].write_all(&get("a.test")).await.unwrap();
        clients[2].write_all(&get("a.test")[9..]).await.unwrap();
        clients[3].write_all(&get("a.test")).await.unwrap();
        for (client, word) in clients.iter_mut().zip(["the rest", "1", "2", "3"]).skip(1) {
            answer(&a, word).await;
            assert!(["1", "2", "3"].contains(&&*read_all(client).await));
        }
        assert!(read_all(&mut clients[0]).await.ends_with("the rest"));
    });
}

#[test]
fn an_idle_connection_sees_the_new_routes() {
    run(async {
        let (gate, socket, address) = gate().await;
        let mut client = TcpStream::connect(address).await.unwrap();
        pause(20).await;
        let b = gate.worker(2).await;
        update(&gate, &[(&socket, &[("a.test", 2)])]).await;
        client.write_all(&get("a.test")).await.unwrap();
        answer(&b, "new").await;
        assert_eq!(read_all(&mut client).await, "new");
    });
}

#[test]
fn connections_of_a_closed_listener_are_still_routed() {
    run(async {
        let (gate, socket, address) = gate().await;
        let a = gate.worker(1).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        pause(20).await;
        let (other, _) = listener();
        update(&gate, &[(&other, &[("a.test", 1)])]).await;
        drop(socket);
        client.write_all(&get("a.test")).await.unwrap();
        answer(&a, "late").await;
        assert_eq!(read_all(&mut client).await, "late");
        assert!(TcpStream::connect(address).await.is_err());
        // Where the partition has gone with the listener, there is no such site.
        let mut client = TcpStream::connect(other.local_addr().unwrap()).await.unwrap();
        pause(20).await;
        update(&gate, &[]).await;
        gate.say(LauncherToGate::RemovePartition { partition: 1 }).await;
        gate.counters().await;
        client.write_all(&get("a.test")).await.unwrap();
        assert!(read_all(&mut client).await.starts_with("HTTP/1.1 404 "));
    });
}

#[test]
fn an_update_without_its_end_changes_nothing() {
    run(async {
        let (gate, socket, address) = gate().await;
        let (a, b, (other, other_address)) = (gate.worker(1).await, gate.worker(2).await, listener());
        say_update(&gate, &[(&other, &[("a.test", 2), ("b.test", 2)])]).await;
        let (got, _) = tokio::join!(ask(address, "a.test"), answer(&a, "old"));
        assert_eq!(got, "old");
        assert!(ask(address, "b.test").await.starts_with("HTTP/1.1 404 "));
        let mut waits = TcpStream::connect(other_address).await.unwrap();
        waits.write_all(&get("b.test")).await.unwrap();
        // Another one discards it.
        update(&gate, &[(&socket, &[("b.test", 2)])]).await;
        assert!(ask(address, "a.test").await.starts_with("HTTP/1.1 404 "));
        let (got, _) = tokio::join!(ask(address, "b.test"), answer(&b, "new"));
        assert_eq!(got, "new");
        drop(other);
        assert!(is_closed(&mut waits).await, "the gate never had the socket of the discarded update");
    });
}

#[test]
fn requests_that_wait_for_a_removed_partition_are_answered() {
    run(async {
        let (gate, socket, address) = gate().await;
        let mut waits = TcpStream::connect(address).await.unwrap();
        waits.write_all(&get("a.test")).await.unwrap();
        while gate.shed().await.0.waiting_now == 0 {
            pause(5).await;
        }
        update(&gate, &[(&socket, &[("b.test", 2)])]).await;
        gate.say(LauncherToGate::RemovePartition { partition: 1 }).await;
        assert!(read_all(&mut waits).await.starts_with("HTTP/1.1 404 "));
        drop(waits);
        while gate.counters().await.connections_now > 0 {
            pause(5).await;
        }
        // The number may come back as another's.
        update(&gate, &[(&socket, &[("c.test", 1)])]).await;
        let c = gate.worker(1).await;
        let (got, _) = tokio::join!(ask(address, "c.test"), answer(&c, "c"));
        assert_eq!(got, "c");
    });
}

#[test]
fn a_commit_without_an_update_is_nonsense() {
    run(async {
        let (gate, ..) = gate().await;
        gate.say(LauncherToGate::Commit {}).await;
        assert!(gate.run.await.unwrap().is_err());
    });
}

/// Says the one listener anew, with what is said of filters before it.
async fn update_with_filters(
    gate: &Gate,
    socket: &TcpListener,
    filters: Vec<(LauncherToGate, Option<OwnedFd>)>,
    before_commit: impl AsyncFnOnce(),
) {
    gate.say(LauncherToGate::Update {}).await;
    for (message, channel) in filters {
        gate.control.send(&message, channel.as_ref().map(AsFd::as_fd)).await.unwrap();
    }
    gate.control.send(&LauncherToGate::Listen { index: 0 }, Some(socket.as_fd())).await.unwrap();
    let (host, path) = (Text::new("a.test"), Text::new("/"));
    gate.say(LauncherToGate::Route { listener: 0, host, path, partition: 1, site: 1 }).await;
    before_commit().await;
    gate.say(LauncherToGate::Commit {}).await;
    assert_eq!(gate.answer().await, ChildToLauncher::Committed {});
}

/// The next request that a filter gets, passed on as it is when it is wanted.
async fn next_of(input: &OwnedFd) -> (Vec<u8>, OwnedFd) {
    let mut buffer = vec![0; wire::MESSAGE_MAX];
    loop {
        match sys::seqpacket::receive(input, &mut buffer) {
            Ok(Some(got)) => return (buffer[..got.len].to_vec(), got.descriptor.unwrap()),
            Ok(None) => panic!("the gate has closed the channel"),
            Err(_) => pause(2).await,
        }
    }
}

#[test]
fn filters_come_and_go_with_an_update() {
    run(async {
        let (gate, socket, address) = gate().await;
        let worker = gate.worker(1).await;
        let ((input, first), (output, last)) =
            (sys::seqpacket::pair().unwrap(), sys::seqpacket::pair().unwrap());
        let direct = async |word: &str| {
            let (got, _) = tokio::join!(ask(address, "a.test"), answer(&worker, word));
            assert_eq!(got, word);
        };
        let chain = vec![
            (LauncherToGate::ChainFirst {}, Some(first)),
            (LauncherToGate::ChainLast { chain: 1 }, Some(last)),
        ];
        update_with_filters(&gate, &socket, chain, async || direct("before").await).await;
        let held = tokio::task::spawn_local(ask(address, "a.test"));
        let (bundle, stream) = next_of(&input).await;
        update_with_filters(&gate, &socket, vec![(LauncherToGate::NoChain {}, None)], async || {}).await;
        direct("after").await;
        // Connections that were in the chain come back from it.
        sys::seqpacket::send(&output, &bundle, Some(stream.as_fd())).unwrap();
        drop(stream);
        answer(&worker, "held").await;
        assert_eq!(held.await.unwrap(), "held");
        assert!(
            matches!(sys::seqpacket::receive(&input, &mut [0; 8]), Ok(None)),
            "nothing more is sent there"
        );
    });
}
