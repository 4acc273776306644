//! Attempts on the network.
//!
//! Runs in: the probe. Never: talks to another machine.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use sys::attempt::{Arg, calls};

use super::{Attempt, finding};

/// They take a port or a name of this machine.
pub const ATTEMPTS: &[Attempt] = &[
    ("connect", |port| finding(TcpStream::connect(("127.0.0.1", port.parse().expect("a port"))))),
    ("listen", |_| finding(TcpListener::bind("127.0.0.1:0"))),
    ("datagrams", |_| finding(UdpSocket::bind("127.0.0.1:0"))),
    ("abstract", |name| finding(UnixStream::connect_addr(&named(name)))),
    ("abstract-listen", |name| finding(UnixListener::bind_addr(&named(name)))),
    ("socket-file", |path| finding(UnixStream::connect(path))),
    ("socket", socket),
    ("pair", |_| finding(UnixStream::pair())),
];

fn named(name: &str) -> SocketAddr {
    SocketAddr::from_abstract_name(name).expect("a short name")
}

/// Makes a socket: `family type`.
fn socket(parameters: &str) -> String {
    let (family, kind) = parameters.split_once(' ').expect("a family and a type");
    let number = |text: &str| Arg::Int(text.parse().expect("a number"));
    finding(calls::SOCKET.make(&mut [number(family), number(kind), Arg::Int(0)]))
}
