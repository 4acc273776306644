//! The version in the first line of a request, for a parser that knows none after HTTP/1.1.
//!
//! Runs in: a service's worker. Sees: the bytes of clients. Never: changes anything but the last digit of that version.

/// What comes before the digit.
const BEFORE: &[u8] = b" HTTP/1.";

/// Where in the first line of a request its bytes have got to.
#[derive(Debug, Default)]
pub(crate) struct FirstLine {
    /// How much of [`BEFORE`] the last bytes are.
    matched: usize,
    /// Whether more than empty lines has come (RFC 9112 2.2).
    is_begun: bool,
    is_over: bool,
}

impl FirstLine {
    /// RFC 9110 2.5: a request of a later minor version is one of the latest that is known. `bytes` are the next ones.
    pub(crate) fn amend(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            if self.is_over {
                return;
            }
            if self.matched == BEFORE.len() && matches!(byte, b'2'..=b'9') {
                *byte = b'1';
            }
            self.matched = match BEFORE.get(self.matched) {
                Some(next) if next == byte => self.matched + 1,
                _ => usize::from(*byte == BEFORE[0]),
            };
            self.is_over = *byte == b'\n' && self.is_begun;
            self.is_begun |= !matches!(byte, b'\r' | b'\n');
        }
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
        let later = "\r\nGET /HTTP/1.2 HTTP/1.9\r\nA: b HTTP/1.2\r\n\r\nGET / HTTP/1.2\r\n";
        for piece in 1..later.len() {
            assert_eq!(amended(later, piece), later.replace("HTTP/1.9", "HTTP/1.1"));
        }
        for same in ["GET / HTTP/1.0\r\n", "GET / HTTP/2.2\r\n", "GET / HTTP/1.1\r\n", "GET / HTTP/11.2"] {
            assert_eq!(amended(same, 3), same);
        }
    }
}
