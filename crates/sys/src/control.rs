//! The channel between the launcher and a child: what the launcher says may bring descriptors, what a child says never
//! does.
//!
//! Runs in: the launcher and the guard (their end), every child (its ends). Sees: what a child says, as opaque bytes of
//! any framing. Never: lets a descriptor of a child's reach the launcher. Who closes one may wait for whoever has made
//! it.
//!
//! Where the kernel has `SO_PASSRIGHTS` (6.16), it refuses descriptors on the way to the launcher, and the channel is
//! one socket. On an older one the launcher's end of that socket takes nothing at all, and a child speaks by a pipe of
//! packets, which carries no descriptors. A pipe is the second choice: who reads it waits while somebody writes, and
//! that may take as long as the writer's memory takes to come from a disk.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::seqpacket;

/// The launcher's end.
#[derive(Debug)]
pub struct ControlEnd {
    socket: OwnedFd,
    /// Where the child is heard if the socket takes nothing.
    heard: Option<OwnedFd>,
}

/// The child's ends.
#[derive(Debug)]
pub struct ChildEnds {
    /// What the launcher says.
    pub control: OwnedFd,
    /// Where the child speaks, if not there.
    pub say: Option<OwnedFd>,
}

impl ControlEnd {
    /// Makes a channel: non-blocking, closed on exec.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn pair() -> io::Result<(Self, ChildEnds)> {
        let (socket, control) = seqpacket::pair()?;
        let (heard, say) =
            if seqpacket::refuse_descriptors(&socket)? { (None, None) } else { one_way(&socket)? };
        Ok((Self { socket, heard }, ChildEnds { control, say }))
    }

    /// The end that a launcher before this one had.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn known(socket: OwnedFd, heard: Option<OwnedFd>) -> io::Result<Self> {
        // A launcher that had no such option took whatever came.
        if heard.is_none() && !seqpacket::refuse_descriptors(&socket)? {
            rustix::net::shutdown(&socket, Shutdown::Read)?;
        }
        Ok(Self { socket, heard })
    }

    /// Where the child is told something.
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Where it is heard by itself, if it is.
    pub fn pipe(&self) -> Option<&OwnedFd> {
        self.heard.as_ref()
    }

    /// What to wait for, to hear it.
    pub fn heard(&self) -> BorrowedFd<'_> {
        self.heard.as_ref().unwrap_or(&self.socket).as_fd()
    }

    /// What the child says next, into `buffer`: how many bytes; `None` if it says nothing more.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there; `InvalidData` for what is as long as the buffer or longer: it is consumed.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(pipe) = &self.heard else {
            // No descriptor can be there; what a launcher before has let in is closed.
            return Ok(seqpacket::receive(&self.socket, buffer)?.map(|got| got.len));
        };
        // A child may clear the flag that makes packets, change the size of the pipe, or move pages into it: what comes
        // is bytes.
        match rustix::io::read(pipe, &mut *buffer) {
            Ok(0) => Ok(None),
            Ok(length) if length == buffer.len() => Err(ErrorKind::InvalidData.into()),
            Ok(length) => Ok(Some(length)),
            Err(Errno::INTR) => Err(ErrorKind::WouldBlock.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// The same at numbers that no start of a process has to copy.
    #[must_use]
    pub fn out_of_the_way(self) -> Self {
        let Self { socket, heard } = self;
        let away = crate::process::out_of_the_way;
        Self { socket: away(socket), heard: heard.map(away) }
    }
}

/// Has `socket` take nothing, for ever, and makes the pipe by which its peer speaks: where that is read, and where
/// written.
fn one_way(socket: &OwnedFd) -> io::Result<(Option<OwnedFd>, Option<OwnedFd>)> {
    rustix::net::shutdown(socket, Shutdown::Read)?;
    let (reading, writing) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK | PipeFlags::DIRECT)?;
    Ok((Some(reading), Some(writing)))
}

/// Says something to the launcher, or nothing at all, where a child has a pipe for it.
///
/// # Errors
/// `WouldBlock` when there is no room, `BrokenPipe` when nobody hears.
pub fn say(pipe: impl AsFd, message: &[u8]) -> io::Result<()> {
    rustix::io::write(pipe, message)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// A channel as kernels without the option have it.
    fn of_old_kernels() -> (ControlEnd, ChildEnds) {
        let (socket, control) = seqpacket::pair().unwrap();
        let (heard, say) = one_way(&socket).unwrap();
        (ControlEnd { socket, heard }, ChildEnds { control, say })
    }

    fn speak(child: &ChildEnds, message: &[u8]) -> io::Result<()> {
        match &child.say {
            Some(pipe) => say(pipe, message),
            None => seqpacket::send(&child.control, message, None),
        }
    }

    #[test]
    fn both_kinds_carry_messages_both_ways_and_say_the_end() {
        for (ours, child) in [ControlEnd::pair().unwrap(), of_old_kernels()] {
            let mut buffer = [0; 16];
            assert_eq!(ours.receive(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
            for word in [b"one".as_slice(), b"three"] {
                speak(&child, word).unwrap();
            }
            assert_eq!(ours.receive(&mut buffer).unwrap(), Some(3));
            assert_eq!(ours.receive(&mut buffer).unwrap(), Some(5));
            assert_eq!(&buffer[..5], b"three");
            let file = File::open("/dev/null").unwrap();
            seqpacket::send(ours.socket(), b"told", Some(file.as_fd())).unwrap();
            let got = seqpacket::receive(&child.control, &mut buffer).unwrap().unwrap();
            assert!(got.len == 4 && got.descriptor.is_some());
            speak(&child, b"last").unwrap();
            drop(child);
            assert_eq!(ours.receive(&mut buffer).unwrap(), Some(4));
            assert_eq!(ours.receive(&mut buffer).unwrap(), None);
        }
    }

    #[test]
    fn no_descriptor_of_a_childs_arrives() {
        for (ours, child) in [ControlEnd::pair().unwrap(), of_old_kernels()] {
            let file = File::open("/dev/null").unwrap();
            for number in [1, 2, 64] {
                let many = vec![file.as_fd(); number];
                assert!(seqpacket::send_many(&child.control, b"x", &many).is_err());
            }
            assert!(rustix::net::shutdown(&child.control, Shutdown::Both).is_ok());
            assert!(seqpacket::send_many(&child.control, b"x", &[file.as_fd()]).is_err());
            assert!(!matches!(ours.receive(&mut [0; 16]), Ok(Some(_))));
        }
    }

    #[test]
    fn what_is_no_packet_is_bytes_and_nothing_waits_for_more() {
        let (ours, child) = of_old_kernels();
        let pipe = child.say.as_ref().unwrap();
        rustix::fs::fcntl_setfl(pipe, rustix::fs::OFlags::NONBLOCK).unwrap();
        (0..3).for_each(|_| say(pipe, b"x").unwrap());
        let mut buffer = [0; 16];
        assert_eq!(ours.receive(&mut buffer).unwrap(), Some(3));
        say(pipe, &[7; 40]).unwrap();
        for _ in 0..2 {
            assert_eq!(ours.receive(&mut buffer).unwrap_err().kind(), ErrorKind::InvalidData);
        }
        assert_eq!(ours.receive(&mut buffer).unwrap(), Some(8));
        // Smaller pipes, and pages of files, are bytes as well.
        rustix::pipe::fcntl_setpipe_size(pipe, 4096).unwrap();
        let file = File::open("/proc/self/exe").unwrap();
        rustix::pipe::splice(&file, None, pipe, None, 9, rustix::pipe::SpliceFlags::NONBLOCK).unwrap();
        assert_eq!(ours.receive(&mut buffer).unwrap(), Some(9));
        assert_eq!(ours.receive(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}
