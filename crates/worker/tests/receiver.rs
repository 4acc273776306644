//! A worker's side of the channels that connections come by: credits, what ended, handing back, draining.
//!
//! Runs in: `cargo test`. The sources are made up.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use wire::{Bundle, Bundles, Bytes, FromWorker, Kind, NUMBERLESS, PREREAD_MAX, ToWorker};
use worker::channel::Channel;
use worker::counters::{Counters, DropCounters};
use worker::receiver::{Arrival, Receiver};

/// The credits that a worker grants a source at first: docs/internals/limits.md.
const CREDITS: u16 = 64;
const MOMENT: Duration = Duration::from_millis(50);

type Peer = Channel<FromWorker, ToWorker>;

/// On a runtime of one thread; a test that waits for ever fails.
fn run(test: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limited = async { tokio::time::timeout(Duration::from_secs(10), test()).await.expect("it hangs") };
    tokio::task::LocalSet::new().block_on(&runtime, limited);
}

/// A source that has just been attached.
fn attached(receiver: &Rc<Receiver>, relays: bool) -> Peer {
    let (ours, theirs) = sys::seqpacket::pair().unwrap();
    receiver.attach(theirs, relays).unwrap();
    Channel::new(ours).unwrap()
}

/// A source whose first credits have come.
async fn source(receiver: &Rc<Receiver>, relays: bool) -> Peer {
    let peer = attached(receiver, relays);
    assert_eq!(said(&peer).await, FromWorker::Returns { credits: CREDITS, done: vec![] });
    peer
}

async fn said(peer: &Peer) -> FromWorker {
    peer.receive().await.unwrap().expect("the channel is open").0
}

/// Nothing is said for a while.
async fn is_silent(peer: &Peer) -> bool {
    tokio::time::timeout(MOMENT, peer.receive()).await.is_err()
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

fn stream() -> OwnedFd {
    sys::seqpacket::stream_pair().unwrap().0
}

fn connection(id: u64, kind: Kind) -> ToWorker {
    let bundle = Bundle { id, peer: address(1), local: address(2), kind, preread: Bytes(b"GET".to_vec()) };
    ToWorker::Connection { bundle }
}

async fn arrival(receiver: &Receiver, peer: &Peer, id: u64) -> Arrival {
    peer.try_send(&connection(id, Kind::Plain), Some(stream().as_fd())).unwrap();
    receiver.next().await.unwrap()
}

#[test]
fn a_connection_arrives_as_it_was_sent() {
    run(async || {
        let receiver = Receiver::new(10);
        for relays in [false, true] {
            let peer = source(&receiver, relays).await;
            for kind in [Kind::Plain, Kind::Tls, Kind::Http2, Kind::RelayedTls2] {
                peer.try_send(&connection(7, kind), Some(stream().as_fd())).unwrap();
                let arrival = receiver.next().await.unwrap();
                assert_eq!((arrival.peer, arrival.local), (address(1), address(2)));
                assert_eq!(arrival.preread, b"GET");
                assert_eq!((arrival.relayed, arrival.kind), (relays, kind));
            }
        }
    });
}

#[test]
fn a_credit_comes_back_for_each_connection_while_there_is_room() {
    run(async || {
        let receiver = Receiver::new(2);
        let peer = source(&receiver, false).await;
        let one = |done| FromWorker::Returns { credits: 1, done };
        let first = arrival(&receiver, &peer, 1).await;
        assert_eq!(said(&peer).await, one(vec![]));
        let second = arrival(&receiver, &peer, 2).await;
        assert_eq!(said(&peer).await, one(vec![]));
        // Now it holds as many as it may, and one more that was under way.
        let third = arrival(&receiver, &peer, 3).await;
        assert_eq!(
            said(&peer).await,
            FromWorker::Returns { credits: 0, done: vec![] },
            "no credit without room"
        );
        drop(second);
        assert_eq!(said(&peer).await, one(vec![2]), "the credit that was kept back");
        drop(first);
        assert_eq!(said(&peer).await, FromWorker::Returns { credits: 0, done: vec![1] });
        drop(third);
        assert_eq!(said(&peer).await, FromWorker::Returns { credits: 0, done: vec![3] });
        let counts = receiver.counters.snapshot();
        assert_eq!((counts.connections_now, counts.connections), (0, 3));
    });
}

#[test]
fn what_ends_in_one_turn_is_said_in_one_message() {
    run(async || {
        let receiver = Receiver::new(10);
        let peer = source(&receiver, false).await;
        let mut held = Vec::new();
        for id in 1..=3 {
            held.push(arrival(&receiver, &peer, id).await);
            said(&peer).await;
        }
        drop(held);
        assert_eq!(said(&peer).await, FromWorker::Returns { credits: 0, done: vec![1, 2, 3] });
        assert!(is_silent(&peer).await);
    });
}

#[test]
fn a_bundle_without_a_connection_costs_its_source_the_channel() {
    run(async || {
        let receiver = Receiver::new(10);
        let peer = source(&receiver, false).await;
        peer.try_send(&connection(1, Kind::Plain), None).unwrap();
        assert!(!matches!(peer.receive().await, Ok(Some(_))), "the channel is closed");
        assert_eq!(receiver.counters.snapshot().connections, 0);
    });
}

#[test]
fn a_connection_goes_back_to_its_own_gate_under_its_number() {
    run(async || {
        let receiver = Receiver::new(10);
        let (peer, other) = (source(&receiver, false).await, source(&receiver, false).await);
        let arrived = arrival(&receiver, &peer, 5).await;
        said(&peer).await;
        arrived.guard.hand_back(arrived.stream, b"rest".to_vec()).await.unwrap();
        let (message, descriptor) = peer.receive().await.unwrap().unwrap();
        assert_eq!(message, FromWorker::Back { id: 5, preread: Bytes(b"rest".to_vec()) });
        assert!(descriptor.is_some());
        assert_eq!(said(&peer).await, FromWorker::Returns { credits: 0, done: vec![5] });
        assert!(is_silent(&other).await);
    });
}

#[test]
fn what_a_relay_or_a_gate_that_is_gone_had_sent_goes_to_any_gate_without_a_number() {
    run(async || {
        let receiver = Receiver::new(10);
        let (relay, gone) = (source(&receiver, true).await, source(&receiver, false).await);
        let of_relay = arrival(&receiver, &relay, 5).await;
        let of_gone = arrival(&receiver, &gone, 6).await;
        drop(gone);
        tokio::time::sleep(MOMENT).await;
        let stream = of_relay.guard.hand_back(of_relay.stream, vec![]).await.expect_err("there is no gate");
        assert!(stream.as_fd().try_clone_to_owned().is_ok(), "the connection is still there");
        let gate = source(&receiver, false).await;
        of_gone.guard.hand_back(of_gone.stream, vec![]).await.unwrap();
        assert_eq!(said(&gate).await, FromWorker::Back { id: NUMBERLESS, preread: Bytes(vec![]) });
    });
}

#[test]
fn what_a_leaving_gate_refuses_goes_to_its_successor_and_what_it_was_sent_before_arrives() {
    run(async || {
        let receiver = Receiver::new(10);
        let leaving = source(&receiver, false).await;
        let (first, second) = (arrival(&receiver, &leaving, 5).await, arrival(&receiver, &leaving, 6).await);
        let successor = source(&receiver, false).await;
        first.guard.hand_back(first.stream, vec![]).await.unwrap();
        leaving.refuse();
        second.guard.hand_back(second.stream, b"rest".to_vec()).await.unwrap();
        let mut told = Vec::new();
        while let Some((message, _)) = leaving.receive().await.unwrap() {
            told.push(message);
        }
        assert!(told.contains(&FromWorker::Back { id: 5, preread: Bytes(vec![]) }), "{told:?}");
        let back = FromWorker::Back { id: NUMBERLESS, preread: Bytes(b"rest".to_vec()) };
        assert_eq!(said(&successor).await, back);
        // The rest that it has to send is taken.
        leaving.try_send(&connection(7, Kind::Plain), Some(stream().as_fd())).unwrap();
        assert_eq!(receiver.next().await.unwrap().preread, b"GET");
    });
}

#[test]
fn what_a_leaving_gate_refuses_waits_for_a_successor_that_is_attached_later() {
    run(async || {
        let receiver = Receiver::new(10);
        let leaving = source(&receiver, false).await;
        let arrived = arrival(&receiver, &leaving, 5).await;
        leaving.refuse();
        let handing_back = arrived.guard.hand_back(arrived.stream, b"rest".to_vec());
        let handing_back = tokio::task::spawn_local(handing_back);
        tokio::time::sleep(MOMENT).await;
        assert!(!handing_back.is_finished(), "it waits");
        let successor = attached(&receiver, false);
        handing_back.await.unwrap().expect("the successor takes it");
        let back = FromWorker::Back { id: NUMBERLESS, preread: Bytes(b"rest".to_vec()) };
        let told = [said(&successor).await, said(&successor).await];
        assert!(told.contains(&back), "{told:?}");
    });
}

#[test]
fn what_nobody_takes_waits_for_no_relay_nor_in_a_worker_that_retires() {
    run(async || {
        let receiver = Receiver::new(10);
        let leaving = source(&receiver, false).await;
        let arrived = arrival(&receiver, &leaving, 5).await;
        leaving.refuse();
        let handing_back = tokio::task::spawn_local(arrived.guard.hand_back(arrived.stream, vec![]));
        let _relay = source(&receiver, true).await;
        tokio::time::sleep(MOMENT).await;
        assert!(!handing_back.is_finished(), "it waits");
        receiver.drain();
        handing_back.await.unwrap().expect_err("nobody takes it");
    });
}

#[test]
fn what_does_not_fit_into_a_message_is_not_handed_back() {
    run(async || {
        let receiver = Receiver::new(10);
        let peer = source(&receiver, false).await;
        for (bytes, fits) in [(PREREAD_MAX, true), (PREREAD_MAX + 1, false)] {
            let arrived = arrival(&receiver, &peer, 1).await;
            assert_eq!(arrived.guard.hand_back(arrived.stream, vec![0; bytes]).await.is_ok(), fits);
        }
    });
}

#[test]
fn messages_for_gates_do_not_go_to_relays() {
    run(async || {
        let receiver = Receiver::new(10);
        let (gate, relay) = (source(&receiver, false).await, source(&receiver, true).await);
        let message = FromWorker::Rate { address_high: 1, address_low: 2, used_ms: 3 };
        receiver.notify_gates(&message);
        assert_eq!(said(&gate).await, message);
        assert!(is_silent(&relay).await);
    });
}

#[test]
fn a_worker_that_drains_takes_what_is_under_way_and_then_ends() {
    run(async || {
        let receiver = Receiver::new(10);
        let peer = source(&receiver, false).await;
        assert!(!receiver.draining());
        assert!(tokio::time::timeout(MOMENT, receiver.drained()).await.is_err());
        let first = arrival(&receiver, &peer, 1).await;
        said(&peer).await;
        receiver.drain();
        assert!(receiver.draining());
        receiver.drained().await;
        assert_eq!(said(&peer).await, FromWorker::Drain {});
        // Under way: it is taken, and brings no credit.
        let second = arrival(&receiver, &peer, 2).await;
        assert!(is_silent(&peer).await);
        assert!(tokio::time::timeout(MOMENT, receiver.next()).await.is_err(), "its source may send more");
        drop(first);
        assert_eq!(said(&peer).await, FromWorker::Returns { credits: 0, done: vec![1] });
        assert!(tokio::time::timeout(MOMENT, receiver.idle()).await.is_err(), "one is left");
        drop(peer);
        assert!(receiver.next().await.is_none());
        drop(second);
        receiver.idle().await;
    });
}

#[test]
fn a_source_that_comes_while_the_worker_drains_gets_no_credits() {
    run(async || {
        let receiver = Receiver::new(10);
        receiver.drain();
        let (ours, theirs) = sys::seqpacket::pair().unwrap();
        receiver.attach(theirs, false).unwrap();
        let peer: Peer = Channel::new(ours).unwrap();
        assert_eq!(said(&peer).await, FromWorker::Drain {});
        assert!(is_silent(&peer).await);
    });
}

#[test]
fn a_worker_that_drains_hands_back_to_a_gate_that_comes_later() {
    run(async || {
        let receiver = Receiver::new(10);
        let gone = source(&receiver, false).await;
        let arrived = arrival(&receiver, &gone, 5).await;
        receiver.drain();
        drop(gone);
        let later = attached(&receiver, false);
        assert_eq!(said(&later).await, FromWorker::Drain {});
        arrived.guard.hand_back(arrived.stream, b"rest".to_vec()).await.unwrap();
        let back = FromWorker::Back { id: NUMBERLESS, preread: Bytes(b"rest".to_vec()) };
        assert_eq!(said(&later).await, back);
    });
}

#[test]
fn idle_ends_with_the_last_connection() {
    run(async || {
        let receiver = Receiver::new(10);
        receiver.idle().await;
        let peer = source(&receiver, false).await;
        let held = arrival(&receiver, &peer, 1).await;
        let waiting = tokio::task::spawn_local({
            let receiver = receiver.clone();
            async move { receiver.idle().await }
        });
        tokio::time::sleep(MOMENT).await;
        assert!(!waiting.is_finished());
        drop(held);
        waiting.await.unwrap();
    });
}

#[test]
fn counters_count_what_came_and_what_is_there() {
    let counters = Counters::default();
    counters.connected();
    counters.connected();
    counters.disconnected();
    counters.answered();
    let counts = counters.snapshot();
    assert_eq!((counts.connections_now, counts.connections, counts.requests), (1, 2, 1));
    counters.disconnected();
    counters.disconnected();
    assert_eq!(counters.snapshot().connections_now, 0, "never below nothing");
}

#[test]
fn drops_are_counted_by_reason() {
    let drops = DropCounters::default();
    drops.note(|shed| shed.malformed += 1);
    drops.note(|shed| shed.malformed += 1);
    drops.note(|shed| shed.banned += 1);
    let shed = drops.snapshot();
    assert_eq!((shed.malformed, shed.banned, shed.evicted), (2, 1, 0));
}

/// Sends connections of these numbers in one message, with so many descriptors.
fn send_several(peer: &Peer, ids: std::ops::Range<u64>, descriptors: usize) {
    let bundle =
        |id| Bundle { id, peer: address(1), local: address(2), kind: Kind::Plain, preread: Bytes::default() };
    let message = ToWorker::Connections { bundles: Bundles(ids.map(bundle).collect()) };
    let stream = stream();
    peer.try_send_many(&message, &vec![stream.as_fd(); descriptors]).unwrap();
}

#[test]
fn connections_of_one_message_arrive_each_by_itself() {
    run(async || {
        let receiver = Receiver::new(10);
        let peer = source(&receiver, false).await;
        send_several(&peer, 1..4, 3);
        let mut held = Vec::new();
        for _ in 1..4 {
            held.push(receiver.next().await.unwrap());
        }
        assert_eq!(said(&peer).await, FromWorker::Returns { credits: 3, done: vec![] });
        for id in 1..4 {
            drop(held.remove(0));
            assert_eq!(said(&peer).await, FromWorker::Returns { credits: 0, done: vec![id] });
        }
    });
}

#[test]
fn a_message_without_a_descriptor_for_each_of_its_connections_ends_its_channel() {
    run(async || {
        for (bundles, descriptors) in [(2, 1), (2, 3), (0, 0), (0, 1)] {
            let receiver = Receiver::new(10);
            let peer = source(&receiver, false).await;
            send_several(&peer, 0..bundles, descriptors);
            assert!(peer.receive().await.unwrap().is_none(), "{bundles} with {descriptors}");
            assert_eq!(receiver.counters.snapshot().connections, 0);
        }
    });
}

#[test]
fn a_source_that_uses_all_its_credits_gets_more_while_there_is_room() {
    run(async || {
        let receiver = Receiver::new(2000);
        let peer = source(&receiver, false).await;
        let (mut sent, mut window, mut held) = (0, u64::from(CREDITS), Vec::new());
        // 64 is doubled until it is 512.
        for expected in [128, 256, 512, 512] {
            for first in (sent..sent + window).step_by(wire::BUNDLES_MAX) {
                send_several(&peer, first..first + wire::BUNDLES_MAX as u64, wire::BUNDLES_MAX);
            }
            for _ in 0..window {
                held.push(receiver.next().await.unwrap());
            }
            (sent, window) = (sent + window, expected);
            let FromWorker::Returns { credits, .. } = said(&peer).await else { panic!("no credits") };
            assert_eq!(u64::from(credits), window);
        }
        // While it uses few of them, these do not come back until it has 64 again; the worker only says that they have
        // arrived.
        for number in 0..=window - u64::from(CREDITS) {
            held.push(arrival(&receiver, &peer, sent + number).await);
            let credits = u16::from(number == window - u64::from(CREDITS));
            assert_eq!(said(&peer).await, FromWorker::Returns { credits, done: vec![] });
        }
    });
}

#[test]
fn a_source_gets_no_more_credits_than_before_where_they_would_be_more_than_there_is_room_for() {
    run(async || {
        let receiver = Receiver::new(150);
        let peer = source(&receiver, false).await;
        send_several(&peer, 0..CREDITS.into(), CREDITS.into());
        assert_eq!(said(&peer).await, FromWorker::Returns { credits: CREDITS, done: vec![] });
    });
}
