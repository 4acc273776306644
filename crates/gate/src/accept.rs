//! Accepting connections, as many as the limits allow.
//!
//! Runs in: the gate. Sees: nothing of what clients send. Never: spins when descriptors have run out.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with, sockopt};
use wire::log::Level;

use crate::connection::Connection;
use crate::desk::Desk;

/// How many connections are accepted before what else there is to do gets its turn.
const BATCH: usize = 64;
/// How long accepting rests when the kernel has nothing left to accept with.
const REST: Duration = Duration::from_millis(100);

/// Accepts on one listening socket until the task is ended.
pub fn accept(desk: Rc<Desk>, _listener: u16, socket: OwnedFd) -> std::io::Result<impl Future<Output = ()>> {
    // Accepted sockets inherit it, so that it costs no call per connection.
    sockopt::set_tcp_nodelay(&socket, true)?;
    let local = rustix::net::getsockname(&socket)?;
    let local =
        std::net::SocketAddr::try_from(local).map_err(|_| std::io::Error::other("not an IP address"))?;
    let socket = worker::watch(socket)?;
    Ok(async move {
        loop {
            desk.fewer_than(desk.limits.connections).await;
            let Ok(mut ready) = socket.readable().await else {
                return;
            };
            for _ in 0..BATCH {
                if desk.held() >= desk.limits.connections {
                    break;
                }
                match acceptfrom_with(socket.as_fd(), SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                    Ok((stream, peer)) => {
                        let peer = peer.and_then(|peer| std::net::SocketAddr::try_from(peer).ok());
                        desk.came();
                        Connection::accepted(desk.clone(), stream, peer.unwrap_or(local), local);
                    }
                    Err(Errno::AGAIN) => {
                        ready.clear_ready();
                        break;
                    }
                    Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                        desk.log.event(Level::Error, "cannot accept: out of descriptors or memory");
                        tokio::time::sleep(REST).await;
                        break;
                    }
                    // The client went away while it waited.
                    Err(_) => {}
                }
            }
            drop(ready);
            tokio::task::yield_now().await;
        }
    })
}
