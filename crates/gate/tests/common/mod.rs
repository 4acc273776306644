//! A gate between real sockets: the launcher's part, the workers' and the clients' are played by the tests.
//!
//! Runs in: tests. Everything shares one thread, as the gate does in its own process.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use conditioning::AddressRange;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use wire::{ChildToLauncher, Conditioning, Counters, FromWorker, LauncherToGate, Message, Shed, Text};
use worker::ProcessFault;
use worker::channel::Channel;
use worker::receiver::{Arrival, Receiver};

/// The limits that tests set.
pub struct Limits {
    pub head_bytes: u32,
    pub head_timeout_ms: u32,
    pub start_timeout_ms: u32,
    pub connections: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { head_bytes: 8192, head_timeout_ms: 10_000, start_timeout_ms: 10_000, connections: 1000 }
    }
}

/// A running gate.
pub struct Gate {
    pub control: Channel<ChildToLauncher, LauncherToGate>,
    pub address: SocketAddr,
    /// The logger's end.
    pub log: OwnedFd,
    pub run: JoinHandle<Result<(), ProcessFault>>,
}

/// Runs a test; one that hangs fails.
pub fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        tokio::time::timeout(Duration::from_secs(20), test).await.expect("the test ends");
    });
}

/// A listener on a port of its own.
pub fn listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

impl Gate {
    /// Starts a gate for a.test (partition 1), b.test (2) with b.test/app (3), each of a site of that number.
    pub async fn start(limits: Limits) -> Self {
        Self::start_with(limits, Vec::new()).await
    }

    /// As [`Self::start`], with more to be said before `Commit`.
    pub async fn start_with(limits: Limits, more: Vec<LauncherToGate>) -> Self {
        let listener = listener();
        let gate = Self::begin(limits, &listener).await;
        gate.set_up(&listener, more).await;
        gate
    }

    /// A gate that has been told nothing but its limits.
    pub async fn begin(limits: Limits, listener: &TcpListener) -> Self {
        let (control, inherited) = sys::seqpacket::pair().unwrap();
        let (log, to_log) = sys::seqpacket::pair().unwrap();
        let run = tokio::task::spawn_local(gate::run(worker::ProcessStart {
            control: inherited,
            say: None,
            log: Some(to_log),
        }));
        let (control, address) = (Channel::new(control).unwrap(), listener.local_addr().unwrap());
        let gate = Self { control, address, log, run };
        gate.say(LauncherToGate::Limits {
            head_bytes: limits.head_bytes,
            head_timeout_ms: limits.head_timeout_ms,
            start_timeout_ms: limits.start_timeout_ms,
            connections: limits.connections,
            flush_ms: 10,
        })
        .await;
        assert_eq!(gate.answer().await, ChildToLauncher::TakesRetire {});
        gate
    }

    /// Says where a listener leads, and more, and has it accept.
    pub async fn set_up(&self, listener: &TcpListener, more: Vec<LauncherToGate>) {
        let listen = LauncherToGate::Listen { index: 0 };
        self.control.send(&listen, Some(listener.as_fd())).await.unwrap();
        for (host, path, partition) in [("a.test", "/", 1), ("b.test", "/", 2), ("b.test", "/app", 3)] {
            self.say(LauncherToGate::Route {
                listener: 0,
                host: Text::new(host),
                path: Text::new(path),
                partition,
                site: partition,
            })
            .await;
        }
        for message in more {
            self.say(message).await;
        }
        self.say(LauncherToGate::Commit {}).await;
        assert_eq!(self.answer().await, ChildToLauncher::Ready {});
    }

    pub async fn say(&self, message: LauncherToGate) {
        self.control.send(&message, None).await.unwrap();
    }

    /// The gate's next message, but for those that it sends by itself about partitions that are wanted, or in use.
    pub async fn answer(&self) -> ChildToLauncher {
        loop {
            match self.control.receive().await.unwrap().unwrap().0 {
                ChildToLauncher::Wanted { .. } | ChildToLauncher::Used { .. } => {}
                other => return other,
            }
        }
    }

    /// Attaches a worker that takes connections.
    pub async fn worker(&self, partition: u16) -> Rc<Receiver> {
        let receiver = Receiver::new(1000);
        receiver.attach(self.line(partition).await, false).unwrap();
        receiver
    }

    /// Attaches a worker of which the test holds the bare channel.
    pub async fn line(&self, partition: u16) -> OwnedFd {
        let (ours, theirs) = sys::seqpacket::pair().unwrap();
        let attach = LauncherToGate::Attach { partition };
        self.control.send(&attach, Some(theirs.as_fd())).await.unwrap();
        ours
    }

    /// Connects and sends.
    pub async fn client(&self, bytes: &[u8]) -> TcpStream {
        let mut client = TcpStream::connect(self.address).await.unwrap();
        client.write_all(bytes).await.unwrap();
        client
    }

    /// As [`Self::client`], from an address of 127.0.0.0/8.
    pub async fn client_from(&self, from: [u8; 4], bytes: &[u8]) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        let mut client = socket.connect(self.address).await.unwrap();
        client.write_all(bytes).await.unwrap();
        client
    }

    /// Sends, and reads the answer to its end.
    pub async fn ask(&self, bytes: &[u8]) -> String {
        read_all(&mut self.client(bytes).await).await
    }

    pub async fn counters(&self) -> Counters {
        self.say(LauncherToGate::Report {}).await;
        match self.answer().await {
            ChildToLauncher::Counters { counters } => counters,
            other => panic!("{other:?}"),
        }
    }

    /// The counts of drops, and the heaviest ranges: which, how many are held, how many wait.
    pub async fn shed(&self) -> (Shed, Vec<(String, u32, u32)>) {
        self.say(LauncherToGate::ReportShed {}).await;
        let mut ranges = Vec::new();
        loop {
            match self.answer().await {
                ChildToLauncher::TopRange { address_high, address_low, bits, held, waiting } => {
                    let range = AddressRange::from_parts(address_high, address_low, bits).unwrap();
                    ranges.push((range.to_string(), held, waiting));
                }
                ChildToLauncher::Shed { shed } => return (shed, ranges),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Waits until what was shed is so.
    pub async fn until(&self, so: impl Fn(&Shed) -> bool) {
        while !so(&self.shed().await.0) {
            pause(5).await;
        }
    }
}

/// Policies that limit nothing.
pub fn policies() -> Conditioning {
    Conditioning {
        first_byte_timeout_ms: 10_000,
        body_min_rate: 0,
        response_min_rate: 0,
        recency: true,
        checks: wire::Checks::Lenient,
        share_8: 1000,
        share_16: 1000,
        share_24: 1000,
        share_v6_32: 1000,
        share_v6_48: 1000,
        share_v6_56: 1000,
        rate_max: 0,
        rate_burst: 0,
        ban_after: 0,
        ban_time_ms: 0,
    }
}

/// The message that orders these policies.
pub fn conditioning_message(conditioning: Conditioning) -> LauncherToGate {
    LauncherToGate::Conditioning { conditioning }
}

/// Whether a client's connection has been closed without a word.
pub async fn is_closed(client: &mut TcpStream) -> bool {
    !matches!(client.read(&mut [0; 1]).await, Ok(1..))
}

/// Reads to the end.
pub async fn read_all(client: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

/// Says that a worker takes as many connections more, by its bare channel, and that these have ended.
pub fn grant(line: &OwnedFd, credits: u16, done: Vec<u64>) {
    let mut message = Vec::new();
    FromWorker::Returns { credits, done }.encode(&mut message);
    sys::seqpacket::send(line, &message, None).unwrap();
}

/// A whole head for `host`.
pub fn get(host: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
}

/// Takes the next connection of a worker, answers it with `word` and closes it.
pub async fn answer(receiver: &Receiver, word: &str) -> Vec<u8> {
    let arrival = receiver.next().await.expect("a connection");
    let (mut stream, preread, _lease) = open(arrival);
    let mut bytes = vec![0; 4096];
    let count = if preread.is_empty() { stream.read(&mut bytes).await.unwrap() } else { 0 };
    stream.write_all(word.as_bytes()).await.unwrap();
    bytes.truncate(count);
    [preread, bytes].concat()
}

/// The connection of an arrival, to be read from and written to.
pub fn open(arrival: Arrival) -> (TcpStream, Vec<u8>, worker::receiver::ConnectionGuard) {
    let stream = std::net::TcpStream::from(arrival.stream);
    (TcpStream::from_std(stream).unwrap(), arrival.preread, arrival.guard)
}

/// Waits for some milliseconds.
pub async fn pause(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}
