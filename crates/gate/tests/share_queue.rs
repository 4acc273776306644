//! How many connections wait until their range has room.
//!
//! Runs in: tests. The clients are addresses of 127.0.0.0/8.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{Gate, Limits, conditioning_message, get, grant, policies, read_all, run};
use wire::Conditioning;

#[test]
fn a_quarter_of_the_connections_may_wait_for_their_share_and_the_next_is_503() {
    run(async {
        // A /24 may have a tenth of 40.
        let conditioning = Conditioning { share_24: 100, ..policies() };
        let limits = Limits { connections: 40, start_timeout_ms: 20_000, ..Limits::default() };
        let gate = Gate::start_with(limits, vec![conditioning_message(conditioning)]).await;
        let worker = gate.line(1).await;
        grant(&worker, 100, Vec::new());
        let mut clients = Vec::new();
        for last in 1..=14 {
            clients.push(gate.client_from([127, 1, 0, last], &get("a.test")).await);
        }
        gate.until(|shed| shed.delayed == 10).await;
        let mut late = gate.client_from([127, 1, 0, 15], &get("a.test")).await;
        let got = read_all(&mut late).await;
        assert!(got.starts_with("HTTP/1.1 503 "), "{got}");
        let (shed, _) = gate.shed().await;
        assert_eq!((shed.delayed, shed.waiting_now), (10, 10));
    });
}
