//! One connection in the gate: waiting for a whole head, finding its partition, passing it on.
//!
//! Runs in: the gate. Sees: the first bytes of the connection, which anybody may send. Never: takes them out of
//! the socket, looks at the same bytes twice without need, or waits without a deadline.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use request::head::{self, Checked};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::io::unix::AsyncFd;
use worker::outlets::Outgoing;

use crate::answer::{self, Refusal};
use crate::desk::{Desk, Share};

/// LIMIT: how long a kept-alive connection that was handed back may be idle here, as in a worker by default.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// What is known of a connection that this gate holds, besides its descriptor.
pub struct Connection {
    desk: Rc<Desk>,
    peer: SocketAddr,
    local: SocketAddr,
    /// Bytes that a worker had read before it handed the connection back.
    taken: Vec<u8>,
    since: Instant,
    /// How many bytes have been searched for the end of the head already.
    searched: usize,
    /// Its place among those that a partition's workers handed back.
    share: Option<Share>,
}

/// What a look at the connection showed.
enum Seen {
    /// No whole head yet; whether anything is there at all.
    Partial { begun: bool },
    /// The client has closed its side.
    Gone,
    /// A whole head for this partition of that site.
    Whole { partition: u16 },
    /// It is answered here, in the log of that site.
    Refused(Refusal, u16),
}

impl Connection {
    /// Takes a new connection: most have their head there already, and are passed on at once.
    pub fn accepted(desk: Rc<Desk>, stream: OwnedFd, peer: SocketAddr, local: SocketAddr) {
        let since = Instant::now();
        Self { desk, peer, local, taken: Vec::new(), since, searched: 0, share: None }.begin(stream, false);
    }

    /// Takes a connection that a worker handed back.
    pub fn handed_back(desk: Rc<Desk>, stream: OwnedFd, taken: Vec<u8>, share: Share) {
        let address = |found: rustix::io::Result<rustix::net::SocketAddrAny>| {
            found.ok().and_then(|found| SocketAddr::try_from(found).ok())
        };
        let peer = rustix::net::getpeername(&stream)
            .map(|found| found.ok_or(Errno::NOTCONN))
            .and_then(|found| found);
        let (peer, local) = (address(peer), address(rustix::net::getsockname(&stream)));
        let (Some(peer), Some(local)) = (peer, local) else {
            // Not a connection of a client, or one that is gone.
            return desk.went();
        };
        let idle = taken.is_empty();
        let since = Instant::now();
        Self { desk, peer, local, taken, since, searched: 0, share: Some(share) }.begin(stream, idle);
    }

    fn begin(mut self, stream: OwnedFd, idle: bool) {
        match self.look(&stream) {
            // SECURITY: a worker may hand one connection back any number of times.
            Seen::Partial { .. }
                if self.share.as_ref().is_some_and(|share| share.exceeds(&self.desk.limits)) =>
            {
                self.desk.went();
            }
            Seen::Partial { .. } => {
                tokio::task::spawn_local(self.wait(stream, idle));
            }
            seen => self.settle(stream, seen),
        }
    }

    /// Looks at what is there, without taking it.
    fn look(&mut self, stream: &OwnedFd) -> Seen {
        let desk = self.desk.clone();
        let mut buffer = desk.peeked.borrow_mut();
        let before = self.taken.len().min(buffer.len());
        buffer[..before].copy_from_slice(&self.taken[..before]);
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let there = match recv(stream, &mut buffer[before..], flags) {
            Ok((0, _)) if before < buffer.len() => return self.look_at_last(&buffer[..before]),
            Ok((count, _)) => before + count,
            Err(Errno::AGAIN | Errno::INTR) => before,
            Err(_) => return Seen::Gone,
        };
        self.examine(&buffer[..there])
    }

    /// The client sends no more; a whole head may be among what it sent before.
    fn look_at_last(&mut self, bytes: &[u8]) -> Seen {
        match self.examine(bytes) {
            Seen::Partial { .. } => Seen::Gone,
            seen => seen,
        }
    }

    fn examine(&mut self, bytes: &[u8]) -> Seen {
        let limit = self.desk.limits.head_bytes;
        // The first look also tells what is no HTTP at all; later ones wait for the end of the head, so that a
        // client which sends byte by byte costs a search of each byte and not a parse of all before it.
        let first = self.searched == 0;
        let from = self.searched.saturating_sub(3);
        self.searched = bytes.len();
        let ended = memchr::memmem::find(&bytes[from.min(bytes.len())..], b"\r\n\r\n").is_some();
        if bytes.is_empty() || !(first || ended || bytes.len() > limit) {
            return Seen::Partial { begun: !bytes.is_empty() };
        }
        match head::check(bytes, limit) {
            Checked::Partial => Seen::Partial { begun: true },
            Checked::Refused(refusal) => Seen::Refused(Refusal::Head(refusal), wire::NO_PARTITION),
            Checked::Whole(head) => match self.desk.place(self.local, &head) {
                None => Seen::Refused(Refusal::NoSuchPlace, wire::NO_PARTITION),
                Some(place) if self.desk.partition(place.partition).broken.get() => {
                    Seen::Refused(Refusal::Broken, place.site)
                }
                Some(place) => Seen::Whole { partition: place.partition },
            },
        }
    }

    /// Waits for the rest of the head.
    async fn wait(mut self, stream: OwnedFd, mut idle: bool) {
        let Ok(watched) = worker::watch(stream) else {
            return self.desk.went();
        };
        loop {
            let allowed = if idle { IDLE_TIMEOUT } else { self.desk.limits.head_timeout };
            let deadline = self.since + allowed;
            match tokio::time::timeout_at(deadline.into(), self.more(&watched)).await {
                Ok(Seen::Partial { begun }) => {
                    if idle && begun {
                        (idle, self.since) = (false, Instant::now());
                    }
                }
                Ok(seen) => return self.settle(watched.into_inner(), seen),
                // Nothing was asked, so there is nothing to answer.
                Err(_) if self.searched == 0 => return self.desk.went(),
                Err(_) => {
                    let late = Refusal::Head(request::head::Refusal::Late);
                    return self.settle(watched.into_inner(), Seen::Refused(late, wire::NO_PARTITION));
                }
            }
        }
    }

    /// Waits until something new has arrived, and looks.
    ///
    /// The event loop tells of arrivals, not of what is there: after a look that was not enough, readiness is
    /// cleared although bytes are left, so that the next one waits for more of them.
    async fn more(&mut self, watched: &AsyncFd<OwnedFd>) -> Seen {
        let Ok(mut ready) = watched.readable().await else {
            return Seen::Gone;
        };
        let seen = self.look(watched.get_ref());
        // SECURITY: bytes that stay in the socket hide the end of the stream from a look, and the event loop
        // reports that end for ever after. A client that closes its side within a head would freeze the gate.
        if matches!(seen, Seen::Partial { .. }) && ready.ready().is_read_closed() {
            return Seen::Gone;
        }
        ready.clear_ready();
        seen
    }

    fn settle(self, stream: OwnedFd, seen: Seen) {
        match seen {
            Seen::Whole { partition } => {
                let partition = self.desk.partition(partition);
                let Self { peer, local, taken, .. } = self;
                partition.outlets.send(Outgoing { stream, peer, local, relayed: false, taken });
            }
            Seen::Refused(refusal, site) => {
                let Self { desk, peer, taken, since, .. } = self;
                answer::refuse(&desk, stream, peer, &taken, site, refusal, since);
            }
            Seen::Gone | Seen::Partial { .. } => self.desk.went(),
        }
    }
}

/// Answers a connection that no worker took.
pub fn refuse_undelivered(desk: &Rc<Desk>, outgoing: Outgoing, site: u16, refusal: Refusal) {
    let Outgoing { stream, peer, taken, .. } = outgoing;
    answer::refuse(desk, stream, peer, &taken, site, refusal, Instant::now());
}

/// Looks once more at the head of a connection that is answered here, for the log.
pub fn peek<'a>(stream: &OwnedFd, taken: &[u8], buffer: &'a mut [u8]) -> &'a [u8] {
    let before = taken.len().min(buffer.len());
    buffer[..before].copy_from_slice(&taken[..before]);
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let more = recv(stream.as_fd(), &mut buffer[before..], flags).map_or(0, |(count, _)| count);
    &buffer[..before + more]
}
