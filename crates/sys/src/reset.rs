//! The end of a connection by which its client sees that something is missing: a reset.
//!
//! Runs in: a site's worker. Sees no bytes. Never: waits, as `SO_LINGER` has who closes last do (`linger` in
//! socket(7)): that option is nobody's here, as a process that may set it can set it for a socket that it hands to
//! another.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// Bytes of the address by which a socket is disconnected: its family alone, which leads nowhere. With so few there is
/// no other that the kernel would take, so a filter of system calls that allows this allows nobody to connect.
pub const FAMILY_BYTES: libc::socklen_t = size_of::<libc::sa_family_t>() as libc::socklen_t;

/// Resets a TCP connection: what was not sent yet is dropped, and its client is told.
///
/// # Errors
/// It is no TCP socket.
pub fn reset(socket: impl AsFd) -> io::Result<()> {
    let family = libc::AF_UNSPEC as libc::sa_family_t;
    // SAFETY: the descriptor is open for as long as it is borrowed; the address is the family, and its length says so.
    let result =
        unsafe { libc::connect(socket.as_fd().as_raw_fd(), (&raw const family).cast(), FAMILY_BYTES) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_client_sees_a_reset_and_not_an_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut served, _) = listener.accept().unwrap();
        served.write_all(b"half").unwrap();
        reset(&served).unwrap();
        drop(served);
        assert_eq!(client.read_to_end(&mut Vec::new()).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }

    #[test]
    fn no_address_of_this_length_leads_anywhere() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert!(reset(&one).is_err());
        let socket =
            rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None)
                .unwrap();
        assert!(reset(&socket).is_err());
    }
}
