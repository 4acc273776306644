//! Real calls of real programs, answered by the broker and the connector.
//!
//! Runs in: `cargo test`.

#![allow(clippy::unwrap_used)]

mod world;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use world::{Full, TIMEOUT, WAITING_MAX, errno, grants, run};

/// A server that echoes what comes.
fn echo(at: &str) -> SocketAddr {
    let listener = TcpListener::bind(at).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut byte = [0];
                while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
            });
        }
    });
    address
}

fn echo_datagrams() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut byte = [0];
        while let Ok((_, peer)) = socket.recv_from(&mut byte) {
            socket.send_to(&byte, peer).unwrap();
        }
    });
    address
}

const EXPECTED: &str = "
granted ok
granted-echo echo
granted-blocks True
again EISCONN
unspecified-tcp EACCES
unspecified-tcp-echo echo
closed-port ECONNREFUSED
after-failure ok
forbidden-port EACCES
forbidden-host EACCES
this-host ok
long-address ok
v6 ok
v6-echo echo
v6-short ok
v6-forbidden EACCES
mapped ok
mapped-forbidden EACCES
v6-on-v4 EAFNOSUPPORT
non-blocking True
non-blocking-result 0
non-blocking-again True
non-blocking-stays True
non-blocking-forbidden EACCES
udp ok
udp-echo echo
udp-unspecified ok
udp-sendto True
udp-short-unspecified ok
null EFAULT
bad-pointer EFAULT
short EINVAL
shorter EINVAL
nothing EINVAL
negative EINVAL
too-long EINVAL
unix-address EACCES
closed EBADF
pipe ENOTSOCK
pair EACCES
pair-unspecified EACCES
path EBADF
unharmed ok
plain ok nonblock=False cloexec=False
both-flags ok nonblock=True cloexec=True
udp-nonblock ok nonblock=True cloexec=False
mptcp EPROTONOSUPPORT
sctp EPROTONOSUPPORT
udplite EPROTONOSUPPORT
icmp EPROTONOSUPPORT
raw EPROTONOSUPPORT
tcp-datagram EPROTONOSUPPORT
odd-flag EINVAL
local ok nonblock=False cloexec=False
";

#[test]
fn each_call_has_its_answer() {
    let (server, server6, datagrams) = (echo("127.0.0.1:0"), echo("[::1]:0"), echo_datagrams());
    let forbidden = echo("127.0.0.1:0");
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    run(grants(&[server, server6, closed], true), TIMEOUT, async |world| {
        world.join();
        let program = world.start(move || {
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/calls.py");
            let ports = [server, closed, forbidden, server6, datagrams].map(|at| at.port().to_string());
            let mut command = Command::new("python3");
            let command = command.arg(script).args(ports).stderr(Stdio::inherit());
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        });
        let printed = program.await.unwrap();
        let pairs = |text: &str| -> BTreeMap<String, String> {
            let lines = text.lines().filter_map(|line| line.split_once(' '));
            lines.map(|(name, outcome)| (name.into(), outcome.into())).collect()
        };
        let (found, expected) = (pairs(&printed), pairs(EXPECTED));
        for (name, outcome) in &expected {
            assert_eq!(found.get(name), Some(outcome), "{name}");
        }
        assert_eq!(found.len(), expected.len());
    });
}

#[test]
fn what_was_not_granted_cannot_be_made() {
    let address = "127.0.0.1:1".parse().unwrap();
    for (list, udp, tcp_errno, udp_errno) in [
        (&[address][..], false, None, Some(Errno::ACCESS.raw_os_error())),
        (&[], true, Some(Errno::ACCESS.raw_os_error()), None),
    ] {
        run(grants(list, udp), TIMEOUT, async |world| {
            world.join();
            let made = world.start(|| {
                use rustix::net::{AddressFamily, SocketType, socket};
                let make =
                    |kind| errno(socket(AddressFamily::INET, kind, None).map_err(std::io::Error::from));
                (make(SocketType::STREAM), make(SocketType::DGRAM))
            });
            assert_eq!(made.await.unwrap(), (tcp_errno, udp_errno));
        });
    }
}

#[test]
fn two_hundred_threads_connect_at_once() {
    let server = echo("127.0.0.1:0");
    run(grants(&[server], false), TIMEOUT, async |world| {
        world.join();
        let connected = world.start(move || {
            let connect = move || {
                let mut stream = TcpStream::connect(server)?;
                stream.write_all(b"x")?;
                stream.read_exact(&mut [0])
            };
            let threads: Vec<_> = (0..200).map(|_| std::thread::spawn(connect)).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap().ok()).count()
        });
        assert_eq!(connected.await.unwrap(), 200);
        world.until_waiting(0).await;
    });
}

#[test]
fn calls_beyond_the_limit_are_not_kept() {
    let full = Full::new();
    let address = full.address();
    run(grants(&[address], false), TIMEOUT, async |world| {
        world.join();
        let refused = world.start(move || {
            let (sender, receiver) = std::sync::mpsc::channel();
            for _ in 0..WAITING_MAX + 1 {
                let sender = sender.clone();
                std::thread::spawn(move || sender.send(errno(TcpStream::connect(address))));
            }
            receiver.recv().unwrap()
        });
        // The others wait until the test ends.
        assert_eq!(refused.await.unwrap(), Some(Errno::AGAIN.raw_os_error()));
        while world.calls.waiting() < WAITING_MAX {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(world.broker.counters().connections_now, WAITING_MAX as u32);
    });
}

#[test]
fn a_caller_that_is_killed_is_forgotten() {
    let full = Full::new();
    let address = full.address();
    run(grants(&[address], false), TIMEOUT, async |world| {
        world.join();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let program = world.start(move || {
            let code = format!("import socket; socket.create_connection(('127.0.0.1', {}))", address.port());
            let child = Command::new("python3").args(["-c", &code]).spawn().unwrap();
            sender.send(child).unwrap();
        });
        program.await.unwrap();
        let mut child = receiver.await.unwrap();
        while world.calls.waiting() == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        world.until_waiting(0).await;
        while world.calls.waiting() > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
}

#[test]
fn one_that_takes_too_long_is_told_so() {
    let full = Full::new();
    let address = full.address();
    run(grants(&[address], false), Duration::from_millis(100), async |world| {
        world.join();
        let outcome = world.start(move || errno(TcpStream::connect(address)));
        assert_eq!(outcome.await.unwrap(), Some(Errno::TIMEDOUT.raw_os_error()));
    });
    run(grants(&[address], false), TIMEOUT, async |world| {
        world.join();
        let outcome = world.start(move || {
            use rustix::net::sockopt::{Timeout, set_socket_timeout};
            use rustix::net::{AddressFamily, SocketType, connect, socket};
            let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            set_socket_timeout(&socket, Timeout::Send, Some(Duration::from_millis(50))).unwrap();
            connect(&socket, &address).unwrap_err()
        });
        assert_eq!(outcome.await.unwrap(), Errno::INPROGRESS, "as the kernel says of SO_SNDTIMEO");
    });
}

#[test]
fn without_a_connector_the_network_is_unreachable() {
    run(grants(&[], true), Duration::from_millis(100), async |world| {
        let outcome = world.start(|| errno(UdpSocket::bind("127.0.0.1:0")));
        assert_eq!(outcome.await.unwrap(), Some(Errno::NETUNREACH.raw_os_error()));
    });
}

#[test]
fn a_connector_that_comes_late_is_waited_for() {
    let server = echo("127.0.0.1:0");
    run(grants(&[server], false), TIMEOUT, async |world| {
        let outcome = world.start(move || errno(TcpStream::connect(server)));
        tokio::time::sleep(Duration::from_millis(20)).await;
        world.join();
        assert_eq!(outcome.await.unwrap(), None);
    });
}

#[test]
fn a_connector_that_ends_leaves_its_work_to_the_next() {
    let mut full = Full::new();
    let address = full.address();
    run(grants(&[address], false), TIMEOUT, async |world| {
        world.join();
        let outcome = world.start(move || {
            let stream = TcpStream::connect(address)?;
            Ok(rustix::fs::fcntl_getfl(&stream)?.contains(rustix::fs::OFlags::NONBLOCK))
        });
        while world.calls.waiting() == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        world.end_connector(grants(&[address], false)).await;
        world.join();
        while world.calls.waiting() == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        full.accept_all();
        let nonblocking: std::io::Result<bool> = outcome.await.unwrap();
        assert!(!nonblocking.unwrap(), "its socket blocks as before");
    });
}

#[test]
fn a_broker_that_ends_leaves_its_callers_to_the_next() {
    let mut full = Full::new();
    let address = full.address();
    let server = echo("127.0.0.1:0");
    run(grants(&[address, server], false), TIMEOUT, async |world| {
        world.join();
        let outcome = world.start(move || errno(TcpStream::connect(address)));
        while world.calls.waiting() == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        world.replace_broker().await;
        let later = world.start(move || errno(TcpStream::connect(server)));
        world.join();
        assert_eq!(later.await.unwrap(), None);
        full.accept_all();
        assert_eq!(outcome.await.unwrap(), None);
    });
}
