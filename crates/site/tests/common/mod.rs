//! A server on 127.0.0.1 for the tests, with a client that speaks raw bytes.
#![allow(dead_code, clippy::unwrap_used)]

pub mod h2c;
pub mod tls;

use std::future::pending;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use request::path::NormalPath;
use site::config::setup::Setup;
use site::{
    Access, BodyError, BoundedBody, Client, ConnInfo, Ended, Limits, MinRate, Partition, ResponseBody, Site,
};
use wire::LauncherToSite;

/// What the launcher says.
pub type Told = Vec<(LauncherToSite, Option<std::os::fd::OwnedFd>)>;

/// What was recorded: method, target, status, body bytes.
pub type Record = (String, String, u16, u64);

#[derive(Default)]
pub struct Shared {
    pub records: Mutex<Vec<Record>>,
    pub handed_back: Mutex<Vec<Vec<u8>>>,
    pub ended: Mutex<u32>,
    pub relay_dropped: Mutex<u32>,
    /// Late heads, malformed ones, slow bodies, slow responses.
    pub shed: Mutex<[u64; 4]>,
    /// What was told of connections that failed under TLS, and how many were tampered with.
    pub failed: Mutex<Vec<String>>,
    pub tampered: Mutex<u32>,
    /// Connections ended for abuse of HTTP/2, of which those that ended by now.
    pub abusive: Mutex<u64>,
    pub versions: Mutex<Vec<u8>>,
    pub drain: tokio::sync::Notify,
    pub draining: std::sync::atomic::AtomicBool,
}

struct Site1 {
    shared: Arc<Shared>,
    limits: Limits,
}

struct OnDrop(Arc<Shared>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        *self.0.relay_dropped.lock().unwrap() += 1;
    }
}

impl Partition for Site1 {
    fn owns(&self, host: &[u8], _: &str) -> bool {
        !host.eq_ignore_ascii_case(b"other.example")
    }

    fn service(&self, path: &NormalPath<'_>) -> Option<usize> {
        path.is_below("/svc/").then_some(7)
    }

    async fn relay(
        &self,
        service: usize,
        ends: ConnInfo,
        request: Request<BoundedBody>,
    ) -> Response<ResponseBody> {
        assert_eq!(service, 7);
        let _guard = OnDrop(self.shared.clone());
        let (parts, body) = request.into_parts();
        match parts.uri.path() {
            "/svc/echo" => match body.collect().await {
                Ok(body) => Response::new(ResponseBody::Full(body.to_bytes())),
                Err(BodyError::TooLarge { .. } | BodyError::Slow) => {
                    site::http::response::error(http::StatusCode::BAD_GATEWAY)
                }
                Err(error) => panic!("{error}"),
            },
            // Echoes each frame as it arrives.
            "/svc/mirror" => Response::new(ResponseBody::stream(body)),
            "/svc/text" => Response::builder()
                .header("content-type", "text/plain")
                .header("etag", "\"s\"")
                .body(ResponseBody::Full("service ".repeat(500).into()))
                .unwrap(),
            // One event, and then nothing for ever.
            "/svc/events" => {
                let stream = futures_stream();
                let body = ResponseBody::stream(StreamBody::new(stream));
                Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
            }
            "/svc/early" => Response::new(ResponseBody::Full(Bytes::from_static(b"early"))),
            "/svc/never" => pending().await,
            "/svc/where" => {
                let text = if ends.tls { "over TLS" } else { "in the clear" };
                Response::new(ResponseBody::Full(text.into()))
            }
            "/svc/slow" => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                Response::new(ResponseBody::Full(Bytes::from_static(b"slow")))
            }
            "/svc/chunks" => {
                let frames = futures(3);
                Response::new(ResponseBody::stream(frames))
            }
            "/svc/big" => Response::new(ResponseBody::Full(big().into())),
            "/svc/close" => Response::builder()
                .header("connection", "close, x-secret")
                .header("x-secret", "1")
                .body(ResponseBody::Full(Bytes::from_static(b"bye")))
                .unwrap(),
            "/svc/head" => {
                let mut names: Vec<_> = parts.headers.iter().map(|(n, v)| format!("{n}={v:?}")).collect();
                names.sort();
                let text = format!("{} {}\n{}", parts.method, parts.uri, names.join("\n"));
                Response::new(ResponseBody::Full(text.into()))
            }
            "/svc/hint" => Response::builder().status(103).body(ResponseBody::Empty).unwrap(),
            "/svc/fail" => {
                let error = std::io::Error::other("broken");
                let frames = Failing(vec![Err(error), Ok(Bytes::from_static(b"part"))]);
                Response::new(ResponseBody::stream(StreamBody::new(frames)))
            }
            _ => site::http::response::error(http::StatusCode::NOT_FOUND),
        }
    }

    fn record(&self, access: &Access<'_>) {
        let record = (access.method.into(), access.target.into(), access.status, access.body_bytes);
        self.shared.records.lock().unwrap().push(record);
        self.shared.versions.lock().unwrap().push(access.minor);
    }

    fn tls_failed(&self, _: SocketAddr, error: &rustls::Error) {
        self.shared.failed.lock().unwrap().push(error.to_string());
    }

    fn tampered(&self, _: SocketAddr) {
        *self.shared.tampered.lock().unwrap() += 1;
    }

    fn draining(&self) -> bool {
        self.shared.draining.load(std::sync::atomic::Ordering::SeqCst)
    }

    async fn drained(&self) {
        while !self.draining() {
            self.shared.drain.notified().await;
        }
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }
}

struct Failing(Vec<std::io::Result<Bytes>>);

impl futures_core::Stream for Failing {
    type Item = std::io::Result<http_body::Frame<Bytes>>;
    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::task::Poll::Ready(self.0.pop().map(|item| item.map(http_body::Frame::data)))
    }
}

/// One event, then pending.
struct OneEvent(bool);

impl futures_core::Stream for OneEvent {
    type Item = std::io::Result<http_body::Frame<Bytes>>;
    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        if std::mem::replace(&mut self.0, true) {
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(Some(Ok(http_body::Frame::data(Bytes::from_static(b"data: one\n\n")))))
    }
}

fn futures_stream() -> OneEvent {
    OneEvent(false)
}

fn futures(count: usize) -> StreamBody<Failing> {
    StreamBody::new(Failing((0..count).map(|i| Ok(Bytes::from(format!("chunk {i};")))).collect()))
}

pub struct Server {
    pub address: SocketAddr,
    pub root: PathBuf,
    pub shared: Arc<Shared>,
}

/// Slow enough for every test that is not about it, with little patience.
pub const RATE: MinRate = MinRate::new(2000, Duration::from_millis(1500));

pub fn limits() -> Limits {
    Limits {
        head_bytes: 8192,
        head_timeout: Duration::from_millis(400),
        body_bytes: 100_000,
        idle_timeout: Duration::from_millis(800),
        stall_timeout: Duration::from_millis(1500),
        body_rate: RATE,
        response_rate: RATE,
        connections: 1000,
        // These tests are about what the server itself makes of strange requests.
        strict: false,
    }
}

pub const HSTS: &str = "max-age=31536000";

pub const BIG: usize = 3_000_000;

pub fn big() -> Vec<u8> {
    (0..BIG).map(|i| (i * 31 % 251) as u8).collect()
}

/// Writes a file that has not been changed for an hour.
pub fn put(path: &Path, contents: &[u8]) {
    std::fs::write(path, contents).unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
}

impl Server {
    pub fn start() -> Server {
        Server::with(limits())
    }

    pub fn with(limits: Limits) -> Server {
        Server::over(limits, None)
    }

    /// A server whose connections begin with a ClientHello, if there is something to answer it with.
    pub fn over(limits: Limits, tls: Option<Arc<rustls::ServerConfig>>) -> Server {
        Server::start_as(limits, tls, |_| Vec::new())
    }

    /// A server that the launcher has told this; called with the root, for files to be made.
    pub fn told(limits: Limits, told: impl FnOnce(&Path) -> Told) -> Server {
        Server::start_as(limits, None, told)
    }

    fn start_as(
        limits: Limits,
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
        let partition = Site1 { shared: shared.clone(), limits };
        let mut told = told(&root);
        told.push((LauncherToSite::Index { name: wire::Text::new("index.html") }, None));
        if !told.iter().any(|(message, _)| matches!(message, LauncherToSite::Vhosts {})) {
            told.push((LauncherToSite::Root {}, Some(std::fs::File::open(&root).unwrap().into())));
        }
        std::thread::spawn(move || run(listener, partition, told, tls));
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

    pub fn records(&self) -> Vec<Record> {
        std::thread::sleep(Duration::from_millis(150));
        self.shared.records.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.root.parent().unwrap());
    }
}

fn run(
    listener: std::net::TcpListener,
    partition: Site1,
    told: Told,
    config: Option<Arc<rustls::ServerConfig>>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async move {
        let shared = partition.shared.clone();
        let mut setup = Setup::default();
        for (message, descriptor) in told {
            assert!(setup.take(message, descriptor).unwrap().is_none());
        }
        let site = Rc::new(Site::set_up(partition, setup));
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
                match site::serve(&site, Client { stream, preread: Vec::new(), peer, local, tls, h2c: !tls })
                    .await
                {
                    Ended::Closed => {}
                    Ended::HandBack { stream, preread } => {
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

    /// What the server sends until it closes.
    pub fn rest(mut self) -> Vec<u8> {
        while self.more() {}
        self.read
    }
}
