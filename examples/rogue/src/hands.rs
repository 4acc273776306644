//! Sending what the real programs cannot: any bytes, with any number of descriptors.
//!
//! Runs in: `rogue`. Sees no untrusted bytes. Never: waits for a peer that reads nothing for longer than 2 s.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use wire::Message;

/// How long a peer that reads is waited for.
const ROOM_AFTER: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };
/// The most descriptors that the kernel lets pass with one message.
pub const DESCRIPTORS_MAX: usize = 253;

/// Sends `bytes` with `descriptors` if there is room; where the kernel refuses descriptors on this channel, the bytes
/// alone.
pub fn send(channel: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    // Whether the peer is still there shows in what the others say.
    if let Err(rustix::io::Errno::PERM) = sendmsg(&channel, &[IoSlice::new(bytes)], &mut control, flags) {
        let _ = sendmsg(&channel, &[IoSlice::new(bytes)], &mut SendAncillaryBuffer::default(), flags);
    }
}

/// Sends `count` messages that are none, with descriptors, each as soon as there is room, or until the peer has gone or
/// stays full.
pub fn flood(channel: impl AsFd, count: usize, descriptors: &[BorrowedFd<'_>]) {
    for _ in 0..count {
        let mut room = [PollFd::new(&channel, PollFlags::OUT)];
        if !matches!(poll(&mut room, Some(&ROOM_AFTER)), Ok(1)) || room[0].revents().contains(PollFlags::HUP)
        {
            return;
        }
        send(&channel, &[0xEE; 30], descriptors);
    }
}

/// The bytes of a message.
pub fn encoded(message: &impl Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

/// A message that is wrong, in a word, and how many descriptors come along.
pub struct Wrong {
    pub what: &'static str,
    pub bytes: Vec<u8>,
    pub descriptors: usize,
}

/// Every way in which `good`, a message without a descriptor, can be made a wrong one.
pub fn wrong(good: &[u8]) -> Vec<Wrong> {
    let mut other_version = good.to_vec();
    other_version[0] = 2;
    let with = |more: usize| [good, vec![0; more].as_slice()].concat();
    let wrong = |what, bytes, descriptors| Wrong { what, bytes, descriptors };
    vec![
        wrong("garbage", vec![0xAB; 40], 0),
        wrong("one byte", vec![1], 0),
        wrong("cut", good[..good.len() - 1].to_vec(), 0),
        wrong("another version", other_version, 0),
        wrong("an unknown type", vec![1, 99], 0),
        wrong("one byte more", with(1), 0),
        wrong("oversized", with(wire::MESSAGE_MAX), 0),
        wrong("one descriptor", good.to_vec(), 1),
        wrong("two descriptors", good.to_vec(), 2),
        wrong("253 descriptors", good.to_vec(), DESCRIPTORS_MAX),
    ]
}

/// Sends a wrong message with copies of `descriptor`, whatever comes of it.
pub fn send_wrong(channel: impl AsFd, wrong: &Wrong, descriptor: BorrowedFd<'_>) {
    send(channel, &wrong.bytes, &vec![descriptor; wrong.descriptors]);
}
