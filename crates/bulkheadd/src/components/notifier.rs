//! Messages to the service manager, as sd_notify(3) has them.
//!
//! Runs in: the launcher. Sees: nothing; it only sends. Never: waits for the service manager.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// LIMIT: messages that wait for a service manager which does not read; of more, the oldest are lost. A start and a
/// stop send three, a reload two.
const WAITING_MAX: usize = 64;

/// Where messages go, and what has yet to be sent.
#[derive(Debug)]
pub(crate) struct Notifier {
    socket: UnixDatagram,
    /// Named anew for each message: a service manager that starts again has another socket there.
    address: SocketAddr,
    waiting: VecDeque<String>,
}

impl Notifier {
    /// Sends to a socket: its path, or `@` and its abstract name.
    ///
    /// # Errors
    /// No socket can have that name.
    pub(crate) fn to(name: &OsStr) -> io::Result<Self> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(name)?,
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, address, waiting: VecDeque::new() })
    }

    /// Has a message sent after those that wait: lines `NAME=VALUE`.
    pub(crate) fn push(&mut self, message: String) {
        if self.waiting.len() == WAITING_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(message);
    }

    /// Sends what there is room for.
    ///
    /// # Errors
    /// The service manager cannot be reached; what waited is lost.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while let Some(message) = self.waiting.front() {
            match self.socket.send_to_addr(message.as_bytes(), &self.address) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => {
                    self.waiting.clear();
                    return Err(error);
                }
                Ok(_) => drop(self.waiting.pop_front()),
            }
        }
        Ok(())
    }

    /// Whether something waits for room.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 100];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn what_has_no_room_waits_and_the_newest_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let mut notifier = Notifier::to(path.as_os_str()).unwrap();
        let mut sent = 0;
        while !notifier.is_waiting() {
            notifier.push(sent.to_string());
            notifier.flush().unwrap();
            sent += 1;
        }
        for number in sent..sent + 2 * WAITING_MAX {
            notifier.push(number.to_string());
        }
        assert_eq!(notifier.waiting.len(), WAITING_MAX);
        // The first that had no room is among those that were lost.
        (0..sent - 1).for_each(|number| assert_eq!(received(&manager), number.to_string()));
        for number in (sent..sent + 2 * WAITING_MAX).skip(WAITING_MAX) {
            notifier.flush().unwrap();
            assert_eq!(received(&manager), number.to_string());
        }
        assert!(!notifier.is_waiting());
        drop(manager);
        notifier.push("READY=1".into());
        assert!(notifier.flush().is_err() && !notifier.is_waiting());
    }

    #[test]
    fn a_name_is_a_path_or_abstract() {
        assert!(
            Notifier::to(OsStr::new("@bulkhead")).is_ok() && Notifier::to(OsStr::new("/run/notify")).is_ok()
        );
        assert!(
            Notifier::to(OsStr::new("run/notify")).is_err() && Notifier::to(OsStr::new("vsock:2:1")).is_err()
        );
    }
}
