//! Several workers of one partition: who gets a connection, and when another one is wanted.
//!
//! Runs in: `cargo test`. The dispatcher is the real one, the workers are bare channels.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use common::Counts;
use wire::{FromWorker, Message, ToWorker};
use worker::dispatcher::{Dispatcher, Outgoing};

/// A dispatcher and the other ends of its workers' channels, the first of which came first.
struct Bench {
    dispatcher: Rc<Dispatcher>,
    counts: Rc<Counts>,
    workers: Vec<OwnedFd>,
}

impl Bench {
    async fn new(workers: usize) -> Self {
        let counts = Rc::new(Counts::default());
        let dispatcher = Dispatcher::new("partition", Duration::from_secs(60), 1000, counts.clone());
        let mut bench = Self { dispatcher, counts, workers: Vec::new() };
        for worker in 0..workers {
            let (ours, theirs) = sys::seqpacket::pair().unwrap();
            bench.dispatcher.attach(ours).unwrap();
            bench.workers.push(theirs);
            bench.say(worker, 64, &[]).await;
        }
        bench
    }

    /// A worker says this, and is heard.
    async fn say(&self, worker: usize, credits: u16, done: &[u64]) {
        let mut bytes = Vec::new();
        FromWorker::Returns { credits, done: done.to_vec() }.encode(&mut bytes);
        sys::seqpacket::send(&self.workers[worker], &bytes, None).unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    /// So many connections come at once.
    fn come(&self, count: usize) {
        for _ in 0..count {
            let peer = SocketAddr::from(([192, 0, 2, 1], 1));
            let (stream, _) = sys::seqpacket::stream_pair().unwrap();
            let kind = wire::Kind::Plain;
            self.dispatcher.send(Outgoing {
                stream: stream.into(),
                peer,
                local: peer,
                kind,
                preread: vec![],
            });
        }
    }

    /// The numbers of connections that each worker gets of so many that come at once.
    async fn send(&self, count: usize) -> Vec<Vec<u64>> {
        let before = self.counts.delivered.get();
        self.come(count);
        while self.counts.delivered.get() < before + count {
            tokio::task::yield_now().await;
        }
        self.workers.iter().map(received).collect()
    }

    async fn wanted(&self) {
        while self.counts.wanted.get() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn received(worker: &OwnedFd) -> Vec<u64> {
    let (mut buffer, mut descriptors, mut ids) = (vec![0; wire::MESSAGE_MAX], Vec::new(), Vec::new());
    while let Ok(length) = sys::seqpacket::receive_many(worker, &mut buffer, &mut descriptors) {
        match ToWorker::decode(&buffer[..length.unwrap()]).unwrap() {
            ToWorker::Connection { bundle } => ids.push(bundle.id),
            ToWorker::Connections { bundles } => ids.extend(bundles.0.iter().map(|bundle| bundle.id)),
        }
    }
    ids
}

fn run(test: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test());
}

fn counts(received: &[Vec<u64>]) -> Vec<usize> {
    received.iter().map(Vec::len).collect()
}

#[test]
fn the_worker_that_holds_least_is_next_and_of_equal_ones_the_newest() {
    run(async || {
        let bench = Bench::new(3).await;
        let first = bench.send(1).await;
        assert_eq!(counts(&first), [0, 0, 1]);
        assert_eq!(counts(&bench.send(1).await), [0, 1, 0]);
        assert_eq!(counts(&bench.send(1).await), [1, 0, 0]);
        bench.say(2, 1, &first[2]).await;
        assert_eq!(counts(&bench.send(1).await), [0, 0, 1]);
    });
}

#[test]
fn what_comes_at_once_is_shared_out_evenly() {
    run(async || {
        let bench = Bench::new(2).await;
        assert_eq!(counts(&bench.send(8).await), [4, 4]);
        assert_eq!(counts(&bench.send(2).await), [1, 1]);
        bench.say(0, 4, &[4, 5, 6, 7]).await;
        assert_eq!(counts(&bench.send(4).await), [4, 0]);
    });
}

#[test]
fn one_at_its_limit_leaves_the_rest_to_others() {
    run(async || {
        let bench = Bench::new(2).await;
        let got = counts(&bench.send(128).await);
        assert_eq!(got, [64, 64]);
        bench.say(0, 64, &[]).await;
        assert_eq!(counts(&bench.send(10).await), [10, 0]);
    });
}

#[test]
fn a_worker_that_says_nothing_is_passed_over() {
    run(async || {
        let bench = Bench::new(2).await;
        assert_eq!(counts(&bench.send(1).await), [0, 1]);
        for _ in 0..3 {
            bench.send(1).await;
            bench.say(0, 1, &[]).await;
        }
        tokio::time::sleep(Duration::from_millis(150)).await;
        assert_eq!(counts(&bench.send(1).await), [1, 0]);
        bench.say(0, 1, &[]).await;
        assert_eq!(bench.counts.wanted.get(), 0);
        bench.say(1, 1, &[]).await;
        assert_eq!(counts(&bench.send(1).await), [0, 1]);
    });
}

#[test]
fn another_worker_is_wanted_when_none_says_a_word_or_something_waits() {
    run(async || {
        let silent = Bench::new(2).await;
        silent.send(2).await;
        let all_say_nothing = async { silent.wanted().await };
        tokio::time::timeout(Duration::from_secs(5), all_say_nothing).await.expect("a wish");
        let full = Bench::new(1).await;
        full.send(64).await;
        full.say(0, 0, &[]).await;
        full.come(1);
        tokio::time::timeout(Duration::from_secs(5), full.wanted()).await.expect("a wish");
    });
}

#[test]
fn a_place_is_wanted_once_a_worker_has_said_that_it_has_what_it_was_sent_and_no_sooner() {
    run(async || {
        let bench = Bench::new(1).await;
        bench.send(64).await;
        assert!(!bench.dispatcher.is_full(), "nothing waits");
        bench.come(3);
        assert!(!bench.dispatcher.is_full(), "its word is under way, and may bring room");
        assert_eq!(bench.counts.full.get(), 0);
        bench.say(0, 0, &[]).await;
        assert!(bench.dispatcher.is_full());
        assert_eq!(bench.counts.full.get(), 3);
        bench.come(1);
        assert_eq!(bench.counts.full.get(), 4);
        bench.say(0, 4, &[0, 1, 2, 3]).await;
        assert!(!bench.dispatcher.is_full());
        assert_eq!(bench.counts.delivered.get(), 68);
    });
}

#[test]
fn a_worker_that_does_not_say_that_it_has_what_it_was_sent_is_full_after_a_while() {
    run(async || {
        let bench = Bench::new(1).await;
        bench.send(64).await;
        bench.come(1);
        let is_full = async {
            while !bench.dispatcher.is_full() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), is_full).await.expect("it is full");
    });
}
