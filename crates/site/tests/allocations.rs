//! How often a request has memory allocated: never, on the cached paths; elsewhere a number that may not grow.
#![allow(clippy::unwrap_used)]

mod common;

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use common::{Shared, limits, put};
use site::config::setup::Setup;
use site::{Client, Limits, Site};
use sys::allocations::Counting;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use wire::LauncherToSite;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Requests that are made before any are counted: tables and buffers have their size then.
const WARM_UP: u32 = 50;
/// Requests that are counted.
const COUNTED: u32 = 200;

/// A service in a thread of its own, whose allocations are not counted; the site's end of its channel.
fn service() -> OwnedFd {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            sender.send(common::service::start(Arc::default())).unwrap();
            std::future::pending::<()>().await;
        });
    });
    receiver.recv().unwrap()
}

/// Allocations of one request of a kept-alive connection, on average; the client, in the same thread, makes none.
fn per_request(request: &str, status: &str) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    put(&folder.path().join("small.txt"), b"0123456789");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let mut setup = Setup::default();
        setup.service("/svc/", common::SERVICE);
        let root: OwnedFd = std::fs::File::open(folder.path()).unwrap().into();
        assert!(setup.take(LauncherToSite::Root {}, Some(root)).unwrap().is_none());
        let shared = Arc::new(Shared::default());
        let limits = Limits { idle_timeout: std::time::Duration::from_secs(60), ..limits() };
        let site = Rc::new(Site::set_up(common::worker(&shared, limits), setup));
        site.worker.backends.service(common::SERVICE).unwrap().attach(service()).unwrap();
        site.watch_files();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.set_nodelay(true).unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let local = stream.local_addr().unwrap();
        let stream = stream.into_std().unwrap().into();
        let client_of =
            Client { stream, preread: Vec::new(), peer, local, tls: false, h2c: false, relayed: None };
        let theirs = site.clone();
        tokio::task::spawn_local(async move { site::serve(&theirs, client_of).await });
        let mut buffer = vec![0; 64 << 10];
        let mut before = 0;
        for number in 0..WARM_UP + COUNTED {
            if number == WARM_UP {
                before = Counting::here();
            }
            client.write_all(request.as_bytes()).await.unwrap();
            let mut length = 0;
            while !is_whole(&buffer[..length], status, request.starts_with("HEAD")) {
                let read = client.read(&mut buffer[length..]).await.unwrap();
                assert!(read > 0, "{:?}", String::from_utf8_lossy(&buffer[..length]));
                length += read;
            }
        }
        (Counting::here() - before) as f64 / f64::from(COUNTED)
    })
}

/// Whether `read` is a response with a length; panics if it does not have this status.
fn is_whole(read: &[u8], status: &str, is_head: bool) -> bool {
    let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let head = std::str::from_utf8(&read[..end]).unwrap();
    assert!(head.starts_with(status), "{head}");
    let mut lines = head.split("\r\n").filter_map(|line| line.split_once(": "));
    let length = lines.find(|(name, _)| name.eq_ignore_ascii_case("content-length")).unwrap().1;
    let length: usize = if is_head { 0 } else { length.parse().unwrap() };
    read.len() == end + 4 + length
}

fn get(path: &str, lines: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nUser-Agent: a test\r\n{lines}\r\n")
}

fn head(path: &str) -> String {
    get(path, "").replacen("GET", "HEAD", 1)
}

/// LIMIT of a test: what grows here is paid by each request; what shrinks is written down.
#[test]
fn requests_allocate_no_more_than_they_did() {
    let at_most = |limit: f64, request: &str, status: &str| {
        let count = per_request(request, status);
        eprintln!("{count} allocations of {request:?}");
        assert!(count <= limit, "{count} allocations, more than {limit}, of {request:?}");
    };
    let post = "POST /svc/early HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\n\r\nbody";
    // Once in a while a batch for the log, or a second of the clock.
    let never = 0.05;
    at_most(never, &get("/small.txt", ""), "HTTP/1.1 200");
    at_most(never, &head("/small.txt"), "HTTP/1.1 200");
    at_most(never, &get("/small.txt", "If-None-Match: \"another\"\r\n"), "HTTP/1.1 200");
    at_most(19.5, &get("/none", ""), "HTTP/1.1 404");
    at_most(30.5, &get("/small.txt", "Range: bytes=0-4\r\n"), "HTTP/1.1 206");
    at_most(3.5, &get("/svc/early", ""), "HTTP/1.1 200");
    at_most(41.5, post, "HTTP/1.1 200");
}
