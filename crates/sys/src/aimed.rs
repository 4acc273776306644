//! TCP sockets that are connected by the first bytes that are written to them, to where they were aimed before.
//!
//! Runs in: connectors, which aim them. Sees no bytes. Never: waits.
//!
//! The kernel defers the `connect` of such a socket until there is something to send (`TCP_FASTOPEN_CONNECT`), and
//! sends that together with the request for a connection. It needs no cookie of the server for it
//! (`TCP_FASTOPEN_NO_COOKIE`), which takes no notice of bytes that come so early unless it was told to; they are sent
//! once more then. Who has the socket cannot aim it elsewhere without `connect` or `MSG_FASTOPEN`.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use crate::socket_option::set;

/// The options of such a socket, of `IPPROTO_TCP`.
pub const OPTIONS: [libc::c_int; 2] = [libc::TCP_FASTOPEN_CONNECT, libc::TCP_FASTOPEN_NO_COOKIE];

/// A socket that is aimed at `address`, non-blocking, of which nobody there has heard.
///
/// # Errors
/// `Unsupported` if the kernel has no such sockets, or was told to make none; the server may have seen a connection
/// that ended then.
pub fn aim(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
    for option in OPTIONS {
        set(&socket, libc::IPPROTO_TCP, option, 1).map_err(|_| io::ErrorKind::Unsupported)?;
    }
    match connect(&socket, &address) {
        Ok(()) => Ok(socket),
        // It does not defer it.
        Err(Errno::INPROGRESS) => Err(io::ErrorKind::Unsupported.into()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use rustix::net::{RecvFlags, SendFlags, recv, send};

    use super::*;

    #[test]
    fn nobody_hears_of_it_before_the_first_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let Ok(socket) = aim(listener.local_addr().unwrap()) else { return };
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(send(&socket, b"first", SendFlags::DONTWAIT).unwrap(), 5);
        listener.set_nonblocking(false).unwrap();
        let (mut served, _) = listener.accept().unwrap();
        let mut stream = TcpStream::from(socket);
        stream.set_nonblocking(false).unwrap();
        stream.write_all(b"second").unwrap();
        let mut came = [0; 11];
        served.read_exact(&mut came).unwrap();
        assert_eq!(&came, b"firstsecond");
    }

    #[test]
    fn who_is_not_there_refuses_and_the_socket_leads_nowhere_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let Ok(socket) = aim(listener.local_addr().unwrap()) else { return };
        drop(listener);
        let sent = send(&socket, b"first", SendFlags::DONTWAIT);
        let read = recv(&socket, &mut [0; 8], RecvFlags::DONTWAIT).unwrap_err();
        assert!(sent == Err(Errno::CONNREFUSED) || read == Errno::CONNREFUSED);
        let again = send(&socket, b"again", SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        assert_eq!(again, Err(Errno::PIPE));
    }
}
