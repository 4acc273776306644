//! Lines of the error log, sent to the machine's syslog as well.
//!
//! Runs in: the logger. Sees: events of any client. Never: waits for syslog, finds its socket (the launcher connects
//! it), or lets a line begin another one.
//!
//! A line is what programs of the machine itself send (RFC 3164, as the C library's syslog(3) has it), without a time:
//! whoever takes it from a local socket has a clock of his own.

use std::os::fd::OwnedFd;

use wire::log::Level;

use crate::escape::put_text;

/// RFC 3164 4.1.1: the facility of system daemons, in its place.
const DAEMON: u8 = 3 << 3;

/// Syslog, as far as it can be reached.
#[derive(Debug)]
pub struct Syslog {
    socket: OwnedFd,
    /// Lines that it did not take since the last one that it took.
    lost: u64,
    line: Vec<u8>,
}

impl Syslog {
    /// `socket` is connected to syslog and does not block.
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket, lost: 0, line: Vec::new() }
    }

    /// Sends a line; `label` must be escaped already. A line that is not taken at once is counted, and reported later.
    pub fn event(&mut self, level: Level, label: &str, text: &[u8]) {
        if self.lost > 0 {
            let note = format!("lost {} lines that syslog did not take", self.lost);
            if !self.send(Level::Warning, "logger", note.as_bytes()) {
                return self.lost += 1;
            }
            self.lost = 0;
        }
        if !self.send(level, label, text) {
            self.lost += 1;
        }
    }

    fn send(&mut self, level: Level, label: &str, text: &[u8]) -> bool {
        self.line.clear();
        let priority = DAEMON | severity(level);
        self.line.extend_from_slice(format!("<{priority}>bulkhead: [{label}] ").as_bytes());
        put_text(&mut self.line, text);
        rustix::io::write(&self.socket, &self.line).is_ok_and(|sent| sent == self.line.len())
    }
}

/// RFC 3164 4.1.1.
fn severity(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warning => 4,
        Level::Info => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn a_line_is_one_datagram_and_a_full_queue_is_told_of() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut syslog = Syslog::new(ours.into());
        let mut buffer = [0; 4096];
        let mut receive = || {
            let count = theirs.recv(&mut buffer).ok()?;
            Some(String::from_utf8(buffer[..count].to_vec()).unwrap())
        };
        syslog.event(Level::Error, "site a", b"x\n<0>forged");
        assert_eq!(receive().unwrap(), "<27>bulkhead: [site a] x\\x0a<0>forged");
        while syslog.lost < 5 {
            syslog.event(Level::Info, "site a", b"much");
        }
        while let Some(line) = receive() {
            assert_eq!(line, "<30>bulkhead: [site a] much");
        }
        syslog.event(Level::Warning, "gate 0", b"again");
        assert_eq!(receive().unwrap(), "<28>bulkhead: [logger] lost 5 lines that syslog did not take");
        assert_eq!(receive().unwrap(), "<28>bulkhead: [gate 0] again");
        assert_eq!(receive(), None);
    }
}
