//! A client's socket, registered with the runtime or not yet, and the timer that goes with it.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: none that it looks at. Must never: block.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::{Pin, pin};
use std::task::Context;
use std::time::Instant;

use tokio::task::coop::unconstrained;
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
    use std::task::Poll;
    use std::time::Duration;
    use tokio::task::coop::{consume_budget, has_budget_remaining};

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
