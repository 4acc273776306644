//! What is behind a site: a service, a connector, and servers of HTTP/1.1 and FastCGI. They say the same to every
//! request, and keep their connections.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};

use rustix::event::{PollFd, PollFlags, poll};
use wire::{FromConnector, Message, ToConnector};
use worker::receiver::Receiver;

/// Takes the connections of a server.
pub type Server = Sender<UnixStream>;

/// A response with 200 and a length.
pub const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello";

/// A worker that answers everything with [`RESPONSE`], closing the connection if `closes`; `from_site` says from where
/// its connections come. What is returned is the other end of its channel.
pub fn worker(from_site: bool, closes: bool) -> OwnedFd {
    let (ours, theirs) = sys::seqpacket::pair().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let receiver = Receiver::new(1000);
            receiver.attach(theirs, from_site).unwrap();
            while let Some(arrival) = receiver.next().await {
                let stream = UnixStream::from(arrival.stream);
                stream.set_nonblocking(false).unwrap();
                let guard = arrival.guard;
                if closes {
                    answer(stream, HEAD_END, RESPONSE, true);
                    drop(guard);
                } else {
                    std::thread::spawn(move || answer(stream, HEAD_END, RESPONSE, false));
                    std::mem::forget(guard);
                }
            }
        });
    });
    ours
}

/// A connector for these targets; the site's end of its channel.
pub fn connector(targets: &[(u16, Server)]) -> OwnedFd {
    let (ours, theirs) = sys::seqpacket::pair().unwrap();
    let targets = targets.to_vec();
    std::thread::spawn(move || {
        let (mut buffer, mut message) = (vec![0; wire::MESSAGE_MAX], Vec::new());
        loop {
            poll(&mut [PollFd::new(&theirs, PollFlags::IN)], None).unwrap();
            let Ok(Some(got)) = sys::seqpacket::receive(&theirs, &mut buffer) else { return };
            let ToConnector::Connect { id, target } = ToConnector::decode(&buffer[..got.len]).unwrap() else {
                continue;
            };
            let (site, server) = UnixStream::pair().unwrap();
            targets.iter().find(|(number, _)| *number == target).unwrap().1.send(server).unwrap();
            message.clear();
            FromConnector::Connected { id }.encode(&mut message);
            sys::seqpacket::send(&theirs, &message, Some(site.as_fd())).unwrap();
        }
    });
    ours
}

const HEAD_END: &[u8] = b"\r\n\r\n";

/// A server of HTTP/1.1, for requests without bodies.
pub fn http() -> Server {
    server(HEAD_END, RESPONSE)
}

/// A FastCGI server.
pub fn fastcgi() -> Server {
    const OUTPUT: &[u8] = b"Content-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello";
    let mut response = vec![1, 6, 0, 1, 0, OUTPUT.len() as u8, 0, 0];
    response.extend(OUTPUT);
    // FCGI_END_REQUEST, FCGI_REQUEST_COMPLETE.
    response.extend([1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    // The end of FCGI_STDIN.
    server(&[1, 5, 0, 1, 0, 0, 0, 0], &response)
}

/// A server that says `response` to what ends with `end`.
fn server(end: &'static [u8], response: &[u8]) -> Server {
    let (sender, receiver) = channel::<UnixStream>();
    let response = response.to_vec();
    std::thread::spawn(move || {
        for stream in receiver {
            let response = response.clone();
            std::thread::spawn(move || answer(stream, end, &response, false));
        }
    });
    sender
}

/// Answers what ends with `end` by `response`; `once`, or until the peer closes.
fn answer(mut stream: impl Read + Write, end: &[u8], response: &[u8], once: bool) {
    let (mut buffer, mut read) = (vec![0; 65536], 0);
    while let Ok(count @ 1..) = stream.read(&mut buffer[read..]) {
        read += count;
        if buffer[..read].ends_with(end) {
            let _ = stream.write_all(response);
            read = 0;
            if once {
                return;
            }
        }
    }
}
