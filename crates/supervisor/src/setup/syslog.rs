//! The machine's syslog: whether there is one, and whether it is another one than before.
//!
//! Runs in: the launcher, as root. Sees: a socket of the machine's. Never: waits for it.

use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often it is looked for another syslog.
const LOOK: Duration = Duration::from_secs(60);

/// The machine's syslog. Its daemon makes a new socket when it starts, so that the old one leads nowhere.
#[derive(Debug)]
pub struct Syslog {
    path: PathBuf,
    pub(super) socket: Option<UnixDatagram>,
    /// Which socket it is: device, inode and time.
    which: Option<(u64, u64, i64)>,
    looked_at: Instant,
}

/// What a look at syslog has found.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// What was there.
    Same,
    /// Another socket, or one for the first time.
    Other,
    /// None, and there was one.
    Gone,
}

impl Syslog {
    /// Connects to the socket at `path`, if there is one.
    pub(super) fn connect(path: &Path) -> Self {
        let (socket, which) = reach(path).unzip();
        Self { path: path.into(), socket, which, looked_at: Instant::now() }
    }

    /// Whether it can be reached.
    pub fn is_there(&self) -> bool {
        self.socket.is_some()
    }

    /// Looks whether there is another one, from time to time.
    pub fn look(&mut self, now: Instant) -> Found {
        if now < self.looked_at + LOOK {
            return Found::Same;
        }
        self.looked_at = now;
        if self.which.is_some() && which(&self.path) == self.which {
            return Found::Same;
        }
        let before = self.socket.is_some();
        (self.socket, self.which) = reach(&self.path).unzip();
        match (before, self.socket.is_some()) {
            (_, true) => Found::Other,
            (true, false) => Found::Gone,
            (false, false) => Found::Same,
        }
    }

    pub(super) fn pause(&self, now: Instant) -> Duration {
        (self.looked_at + LOOK).saturating_duration_since(now)
    }
}

fn reach(path: &Path) -> Option<(UnixDatagram, (u64, u64, i64))> {
    let which = which(path)?;
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect(path).ok()?;
    socket.set_nonblocking(true).ok()?;
    Some((socket, which))
}

fn which(path: &Path) -> Option<(u64, u64, i64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.ctime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_syslog_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut syslog = Syslog::connect(&path);
        let mut now = Instant::now();
        let mut look = |syslog: &mut Syslog| {
            now += LOOK + Duration::from_secs(1);
            syslog.look(now)
        };
        assert!(!syslog.is_there());
        assert_eq!(look(&mut syslog), Found::Same);
        let daemon = UnixDatagram::bind(&path).unwrap();
        assert_eq!(look(&mut syslog), Found::Other);
        assert_eq!(look(&mut syslog), Found::Same);
        drop(daemon);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(look(&mut syslog), Found::Gone);
        let daemon = UnixDatagram::bind(&path).unwrap();
        assert_eq!(look(&mut syslog), Found::Other);
        syslog.socket.as_ref().unwrap().send(b"x").unwrap();
        assert_eq!(daemon.recv(&mut [0; 8]).unwrap(), 1);
    }
}
