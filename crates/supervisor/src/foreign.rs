//! Who closes for root what may take as long as somebody less trusted wants: the other half of `sys::foreign`.
//!
//! Runs in: the launcher, as root, and the guard; [`main`] in a process of its own, which can be ended. Sees: nothing.
//! Never: has the launcher close a channel in which messages may wait that others have sent: it would close the
//! descriptors in them as well, and whoever closes the last descriptor of a socket, a pipe or a file waits for what the
//! kernel does then (`SO_LINGER` in socket(7) is the worst of it). A process that is killed waits for none of that.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use sys::process::Child;

pub use sys::foreign::Foreign;

use crate::error::Error;

/// LIMIT: how long the helper may take for one descriptor before it is ended, and all that it has been given with it.
const CLOSING_MAX: Duration = Duration::from_secs(1);
/// How soon what found no room is sent again.
const AGAIN: Duration = Duration::from_millis(10);
/// LIMIT: how soon after a start another helper is started.
const PAUSE: Duration = Duration::from_secs(1);

/// The helper, once there is something for it.
#[derive(Debug, Default)]
pub struct Closer {
    running: Option<Running>,
    /// Those that were ended.
    ended: Vec<Child>,
    started: Option<Instant>,
}

#[derive(Debug)]
struct Running {
    channel: OwnedFd,
    child: Child,
    /// When each descriptor was sent that is not closed yet.
    sent: VecDeque<Instant>,
}

impl Closer {
    /// Whether something is to be done, and when at the latest.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        let closing = self.running.as_ref().and_then(|running| running.sent.front());
        let next = self.started.map_or(now, |started| (started + PAUSE).max(now));
        let again = if self.running.is_some() { now + AGAIN } else { next };
        let waiting = sys::foreign::is_any_left().then_some(again);
        closing.map(|sent| *sent + CLOSING_MAX).into_iter().chain(waiting).min()
    }

    /// Gives the helper what was let go of; `start` starts one and returns the channel to it. Whether one had to be
    /// ended.
    ///
    /// # Errors
    /// None could be started; it is tried again.
    pub fn on_time(
        &mut self,
        now: Instant,
        start: impl FnOnce() -> Result<(OwnedFd, Child), Error>,
    ) -> Result<bool, Error> {
        self.ended.retain(|child| matches!(child.try_wait(), Ok(None)));
        let works = self.running.as_mut().is_none_or(|running| running.works(now));
        if !works && let Some(running) = self.running.take() {
            running.child.kill();
            self.ended.push(running.child);
        }
        if sys::foreign::is_any_left() {
            if self.running.is_none() && self.started.is_none_or(|started| started + PAUSE <= now) {
                self.started = Some(now);
                let (channel, child) = start()?;
                self.running = Some(Running { channel, child, sent: VecDeque::new() });
            }
            self.running.iter_mut().for_each(|running| running.give(now));
        }
        Ok(!works)
    }
}

impl Running {
    /// Hears what it has closed; whether it still does what it is for.
    fn works(&mut self, now: Instant) -> bool {
        loop {
            match sys::seqpacket::receive(&self.channel, &mut [0; 2]) {
                Ok(Some(_)) => drop(self.sent.pop_front()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Ok(None) | Err(_) => return false,
            }
        }
        self.sent.front().is_none_or(|sent| now.duration_since(*sent) < CLOSING_MAX)
    }

    /// Sends it what there is room for.
    fn give(&mut self, now: Instant) {
        let mut waiting = sys::foreign::take_left().into_iter();
        while let Some(descriptor) = waiting.next() {
            match sys::seqpacket::send(&self.channel, b"c", Some(descriptor.as_fd())) {
                // The message has another descriptor of it: this is not the last.
                Ok(()) => self.sent.push_back(now),
                // One that has ended is seen by the next look.
                Err(_) => {
                    sys::foreign::put_back(std::iter::once(descriptor).chain(waiting));
                    return;
                }
            }
        }
    }
}

/// The whole of the helper: closes what comes, and says so.
pub fn main() -> ExitCode {
    let channel = io::stdin();
    loop {
        let _ = poll(&mut [PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN)], None);
        match sys::seqpacket::receive(channel.as_fd(), &mut [0; 2]) {
            Ok(Some(came)) => {
                drop(came.descriptor);
                // A launcher that does not hear this takes it for stuck, and ends it.
                let _ = sys::seqpacket::send(channel.as_fd(), b"c", None);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(None) | Err(_) => return ExitCode::SUCCESS,
        }
    }
}
