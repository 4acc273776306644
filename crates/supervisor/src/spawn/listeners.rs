//! Listening sockets, made and kept by the launcher, so that what waits in an accept queue survives its gate.
//!
//! Runs in: the launcher, as root (ports below 1024). Sees no untrusted bytes. Never: accepts.
//!
//! See docs/internals/architecture.md, "The life of a connection", 1.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};

use crate::error::Error;

/// How many connections wait to be accepted; the kernel lowers it to `net.core.somaxconn`.
const BACKLOG: i32 = 65_535;

/// One socket per gate for `address`; the kernel spreads new connections over them.
pub fn listen_on(address: SocketAddr, gates: usize) -> Result<Vec<OwnedFd>, Error> {
    // The first one is made without sharing, so that an address in use by another server is noticed; sockets
    // that share a port take connections away from whoever has it with the same uid.
    let failed = |source: io::Error| Error::Listen { address, source };
    probe(address).map_err(failed)?;
    (0..gates).map(|_| shared_socket(address)).collect::<io::Result<_>>().map_err(failed)
}

fn probe(address: SocketAddr) -> io::Result<()> {
    let socket = socket(address)?;
    bind(&socket, &address)?;
    Ok(())
}

fn shared_socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = socket(address)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    Ok(socket)
}
