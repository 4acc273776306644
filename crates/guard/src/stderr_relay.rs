//! Writes the guard's own messages, and the standard error of its gate and filters, to the guard's standard error.
//!
//! Runs in: the guard. Sees: lines of a gate or filter that may be compromised. Never: lets a byte of theirs reach the
//! terminal unescaped, or waits for them.

use std::io::{self, Read, Write};

use crate::NAME;

/// LIMIT: bytes of one line; what is longer is cut into several.
const LINE_MAX: usize = 1024;
/// LIMIT: bytes read of one process before the others get their turn.
const TURN_MAX: usize = 16 * 1024;

/// Says something to whoever started the guard.
pub fn say(text: impl std::fmt::Display) {
    // Standard error may be closed.
    let _ = io::stderr().write_all(format!("{NAME}: {text}\n").as_bytes());
}

/// The standard error of one process.
#[derive(Debug)]
pub struct StderrRelay {
    title: String,
    /// The pipe, to be watched.
    pub pipe: io::PipeReader,
    rest: Vec<u8>,
}

impl StderrRelay {
    /// Of the process `title`; `pipe` is made not to block.
    pub fn new(title: String, pipe: io::PipeReader) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Self { title, pipe, rest: Vec::new() })
    }

    /// Passes on what has come; returns whether more may come.
    pub fn relay(&mut self) -> bool {
        let mut buffer = [0; TURN_MAX];
        let open = match self.pipe.read(&mut buffer) {
            Ok(0) => false,
            Ok(got) => {
                self.rest.extend_from_slice(&buffer[..got]);
                true
            }
            Err(error) => matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        };
        for line in lines(&mut self.rest, !open) {
            say(format_args!("{}: {line}", self.title));
        }
        open
    }
}

/// Takes the whole lines off `bytes`, or all of it if that is the end.
fn lines(bytes: &mut Vec<u8>, end: bool) -> Vec<String> {
    let mut lines = Vec::new();
    while !bytes.is_empty() {
        let (length, skipped) = match bytes.iter().take(LINE_MAX).position(|&byte| byte == b'\n') {
            Some(at) => (at, 1),
            None if end || bytes.len() >= LINE_MAX => (bytes.len().min(LINE_MAX), 0),
            None => break,
        };
        lines.push(String::from_utf8_lossy(&bytes[..length]).chars().map(shown).collect());
        bytes.drain(..length + skipped);
    }
    lines
}

fn shown(character: char) -> String {
    if character.is_control() { character.escape_default().to_string() } else { character.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_short_and_harmless() {
        let mut bytes = b"one\ntwo \x1b[31m\nthr".to_vec();
        assert_eq!(lines(&mut bytes, false), ["one", "two \\u{1b}[31m"]);
        assert_eq!(bytes, b"thr");
        assert_eq!(lines(&mut bytes, true), ["thr"]);
        let mut long = vec![b'x'; 2500];
        assert_eq!(lines(&mut long, false).iter().map(String::len).collect::<Vec<_>>(), [1024, 1024]);
        assert_eq!(long.len(), 452);
    }

    #[test]
    fn a_pipe_is_read_to_its_end() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut stderr = StderrRelay::new("gate".into(), reader).unwrap();
        assert!(stderr.relay(), "nothing there yet");
        writer.write_all(b"half").unwrap();
        assert!(stderr.relay());
        assert_eq!(stderr.rest, b"half");
        drop(writer);
        assert!(!stderr.relay());
        assert!(stderr.rest.is_empty());
    }
}
