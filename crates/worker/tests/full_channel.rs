//! A channel to a worker that has no room for the moment: what waits is sent when there is room, against its credits.
//!
//! Runs in: `cargo test`. The worker is made up.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use common::Counts;
use wire::{FromWorker, Kind, Message};
use worker::dispatcher::{Dispatcher, Outgoing};

/// More than fit into a channel, and fewer than credits may be.
const CONNECTIONS: usize = 2000;

fn give(worker: &OwnedFd, credits: u16) {
    let mut bytes = Vec::new();
    FromWorker::Returns { credits, done: vec![] }.encode(&mut bytes);
    sys::seqpacket::send(worker, &bytes, None).unwrap();
}

#[test]
fn credits_outlast_a_channel_that_was_full() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let (ours, worker) = sys::seqpacket::pair().unwrap();
        let counts = Rc::new(Counts::default());
        let dispatcher = Dispatcher::new("partition", Duration::from_secs(60), 16_384, counts.clone());
        dispatcher.attach(ours).unwrap();
        give(&worker, CONNECTIONS as u16);
        tokio::time::sleep(Duration::from_millis(50)).await;
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        for _ in 0..CONNECTIONS {
            let stream = sys::seqpacket::stream_pair().unwrap().0;
            dispatcher.send(Outgoing {
                stream: stream.into(),
                peer: address,
                local: address,
                kind: Kind::Plain,
                preread: vec![],
            });
        }
        assert!(counts.delivered.get() < CONNECTIONS, "the channel was never full");
        // The worker reads again. Each of its messages is an occasion to go on; they bring hardly a credit.
        let (mut buffer, mut rounds) = (vec![0; wire::MESSAGE_MAX], 0);
        while counts.delivered.get() < CONNECTIONS && rounds < 100 {
            while sys::seqpacket::receive(&worker, &mut buffer).is_ok_and(|got| got.is_some()) {}
            give(&worker, 1);
            tokio::time::sleep(Duration::from_millis(5)).await;
            rounds += 1;
        }
        assert_eq!((counts.delivered.get(), counts.undelivered.get()), (CONNECTIONS, 0), "{rounds} rounds");
    });
}
