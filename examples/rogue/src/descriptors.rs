//! Descriptors that take long to close, sent on every channel.
//!
//! Runs in: `rogue`. Sees no untrusted bytes. Never: sends one to a worker in the place of a gate, which has no right
//! to make any that takes long; keeps one, so that whoever has got it closes the last.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::{MemfdFlags, inotify, memfd_create};
use rustix::net::sockopt::set_socket_linger;
use rustix::pipe::pipe;
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use sys::seqpacket;

use crate::hands::{DESCRIPTORS_MAX, flood, send};
use crate::place::Place;

/// Of one kind, in one message: of inotify instances, a user may have 128.
const MANY: usize = 110;
/// Messages with one of them.
const FLOOD: usize = 5;
const LINGER: Duration = Duration::from_secs(100_000);

/// Each kind that this process may make, in a word.
fn kinds() -> Vec<(&'static str, Vec<OwnedFd>)> {
    let many = |make: &dyn Fn() -> Option<OwnedFd>| (0..MANY).map_while(|_| make()).collect::<Vec<_>>();
    let kinds: [(&str, &dyn Fn() -> Option<OwnedFd>); 8] = [
        ("lingering sockets", &lingering),
        ("inotify instances", &|| inotify::init(inotify::CreateFlags::CLOEXEC).ok()),
        ("epolls", &|| epoll::create(epoll::CreateFlags::CLOEXEC).ok()),
        ("eventfds", &|| eventfd(0, EventfdFlags::CLOEXEC).ok()),
        ("pipes", &|| pipe().ok().map(|(reading, _)| reading)),
        ("pidfds", &|| pidfd_open(getpid(), PidfdFlags::empty()).ok()),
        ("files in memory", &filled_memory),
        ("channels with descriptors in them", &nested),
    ];
    kinds.map(|(what, make)| (what, many(make))).into()
}

/// A socket with unread bytes whose last owner waits for a day, where such a one can be had.
fn lingering() -> Option<OwnedFd> {
    let listener = TcpListener::bind("127.0.0.1:0").ok()?;
    let mut stream = TcpStream::connect(listener.local_addr().ok()?).ok()?;
    stream.set_nonblocking(true).ok()?;
    while stream.write(&[0; 65_536]).is_ok() {}
    set_socket_linger(&stream, Some(LINGER)).ok()?;
    std::mem::forget(listener);
    Some(stream.into())
}

fn filled_memory() -> Option<OwnedFd> {
    let memory = memfd_create("rogue", MemfdFlags::CLOEXEC).ok()?;
    rustix::io::write(&memory, &[1; 65_536]).ok()?;
    Some(memory)
}

/// A channel in which other descriptors wait.
fn nested() -> Option<OwnedFd> {
    let (one, other) = seqpacket::pair().ok()?;
    let inner =
        inotify::init(inotify::CreateFlags::CLOEXEC).or_else(|_| epoll::create(epoll::CreateFlags::CLOEXEC));
    send(&one, b"x", &[inner.ok()?.as_fd()]);
    Some(other)
}

/// Sends every kind on every channel, in one message and in many.
pub fn all(place: &mut Place) {
    for (what, descriptors) in kinds() {
        let borrowed: Vec<_> = descriptors.iter().map(|one| one.as_fd()).collect();
        if borrowed.is_empty() {
            place.tell(format_args!("descriptors: no {what} can be had"));
            continue;
        }
        let proxies = place.proxies.iter().map(|(channel, _)| channel);
        let channels = std::iter::once(&place.control)
            .chain(&place.log)
            .chain(&place.sources)
            .chain(&place.publishers)
            .chain(&place.orders)
            .chain(&place.clients)
            .chain(&place.signers)
            .chain(&place.connectors)
            .chain(&place.logs)
            .chain(proxies);
        for channel in channels {
            send(channel, &[0xEE; 30], &borrowed[..borrowed.len().min(DESCRIPTORS_MAX)]);
            flood(channel, FLOOD, &borrowed[..1]);
        }
        place.tell(format_args!("descriptors: {} {what}", borrowed.len()));
    }
}
