//! Requests on their way through a chain of filters, whose ends are played by the test.
//!
//! Runs in: tests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::os::fd::{AsFd, OwnedFd};

use common::{Gate, Limits, answer, get, is_closed, listener, open, pause, read_all, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::{Bundle, Kind, LauncherToGate, Message, Text, ToWorker};

/// A chain of one filter: what it reads from, and what it writes to.
struct Filter {
    input: OwnedFd,
    output: OwnedFd,
}

impl Filter {
    async fn attach(gate: &Gate) -> Self {
        let ((input, first), (output, last)) =
            (sys::seqpacket::pair().unwrap(), sys::seqpacket::pair().unwrap());
        gate.control.send(&LauncherToGate::ChainFirst {}, Some(first.as_fd())).await.unwrap();
        gate.control.send(&LauncherToGate::ChainLast { chain: 7 }, Some(last.as_fd())).await.unwrap();
        pause(20).await;
        Self { input, output }
    }

    /// The next request.
    async fn next(&self) -> (Bundle, OwnedFd) {
        let mut buffer = vec![0; wire::MESSAGE_MAX];
        loop {
            match sys::seqpacket::receive(&self.input, &mut buffer) {
                Ok(Some(got)) => {
                    let message = ToWorker::decode(&buffer[..got.len]).unwrap();
                    let ToWorker::Connection { bundle } = message else {
                        panic!("filters get one request a message: {message:?}");
                    };
                    return (bundle, got.descriptor.unwrap());
                }
                Ok(None) => panic!("the gate has closed the channel"),
                Err(_) => pause(2).await,
            }
        }
    }

    fn pass(&self, bundle: Bundle, stream: OwnedFd) {
        let mut bytes = Vec::new();
        ToWorker::Connection { bundle }.encode(&mut bytes);
        sys::seqpacket::send(&self.output, &bytes, Some(stream.as_fd())).unwrap();
    }
}

#[test]
fn a_filter_gets_the_head_and_what_it_passes_on_is_routed() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let filter = Filter::attach(&gate).await;
        let (a, b) = (gate.worker(1).await, gate.worker(2).await);
        let request = b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nbody";
        let mut client = gate.client(request).await;
        let (bundle, stream) = filter.next().await;
        assert_eq!(bundle.peer, client.local_addr().unwrap());
        assert_eq!(bundle.preread.0, request[..request.len() - 4]);
        filter.pass(bundle, stream);
        let (mut server, preread, _lease) = open(a.next().await.unwrap());
        assert_eq!(preread, request[..request.len() - 4]);
        let mut body = [0; 4];
        server.read_exact(&mut body).await.unwrap();
        assert_eq!(&body, b"body");
        server.write_all(b"done").await.unwrap();
        drop(server);
        assert_eq!(read_all(&mut client).await, "done");
        // A filter may change the head; where it leads is decided by what it has made of it.
        let mut client = gate.client(&get("a.test")).await;
        let (mut bundle, stream) = filter.next().await;
        bundle.preread.0 = get("b.test");
        filter.pass(bundle, stream);
        assert_eq!(answer(&b, "b").await, get("b.test"));
        assert_eq!(read_all(&mut client).await, "b");
        // And it is checked again.
        let mut client = gate.client(&get("a.test")).await;
        let (mut bundle, stream) = filter.next().await;
        bundle.preread.0 = b"GET / HTTP/1.1\nHost: a.test\n\n".to_vec();
        filter.pass(bundle, stream);
        assert!(read_all(&mut client).await.starts_with("HTTP/1.1 400 "));
        drop(client);
        while gate.counters().await.connections_now > 0 {
            pause(5).await;
        }
    });
}

#[test]
fn long_heads_go_the_same_way() {
    run(async {
        let gate = Gate::start(Limits { head_bytes: 60_000, ..Limits::default() }).await;
        let filter = Filter::attach(&gate).await;
        let worker = gate.worker(1).await;
        let mut clients = Vec::new();
        for bytes in [100, 5_000, 20_000, 100] {
            let head = format!("GET / HTTP/1.1\r\nHost: a.test\r\nLong: {}\r\n\r\n", "x".repeat(bytes));
            clients.push((gate.client(head.as_bytes()).await, head));
        }
        for _ in 0..clients.len() {
            let (bundle, stream) = filter.next().await;
            let (_, head) = clients.iter().find(|(one, _)| one.local_addr().unwrap() == bundle.peer).unwrap();
            assert_eq!(bundle.preread.0, head.as_bytes());
            filter.pass(bundle, stream);
            answer(&worker, "long").await;
        }
        for (mut client, _) in clients {
            assert_eq!(read_all(&mut client).await, "long");
        }
    });
}

#[test]
fn what_a_filter_drops_is_gone_and_counted() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let filter = Filter::attach(&gate).await;
        let mut client = gate.client(&get("a.test")).await;
        drop(filter.next().await);
        assert!(is_closed(&mut client).await);
        assert_eq!(gate.shed().await.0.filtered, 1);
    });
}

#[test]
fn a_request_that_was_handed_back_is_filtered_again() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let filter = Filter::attach(&gate).await;
        let a = gate.worker(1).await;
        let mut client = gate.client(&get("a.test")).await;
        let (bundle, stream) = filter.next().await;
        filter.pass(bundle, stream);
        let (server, _, guard) = open(a.next().await.unwrap());
        guard.hand_back(OwnedFd::from(server.into_std().unwrap()), Vec::new()).await.unwrap();
        client.write_all(&get("a.test")).await.unwrap();
        let (bundle, stream) = filter.next().await;
        filter.pass(bundle, stream);
        answer(&a, "again").await;
        assert_eq!(read_all(&mut client).await, "again");
    });
}

#[test]
fn without_its_filter_no_request_goes_on() {
    run(async {
        let gate = Gate::start(Limits { start_timeout_ms: 300, ..Limits::default() }).await;
        let a = gate.worker(1).await;
        drop(Filter::attach(&gate).await);
        let got = gate.ask(&get("a.test")).await;
        assert!(got.starts_with("HTTP/1.1 503 "), "{got}");
        // One that comes in time gets those that wait for it.
        let mut client = gate.client(&get("a.test")).await;
        pause(30).await;
        let successor = Filter::attach(&gate).await;
        let (bundle, stream) = successor.next().await;
        successor.pass(bundle, stream);
        answer(&a, "late").await;
        assert_eq!(read_all(&mut client).await, "late");
    });
}

#[test]
fn a_successor_takes_over_and_nothing_is_lost() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let old = Filter::attach(&gate).await;
        let a = gate.worker(1).await;
        let mut first = gate.client(&get("a.test")).await;
        let held = old.next().await;
        let new = Filter::attach(&gate).await;
        let mut second = gate.client(&get("a.test")).await;
        let (bundle, stream) = new.next().await;
        new.pass(bundle, stream);
        answer(&a, "second").await;
        assert_eq!(read_all(&mut second).await, "second");
        // The old one is told that nothing more comes, and what it still holds is taken.
        assert!(matches!(sys::seqpacket::receive(&old.input, &mut [0; 64]), Ok(None)));
        old.pass(held.0, held.1);
        answer(&a, "first").await;
        assert_eq!(read_all(&mut first).await, "first");
    });
}

/// A listener on which connections begin with a header, from us.
fn proxied() -> LauncherToGate {
    LauncherToGate::ProxyTrusted { listener: 0, network: Text::new("127.0.0.1/32") }
}

fn from_proxy(client: &str, rest: &[u8]) -> Vec<u8> {
    [format!("PROXY TCP4 {client} 127.0.0.1 4711 80\r\n").as_bytes(), rest].concat()
}

#[test]
fn whose_a_proxys_connection_is_outlives_the_filters_and_a_worker() {
    run(async {
        let gate = Gate::start_with(Limits::default(), vec![proxied()]).await;
        let filter = Filter::attach(&gate).await;
        let worker = gate.worker(1).await;
        let two = [get("a.test"), get("a.test")].concat();
        let mut client = gate.client(&from_proxy("192.0.2.7", &two)).await;
        let named = "192.0.2.7:4711".parse().unwrap();
        for word in ["first", "second"] {
            let (bundle, stream) = filter.next().await;
            assert_eq!((bundle.peer, &bundle.preread.0), (named, &get("a.test")), "{word}");
            filter.pass(bundle, stream);
            let arrival = worker.next().await.unwrap();
            assert_eq!(arrival.peer, named, "{word}");
            let (mut server, _, guard) = open(arrival);
            server.write_all(word.as_bytes()).await.unwrap();
            if word == "first" {
                guard.hand_back(OwnedFd::from(server.into_std().unwrap()), Vec::new()).await.unwrap();
            }
        }
        assert_eq!(read_all(&mut client).await, "firstsecond");
    });
}

#[test]
fn what_filters_cannot_see_is_refused_unless_that_is_wanted() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let hello = include_bytes!("../../../fuzz/seeds/client_hello/openssl-1");
    run(async {
        for (tls, bytes) in [(true, &hello[..]), (false, PREFACE)] {
            let protocol = LauncherToGate::Protocol { listener: 0, tls, h2c: !tls };
            let wanted = LauncherToGate::Unfiltered { listener: 0 };
            for more in [vec![protocol.clone()], vec![protocol, wanted]] {
                let unfiltered = more.len() > 1;
                let gate = Gate::start_with(Limits::default(), more).await;
                let _filter = Filter::attach(&gate).await;
                let worker = gate.worker(1).await;
                let mut client = gate.client(bytes).await;
                if unfiltered {
                    assert_eq!(worker.next().await.unwrap().kind == Kind::Tls, tls);
                } else {
                    let mut said = Vec::new();
                    client.read_to_end(&mut said).await.unwrap();
                    assert!(
                        said == [21, 3, 3, 0, 2, 2, 80] || said.starts_with(b"HTTP/1.1 400 "),
                        "{said:?}"
                    );
                }
            }
        }
    });
}

#[test]
fn a_gate_that_leaves_the_chain_leaves_what_comes_from_it_to_others() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let ((input, first), (output, last)) =
            (sys::seqpacket::pair().unwrap(), sys::seqpacket::pair().unwrap());
        let others = last.try_clone().unwrap();
        gate.control.send(&LauncherToGate::ChainFirst {}, Some(first.as_fd())).await.unwrap();
        gate.control.send(&LauncherToGate::ChainLast { chain: 7 }, Some(last.as_fd())).await.unwrap();
        let filter = Filter { input, output };
        let _client = gate.client(&get("a.test")).await;
        let (bundle, stream) = filter.next().await;
        gate.say(LauncherToGate::LeaveChain {}).await;
        // An answer shows that it was heard.
        gate.counters().await;
        filter.pass(bundle, stream);
        gate.counters().await;
        let got = sys::seqpacket::receive(&others, &mut vec![0; wire::MESSAGE_MAX]).unwrap();
        assert!(got.is_some_and(|got| got.descriptor.is_some()), "another gate finds it");
    });
}

#[test]
fn what_comes_from_the_chain_waits_until_a_new_gate_knows_where_it_leads() {
    run(async {
        let listener = listener();
        let before = Gate::begin(Limits::default(), &listener).await;
        before.set_up(&listener, Vec::new()).await;
        let ((input, first), (output, last)) =
            (sys::seqpacket::pair().unwrap(), sys::seqpacket::pair().unwrap());
        let filter = Filter { input, output };
        let after = Gate::begin(Limits::default(), &listener).await;
        for gate in [&before, &after] {
            gate.control.send(&LauncherToGate::ChainFirst {}, Some(first.as_fd())).await.unwrap();
            gate.control.send(&LauncherToGate::ChainLast { chain: 7 }, Some(last.as_fd())).await.unwrap();
            // An answer shows that both were heard.
            gate.counters().await;
        }
        let mut client = before.client(&get("a.test")).await;
        let (bundle, stream) = filter.next().await;
        before.say(LauncherToGate::LeaveChain {}).await;
        before.counters().await;
        filter.pass(bundle, stream);
        // Each answer is a turn in which the gate could have heard the filter.
        for _ in 0..3 {
            after.counters().await;
        }
        after.set_up(&listener, Vec::new()).await;
        let worker = after.worker(1).await;
        assert_eq!(answer(&worker, "routed").await, get("a.test"));
        assert_eq!(read_all(&mut client).await, "routed");
    });
}

#[test]
fn a_gate_that_retires_sends_what_it_has_into_a_chain_that_came_later_and_takes_nothing_from_there() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let _before = Filter::attach(&gate).await;
        let mut client = gate.client(b"GET / HTTP/1.1\r\n").await;
        gate.until(|shed| shed.incomplete_now == 1).await;
        gate.say(LauncherToGate::LeaveChain {}).await;
        gate.say(LauncherToGate::Retire {}).await;
        let ((input, first), (output, last)) =
            (sys::seqpacket::pair().unwrap(), sys::seqpacket::pair().unwrap());
        let others = last.try_clone().unwrap();
        gate.control.send(&LauncherToGate::ChainFirst {}, Some(first.as_fd())).await.unwrap();
        gate.control.send(&LauncherToGate::ChainLast { chain: 8 }, Some(last.as_fd())).await.unwrap();
        // An answer shows that both were heard.
        gate.counters().await;
        client.write_all(b"Host: a.test\r\n\r\n").await.unwrap();
        let filter = Filter { input, output };
        let (bundle, stream) = filter.next().await;
        filter.pass(bundle, stream);
        gate.run.await.unwrap().unwrap();
        let got = sys::seqpacket::receive(&others, &mut vec![0; wire::MESSAGE_MAX]).unwrap();
        assert!(got.is_some_and(|got| got.descriptor.is_some()), "another gate finds it");
    });
}
