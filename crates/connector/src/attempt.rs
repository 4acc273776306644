//! One socket of a service's, and the attempt to connect it.
//!
//! Runs in: the connector of a service. Sees: a descriptor that the service may use at the same time. Never: connects
//! what is not a TCP or UDP socket of IP, or blocks, as long as the service leaves `O_NONBLOCK` alone meanwhile; a
//! service that does not has its own connector wait, and nobody else's.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, connect_unspec, ipproto, socket_with};
use sys::foreign::Foreign;
use tokio::io::Interest;
use tokio::time::timeout;
use worker::watch;

/// A socket that can be connected.
#[derive(Debug)]
pub struct Socket {
    descriptor: Foreign,
    v6: bool,
    /// Whether it is of UDP; of TCP otherwise.
    pub datagram: bool,
}

/// A new socket, which blocks.
pub fn new_socket(v6: bool, datagram: bool) -> Result<OwnedFd, Errno> {
    let family = if v6 { AddressFamily::INET6 } else { AddressFamily::INET };
    let (kind, protocol) =
        if datagram { (SocketType::DGRAM, ipproto::UDP) } else { (SocketType::STREAM, ipproto::TCP) };
    socket_with(family, kind, SocketFlags::CLOEXEC, Some(protocol))
}

impl Socket {
    /// Takes a descriptor that came from a service.
    ///
    /// # Errors
    /// `ENOTSOCK`; `EACCES`: it is a socket of another kind.
    pub fn of(descriptor: Foreign) -> Result<Self, Errno> {
        let kind = sockopt::socket_type(&descriptor)?;
        let v6 = match sockopt::socket_domain(&descriptor)? {
            AddressFamily::INET => false,
            AddressFamily::INET6 => true,
            _ => return Err(Errno::ACCESS),
        };
        let datagram = match (kind, sockopt::socket_protocol(&descriptor)?) {
            (SocketType::STREAM, Some(ipproto::TCP)) => false,
            (SocketType::DGRAM, Some(ipproto::UDP)) => true,
            _ => return Err(Errno::ACCESS),
        };
        Ok(Self { descriptor, v6, datagram })
    }

    /// Takes its peer away, if it is of UDP.
    ///
    /// # Errors
    /// `EACCES`: of TCP, it would be ready to listen, or to be connected by other means.
    pub fn disconnect(&self) -> Result<(), Errno> {
        if self.datagram { connect_unspec(&self.descriptor) } else { Err(Errno::ACCESS) }
    }

    /// Connects it at once, or begins to, as a socket does that does not block.
    ///
    /// # Errors
    /// `EINPROGRESS`: it has begun.
    pub fn begin(&self, address: SocketAddr, scope: u32) -> Result<(), Errno> {
        if !self.datagram {
            rustix::io::ioctl_fionbio(&self.descriptor, true)?;
        }
        match address.ip() {
            IpAddr::V4(ip) if self.v6 => {
                connect(&self.descriptor, &SocketAddrV6::new(ip.to_ipv6_mapped(), address.port(), 0, 0))
            }
            IpAddr::V4(_) => connect(&self.descriptor, &address),
            IpAddr::V6(ip) => connect(&self.descriptor, &SocketAddrV6::new(ip, address.port(), 0, scope)),
        }
    }

    /// How long its owner wants to wait, if that is less than `limit`; and with what error the wait then ends.
    pub fn time_limit(&self, limit: Duration) -> (Duration, Errno) {
        match sockopt::socket_timeout(&self.descriptor, Timeout::Send) {
            Ok(Some(own)) if own < limit => (own, Errno::INPROGRESS),
            _ => (limit, Errno::TIMEDOUT),
        }
    }
}

/// A caller that waits: its socket does not block until this is dropped.
#[derive(Debug)]
pub struct Wait {
    socket: Socket,
    address: SocketAddr,
    scope: u32,
}

impl Wait {
    /// For the connection of `socket`.
    pub fn new(socket: Socket, address: SocketAddr, scope: u32) -> Self {
        Self { socket, address, scope }
    }

    /// Begins; `None` if the result is not known yet.
    pub fn begin(&self) -> Option<Result<(), Errno>> {
        // The kernel answers itself at once, so a server on this machine is connected by the second look.
        self.look(true).or_else(|| self.look(false))
    }

    /// Asks for the result of a connection that has begun, as the kernel does for a caller that blocks: by that, one
    /// that failed can be tried again.
    fn look(&self, first: bool) -> Option<Result<(), Errno>> {
        match self.socket.begin(self.address, self.scope) {
            Err(Errno::INPROGRESS | Errno::ALREADY | Errno::INTR) => None,
            // By another thread, which looked earlier.
            Err(Errno::ISCONN) if !first => Some(Ok(())),
            result => Some(result),
        }
    }

    /// Waits for the result, but no longer than `limit`.
    pub async fn end(self, limit: Duration) -> Result<(), Errno> {
        let (time_limit, late) = self.socket.time_limit(limit);
        timeout(time_limit, self.result()).await.unwrap_or(Err(late))
    }

    async fn result(&self) -> Result<(), Errno> {
        let unable = |_| Errno::NOBUFS;
        let copy = self.socket.descriptor.as_fd().try_clone_to_owned().map_err(unable)?;
        let watched = watch(copy).map_err(unable)?;
        loop {
            let mut ready = watched.ready(Interest::WRITABLE).await.map_err(unable)?;
            if let Some(result) = self.look(false) {
                return result;
            }
            ready.clear_ready();
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if !self.socket.datagram {
            let _ = rustix::io::ioctl_fionbio(&self.socket.descriptor, false);
        }
    }
}
