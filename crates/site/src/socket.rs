//! A client's socket, registered with the runtime or not yet, and the timer that goes with it.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: none that it looks at. Must never: block.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::Context;
use std::time::Instant;

use tokio::time::Sleep;

/// The socket of a connection.
pub(crate) enum Socket {
    /// Not registered with the runtime; a connection of one request never is.
    Fresh(TcpStream),
    Registered(tokio::net::TcpStream),
}

impl Socket {
    /// The descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Fresh(stream) => stream.as_fd(),
            Socket::Registered(stream) => stream.as_fd(),
        }
    }

    /// The socket, registered with the runtime.
    pub fn register(self) -> io::Result<tokio::net::TcpStream> {
        match self {
            Socket::Fresh(stream) => {
                // Several small answers in a row must not wait for the client's acknowledgements.
                stream.set_nodelay(true)?;
                tokio::net::TcpStream::from_std(stream)
            }
            Socket::Registered(stream) => Ok(stream),
        }
    }
}

/// Whether `deadline` has passed. The timer is moved only when it fires too early or would fire too late, not
/// for every request.
pub(crate) fn expired(cx: &mut Context<'_>, timer: &mut Option<Pin<Box<Sleep>>>, deadline: Instant) -> bool {
    let deadline = tokio::time::Instant::from_std(deadline);
    let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
    if timer.deadline() > deadline {
        timer.as_mut().reset(deadline);
    }
    while timer.as_mut().poll(cx).is_ready() {
        if timer.deadline() >= deadline {
            return true;
        }
        timer.as_mut().reset(deadline);
    }
    false
}
