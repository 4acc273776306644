//! The policies of a gate: who goes, who is served next, who waits, who is not heard.
//!
//! Runs in: tests. The clients are several addresses of 127.0.0.0/8.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::time::{Duration, Instant};

use common::{
    Gate, Limits, answer, conditioning_message, get, grant, is_closed, open, pause, policies, read_all, run,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::{Conditioning, FromWorker, LauncherToGate, Message, Text};

const HEAVY: [u8; 4] = [127, 1, 0, 1];
const LIGHT: [u8; 4] = [127, 64, 0, 1];

/// The peers of what a bare worker has received, in order.
async fn received(line: &std::os::fd::OwnedFd, count: usize) -> Vec<wire::Bundle> {
    let (mut buffer, mut got) = (vec![0; wire::MESSAGE_MAX], Vec::new());
    while got.len() < count {
        let mut streams = Vec::new();
        match sys::seqpacket::receive_many(line, &mut buffer, &mut streams) {
            Ok(Some(len)) => {
                let before = got.len();
                match wire::ToWorker::decode(&buffer[..len]).unwrap() {
                    wire::ToWorker::Connection { bundle } => got.push(bundle),
                    wire::ToWorker::Connections { bundles } => got.extend(bundles.0),
                }
                assert_eq!(got.len() - before, streams.len(), "a descriptor for each");
            }
            Ok(None) => panic!("the gate has closed the channel"),
            Err(_) => pause(2).await,
        }
    }
    got
}

#[test]
fn the_oldest_incomplete_connection_of_the_heaviest_range_makes_room() {
    run(async {
        let gate = Gate::start(Limits { connections: 6, ..Limits::default() }).await;
        let mut light = gate.client_from(LIGHT, b"GET").await;
        let mut heavy = Vec::new();
        for last in 1..=5 {
            heavy.push(gate.client_from([127, 1, 0, last % 2], b"GET").await);
            gate.until(|shed| shed.incomplete_now == 1 + u32::from(last)).await;
        }
        // Those of one range push each other out, the oldest one first.
        for next in 0..3 {
            heavy.push(gate.client_from(HEAVY, b"GET").await);
            gate.until(|shed| shed.evicted == next + 1).await;
        }
        let (shed, ranges) = gate.shed().await;
        assert_eq!((shed.evicted, shed.incomplete_now), (3, 6));
        assert_eq!(ranges[0], ("127.1.0.1/32".into(), 3, 0), "{ranges:?}");
        // 127.1.0.1 had three of the first five.
        for (number, client) in heavy.iter_mut().enumerate() {
            let closed = tokio::time::timeout(Duration::from_millis(20), is_closed(client)).await.is_ok();
            assert_eq!(closed, [0, 2, 4].contains(&number), "{number}");
        }
        // The client from elsewhere that was there first is served.
        let worker = gate.worker(1).await;
        light.write_all(&get("a.test")[3..]).await.unwrap();
        answer(&worker, "light").await;
        assert_eq!(read_all(&mut light).await, "light");
    });
}

#[test]
fn a_thousand_incomplete_connections_keep_nobody_out() {
    run(async {
        let gate = Gate::start(Limits { connections: 100, ..Limits::default() }).await;
        let worker = gate.worker(1).await;
        let mut attackers = Vec::new();
        for number in 0..500_u16 {
            let [high, low] = number.to_be_bytes();
            attackers.push(gate.client_from([127, 1, high, low.max(1)], b"GET / HT").await);
            if number % 50 == 0 {
                let mut client = gate.client_from(LIGHT, &get("a.test")).await;
                answer(&worker, "served").await;
                assert_eq!(read_all(&mut client).await, "served");
            }
        }
        let (shed, _) = gate.shed().await;
        assert!(shed.evicted >= 400 && shed.incomplete_now <= 100, "{shed:?}");
        assert!(gate.counters().await.connections_now <= 100);
    });
}

#[test]
fn a_report_names_few_ranges_and_leaves_nobody_out() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let mut clients = Vec::new();
        for network in 1..=40_u8 {
            for _ in 0..if network == 7 { 3 } else { 1 } {
                clients.push(gate.client_from([127, network, 0, 1], b"GET").await);
            }
        }
        gate.until(|shed| shed.incomplete_now == 42).await;
        let (_, ranges) = gate.shed().await;
        // Ranges that weigh little are told of as a larger one.
        assert!((1..=16).contains(&ranges.len()), "{ranges:?}");
        assert_eq!(ranges.iter().map(|(_, held, _)| held).sum::<u32>(), 42, "{ranges:?}");
    });
}

#[test]
fn silence_has_a_deadline_of_its_own() {
    run(async {
        let conditioning = Conditioning { first_byte_timeout_ms: 200, ..policies() };
        let gate = Gate::start_with(Limits::default(), vec![conditioning_message(conditioning)]).await;
        let begun = Instant::now();
        let (mut silent, mut slow) = (gate.client(b"").await, gate.client(b"GET").await);
        assert_eq!(read_all(&mut silent).await, "");
        assert!(begun.elapsed() >= Duration::from_millis(190));
        let more = tokio::time::timeout(Duration::from_millis(200), slow.read(&mut [0; 1])).await;
        assert!(more.is_err(), "a head that has begun has more time");
        assert_eq!(gate.shed().await.0.late_first_byte, 1);
    });
}

#[test]
fn the_least_recently_served_range_is_next() {
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let line = gate.line(1).await;
        let mut waiting = Vec::new();
        for _ in 0..20 {
            waiting.push(gate.client_from(HEAVY, &get("a.test")).await);
        }
        gate.until(|shed| shed.waiting_now == 20).await;
        grant(&line, 5, vec![]);
        assert!(
            received(&line, 5).await.iter().all(|bundle| bundle.peer.ip() == std::net::IpAddr::from(HEAVY))
        );
        waiting.push(gate.client_from(LIGHT, &get("a.test")).await);
        gate.until(|shed| shed.waiting_now == 16).await;
        grant(&line, 1, vec![]);
        assert_eq!(received(&line, 1).await[0].peer.ip(), std::net::IpAddr::from(LIGHT));
    });
}

#[test]
fn first_come_first_served_where_that_is_ordered() {
    run(async {
        let conditioning = Conditioning { recency: false, ..policies() };
        let gate = Gate::start_with(Limits::default(), vec![conditioning_message(conditioning)]).await;
        let line = gate.line(1).await;
        let mut waiting = Vec::new();
        for (count, from) in [HEAVY, HEAVY, LIGHT, HEAVY].into_iter().enumerate() {
            waiting.push(gate.client_from(from, &get("a.test")).await);
            gate.until(|shed| shed.waiting_now == count as u32 + 1).await;
        }
        grant(&line, 4, vec![]);
        let peers: Vec<_> = received(&line, 4).await.iter().map(|bundle| bundle.peer).collect();
        let clients: Vec<_> = waiting.iter().map(|client| client.local_addr().unwrap()).collect();
        assert_eq!(peers, clients);
    });
}

#[test]
fn a_range_has_its_share_and_waits_for_more() {
    run(async {
        // A /24 may have a tenth of 40.
        let conditioning = Conditioning { share_24: 100, ..policies() };
        let limits = Limits { connections: 40, start_timeout_ms: 400, ..Limits::default() };
        let gate = Gate::start_with(limits, vec![conditioning_message(conditioning)]).await;
        let line = gate.line(1).await;
        grant(&line, 100, vec![]);
        let mut clients = Vec::new();
        for last in 1..=6 {
            clients.push(gate.client_from([127, 1, 0, last], &get("a.test")).await);
        }
        let first = received(&line, 4).await;
        gate.until(|shed| shed.delayed == 2).await;
        // Others are not held up.
        clients.push(gate.client_from(LIGHT, &get("a.test")).await);
        assert_eq!(received(&line, 1).await[0].peer.ip(), std::net::IpAddr::from(LIGHT));
        let (shed, ranges) = gate.shed().await;
        assert_eq!((shed.waiting_now, shed.over_share), (2, 0));
        assert!(ranges.contains(&("127.1.0.0/24".into(), 4, 0)), "{ranges:?}");
        // One ends, one goes on; the other one has waited in vain.
        grant(&line, 0, vec![first[0].id]);
        let fifth = received(&line, 1).await.remove(0).peer;
        let refused = clients[..6].iter_mut().find(|client| {
            let address = client.local_addr().unwrap();
            address != fifth && first.iter().all(|bundle| bundle.peer != address)
        });
        let got = read_all(refused.unwrap()).await;
        assert!(got.starts_with("HTTP/1.1 503 ") && got.contains("\r\nRetry-After: 5\r\n"), "{got}");
        assert_eq!(gate.shed().await.0.over_share, 1);
    });
}

#[test]
fn what_a_dead_worker_held_is_released() {
    run(async {
        let conditioning = Conditioning { share_24: 100, ..policies() };
        let limits = Limits { connections: 10, ..Limits::default() };
        let gate = Gate::start_with(limits, vec![conditioning_message(conditioning)]).await;
        let line = gate.line(1).await;
        grant(&line, 100, vec![]);
        let _first = gate.client(&get("a.test")).await;
        received(&line, 1).await;
        let mut second = gate.client(&get("a.test")).await;
        gate.until(|shed| shed.delayed == 1).await;
        drop(line);
        let successor = gate.worker(1).await;
        answer(&successor, "second").await;
        assert_eq!(read_all(&mut second).await, "second");
    });
}

#[test]
fn more_than_the_rate_is_429() {
    run(async {
        let conditioning = Conditioning { rate_max: 1, rate_burst: 3, ..policies() };
        let exempt = LauncherToGate::Exempt { network: Text::new("127.64.0.0/16") };
        let gate =
            Gate::start_with(Limits::default(), vec![conditioning_message(conditioning), exempt]).await;
        let nobody = get("nobody.test");
        for count in 0..6 {
            let got = read_all(&mut gate.client_from(HEAVY, &nobody).await).await;
            let expected = if count < 3 { "HTTP/1.1 404 " } else { "HTTP/1.1 429 " };
            assert!(got.starts_with(expected), "{got}");
            assert_eq!(count >= 3, got.contains("\r\nRetry-After: 1\r\n"), "{got}");
            let got = read_all(&mut gate.client_from(LIGHT, &nobody).await).await;
            assert!(got.starts_with("HTTP/1.1 404 "), "an exempt client: {got}");
        }
        assert_eq!(gate.shed().await.0.over_rate, 3);
    });
}

#[test]
fn an_offence_that_a_worker_tells_of_counts_for_its_own_partition() {
    run(async {
        let gate = Gate::start_with(
            Limits::default(),
            vec![conditioning_message(Conditioning { ban_after: 2, ban_time_ms: 60_000, ..policies() })],
        )
        .await;
        let (worker, line) = (gate.worker(2).await, gate.line(1).await);
        let (address_high, address_low) = wire::halves(HEAVY.into());
        let mut message = Vec::new();
        FromWorker::Offence { address_high, address_low }.encode(&mut message);
        sys::seqpacket::send(&line, &message, None).unwrap();
        grant(&line, 10, vec![]);
        let _first = gate.client_from(HEAVY, &get("a.test")).await;
        let _taken = received(&line, 1).await;
        sys::seqpacket::send(&line, &message, None).unwrap();
        grant(&line, 1, vec![]);
        let _light = gate.client_from(LIGHT, &get("a.test")).await;
        let _taken = received(&line, 1).await;
        assert_eq!(read_all(&mut gate.client_from(HEAVY, &get("a.test")).await).await, "");
        let mut elsewhere = gate.client_from(HEAVY, &get("b.test")).await;
        answer(&worker, "b").await;
        assert_eq!(read_all(&mut elsewhere).await, "b");
    });
}

#[test]
fn what_a_worker_says_of_a_client_counts_for_its_own_partition() {
    run(async {
        let conditioning = Conditioning { rate_max: 1, rate_burst: 100, ban_after: 1, ..policies() };
        let exempt = LauncherToGate::Exempt { network: Text::new("127.64.0.0/16") };
        let gate =
            Gate::start_with(Limits::default(), vec![conditioning_message(conditioning), exempt]).await;
        let (worker, line) = (gate.worker(2).await, gate.line(1).await);
        let says = |client: [u8; 4], used_ms| {
            let (address_high, address_low) = wire::halves(client.into());
            let mut message = Vec::new();
            FromWorker::Rate { address_high, address_low, used_ms }.encode(&mut message);
            sys::seqpacket::send(&line, &message, None).unwrap();
        };
        // Of nobody who is exempt, and of no more than a bucket.
        says(LIGHT, u32::MAX);
        says([127, 2, 0, 1], 1);
        says(HEAVY, u32::MAX);
        grant(&line, 10, vec![]);
        let (mut light, mut other) = (
            gate.client_from(LIGHT, &get("a.test")).await,
            gate.client_from([127, 2, 0, 1], &get("a.test")).await,
        );
        let _both = received(&line, 2).await;
        for _ in 0..3 {
            let got = read_all(&mut gate.client_from(HEAVY, &get("a.test")).await).await;
            assert!(got.starts_with("HTTP/1.1 429 ") && got.contains("\r\nRetry-After: 1\r\n"), "{got}");
            // Elsewhere it is as welcome as before: that was no offence either.
            let mut elsewhere = gate.client_from(HEAVY, &get("b.test")).await;
            answer(&worker, "b").await;
            assert_eq!(read_all(&mut elsewhere).await, "b");
        }
        let (shed, _) = gate.shed().await;
        assert_eq!((shed.over_rate, shed.bans), (3, 0));
        drop(line);
        // Its channel is gone, and with it the connections that it held.
        assert!(is_closed(&mut light).await && is_closed(&mut other).await);
    });
}

#[test]
fn who_offends_again_and_again_is_not_heard() {
    run(async {
        let conditioning = Conditioning { ban_after: 3, ban_time_ms: 400, ..policies() };
        let gate = Gate::start_with(Limits::default(), vec![conditioning_message(conditioning)]).await;
        let worker = gate.worker(1).await;
        for _ in 0..3 {
            let got = read_all(&mut gate.client_from(HEAVY, b"\x00\r\n\r\n").await).await;
            assert!(got.starts_with("HTTP/1.1 400 "), "{got}");
        }
        let banned = Instant::now();
        // Not even a good request, until the ban is over.
        let mut client = gate.client_from(HEAVY, &get("a.test")).await;
        assert!(is_closed(&mut client).await);
        let mut other = gate.client_from(LIGHT, &get("a.test")).await;
        answer(&worker, "other").await;
        assert_eq!(read_all(&mut other).await, "other");
        let (shed, _) = gate.shed().await;
        assert_eq!((shed.malformed, shed.bans, shed.banned, shed.banned_now), (3, 1, 1, 1));
        tokio::time::sleep_until((banned + Duration::from_millis(450)).into()).await;
        let mut client = gate.client_from(HEAVY, &get("a.test")).await;
        answer(&worker, "forgiven").await;
        assert_eq!(read_all(&mut client).await, "forgiven");
    });
}

#[test]
fn behind_a_load_balancer_the_address_says_nothing() {
    run(async {
        let conditioning = Conditioning {
            share_8: 1,
            rate_max: 1,
            rate_burst: 1,
            ban_after: 1,
            ban_time_ms: 10_000,
            ..policies()
        };
        let shared = LauncherToGate::SharedConnections { listener: 0 };
        let gate =
            Gate::start_with(Limits::default(), vec![conditioning_message(conditioning), shared]).await;
        let line = gate.line(1).await;
        grant(&line, 100, vec![]);
        let mut clients = Vec::new();
        for _ in 0..5 {
            assert!(gate.ask(b"\x00\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
            clients.push(gate.client(&get("a.test")).await);
        }
        received(&line, 5).await;
        let (shed, _) = gate.shed().await;
        assert_eq!((shed.over_rate, shed.bans, shed.delayed), (0, 0, 0));
    });
}

#[test]
fn strange_heads_are_refused_by_setting() {
    run(async {
        let beck = format!("GET {}x HTTP/1.1\r\nHost: a.test\r\n\r\n", "/".repeat(2000));
        let odd = b"GET /%2e%2e/%00 HTTP/1.1\r\nHost: a.test\r\n\r\n".to_vec();
        let gate = Gate::start_with(Limits::default(), vec![conditioning_message(policies())]).await;
        assert!(gate.ask(beck.as_bytes()).await.starts_with("HTTP/1.1 400 "));
        let conditioning = Conditioning { checks: wire::Checks::Strict, ..policies() };
        let gate = Gate::start_with(Limits::default(), vec![conditioning_message(conditioning)]).await;
        let worker = gate.worker(1).await;
        assert!(gate.ask(&odd).await.starts_with("HTTP/1.1 400 "));
        assert_eq!(gate.shed().await.0.malformed, 1);
        let mut client = gate.client(&get("a.test")).await;
        let (mut stream, ..) = open(worker.next().await.unwrap());
        stream.write_all(b"fine").await.unwrap();
        drop(stream);
        let _ = client.read(&mut [0; 4]).await;
    });
}
