//! The memory that an idle connection under TLS costs its worker:
//! `cargo run --release -p site --example idle_tls [CONNECTIONS [h2]]`.
//!
//! Runs as two processes on the loopback network: this one has the clients, the other the worker, whose memory is
//! read from /proc. Each connection has had one answer and is kept alive.
#![allow(clippy::unwrap_used)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use common::{Server, limits};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use site::ClientLimits;

fn main() {
    let mut words = std::env::args().skip(1);
    match words.next().as_deref() {
        Some("worker") => worker(),
        count => {
            let count = count.map_or(10_000, |count| count.parse().unwrap());
            clients(count, words.next().as_deref() == Some("h2"));
        }
    }
}

fn worker() {
    let ends = common::tls::ends();
    let minutes = Duration::from_secs(600);
    let limits =
        ClientLimits { idle_timeout: minutes, head_timeout: minutes, connections: 20_000, ..limits() };
    let server = Server::over(limits, Some(ends.server));
    println!("{}", server.address);
    println!("{}", ends.pem.replace('\n', "|"));
    // Until the other closes our input.
    let _ = std::io::stdin().read(&mut [0]);
}

fn clients(count: usize, http2: bool) {
    raise_limit();
    let this = std::env::current_exe().unwrap();
    let mut child =
        Command::new(this).arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let address: SocketAddr = lines.next().unwrap().parse().unwrap();
    let pem = lines.next().unwrap().replace('|', "\n");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let mut config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    if http2 {
        config.alpn_protocols = vec![b"h2".to_vec()];
    }
    let config = Arc::new(config);
    let mut idle = Vec::new();
    // The first ones pay for what all share.
    (0..50).for_each(|_| idle.push(connect(address, &config)));
    let before = memory(child.id());
    (0..count).for_each(|_| idle.push(connect(address, &config)));
    std::thread::sleep(Duration::from_secs(1));
    let after = memory(child.id());
    for (name, (before, after)) in ["resident", "private"].iter().zip(before.into_iter().zip(after)) {
        let each = (after - before) as f64 / count as f64;
        println!("{name}: {before} -> {after} KiB, {each:.1} KiB for each of {count} idle connections");
    }
    drop(child.stdin.take());
    child.wait().unwrap();
}

fn connect(address: SocketAddr, config: &Arc<rustls::ClientConfig>) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    let name = ServerName::try_from("a.example").unwrap();
    let mut client = rustls::ClientConnection::new(config.clone(), name).unwrap();
    let mut stream = rustls::Stream::new(&mut client, &mut socket);
    if !config.alpn_protocols.is_empty() {
        let mut raw = common::h2c::Raw::over(stream, &[]);
        raw.send(&common::h2c::frame(common::h2c::SETTINGS, common::h2c::ACK, 0, &[]));
        raw.request(1, "GET", "/small.txt", &[]);
        assert_eq!(raw.wait(common::h2c::DATA, 1).unwrap().payload, b"0123456789");
        return socket;
    }
    stream.write_all(b"GET /small.txt HTTP/1.1\r\nHost: a.example\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"0123456789") {
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).unwrap();
        answer.extend_from_slice(&piece[..read]);
    }
    // The worker's side is what is measured; ours is forgotten.
    socket
}

/// KiB resident, and of those private.
fn memory(process: u32) -> [i64; 2] {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap();
    let field = |name: &str| -> i64 {
        let lines = text.lines().filter(|line| line.starts_with(name));
        lines.map(|line| line.split_whitespace().nth(1).unwrap().parse::<i64>().unwrap()).sum()
    };
    [field("Rss:"), field("Private_")]
}

/// As many descriptors as there may be.
fn raise_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
}
