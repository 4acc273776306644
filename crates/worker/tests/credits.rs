//! Credits between a source and a worker: what either may do without them, and what it costs who does more.
//!
//! Runs in: `cargo test`. One side is the real one, the other a peer that may be compromised.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use common::Counts;
use wire::{Bundle, Bytes, FromWorker, Message, ToWorker};
use worker::channel::Channel;
use worker::dispatcher::{Dispatcher, Outgoing};
use worker::receiver::Receiver;

fn run(test: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test());
}

fn address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 1))
}

fn stream() -> OwnedFd {
    sys::seqpacket::stream_pair().unwrap().0
}

#[test]
fn a_source_that_sends_more_than_it_has_credits_for_is_closed() {
    run(async || {
        let (ours, theirs) = sys::seqpacket::pair().unwrap();
        // Without room, so that no credit comes back meanwhile.
        let receiver = Receiver::new(0);
        receiver.attach(theirs, false).unwrap();
        let source: Channel<FromWorker, ToWorker> = Channel::new(ours).unwrap();
        let Some((FromWorker::Returns { credits, .. }, _)) = source.receive().await.unwrap() else {
            panic!("no credits");
        };
        let (peer, local) = (address(), address());
        for id in 0..=u64::from(credits) {
            let bundle = Bundle { id, peer, local, kind: wire::Kind::Plain, preread: Bytes(vec![]) };
            source.try_send(&ToWorker::Connection { bundle }, Some(stream().as_fd())).unwrap();
        }
        let mut kept = Vec::new();
        for _ in 0..credits {
            kept.push(receiver.next().await.unwrap());
        }
        drop(kept);
        let ended = async { while let Ok(Some(_)) = source.receive().await {} };
        tokio::time::timeout(Duration::from_secs(5), ended).await.expect("the channel is closed");
    });
}

#[test]
fn a_worker_that_never_says_what_ended_gets_no_more_than_it_may_hold() {
    run(async || {
        const CREDITS_MAX: usize = 4096;
        const CONNECTIONS: u32 = 10;
        let (ours, theirs) = sys::seqpacket::pair().unwrap();
        let counts = Rc::new(Counts::default());
        let dispatcher = Dispatcher::new("partition", Duration::from_millis(1), CONNECTIONS, counts.clone());
        dispatcher.attach(ours).unwrap();
        let mut buffer = vec![0; wire::MESSAGE_MAX];
        let mut credits = Vec::new();
        FromWorker::Returns { credits: 100, done: vec![] }.encode(&mut credits);
        for _ in 0..60 {
            sys::seqpacket::send(&theirs, &credits, None).unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await;
            for _ in 0..100 {
                let (peer, local) = (address(), address());
                dispatcher.send(Outgoing {
                    stream: stream().into(),
                    peer,
                    local,
                    kind: wire::Kind::Plain,
                    preread: vec![],
                });
                let _ = sys::seqpacket::receive(&theirs, &mut buffer);
            }
        }
        assert_eq!(counts.delivered.get(), CONNECTIONS as usize + CREDITS_MAX);
        assert!(counts.undelivered.get() > 0);
    });
}

/// Receives as a bare worker: the bundles of one message, each with its descriptor.
async fn message(line: &OwnedFd) -> Vec<Bundle> {
    let (mut buffer, mut descriptors) = (vec![0; wire::MESSAGE_MAX], Vec::new());
    loop {
        match sys::seqpacket::receive_many(line, &mut buffer, &mut descriptors) {
            Ok(length) => {
                let bundles = match ToWorker::decode(&buffer[..length.expect("the channel is open")]).unwrap()
                {
                    ToWorker::Connection { bundle } => vec![bundle],
                    ToWorker::Connections { bundles } => bundles.0,
                };
                assert_eq!(bundles.len(), descriptors.len());
                return bundles;
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }
}

#[test]
fn what_comes_in_one_turn_leaves_in_one_message_as_far_as_credits_go() {
    run(async || {
        let (ours, theirs) = sys::seqpacket::pair().unwrap();
        let counts = Rc::new(Counts::default());
        let dispatcher = Dispatcher::new("partition", Duration::from_secs(60), 1000, counts.clone());
        dispatcher.attach(ours).unwrap();
        let grant = |credits| {
            let mut bytes = Vec::new();
            FromWorker::Returns { credits, done: vec![] }.encode(&mut bytes);
            sys::seqpacket::send(&theirs, &bytes, None).unwrap();
        };
        let send = |port, preread: &[u8]| {
            let (peer, preread) = (SocketAddr::from(([192, 0, 2, 1], port)), preread.to_vec());
            let (stream, local, kind) = (stream(), address(), wire::Kind::Plain);
            dispatcher.send(Outgoing { stream: stream.into(), peer, local, kind, preread });
        };
        let ports =
            |bundles: Vec<Bundle>| bundles.iter().map(|bundle| bundle.peer.port()).collect::<Vec<_>>();
        grant(5);
        tokio::time::sleep(Duration::from_millis(20)).await;
        for port in 1..=7 {
            send(port, if port == 3 { b"GET" } else { b"" });
        }
        // A bundle with bytes that were read before goes by itself.
        let mut ids = Vec::new();
        for expected in [vec![1, 2], vec![3], vec![4, 5]] {
            let bundles = message(&theirs).await;
            ids.extend(bundles.iter().map(|bundle| bundle.id));
            assert_eq!(bundles.iter().any(|bundle| !bundle.preread.0.is_empty()), expected == [3]);
            assert_eq!(ports(bundles), expected);
        }
        assert_eq!(ids, [0, 1, 2, 3, 4]);
        assert_eq!(counts.delivered.get(), 5);
        // Waiting bundles follow when there are credits; so many go in one message, and no more.
        for port in 8..=100 {
            send(port, b"");
        }
        grant(95);
        let (first, second) = (message(&theirs).await, message(&theirs).await);
        assert_eq!((first.len(), second.len()), (wire::BUNDLES_MAX, 95 - wire::BUNDLES_MAX));
        assert_eq!(counts.delivered.get(), 100);
    });
}
