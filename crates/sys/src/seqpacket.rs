//! Message channels between two processes: `SOCK_SEQPACKET` Unix sockets that carry descriptors.
//!
//! Runs in: every process. Sees: whatever the peer sends, as opaque bytes. Never: interprets them, and never
//! lets a descriptor that came along leak: each is owned from the moment it arrives.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, RecvMsg, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg,
    socketpair,
};

/// The most descriptors that one message may carry.
///
/// LIMIT: no message of `wire` carries more than one, but for those that [`receive_many`] is for; what a hostile peer
/// adds beyond this is cut off by the kernel, and the message is refused.
pub const DESCRIPTORS_MAX: usize = 2;

/// The most descriptors that a message may carry which [`send_many`] sends and [`receive_many`] receives.
///
/// LIMIT: as many connections as a gate accepts in one turn; the kernel's own limit is 253.
pub const MANY_MAX: usize = 64;

/// A message that arrived on a channel.
#[derive(Debug)]
pub struct Received {
    /// How many bytes of the buffer it fills.
    pub len: usize,
    /// The first descriptor that came along, if any; further ones have been closed.
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

/// Makes a connected pair of byte streams: non-blocking, closed on exec.
pub fn stream_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?)
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
/// `WouldBlock` when nothing is there; `InvalidData` when the message was longer than the buffer or carried
/// more than [`DESCRIPTORS_MAX`] descriptors: it is consumed and its descriptors are closed.
pub fn receive(channel: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<Received>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut descriptor = None;
    // Those that the closure does not keep are closed.
    let keep = |arrived: OwnedFd| {
        descriptor.get_or_insert(arrived);
    };
    let received = receive_with(channel, buffer, &mut space, RecvFlags::empty(), keep)?;
    Ok(received.map(|len| Received { len, descriptor }))
}

/// Looks at the next message, which stays in the channel; how many bytes of the buffer it fills, or `None` at the end of
/// the channel. Descriptors that came along are closed.
///
/// # Errors
/// Those of [`receive`]; the message stays there all the same.
pub fn peek(channel: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    receive_with(channel, buffer, &mut space, RecvFlags::PEEK, drop)
}

/// Takes the next message out of the channel unread.
///
/// # Errors
/// `WouldBlock` when nothing is there.
pub fn discard(channel: impl AsFd) -> io::Result<()> {
    next(channel, &mut [], &mut RecvAncillaryBuffer::default(), RecvFlags::empty())?;
    Ok(())
}

/// As [`receive`], where more descriptors may come along, at most [`MANY_MAX`]: they are added to `descriptors` in their
/// order. How many bytes of the buffer the message fills.
///
/// # Errors
/// Those of [`receive`].
pub fn receive_many(
    channel: impl AsFd,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<Option<usize>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MANY_MAX))];
    let before = descriptors.len();
    let keep = |arrived| descriptors.push(arrived);
    let received = receive_with(channel, buffer, &mut space, RecvFlags::empty(), keep);
    // The kernel rounds the space up.
    let too_many = descriptors.len() - before > MANY_MAX;
    if too_many || received.is_err() {
        descriptors.truncate(before);
    }
    if too_many {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "descriptors over the limit"));
    }
    received
}

fn receive_with(
    channel: impl AsFd,
    buffer: &mut [u8],
    space: &mut [MaybeUninit<u8>],
    how: RecvFlags,
    keep: impl FnMut(OwnedFd),
) -> io::Result<Option<usize>> {
    let mut control = RecvAncillaryBuffer::new(space);
    let message = next(channel, &mut [IoSliceMut::new(buffer)], &mut control, how)?;
    let rights = control.drain().filter_map(|part| match part {
        RecvAncillaryMessage::ScmRights(arrived) => Some(arrived),
        _ => None,
    });
    rights.flatten().for_each(keep);
    if message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "message or its descriptors over the limit"));
    }
    // A message of no bytes is never sent; the kernel reports the end of the channel in the same way.
    Ok((message.bytes > 0).then_some(message.bytes))
}

/// The next message. When a peer has ended without having read all that was sent to it, the kernel says so once, ahead of
/// what that peer had sent: its last messages come after.
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
