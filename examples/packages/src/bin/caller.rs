//! A service for the tests: connects to where a test wants it to.
//!
//! Runs in: its own process under its own uid, inside its jail; it is no part of the demo, and must not be put on
//! a server. Sees: requests of tests. Never: asks for a privilege.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bulkhead_service::{Context, Error, Request, Response, Service, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How long an answer of a test's server may take.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Caller {
    /// A connection that outlives requests.
    held: RefCell<Option<TcpStream>>,
}

impl Service for Caller {
    async fn init(cx: &Context) -> Result<Self, Error> {
        // As a program does that wants its database before it serves.
        if let Some(to) = cx.arguments().first() {
            tokio::net::TcpStream::connect(to).await?;
        }
        Ok(Self::default())
    }

    async fn process(&self, request: Request) -> Response {
        let to = request.raw_param("to").unwrap_or_default();
        let outcome = match request.path() {
            "/caller/tokio" => fetch(&to).await,
            "/caller/tcp" => aside(move || echo(to.parse().map_err(io::Error::other)?)).await,
            "/caller/udp" => aside(move || datagram(&to)).await,
            "/caller/name" => aside(move || names(&to)).await,
            "/caller/many" => aside(move || many(to.parse().map_err(io::Error::other)?)).await,
            "/caller/cost" => aside(move || cost(to.parse().map_err(io::Error::other)?)).await,
            "/caller/hold" => self.hold(&to),
            "/caller/held" => self.ask_held(),
            path => Err(io::Error::other(path.to_owned())),
        };
        match outcome {
            Ok(text) => Response::text(text),
            Err(error) => Response::text(format!("{error}\n")).with_status(StatusCode::BAD_GATEWAY),
        }
    }
}

impl Caller {
    fn hold(&self, to: &str) -> io::Result<String> {
        let stream = TcpStream::connect(to)?;
        *self.held.borrow_mut() = Some(stream);
        Ok("held\n".into())
    }

    fn ask_held(&self) -> io::Result<String> {
        self.held.borrow_mut().as_mut().ok_or(io::ErrorKind::NotConnected.into()).and_then(exchange)
    }
}

/// Does what waits in a thread of its own.
async fn aside(work: impl FnOnce() -> io::Result<String> + Send + 'static) -> io::Result<String> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Fetches the page of an HTTP server as an asynchronous program does.
async fn fetch(to: &str) -> io::Result<String> {
    let mut stream = tokio::net::TcpStream::connect(to).await?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

fn exchange(stream: &mut TcpStream) -> io::Result<String> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"x")?;
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    Ok(format!("{}\n", char::from(byte[0])))
}

fn echo(to: SocketAddr) -> io::Result<String> {
    exchange(&mut TcpStream::connect_timeout(&to, PATIENCE)?)?;
    exchange(&mut TcpStream::connect(to)?)
}

/// Without `bind`, which services may not call, and so not by `UdpSocket::bind`.
fn datagram(to: &str) -> io::Result<String> {
    use rustix::net::{AddressFamily, SocketType, connect, socket};
    let to: SocketAddr = to.parse().map_err(io::Error::other)?;
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket(family, SocketType::DGRAM, None)?;
    connect(&socket, &to)?;
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(b"x")?;
    let mut byte = [0];
    socket.recv(&mut byte)?;
    Ok(format!("{}\n", char::from(byte[0])))
}

fn names(name: &str) -> io::Result<String> {
    let found = (name, 0).to_socket_addrs()?.map(|address| address.ip().to_string());
    Ok(found.collect::<Vec<_>>().join("\n"))
}

/// Connects from many threads at once.
fn many(to: SocketAddr) -> io::Result<String> {
    let threads: Vec<_> = (0..50).map(|_| std::thread::spawn(move || echo(to))).collect();
    let fine = threads.into_iter().filter_map(|thread| thread.join().ok()?.ok()).count();
    Ok(format!("{fine}\n"))
}

/// What a connection costs, in microseconds: the median of some.
fn cost(to: SocketAddr) -> io::Result<String> {
    let time = |_| {
        let began = Instant::now();
        TcpStream::connect(to).map(|_| began.elapsed().as_nanos() as f64 / 1000.0)
    };
    let mut times = (0..1001).map(time).collect::<io::Result<Vec<f64>>>()?;
    times.sort_by(f64::total_cmp);
    Ok(format!("{:.1}\n", times[times.len() / 2]))
}

fn main() -> ExitCode {
    bulkhead_service::main::<Caller>()
}
