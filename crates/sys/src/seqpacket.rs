//! Message channels between two processes: `SOCK_SEQPACKET` Unix sockets that carry descriptors.
//!
//! Runs in: every process. Sees: whatever the peer sends, as opaque bytes. Never: interprets them, and never
//! lets a descriptor that came along leak: each is owned from the moment it arrives.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, RecvMsg, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};

use crate::foreign;
use crate::socket_option::set;

/// The most descriptors that one message may carry.
///
/// LIMIT: no message of `wire` carries more than one, but for those that [`receive_many`] is for; what a hostile peer
/// adds beyond this has the message refused.
pub const DESCRIPTORS_MAX: usize = 1;

/// The most descriptors that the kernel lets pass with a message (`SCM_MAX_FD`). There is room for all of them: what
/// the kernel has to cut off, it closes while the receiver waits.
const KERNEL_MAX: usize = 253;

/// The most descriptors that a message may carry which [`send_many`] sends and [`receive_many`] receives.
///
/// LIMIT: as many connections as a gate accepts in one turn; the kernel's own limit is 253.
pub const MANY_MAX: usize = 64;

/// A message that arrived on a channel.
#[derive(Debug)]
pub struct Received {
    /// How many bytes of the buffer it fills.
    pub len: usize,
    /// The descriptor that came along, if any.
    pub descriptor: Option<OwnedFd>,
}

/// Makes a connected pair of channels: non-blocking, closed on exec.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?)
}

/// Makes a connected pair of channels, of which each end takes descriptors or none, as said: the second end's peer has
/// the first.
///
/// Kernels before 6.16 let all pass; who receives them has to bear it (docs/security/threat-model.md).
///
/// # Errors
/// There is no descriptor left.
pub fn pair_that_takes(one: bool, other: bool) -> io::Result<(OwnedFd, OwnedFd)> {
    let pair = pair()?;
    for (end, takes) in [(&pair.0, one), (&pair.1, other)] {
        if !takes {
            refuse_descriptors(end)?;
        }
    }
    Ok(pair)
}

/// Makes a connected pair of byte streams: non-blocking, closed on exec; neither end takes descriptors, as for
/// [`pair_that_takes`].
pub fn stream_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let pair = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    refuse_descriptors(&pair.0)?;
    refuse_descriptors(&pair.1)?;
    Ok(pair)
}

/// Whether a Unix socket takes descriptors (`unix(7)`); the number on the processors that this is made for.
pub const SO_PASSRIGHTS: libc::c_int = 83;

/// Has the kernel refuse descriptors on their way to this end, from now on: who sends one gets EPERM. Whether it does;
/// kernels before 6.16 do not.
///
/// # Errors
/// It is no Unix socket.
pub fn refuse_descriptors(end: impl AsFd) -> io::Result<bool> {
    match set(end, libc::SOL_SOCKET, SO_PASSRIGHTS, 0) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the kernel refuses descriptors on their way to this end.
pub fn refuses_descriptors(end: impl AsFd) -> bool {
    matches!(takes_descriptors(end), Ok(false))
}

/// Whether descriptors get to this end.
///
/// # Errors
/// It is no Unix socket; `ENOPROTOOPT` where the kernel has no such option, and lets all pass.
pub(crate) fn takes_descriptors(end: impl AsFd) -> io::Result<bool> {
    let mut takes: libc::c_int = 1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    let number = end.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open for as long as it is borrowed; the kernel writes no more than the integer that
    // `length` says.
    let result = unsafe {
        libc::getsockopt(number, libc::SOL_SOCKET, SO_PASSRIGHTS, (&raw mut takes).cast(), &raw mut length)
    };
    if result == 0 { Ok(takes != 0) } else { Err(io::Error::last_os_error()) }
}

/// Sends one message, with at most one descriptor, or nothing at all.
///
/// # Errors
/// `WouldBlock` when the channel is full, `BrokenPipe` when the peer is gone.
pub fn send(channel: impl AsFd, message: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    send_parts(channel, &[IoSlice::new(message)], descriptor)
}

/// As [`send`], for a message that lies in several pieces.
pub fn send_parts(
    channel: impl AsFd,
    parts: &[IoSlice<'_>],
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let descriptors = descriptor.as_slice();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    sendmsg(channel, parts, &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

/// As [`send`], with at most [`MANY_MAX`] descriptors.
///
/// # Errors
/// Those of [`send`]; `InvalidInput` with more descriptors than that.
pub fn send_many(channel: impl AsFd, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    if descriptors.len() > MANY_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MANY_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(channel, &[IoSlice::new(message)], &mut control, flags)?;
    Ok(())
}

/// Receives one message into `buffer`; `None` at the end of the channel.
///
/// # Errors
/// `WouldBlock` when nothing is there; `InvalidData` when the message was longer than the buffer or carried more than
/// [`DESCRIPTORS_MAX`] descriptors: it is consumed, and its descriptors are left to who may wait for their closing.
pub fn receive(channel: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<Received>> {
    let mut arrived = Vec::new();
    let received = receive_with(channel, buffer, RecvFlags::empty(), &mut arrived);
    match received {
        Ok(Some(len)) if arrived.len() <= DESCRIPTORS_MAX => {
            Ok(Some(Received { len, descriptor: arrived.pop() }))
        }
        Ok(Some(_)) => {
            arrived.into_iter().for_each(foreign::leave);
            Err(too_many())
        }
        other => {
            arrived.into_iter().for_each(foreign::leave);
            other.map(|_| None)
        }
    }
}

fn too_many() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "descriptors over the limit")
}

/// Looks at the next message, which stays in the channel; how many bytes of the buffer it fills, or `None` at the end
/// of the channel. Descriptors that came along are left to who may wait for their closing.
///
/// # Errors
/// Those of [`receive`]; the message stays there all the same.
pub fn peek(channel: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    let mut arrived = Vec::new();
    let peeked = receive_with(channel, buffer, RecvFlags::PEEK, &mut arrived);
    arrived.into_iter().for_each(foreign::leave);
    peeked
}

/// Takes the next message out of the channel unread.
///
/// # Errors
/// `WouldBlock` when nothing is there.
pub fn discard(channel: impl AsFd) -> io::Result<()> {
    take(channel).map(drop)
}

/// Takes one message out, and leaves what came along; whether there was one.
fn take(channel: impl AsFd) -> io::Result<bool> {
    let mut arrived = Vec::new();
    let taken = receive_with(channel, &mut [0], RecvFlags::empty(), &mut arrived);
    let is_message = !arrived.is_empty();
    arrived.into_iter().for_each(foreign::leave);
    match taken {
        Ok(length) => Ok(is_message || length.is_some()),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(true),
        Err(error) => Err(error),
    }
}

/// Before a channel from a less trusted process is closed: has it take nothing more, and leaves the descriptors that
/// wait in it to who may wait for their closing.
pub fn empty(channel: impl AsFd) {
    if refuses_descriptors(&channel) || rustix::net::shutdown(&channel, Shutdown::Read).is_err() {
        return;
    }
    while matches!(take(&channel), Ok(true)) {}
}

/// As [`receive`], where more descriptors may come along, at most [`MANY_MAX`]: they are added to `descriptors` in
/// their order. How many bytes of the buffer the message fills.
///
/// # Errors
/// Those of [`receive`].
pub fn receive_many(
    channel: impl AsFd,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<Option<usize>> {
    let before = descriptors.len();
    let received = receive_with(channel, buffer, RecvFlags::empty(), descriptors);
    let are_too_many = descriptors.len() - before > MANY_MAX;
    if are_too_many || !matches!(received, Ok(Some(_))) {
        descriptors.drain(before..).for_each(foreign::leave);
    }
    if are_too_many { Err(too_many()) } else { received }
}

fn receive_with(
    channel: impl AsFd,
    buffer: &mut [u8],
    how: RecvFlags,
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<Option<usize>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(KERNEL_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = next(channel, &mut [IoSliceMut::new(buffer)], &mut control, how)?;
    let rights = control.drain().filter_map(|part| match part {
        RecvAncillaryMessage::ScmRights(arrived) => Some(arrived),
        _ => None,
    });
    rights.flatten().for_each(|arrived| descriptors.push(arrived));
    if message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "message or its descriptors over the limit"));
    }
    // A message of no bytes is never sent; the kernel reports the end of the channel in the same way.
    Ok((message.bytes > 0).then_some(message.bytes))
}

/// The next message. When a peer has ended without having read all that was sent to it, the kernel says so once, ahead
/// of what that peer had sent: its last messages come after.
fn next(
    channel: impl AsFd,
    parts: &mut [IoSliceMut<'_>],
    control: &mut RecvAncillaryBuffer<'_>,
    how: RecvFlags,
) -> rustix::io::Result<RecvMsg> {
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT | how;
    match recvmsg(&channel, parts, control, flags) {
        Err(rustix::io::Errno::CONNRESET) => recvmsg(&channel, parts, control, flags),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn carries_bytes_and_a_descriptor() {
        let (a, b) = pair().unwrap();
        let file = File::open("/dev/null").unwrap();
        send(&a, b"hello", Some(file.as_fd())).unwrap();
        let mut buffer = [0; 16];
        let got = receive(&b, &mut buffer).unwrap().unwrap();
        assert_eq!(&buffer[..got.len], b"hello");
        assert!(got.descriptor.is_some());
    }

    #[test]
    fn an_end_that_takes_no_descriptor_gets_none() {
        let file = File::open("/dev/null").unwrap();
        let (a, b) = pair_that_takes(true, false).unwrap();
        assert_eq!(refuse_descriptors(&b).unwrap(), refuses_descriptors(&b));
        assert!(!refuses_descriptors(&a));
        if !refuses_descriptors(&b) {
            // An older kernel; `control` has another way.
            return;
        }
        for number in [1, 2, MANY_MAX] {
            let refused = send_many(&a, b"x", &vec![file.as_fd(); number]).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        }
        send(&a, b"x", None).unwrap();
        send(&b, b"x", Some(file.as_fd())).unwrap();
        assert!(receive(&a, &mut [0; 16]).unwrap().unwrap().descriptor.is_some());
        let (a, b) = stream_pair().unwrap();
        for end in [&a, &b] {
            assert_eq!(
                send(end, b"x", Some(file.as_fd())).unwrap_err().kind(),
                io::ErrorKind::PermissionDenied
            );
        }
    }

    #[test]
    fn refuses_a_message_over_the_buffer() {
        let (a, b) = pair().unwrap();
        send(&a, &[7; 32], None).unwrap();
        assert_eq!(receive(&b, &mut [0; 16]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_message_stays_until_it_is_discarded() {
        let (a, b) = pair().unwrap();
        let file = File::open("/dev/null").unwrap();
        send(&a, b"first", Some(file.as_fd())).unwrap();
        send(&a, &[7; 32], None).unwrap();
        let mut buffer = [0; 16];
        for _ in 0..2 {
            assert_eq!(peek(&b, &mut buffer).unwrap(), Some(5));
            assert_eq!(&buffer[..5], b"first");
        }
        discard(&b).unwrap();
        assert_eq!(peek(&b, &mut buffer).unwrap_err().kind(), io::ErrorKind::InvalidData);
        discard(&b).unwrap();
        assert_eq!(discard(&b).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(a);
        assert_eq!(peek(&b, &mut buffer).unwrap(), None);
    }

    #[test]
    fn a_peer_that_ended_without_reading_is_heard_to_the_end() {
        let end = || {
            let (a, b) = pair().unwrap();
            let file = File::open("/dev/null").unwrap();
            send(&b, b"unread", None).unwrap();
            send(&a, b"last", Some(file.as_fd())).unwrap();
            drop(a);
            b
        };
        let mut buffer = [0; 16];
        let b = end();
        assert!(receive(&b, &mut buffer).unwrap().unwrap().descriptor.is_some());
        assert!(receive(&b, &mut buffer).unwrap().is_none());
        let b = end();
        assert_eq!(peek(&b, &mut buffer).unwrap(), Some(4));
        let b = end();
        discard(&b).unwrap();
        assert_eq!(peek(&b, &mut buffer).unwrap(), None);
        let (b, mut descriptors) = (end(), Vec::new());
        assert_eq!(receive_many(&b, &mut buffer, &mut descriptors).unwrap(), Some(4));
        assert_eq!(descriptors.len(), 1);
    }

    #[test]
    fn refuses_too_many_descriptors() {
        let (a, b) = pair().unwrap();
        let file = File::open("/dev/null").unwrap();
        // The kernel rounds the space for two descriptors up to four bytes more, so three may fit; nine never do.
        let many = [file.as_fd(); 9];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(9))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&many));
        sendmsg(&a, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
        assert_eq!(receive(&b, &mut [0; 16]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn carries_as_many_descriptors_as_a_message_may_and_no_more() {
        let (a, b) = pair().unwrap();
        let file = File::open("/dev/null").unwrap();
        let (mut buffer, mut descriptors) = ([0; 16], Vec::new());
        send_many(&a, b"hello", &[file.as_fd(); MANY_MAX]).unwrap();
        assert_eq!(receive_many(&b, &mut buffer, &mut descriptors).unwrap(), Some(5));
        assert_eq!(descriptors.len(), MANY_MAX);
        let refused = send_many(&a, b"hello", &[file.as_fd(); MANY_MAX + 1]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        // A peer that has the kernel's limit instead of ours.
        let many = [file.as_fd(); MANY_MAX + 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MANY_MAX + 1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&many));
        sendmsg(&a, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
        let refused = receive_many(&b, &mut buffer, &mut descriptors).unwrap_err();
        assert_eq!((refused.kind(), descriptors.len()), (io::ErrorKind::InvalidData, MANY_MAX));
        // Elsewhere, a message of one edge does not bring those of another.
        send_many(&a, b"hello", &[file.as_fd(); MANY_MAX]).unwrap();
        assert_eq!(receive(&b, &mut buffer).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn tells_the_end_and_an_empty_channel_apart() {
        let (a, b) = pair().unwrap();
        assert_eq!(receive(&b, &mut [0; 1]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(a);
        assert!(receive(&b, &mut [0; 1]).unwrap().is_none());
    }
}
