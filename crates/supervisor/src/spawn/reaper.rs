//! `bulkheadd reap`: ends the programs of others that a launcher, or a guard, leaves when it dies.
//!
//! Runs in: `main` in a process of its own, started with the first such program, with the rights of the launcher, a
//! filter of system calls that leaves it little but to end processes, and nothing of the launcher's memory; the rest in
//! the launcher and the guard. Sees: pidfds. Never: reads anything, or ends what it was not given.
//!
//! The signal that ends a process with its parent belongs to a thread: a new thread has none, and takes the place of
//! the first one if it executes a program (`execve(2)`). A filter of system calls cannot tell which thread calls. What
//! cannot make threads and execute programs, as our own roles, needs no reaper.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, pidfd_send_signal};
use sys::process::Child;

use crate::error::{Error, during};

/// Where pidfds go, once there is something to end.
#[derive(Debug, Default)]
pub struct Reaper {
    running: RefCell<Option<Running>>,
    /// Whether nobody waits for the end of the one that runs.
    is_new: Cell<bool>,
}

#[derive(Debug)]
struct Running {
    channel: Option<OwnedFd>,
    child: Child,
}

impl Drop for Running {
    /// Whatever it was given has ended, or ends now; control groups can be removed when it is gone.
    fn drop(&mut self) {
        self.channel = None;
        self.child.wait_blocking();
    }
}

impl Reaper {
    /// One that runs.
    pub fn known(channel: OwnedFd, child: Child) -> Self {
        let running = RefCell::new(Some(Running { channel: Some(channel), child }));
        Self { running, is_new: Cell::new(true) }
    }

    /// The pidfd of the one that runs, the first time that this is asked.
    pub fn take_new(&self) -> Option<OwnedFd> {
        let running = self.running.borrow();
        let running = running.as_ref().filter(|_| self.is_new.replace(false))?;
        running.child.pidfd().try_clone_to_owned().ok()
    }

    /// The pid of the one that runs, and the numbers under which `leave` leaves its pidfd and the channel to it.
    pub fn left(&self, mut leave: impl FnMut(BorrowedFd<'_>) -> u32) -> Option<(u32, u32, u32)> {
        let running = self.running.borrow();
        let running = running.as_ref()?;
        let channel = running.channel.as_ref()?;
        Some((running.child.pid, leave(running.child.pidfd()), leave(channel.as_fd())))
    }

    /// Has `child` ended with this launcher; `start` starts a reaper where none runs, and returns the channel to it.
    pub fn add(
        &self,
        child: &Child,
        start: impl FnOnce() -> Result<(OwnedFd, Child), Error>,
    ) -> Result<(), Error> {
        let mut running = self.running.borrow_mut();
        let failed = during("tell the reaper of a process");
        match running.as_ref().map(|reaper| reaper.add(child.pidfd())) {
            Some(Ok(())) => return Ok(()),
            // Somebody has ended it. The next one is given what lives by who waits for that end.
            Some(Err(error))
                if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {}
            Some(Err(error)) => return Err(failed(error)),
            None => {}
        }
        let (channel, of_reaper) = start()?;
        let reaper = Running { channel: Some(channel), child: of_reaper };
        let added = reaper.add(child.pidfd()).map_err(failed);
        *running = Some(reaper);
        self.is_new.set(true);
        added
    }
}

impl Running {
    fn add(&self, pidfd: BorrowedFd<'_>) -> io::Result<()> {
        let Some(channel) = &self.channel else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        loop {
            match sys::seqpacket::send(channel, b"p", Some(pidfd)) {
                // Its reader has nothing else to do.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(channel, PollFlags::OUT)], None)?;
                }
                result => return result,
            }
        }
    }
}

/// The whole of the process: until the launcher is gone, whose end of the channel the kernel closes.
pub fn main() -> ExitCode {
    let channel = io::stdin();
    let mut given: Vec<OwnedFd> = Vec::new();
    loop {
        let ready = match wait(channel.as_fd(), &given) {
            Ok(ready) => ready,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::NOMEM) => continue,
            // The launcher ends; what was given is ended rather than forgotten.
            Err(_) => break,
        };
        // What has ended is let go of, and its number may be another's.
        let mut ended = ready[1..].iter();
        given.retain(|_| !ended.next().copied().unwrap_or(false));
        if ready[0] {
            match sys::seqpacket::receive(channel.as_fd(), &mut [0; 1]) {
                Ok(Some(came)) => given.extend(came.descriptor),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(None) | Err(_) => break,
            }
        }
    }
    for pidfd in &given {
        let _ = pidfd_send_signal(pidfd, Signal::KILL);
    }
    ExitCode::SUCCESS
}

/// Which of these something has happened to.
fn wait(channel: BorrowedFd<'_>, given: &[OwnedFd]) -> rustix::io::Result<Vec<bool>> {
    let given = given.iter().map(AsFd::as_fd);
    let mut polled: Vec<PollFd<'_>> =
        std::iter::once(channel).chain(given).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    poll(&mut polled, None)?;
    Ok(polled.iter().map(|polled| !polled.revents().is_empty()).collect())
}
