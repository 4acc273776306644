//! Message channels between two processes: `SOCK_SEQPACKET` Unix sockets that carry descriptors.
//!
//! Runs in: every process. Sees: whatever the peer sends, as opaque bytes. Never: interprets them, and never
//! lets a descriptor that came along leak: each is owned from the moment it arrives.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// The most descriptors that one message may carry.
///
/// LIMIT: no message of `wire` carries more than one; what a hostile peer adds beyond this is cut off by the
/// kernel, and the message is refused.
pub const DESCRIPTORS_MAX: usize = 2;

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

/// Receives one message into `buffer`; `None` at the end of the channel.
///
/// # Errors
/// `WouldBlock` when nothing is there; `InvalidData` when the message was longer than the buffer or carried
/// more than [`DESCRIPTORS_MAX`] descriptors: it is consumed and its descriptors are closed.
pub fn receive(channel: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<Received>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(
        channel,
        &mut [IoSliceMut::new(buffer)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
    )?;
    let mut descriptor = None;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut arrived) = part {
            descriptor = descriptor.or(arrived.next());
        }
    }
    if message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "message or its descriptors over the limit"));
    }
    // A message of no bytes is never sent; the kernel reports the end of the channel in the same way.
    Ok((message.bytes > 0).then_some(Received { len: message.bytes, descriptor }))
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
    fn tells_the_end_and_an_empty_channel_apart() {
        let (a, b) = pair().unwrap();
        assert_eq!(receive(&b, &mut [0; 1]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(a);
        assert!(receive(&b, &mut [0; 1]).unwrap().is_none());
    }
}
