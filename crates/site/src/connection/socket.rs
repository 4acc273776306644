//! A client's socket, registered with the runtime or not yet, and the timer that goes with it.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: none that it looks at. Must never: block.

use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::{Pin, pin};
use std::task::Context;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown};
use tokio::task::coop::unconstrained;
use tokio::time::Sleep;

use crate::connection::stream::ClientStream;

/// The socket of a connection.
pub(crate) enum ConnectionSocket {
    /// Not registered with the runtime; a connection of one request never is.
    Fresh(TcpStream),
    Registered(ClientStream),
}

impl ConnectionSocket {
    /// The descriptor, if the connection is in plaintext.
    pub fn plain(&self) -> Option<BorrowedFd<'_>> {
        match self {
            ConnectionSocket::Fresh(stream) => Some(stream.as_fd()),
            ConnectionSocket::Registered(ClientStream::Plain(stream)) => Some(stream.as_fd()),
            ConnectionSocket::Registered(ClientStream::Tls(_)) => None,
        }
    }

    /// The connection, registered with the runtime.
    pub fn register(self) -> io::Result<ClientStream> {
        match self {
            ConnectionSocket::Fresh(stream) => Ok(ClientStream::Plain(register(stream)?)),
            ConnectionSocket::Registered(stream) => Ok(stream),
        }
    }

    /// Whether bytes wait that were encrypted already.
    pub fn unsent(&self) -> bool {
        matches!(self, ConnectionSocket::Registered(stream) if stream.is_unsent())
    }

    /// Sends the bytes of `slices`, one after the other, as far as the socket takes them at once; tells how many are
    /// sent, or encrypted and waiting. After the last ones, in plaintext, the connection is closed for sending, if
    /// the socket took them: the end goes with them, in one packet.
    pub fn send(&mut self, slices: [&[u8]; 4], are_last: bool) -> io::Result<usize> {
        if let ConnectionSocket::Registered(ClientStream::Tls(tls)) = self {
            return tls.push_all(&slices);
        }
        let fd = self.plain().ok_or(io::ErrorKind::NotConnected)?;
        let sent = send(fd, slices, are_last)?;
        if are_last && sent == slices.iter().map(|slice| slice.len()).sum::<usize>() {
            // A client that is gone needs no end.
            let _ = rustix::net::shutdown(fd, Shutdown::Write);
        }
        Ok(sent)
    }
}

/// Sends what there is room for. Less than a packet waits for more bytes, if the end is to follow at once.
fn send(fd: BorrowedFd<'_>, slices: [&[u8]; 4], end_follows: bool) -> io::Result<usize> {
    let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    flags.set(SendFlags::MORE, end_follows);
    loop {
        let sent = match slices {
            [bytes, [], [], []] => rustix::net::send(fd, bytes, flags),
            _ => {
                let slices = slices.map(IoSlice::new);
                rustix::net::sendmsg(fd, &slices, &mut SendAncillaryBuffer::default(), flags)
            }
        };
        match sent {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(0),
            other => return Ok(other?),
        }
    }
}

/// Registers a socket with the runtime.
pub(crate) fn register(stream: TcpStream) -> io::Result<tokio::net::TcpStream> {
    // Several small answers in a row must not wait for the client's acknowledgements. One end of a pair, which is no
    // TCP, waits for none.
    match stream.set_nodelay(true) {
        Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {}
        set => set?,
    }
    tokio::net::TcpStream::from_std(stream)
}

/// Whether the timer will fire, at `deadline` or before: then there is no need to ask [`expired`].
pub(crate) fn is_set(timer: &Option<Pin<Box<Sleep>>>, deadline: Instant) -> bool {
    let deadline = tokio::time::Instant::from_std(deadline);
    timer.as_ref().is_some_and(|timer| !timer.is_elapsed() && timer.deadline() <= deadline)
}

/// Whether `deadline` has passed. The timer is moved only when it fires too early or would fire too late, not
/// for every request.
pub(crate) fn expired(cx: &mut Context<'_>, timer: &mut Option<Pin<Box<Sleep>>>, deadline: Instant) -> bool {
    let deadline = tokio::time::Instant::from_std(deadline);
    let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
    if timer.deadline() > deadline {
        timer.as_mut().reset(deadline);
    }
    // A task that has used up its budget must set its timer all the same, for the sake of `is_set`.
    while pin!(unconstrained(timer.as_mut())).poll(cx).is_ready() {
        if timer.deadline() >= deadline {
            return true;
        }
        timer.as_mut().reset(deadline);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::io::Read as _;
    use std::task::Poll;
    use std::time::Duration;
    use tokio::task::coop::{consume_budget, has_budget_remaining};

    #[test]
    fn the_end_follows_the_last_bytes_and_no_others() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut socket = ConnectionSocket::Fresh(listener.accept().unwrap().0);
        assert_eq!(socket.send([b"one ", b"two", &[], &[]], false).unwrap(), 7);
        let mut got = [0; 7];
        client.read_exact(&mut got).unwrap();
        assert_eq!((&got, client.set_nonblocking(true).is_ok()), (b"one two", true));
        let nothing = client.read(&mut got).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        client.set_nonblocking(false).unwrap();
        assert_eq!(socket.send([b"three", &[], &[], &[]], true).unwrap(), 5);
        let mut rest = Vec::new();
        // To the end, although the connection is still held.
        client.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"three");
        assert!(socket.plain().is_some());
    }

    #[test]
    fn a_task_without_budget_sets_its_timer() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let deadline = Instant::now() + Duration::from_millis(20);
        let mut timer = None;
        let wait = poll_fn(|cx| {
            while has_budget_remaining() {
                let _ = pin!(consume_budget()).poll(cx);
            }
            let late = !is_set(&timer, deadline) && expired(cx, &mut timer, deadline);
            if late { Poll::Ready(()) } else { Poll::Pending }
        });
        let waited = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(2), wait).await });
        assert!(waited.is_ok() && Instant::now() >= deadline);
    }
}
