//! One address of a server, and one attempt to connect to it.
//!
//! Runs in: the connector. Sees: nothing of what is said on a connection. Never: blocks.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use worker::watch;

/// Where a server listens.
#[derive(Debug)]
pub enum Address {
    /// At an IP address and port.
    Tcp(SocketAddr),
    /// At a Unix socket: the directory that it is in, and its name there.
    Unix(OwnedFd, String),
}

/// The outcome of an attempt.
#[derive(Debug)]
pub enum ConnectOutcome {
    /// A connection, non-blocking.
    Connected(OwnedFd),
    /// The server is there, and its queue of connections is full.
    Full,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(_, name) => write!(f, "Unix socket {name}"),
        }
    }
}

impl Address {
    /// Tries to connect; waits for as long as the network takes.
    pub async fn connect(&self) -> io::Result<ConnectOutcome> {
        match self {
            Self::Unix(directory, name) => connect_unix(directory, name),
            Self::Tcp(address) => connect_tcp(*address).await.map(ConnectOutcome::Connected),
        }
    }

    /// A socket that connects with its first bytes; `None` if that cannot be. Only to this machine: elsewhere, what is
    /// on the way may not expect bytes that come so early.
    pub fn aim(&self) -> Option<io::Result<OwnedFd>> {
        match self {
            Self::Tcp(address) if address.ip().is_loopback() => Some(sys::aimed::aim(*address)),
            Self::Tcp(_) | Self::Unix(..) => None,
        }
    }
}

fn new_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(socket_with(family, SocketType::STREAM, flags, None)?)
}

/// Connects by a relative name: this process has a root in which there is nothing, so the way begins in the directory
/// that the launcher has opened.
fn connect_unix(directory: &OwnedFd, name: &str) -> io::Result<ConnectOutcome> {
    let address = SocketAddrUnix::new(name)?;
    let socket = new_socket(AddressFamily::UNIX)?;
    rustix::process::fchdir(directory)?;
    loop {
        return match connect(&socket, &address) {
            Ok(()) => Ok(ConnectOutcome::Connected(socket)),
            // A non-blocking connect does not wait for a place in the queue of a Unix socket.
            Err(Errno::AGAIN) => Ok(ConnectOutcome::Full),
            Err(Errno::INTR) => continue,
            Err(error) => Err(error.into()),
        };
    }
}

async fn connect_tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = new_socket(family)?;
    // The kernel answers itself at once, so a server on this machine is connected by the second look.
    for _ in 0..2 {
        match connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::INPROGRESS | Errno::ALREADY | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let watched: AsyncFd<OwnedFd> = watch(socket)?;
    let _ready = watched.ready(Interest::WRITABLE).await?;
    rustix::net::sockopt::socket_error(watched.get_ref())??;
    drop(_ready);
    Ok(watched.into_inner())
}
