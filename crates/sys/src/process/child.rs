//! A child of this process, and how it has ended.
//!
//! Runs in: whoever has children, mostly the launcher. Sees: ends of processes. Never: signals by a number, which may
//! be another process's by now.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::process::{WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use super::out_of_the_way;

/// A child process of the launcher.
#[derive(Debug)]
pub struct Child {
    /// Its process id, for display only.
    pub pid: u32,
    pub(super) pidfd: OwnedFd,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// `exit(0)`.
    Clean,
    /// Another exit status.
    Status(i32),
    /// Ended by this signal.
    Signal(i32),
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Clean => write!(f, "exit status 0"),
            Self::Status(status) => write!(f, "exit status {status}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

impl Child {
    /// A child that this process has made before another program took the place of its own.
    pub fn known(pid: u32, pidfd: OwnedFd) -> Self {
        Self { pid, pidfd }
    }

    /// The same child, known by a descriptor that [`out_of_the_way`] has moved.
    #[must_use]
    pub fn out_of_the_way(self) -> Self {
        Self { pidfd: out_of_the_way(self.pidfd), ..self }
    }

    /// The descriptor that becomes readable when the child ends.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// The same, to be left to another program that takes the place of this one.
    pub fn descriptor(&self) -> &OwnedFd {
        &self.pidfd
    }

    /// How the child ended, once it has; it is reaped by that.
    pub fn try_wait(&self) -> io::Result<Option<Exit>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::PidFd(self.pidfd.as_fd()), options)?;
        Ok(status.map(|status| match (status.exit_status(), status.terminating_signal()) {
            (Some(0), _) => Exit::Clean,
            (Some(status), _) => Exit::Status(status),
            (None, signal) => Exit::Signal(signal.unwrap_or(0)),
        }))
    }

    /// Passes a signal on to the child; one that there is none of is not sent.
    pub fn pass_on(&self, signal: i32) {
        if let Some(signal) = rustix::process::Signal::from_named_raw(signal) {
            let _ = pidfd_send_signal(&self.pidfd, signal);
        }
    }

    /// Ends the child at once.
    pub fn kill(&self) {
        let _ = pidfd_send_signal(&self.pidfd, rustix::process::Signal::KILL);
    }

    /// Ends the child at once and waits until it is gone.
    pub fn end(&self) {
        self.kill();
        self.wait_blocking();
    }

    /// Waits until the child is gone.
    pub fn wait_blocking(&self) {
        let _ = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
    }
}
