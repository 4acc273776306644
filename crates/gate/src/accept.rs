//! Accepting connections, as many as the limits allow.
//!
//! Runs in: the gate. Sees: nothing of what clients send. Never: spins when descriptors have run out.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with, sockopt};
use wire::log::Level;

use crate::connection::GateConnection;
use crate::gate::Gate;
use crate::listener::GateListener;

/// How many connections are accepted before what else there is to do gets its turn.
const BATCH: usize = 64;
/// How long accepting rests when the kernel has nothing left to accept with.
const REST: Duration = Duration::from_millis(100);
/// How many rests there are from one word about it in the log to the next.
const RESTS_UNTOLD: u32 = 100;

/// Accepts on the listening socket of `listener` until the task is ended, or nobody listens on it any more.
pub fn accept(
    gate: Rc<Gate>,
    listener: Rc<GateListener>,
    socket: OwnedFd,
) -> std::io::Result<impl Future<Output = ()>> {
    // Accepted sockets inherit it, so that it costs no call per connection.
    sockopt::set_tcp_nodelay(&socket, true)?;
    let local = address_of(&socket)?;
    let socket = worker::watch(socket)?;
    Ok(async move {
        let mut rests = 0_u32;
        loop {
            let Ok(mut ready) = socket.readable().await else {
                return;
            };
            let mut rest = false;
            for _ in 0..BATCH {
                if !gate.has_room() {
                    break;
                }
                match acceptfrom_with(socket.as_fd(), SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                    Ok((stream, peer)) => {
                        let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                        welcome(&gate, stream, peer.unwrap_or(local), local);
                    }
                    Err(Errno::AGAIN) => {
                        ready.clear_ready();
                        break;
                    }
                    // A guarded server has closed it. Another socket may listen at the same address by now.
                    Err(Errno::INVAL) if !is_listening(socket.get_ref()) => return gate.unlisten(&listener),
                    // Out of descriptors, or of memory for sockets: somebody goes who has sent no whole request.
                    Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) if gate.evict() => {}
                    // A lasting failure must not be tried again and again.
                    Err(
                        error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::INVAL),
                    ) => {
                        if rests.is_multiple_of(RESTS_UNTOLD) {
                            let text = format_args!("cannot accept connections at {local}: {error}");
                            gate.log.event(Level::Error, text);
                        }
                        rests = rests.wrapping_add(1);
                        rest = true;
                        break;
                    }
                    // The client went away while it waited.
                    Err(_) => {}
                }
            }
            drop(ready);
            if rest {
                tokio::time::sleep(REST).await;
            }
            gate.room().await;
            tokio::task::yield_now().await;
        }
    })
}

/// Whether connections may still come; where the kernel does not say, they may.
fn is_listening(socket: &OwnedFd) -> bool {
    sockopt::socket_acceptconn(socket).unwrap_or(true)
}

/// Takes a new connection in, unless its client is banned.
fn welcome(gate: &Rc<Gate>, stream: OwnedFd, peer: SocketAddr, address: SocketAddr) {
    let now = Instant::now();
    // By its address: an update may have taken the place of what was said of it.
    let listener = gate.listener(address);
    let shared = listener.as_ref().is_some_and(|listener| listener.shared.get());
    // Without a word: an answer would be more than it is to have.
    if !shared && gate.policies().is_banned(peer.ip(), now) {
        return;
    }
    gate.connection_opened();
    let local = local_of(&stream, address);
    let awaits_proxy_header = listener.is_some_and(|listener| listener.proxies.expected());
    GateConnection::accepted(gate, stream, (peer, local), awaits_proxy_header, now);
}

/// The address that a client connected to; one more call only where the listener's does not tell.
fn local_of(stream: &OwnedFd, listener: SocketAddr) -> SocketAddr {
    if !listener.ip().is_unspecified() {
        return listener;
    }
    address_of(stream).unwrap_or(listener)
}

/// The address of our end of a socket.
pub fn address_of(socket: &OwnedFd) -> std::io::Result<SocketAddr> {
    let address = rustix::net::getsockname(socket)?;
    SocketAddr::try_from(address).map_err(|_| std::io::Error::other("not an IP address"))
}
