//! What waits to be told to one child: in order, and no more of it than a child that reads lets pile up.
//!
//! Runs in: the launcher. Sees no untrusted bytes. Never: waits for a child.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::foreign::Foreign;

/// LIMIT: bytes that wait for a child which serves. Sixteen administrators who ask for the status of 5,000 processes at
/// once are answered within it.
const BYTES_MAX: usize = 16 << 20;
/// LIMIT: descriptors that wait for a child which serves; each is one of the launcher's own. A child that serves is
/// told of others one by one, as they are started.
const DESCRIPTORS_MAX: usize = 1024;
/// What a message takes besides its own bytes.
const OVERHEAD: usize = size_of::<Waiting>() + 16;

/// A descriptor that goes with a message.
#[derive(Debug)]
pub enum Passed {
    /// One that the launcher has for this message alone, and closes when it is sent. Of one that never is, the other
    /// end may be with somebody who has sent something meanwhile.
    Own(Foreign),
    /// One that the launcher keeps: however many wait, there are no more descriptors than before.
    Kept(Arc<File>),
}

impl From<OwnedFd> for Passed {
    fn from(own: OwnedFd) -> Self {
        Self::Own(own.into())
    }
}

impl AsFd for Passed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(own) => own.as_fd(),
            Self::Kept(kept) => kept.as_fd(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) bytes: Vec<u8>,
    pub(crate) descriptor: Option<Passed>,
    /// Whether it counts.
    pub(crate) counts: bool,
}

/// Messages for one child.
#[derive(Debug, Default)]
pub struct Outbox {
    messages: VecDeque<Waiting>,
    bytes: usize,
    descriptors: usize,
}

impl Outbox {
    /// Adds a message. Those of a child's set-up do not count: the configuration says how many there are, and the child
    /// has until its deadline to read them.
    pub fn push(&mut self, bytes: Vec<u8>, descriptor: Option<Passed>, set_up: bool) {
        let message = Waiting { bytes, descriptor, counts: !set_up };
        let (bytes, descriptors) = message.weight();
        self.bytes += bytes;
        self.descriptors += descriptors;
        self.messages.push_back(message);
    }

    /// Sends what there is room for.
    ///
    /// # Errors
    /// The child has closed its channel, or is gone.
    pub fn flush(&mut self, channel: BorrowedFd<'_>) -> io::Result<()> {
        while let Some(message) = self.messages.front() {
            match sys::seqpacket::send(channel, &message.bytes, message.descriptor.as_ref().map(AsFd::as_fd))
            {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                result => result?,
            }
            let (bytes, descriptors) = message.weight();
            self.bytes -= bytes;
            self.descriptors -= descriptors;
            if let Some(Waiting { descriptor: Some(Passed::Own(own)), .. }) = self.messages.pop_front() {
                own.close_here();
            }
        }
        Ok(())
    }

    /// Whether more waits than a child that reads lets pile up.
    pub fn is_over(&self) -> bool {
        self.bytes > BYTES_MAX || self.descriptors > DESCRIPTORS_MAX
    }

    /// Whether something waits for room.
    pub fn has_waiting(&self) -> bool {
        !self.messages.is_empty()
    }

    /// The messages, in their order.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Waiting> {
        self.messages.iter()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Waiting {
    /// Bytes and descriptors, as they count.
    fn weight(&self) -> (usize, usize) {
        if self.counts {
            (self.bytes.len() + OVERHEAD, usize::from(matches!(self.descriptor, Some(Passed::Own(_)))))
        } else {
            (0, 0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn null() -> Option<Passed> {
        Some(OwnedFd::from(File::open("/dev/null").unwrap()).into())
    }

    /// How many messages are taken before there are too many.
    fn until_over(bytes: usize, descriptor: bool, set_up: bool, most: usize) -> Option<usize> {
        let mut outbox = Outbox::default();
        (1..=most).find(|_| {
            outbox.push(vec![0; bytes], if descriptor { null() } else { None }, set_up);
            outbox.is_over()
        })
    }

    #[test]
    fn bytes_are_bounded_however_short_or_long_the_messages() {
        let of_one = |bytes: usize| BYTES_MAX / (bytes + OVERHEAD) + 1;
        assert_eq!(until_over(wire::MESSAGE_MAX, false, false, 1000), Some(of_one(wire::MESSAGE_MAX)));
        assert_eq!(until_over(2, false, false, BYTES_MAX), Some(of_one(2)));
    }

    #[test]
    fn descriptors_are_bounded_by_themselves() {
        assert_eq!(until_over(2, true, false, 10_000), Some(DESCRIPTORS_MAX + 1));
    }

    #[test]
    fn what_the_launcher_keeps_is_no_descriptor_more() {
        let (mut outbox, kept) = (Outbox::default(), Arc::new(File::open("/dev/null").unwrap()));
        (0..10_000).for_each(|_| outbox.push(vec![0; 2], Some(Passed::Kept(kept.clone())), false));
        assert!(!outbox.is_over());
    }

    #[test]
    fn a_set_up_has_the_size_of_the_configuration() {
        assert_eq!(until_over(100, false, true, 300_000), None);
        assert_eq!(until_over(2, true, true, DESCRIPTORS_MAX * 2), None);
    }

    #[test]
    fn what_was_sent_does_not_wait() {
        let (ours, theirs) = sys::seqpacket::pair().unwrap();
        let (mut outbox, mut buffer) = (Outbox::default(), [0; 8]);
        for number in 0..5000_u16 {
            outbox.push(
                number.to_le_bytes().into(),
                if number % 10 == 0 { null() } else { None },
                number < 50,
            );
        }
        let mut heard = 0..5000_u16;
        while outbox.has_waiting() {
            outbox.flush(ours.as_fd()).unwrap();
            while let Ok(got) = sys::seqpacket::receive(&theirs, &mut buffer) {
                let (got, number) = (got.unwrap(), heard.next().unwrap());
                assert_eq!(buffer[..got.len], number.to_le_bytes());
                assert_eq!(got.descriptor.is_some(), number % 10 == 0);
            }
        }
        assert_eq!(heard.next(), None);
        assert_eq!((outbox.bytes, outbox.descriptors), (0, 0));
        drop(theirs);
        outbox.push(vec![1], None, false);
        assert!(outbox.flush(ours.as_fd()).is_err());
    }
}
