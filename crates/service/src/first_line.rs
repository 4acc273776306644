//! The version in the first line of a request, for a parser that knows none after HTTP/1.1.
//!
//! Runs in: a service's worker. Sees: the bytes of clients. Never: changes anything but the last digit of that version.

/// What comes before the digit.
const BEFORE: &[u8] = b" HTTP/1.";

/// What begins a line of a head after which something else than a head may come: a body, or a tunnel.
const ENDINGS: [&[u8]; 3] = [b"content-length", b"transfer-encoding", b"upgrade"];

/// LIMIT: bytes of a line that are looked at for that.
const NAME_MAX: usize = 17;

/// Where in the heads of a connection its bytes have got to.
#[derive(Debug, Default)]
pub(crate) struct FirstLine {
    /// How much of [`BEFORE`] the last bytes are.
    matched: usize,
    /// Whether more than empty lines has come (RFC 9112 2.2).
    is_begun: bool,
    is_over: bool,
    /// The first bytes of the line, in lower case, and how many bytes it has.
    name: [u8; NAME_MAX],
    length: usize,
    /// Whether something else than a head may follow this one.
    has_more: bool,
    /// Whether that is there: where the next head begins, others have to say.
    is_lost: bool,
}

impl FirstLine {
    /// Whether the head is over, and what has come since may be something else.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// RFC 9110 2.5: a request of a later minor version is one of the latest that is known. `bytes` are the next ones.
    pub(crate) fn amend(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            if self.is_lost {
                return;
            }
            if !self.is_over {
                self.amend_version(byte);
            }
            self.follow(*byte);
        }
    }

    fn amend_version(&mut self, byte: &mut u8) {
        if self.matched == BEFORE.len() && matches!(byte, b'2'..=b'9') {
            *byte = b'1';
        }
        self.matched = match BEFORE.get(self.matched) {
            Some(next) if next == byte => self.matched + 1,
            _ => usize::from(*byte == BEFORE[0]),
        };
    }

    /// Sees where lines end, and the head.
    fn follow(&mut self, byte: u8) {
        if byte != b'\n' {
            if let Some(place) = self.name.get_mut(self.length) {
                *place = byte.to_ascii_lowercase();
            }
            self.length = self.length.saturating_add(1);
            self.is_begun |= byte != b'\r';
            return;
        }
        let is_empty = self.length == 0 || (self.length == 1 && self.name[0] == b'\r');
        let name = &self.name[..self.length.min(NAME_MAX)];
        // What CONNECT asks for is a tunnel as well.
        let asks = !self.is_over && name.starts_with(b"connect ");
        self.has_more |= asks || (self.is_over && ENDINGS.iter().any(|one| name.starts_with(one)));
        let is_end = is_empty && self.is_over;
        self.is_lost = is_end && self.has_more;
        if is_end && !self.has_more {
            *self = Self::default();
            return;
        }
        self.is_over |= self.is_begun;
        self.length = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amended(text: &str, piece: usize) -> String {
        let (mut line, mut bytes) = (FirstLine::default(), text.as_bytes().to_vec());
        bytes.chunks_mut(piece).for_each(|piece| line.amend(piece));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[test]
    fn the_version_of_the_first_line_alone() {
        let later = "\r\nGET /HTTP/1.2 HTTP/1.9\r\nA: b HTTP/1.2\r\n\r\n";
        for piece in 1..later.len() {
            assert_eq!(amended(later, piece), later.replace("HTTP/1.9", "HTTP/1.1"));
        }
        for same in ["GET / HTTP/1.0\r\n", "GET / HTTP/2.2\r\n", "GET / HTTP/1.1\r\n", "GET / HTTP/11.2"] {
            assert_eq!(amended(same, 3), same);
        }
    }

    #[test]
    fn of_each_head_that_follows_one_without_a_body() {
        let head = "GET / HTTP/1.2\r\nHost: a\r\n\r\n";
        let all = [head, "\r\n", head, "GET / HTTP/1.3\nA: HTTP/1.2\n\n", head].concat();
        let expected = all.replace("/ HTTP/1.2", "/ HTTP/1.1").replace("HTTP/1.3", "HTTP/1.1");
        for piece in 1..all.len() {
            assert_eq!(amended(&all, piece), expected);
        }
        // What follows these may be no head.
        for more in ["Content-Length: 14", "TRANSFER-ENCODING: chunked", "upgrade: x"] {
            let with_body = format!("GET / HTTP/1.2\r\n{more}\r\n\r\n{head}");
            for piece in [1, 5, with_body.len()] {
                assert_eq!(amended(&with_body, piece), with_body.replacen("1.2", "1.1", 1));
            }
        }
        let tunnel = format!("CONNECT a:1 HTTP/1.2\r\n\r\n{head}");
        assert_eq!(amended(&tunnel, 7), tunnel.replacen("1.2", "1.1", 1));
    }
}
