//! The sweep as a filter: of what comes by, a request for it is answered on the client's own connection.
//!
//! Runs in: a filter's jail, in tests. Sees: bundles with a client's connection and the head of its request. Never:
//! looks at more than whether the request is for the sweep; everything else goes on to the next one.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use sys::attempt::odd;

/// LIMIT: a bundle is a head of at most 64 KiB and some dozen bytes.
const BUNDLE_MAX: usize = 80 << 10;
/// The text in the target of a request for the sweep.
const WANTED: &[u8] = b"?sweep-filter";

/// Serves as a filter until the channel ends.
///
/// # Errors
/// The descriptors 3 and 4 are not there, or fail.
pub fn serve() -> io::Result<()> {
    let (from, to) = (channel(3)?, channel(4)?);
    let mut buffer = vec![0; BUNDLE_MAX];
    loop {
        wait(from.as_fd(), PollFlags::IN)?;
        match sys::seqpacket::receive(&from, &mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
            Ok(None) => return Ok(()),
            Ok(Some(received)) => {
                let bundle = &buffer[..received.len];
                let wanted = bundle.windows(WANTED.len()).any(|part| part == WANTED);
                match received.descriptor {
                    Some(connection) if wanted => answer(connection)?,
                    connection => pass_on(&to, bundle, connection.as_ref())?,
                }
            }
        }
    }
}

fn channel(number: i32) -> io::Result<OwnedFd> {
    odd::duplicate(number).ok_or_else(|| io::Error::other(format!("descriptor {number} is not open")))
}

fn wait(channel: BorrowedFd<'_>, what: PollFlags) -> io::Result<()> {
    poll(&mut [PollFd::new(&channel, what)], None)?;
    Ok(())
}

/// The sweep sees the connection among what the process holds.
fn answer(connection: OwnedFd) -> io::Result<()> {
    let body = crate::sweep::run().to_string();
    let length = body.len();
    rustix::io::ioctl_fionbio(&connection, false)?;
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    // A client that has gone is no reason to end.
    let _ = File::from(connection).write_all((head + &body).as_bytes());
    Ok(())
}

fn pass_on(to: &OwnedFd, bundle: &[u8], connection: Option<&OwnedFd>) -> io::Result<()> {
    loop {
        match sys::seqpacket::send(to, bundle, connection.map(AsFd::as_fd)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait(to.as_fd(), PollFlags::OUT)?,
            done => return done,
        }
    }
}
