//! A server on 127.0.0.1 for the tests, with a client that speaks raw bytes.
#![allow(dead_code, clippy::unwrap_used)]

pub mod h2c;
pub mod service;
pub mod tls;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use sys::file_version::FileVersion;

use rustix::event::{PollFd, PollFlags, poll};
use site::config::setup::SiteSetup;
use site::{AcceptedClient, ClientLimits, ConnectionEnd, MinRate, RouteOwner, SiteContext, WorkerState};
use wire::LauncherToSite;
use wire::log::{Batch, Record as Logged};
use worker::log::Log;
use worker::receiver::Receiver;

/// The launcher's messages.
pub type Told = Vec<(LauncherToSite, Option<std::os::fd::OwnedFd>)>;

/// The recorded requests: method, target, status, body bytes.
pub type Record = (String, String, u16, u64);

#[derive(Default)]
pub struct Shared {
    pub records: Mutex<Vec<Record>>,
    pub handed_back: Mutex<Vec<Vec<u8>>>,
    pub ended: Mutex<u32>,
    pub relay_started: Mutex<u32>,
    pub relay_dropped: Mutex<u32>,
    /// Late heads, malformed ones, slow bodies, slow responses.
    pub shed: Mutex<[u64; 4]>,
    /// Lines about connections that failed under TLS, and how many clients were reported for tampering.
    pub failed: Mutex<Vec<String>>,
    pub tampered: Mutex<u32>,
    /// Connections ended for abuse of HTTP/2, of which those that ended by now.
    pub abusive: Mutex<u64>,
    pub versions: Mutex<Vec<u8>>,
    drain: tokio::sync::Notify,
}

impl Shared {
    /// Takes what the worker logs until it ends.
    fn read_log(&self, log: &std::os::fd::OwnedFd) {
        let mut buffer = vec![0; wire::MESSAGE_MAX];
        loop {
            let mut polled = [PollFd::new(log, PollFlags::IN)];
            poll(&mut polled, None).unwrap();
            let Ok(Some(got)) = sys::seqpacket::receive(log, &mut buffer) else { return };
            for record in Batch::decode(&buffer[..got.len]).unwrap() {
                match record.unwrap() {
                    Logged::Access(access) => {
                        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                        let record =
                            (text(access.method), text(access.target), access.status, access.body_bytes);
                        self.versions.lock().unwrap().push(access.version);
                        self.records.lock().unwrap().push(record);
                    }
                    Logged::Event { text, .. } if text.starts_with(b"TLS with") => {
                        self.failed.lock().unwrap().push(String::from_utf8_lossy(text).into_owned());
                    }
                    Logged::Event { .. } => {}
                }
            }
        }
    }
}

pub struct Server {
    pub address: SocketAddr,
    pub root: PathBuf,
    pub shared: Arc<Shared>,
}

/// Slow enough for every test that is not about it, with little patience.
pub const RATE: MinRate = MinRate::new(2000, Duration::from_millis(1500));

pub fn limits() -> ClientLimits {
    ClientLimits {
        head_bytes: 8192,
        head_timeout: Duration::from_millis(400),
        body_bytes: 100_000,
        idle_timeout: Duration::from_millis(800),
        stall_timeout: Duration::from_millis(1500),
        body_rate: RATE,
        response_rate: RATE,
        connections: 1000,
        // These tests are about what the server itself makes of strange requests.
        checks: conditioning::checks::Setting::Lenient,
        start_timeout: Duration::from_secs(5),
        idle_stop: None,
    }
}

pub const HSTS: &str = "max-age=31536000";

pub const BIG: usize = 3_000_000;

pub fn big() -> Vec<u8> {
    (0..BIG).map(|i| (i * 31 % 251) as u8).collect()
}

/// Writes a file whose contents are an hour old, and which has settled.
pub fn put(path: &Path, contents: &[u8]) {
    put_new(path, contents);
    settle(path);
}

/// Writes a file whose contents are an hour old.
pub fn put_new(path: &Path, contents: &[u8]) {
    std::fs::write(path, contents).unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
}

/// Waits until one more change of a file would have another time: what has just been changed is not kept.
pub fn settle(path: &Path) {
    let version = || FileVersion::of(&std::fs::metadata(path).unwrap());
    while !version().is_settled(SystemTime::now(), Duration::from_millis(50)) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Server {
    pub fn start() -> Server {
        Server::with(limits())
    }

    pub fn with(limits: ClientLimits) -> Server {
        Server::over(limits, None)
    }

    /// A server whose connections begin with a ClientHello, if there is something to answer it with.
    pub fn over(limits: ClientLimits, tls: Option<Arc<rustls::ServerConfig>>) -> Server {
        Server::start_as(limits, tls, |_| Vec::new())
    }

    /// A server that the launcher has told this; called with the root, for files to be made.
    pub fn told(limits: ClientLimits, told: impl FnOnce(&Path) -> Told) -> Server {
        Server::start_as(limits, None, told)
    }

    fn start_as(
        limits: ClientLimits,
        tls: Option<Arc<rustls::ServerConfig>>,
        told: impl FnOnce(&Path) -> Told,
    ) -> Server {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let base = std::env::temp_dir().join(format!("site-test-{}-{number}", std::process::id()));
        let root = base.join("root");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::create_dir_all(root.join("bare")).unwrap();
        put(&base.join("secret.txt"), b"secret");
        put(&root.join("index.html"), b"<h1>home</h1>");
        put(&root.join("sub/index.html"), b"sub home");
        put(&root.join("small.txt"), b"0123456789");
        put(&root.join("empty.txt"), b"");
        put(&root.join(".hidden"), b"hidden");
        put(&root.join("a b.txt"), b"space");
        put(&root.join("big.bin"), &big());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let mut told = told(&root);
        told.push((LauncherToSite::Index { name: wire::Text::new("index.html") }, None));
        if !told.iter().any(|(message, _)| matches!(message, LauncherToSite::Vhosts {})) {
            told.push((LauncherToSite::Root {}, Some(std::fs::File::open(&root).unwrap().into())));
        }
        let theirs = shared.clone();
        std::thread::spawn(move || run(listener, theirs, limits, told, tls));
        Server { address, root, shared }
    }

    pub fn connect(&self) -> Peer {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        Peer { stream, read: Vec::new() }
    }

    /// A client at this address of the loopback network, whose kernel takes at most a few KiB on its own.
    pub fn connect_from(&self, source: [u8; 4]) -> Peer {
        use rustix::net::{AddressFamily, SocketType, sockopt};
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        sockopt::set_socket_recv_buffer_size(&socket, 4096).unwrap();
        rustix::net::bind(&socket, &SocketAddr::from((source, 0))).unwrap();
        rustix::net::connect(&socket, &self.address).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        Peer { stream, read: Vec::new() }
    }

    /// One request on a connection of its own.
    pub fn ask(&self, text: &str) -> Answer {
        let mut peer = self.connect();
        peer.send(text);
        peer.answer(text.starts_with("HEAD"))
    }

    pub fn get(&self, path: &str, lines: &str) -> Answer {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n{lines}\r\n"))
    }

    /// Has the worker drain, as at its end.
    pub fn drain(&self) {
        self.shared.drain.notify_one();
    }

    /// Waits until the service has got so many requests.
    pub fn started(&self, count: u32) {
        reaches(&self.shared.relay_started, count);
    }

    /// Waits until so many requests of the service have ended.
    pub fn dropped(&self, count: u32) {
        reaches(&self.shared.relay_dropped, count);
    }

    /// The recorded requests, once no more come.
    pub fn records(&self) -> Vec<Record> {
        let (begun, mut count) = (Instant::now(), 0);
        loop {
            std::thread::sleep(Duration::from_millis(150));
            let records = self.shared.records.lock().unwrap().clone();
            let is_over = records.len() == count && (count > 0 || begun.elapsed() > Duration::from_secs(2));
            if is_over {
                return records;
            }
            count = records.len();
        }
    }
}

fn reaches(counter: &Mutex<u32>, count: u32) {
    let begun = Instant::now();
    while *counter.lock().unwrap() < count && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(*counter.lock().unwrap(), count);
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.root.parent().unwrap());
    }
}

fn run(
    listener: std::net::TcpListener,
    shared: Arc<Shared>,
    limits: ClientLimits,
    told: Told,
    config: Option<Arc<rustls::ServerConfig>>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async move {
        let mut setup = SiteSetup::default();
        setup.service("/svc/", SERVICE);
        for (message, descriptor) in told {
            assert!(setup.take(message, descriptor).unwrap().is_none());
        }
        let site = SiteContext::set_up(worker(&shared, limits), setup);
        let service = site.worker.backends.service(SERVICE).unwrap();
        service.attach(service::start(shared.clone())).unwrap();
        let site = Rc::new(site);
        site.watch_files();
        let tls = config.is_some();
        *site.tls.borrow_mut() = config;
        site.set_hsts(tls.then(|| http::HeaderValue::from_static(HSTS)));
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        loop {
            let (stream, peer) = listener.accept().await.unwrap();
            let local = stream.local_addr().unwrap();
            let (site, shared) = (site.clone(), shared.clone());
            tokio::task::spawn_local(async move {
                // As from a gate: with its first request, if there is one.
                let _ = tokio::time::timeout(Duration::from_secs(2), stream.peek(&mut [0])).await;
                let stream = stream.into_std().unwrap().into();
                match site::serve(
                    &site,
                    AcceptedClient {
                        stream,
                        preread: Vec::new(),
                        peer,
                        local,
                        tls,
                        h2c: !tls,
                        relayed: None,
                    },
                )
                .await
                {
                    ConnectionEnd::Closed => {}
                    ConnectionEnd::HandBack { stream, preread } => {
                        let mut stream = TcpStream::from(stream);
                        stream.write_all(b"HANDED BACK").unwrap();
                        shared.handed_back.lock().unwrap().push(preread);
                    }
                }
                let shed = site.shed.snapshot();
                *shared.shed.lock().unwrap() =
                    [shed.late_head, shed.malformed, shed.slow_body, shed.slow_response];
                *shared.abusive.lock().unwrap() = shed.abusive;
                *shared.ended.lock().unwrap() += 1;
            });
        }
    });
}

/// The partition of the service.
pub const SERVICE: u16 = 7;

/// The worker of `a.example` and all other hosts but `other.example`, with a service at `/svc/`.
pub fn worker(shared: &Arc<Shared>, limits: ClientLimits) -> WorkerState {
    let (log, theirs) = sys::seqpacket::pair().unwrap();
    let reader = shared.clone();
    std::thread::spawn(move || reader.read_log(&theirs));
    let receiver = Receiver::new(limits.connections);
    let mut worker = WorkerState::new(limits, receiver.clone(), Log::new(Some(log), 3, 1).unwrap());
    worker.route("*", "/", RouteOwner::Own);
    worker.route("other.example", "/", RouteOwner::Other);
    worker.exempt("127.0.0.0/8".parse().unwrap());
    let tampered = shared.clone();
    worker.on_tampered(move |_| *tampered.tampered.lock().unwrap() += 1);
    let draining = shared.clone();
    tokio::task::spawn_local(async move {
        draining.drain.notified().await;
        receiver.drain();
    });
    worker
}

pub struct Peer<S = TcpStream> {
    pub stream: S,
    read: Vec<u8>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn field(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl<S: Read + Write> Peer<S> {
    pub fn new(stream: S) -> Self {
        Peer { stream, read: Vec::new() }
    }

    pub fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    fn more(&mut self) -> bool {
        let mut buffer = [0; 65536];
        let count = match self.stream.read(&mut buffer) {
            Ok(count) => count,
            // The client's library says so where the server ended without a word of TLS.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => panic!("broken off"),
            Err(error) => panic!("{error}"),
        };
        self.read.extend_from_slice(&buffer[..count]);
        count > 0
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        while self.read.len() < count {
            assert!(self.more(), "ended after {} of {count}", self.read.len());
        }
        self.read.drain(..count).collect()
    }

    fn line(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.read.windows(end.len()).position(|w| w == end) {
                return self.read.drain(..at + end.len()).collect();
            }
            assert!(self.more(), "ended in {:?}", String::from_utf8_lossy(&self.read));
        }
    }

    pub fn answer(&mut self, to_head: bool) -> Answer {
        let head = String::from_utf8(self.line(b"\r\n\r\n")).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Answer { status, head, body: Vec::new() };
        let length = answer.field("content-length").map(|v| v.parse().unwrap());
        if to_head || status == 304 || status == 204 || status == 100 {
        } else if answer.field("transfer-encoding").is_some() {
            loop {
                let line = String::from_utf8(self.line(b"\r\n")).unwrap();
                let size = usize::from_str_radix(line.trim(), 16).unwrap();
                let chunk = self.take(size + 2);
                answer.body.extend_from_slice(&chunk[..size]);
                if size == 0 {
                    break;
                }
            }
        } else if let Some(length) = length {
            answer.body = self.take(length);
        } else {
            while self.more() {}
            answer.body = std::mem::take(&mut self.read);
        }
        answer
    }

    /// Sends a request without body and reads its answer.
    pub fn ask(&mut self, method: &str, path: &str, lines: &str) -> Answer {
        self.send(&format!("{method} {path} HTTP/1.1\r\nHost: a.example\r\n{lines}\r\n"));
        self.answer(method == "HEAD")
    }

    /// Whether the server has closed its side, with nothing more said.
    pub fn closed(&mut self) -> bool {
        self.read.is_empty() && !self.more()
    }

    /// The bytes that the server sends until it closes.
    pub fn rest(mut self) -> Vec<u8> {
        while self.more() {}
        self.read
    }
}
