//! A gate that has run out of descriptors: a program of its own, as the limit is one of the whole process.
//!
//! Runs in: tests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

use common::{Gate, Limits, answer, get, is_closed, pause, run};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use tokio::io::AsyncWriteExt as _;

#[test]
fn out_of_descriptors_the_oldest_incomplete_connections_go() {
    setrlimit(Resource::Nofile, Rlimit { current: Some(200), maximum: Some(200) }).unwrap();
    run(async {
        let gate = Gate::start(Limits::default()).await;
        let mut incomplete = Vec::new();
        for _ in 0..20 {
            incomplete.push(gate.client(b"GET").await);
        }
        gate.until(|shed| shed.incomplete_now == 20).await;
        // They are in the queue of the listening socket; the gate has had no turn since.
        let mut late: Vec<_> = (0..5).map(|_| std::net::TcpStream::connect(gate.address).unwrap()).collect();
        late.iter_mut().for_each(|client| client.write_all(&get("a.test")).unwrap());
        let fillers: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        gate.until(|shed| shed.waiting_now == 5).await;
        // One goes for each that comes, and one more: without a descriptor, the kernel does not say whether anybody
        // waits.
        let (shed, _) = gate.shed().await;
        assert!((5..=6).contains(&shed.evicted), "{shed:?}");
        for client in &mut incomplete[..5] {
            assert!(is_closed(client).await);
        }
        // With nobody left who could go, the gate rests between attempts, and does not spin.
        for client in &mut incomplete[5..] {
            let _ = client.shutdown().await;
        }
        drop(incomplete);
        gate.until(|shed| shed.incomplete_now == 0).await;
        let mut more: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        // The client's own end of one more connection.
        more.pop();
        let unheard = std::net::TcpStream::connect(gate.address).unwrap();
        let before = clock_gettime(ClockId::ProcessCPUTime);
        pause(1000).await;
        let used = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime) - before).unwrap();
        assert!(used < Duration::from_millis(400), "{used:?} of processor time in a second");
        drop((unheard, more));
        drop(fillers);
        let worker = gate.worker(1).await;
        for _ in 0..5 {
            answer(&worker, "late").await;
        }
    });
}
