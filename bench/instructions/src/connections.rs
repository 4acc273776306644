//! Connections through a gate, with a request each.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

use wire::{Checks, ChildToLauncher, Conditioning, LauncherToGate, Text};
use worker::channel::Channel;

use crate::behind;
use crate::warm::warm_up;

/// Which policies a gate has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policies {
    /// All, also those that are not on by default.
    On,
    /// As few as can be.
    Off,
}

/// Has a gate pass `count` connections on, one after the other, after some that are not counted. The gate is in this
/// thread; `counted` and what is returned are as for [`crate::requests::serve`].
pub fn pass(policies: Policies, count: u32, counted: impl Fn() -> u64) -> Vec<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let (control, inherited) = sys::seqpacket::pair().unwrap();
        let gate = tokio::task::spawn_local(gate::run(worker::ProcessStart {
            control: inherited,
            say: None,
            log: None,
        }));
        let control = Channel::new(control).unwrap();
        let address = start(&control, policies).await;
        let (warm, go) = warm_up();
        let client = std::thread::spawn(move || warm.then(count, || ask(address)));
        let passing = async { _ = gate.await };
        let work = go.count(count, passing, counted).await;
        client.join().unwrap();
        work
    })
}

type Control = Channel<ChildToLauncher, LauncherToGate>;

/// Says what the launcher says to a gate; where the gate listens.
async fn start(control: &Control, policies: Policies) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let (head_timeout_ms, start_timeout_ms) = (600_000, 600_000);
    let limits = LauncherToGate::Limits {
        head_bytes: 16 << 10,
        head_timeout_ms,
        start_timeout_ms,
        connections: 1000,
        flush_ms: 1000,
    };
    say(control, limits, None).await;
    say(control, LauncherToGate::Conditioning { conditioning: conditioning(policies) }, None).await;
    if policies == Policies::Off {
        say(control, LauncherToGate::Exempt { network: Text::new("0.0.0.0/0") }, None).await;
    }
    say(control, LauncherToGate::Listen { index: 0 }, Some(listener.into())).await;
    let (host, path) = (Text::new("a.example"), Text::new("/"));
    say(control, LauncherToGate::Route { listener: 0, host, path, partition: 1, site: 1 }, None).await;
    say(control, LauncherToGate::Commit {}, None).await;
    for word in [ChildToLauncher::TakesRetire {}, ChildToLauncher::Ready {}] {
        assert_eq!(control.receive().await.unwrap().unwrap().0, word);
    }
    say(control, LauncherToGate::Attach { partition: 1 }, Some(behind::worker(false, true))).await;
    address
}

async fn say(control: &Control, message: LauncherToGate, descriptor: Option<OwnedFd>) {
    control.send(&message, descriptor.as_ref().map(AsFd::as_fd)).await.unwrap();
}

fn conditioning(policies: Policies) -> Conditioning {
    let is_on = policies == Policies::On;
    let share = if is_on { 250 } else { 1000 };
    Conditioning {
        first_byte_timeout_ms: 600_000,
        body_min_rate: 0,
        response_min_rate: 0,
        recency: is_on,
        checks: if is_on { Checks::Strict } else { Checks::Lenient },
        share_8: share,
        share_16: share,
        share_24: share,
        share_v6_32: share,
        share_v6_48: share,
        share_v6_56: share,
        rate_max: if is_on { 1_000_000 } else { 0 },
        rate_burst: if is_on { 1_000_000 } else { 0 },
        ban_after: if is_on { 20 } else { 0 },
        ban_time_ms: 600_000,
    }
}

/// One connection with one request.
fn ask(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\nUser-Agent: a client\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, behind::RESPONSE);
}
