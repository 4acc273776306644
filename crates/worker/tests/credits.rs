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
        let receiver = Receiver::new(1000);
        receiver.attach(theirs, false).unwrap();
        let source: Channel<FromWorker, ToWorker> = Channel::new(ours).unwrap();
        let Some((FromWorker::Returns { credits, .. }, _)) = source.receive().await.unwrap() else {
            panic!("no credits");
        };
        // All at once, so that none comes back meanwhile.
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
                    stream: stream(),
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
