//! The version in the first line of a request, for a parser that knows none after HTTP/1.1.
//!
//! Runs in: a service's worker. Sees: the bytes of clients. Never: changes anything but the last digit of that version;
//! decides where a request ends, which the parser does.

/// The text before the digit.
const BEFORE: &[u8] = b" HTTP/1.";

/// LIMIT: bytes of a line that are looked at: the longest name and a number of 20 digits, and blanks.
const LINE_MAX: usize = 64;

/// The meaning of a connection's next bytes.
#[derive(Debug, Default, PartialEq)]
enum NextBytes {
    /// A head.
    #[default]
    Head,
    /// So many bytes of a body, or of a chunk.
    Body(u64),
    Chunk(u64),
    /// The line with the size of a chunk, or the end of the chunk before.
    ChunkSize,
    ChunkEnd,
    /// The lines after the last chunk.
    Trailers,
    /// Something else: where the next head begins, others have to say.
    Lost,
}

/// Where in the requests of a connection its bytes have got to.
#[derive(Debug)]
pub(crate) struct FirstLine {
    part: NextBytes,
    /// How much of [`BEFORE`] the last bytes are.
    matched: usize,
    /// Whether more than empty lines has come (RFC 9112 2.2).
    is_begun: bool,
    is_over: bool,
    /// The first bytes of the line, in lower case, and how many bytes it has.
    line: [u8; LINE_MAX],
    length: usize,
    /// The bytes that follow the head.
    next: NextBytes,
}

impl Default for FirstLine {
    fn default() -> Self {
        let (part, next) = (NextBytes::Head, NextBytes::Head);
        Self { part, matched: 0, is_begun: false, is_over: false, line: [0; LINE_MAX], length: 0, next }
    }
}

impl FirstLine {
    /// Whether what comes now may be something else than a request.
    pub(crate) fn is_lost(&self) -> bool {
        self.part == NextBytes::Lost
    }

    /// RFC 9110 2.5: a request of a later minor version is one of the latest that is known. `bytes` are the next ones.
    pub(crate) fn amend(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let passed = match &mut self.part {
                NextBytes::Lost => return,
                NextBytes::Body(left) | NextBytes::Chunk(left) if *left > 0 => {
                    let passed = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= passed as u64;
                    passed
                }
                NextBytes::Body(_) => {
                    *self = Self::default();
                    0
                }
                NextBytes::Chunk(_) => {
                    self.part = NextBytes::ChunkEnd;
                    0
                }
                NextBytes::Head => {
                    if !self.is_over {
                        self.amend_version(&mut bytes[0]);
                    }
                    self.follow(bytes[0]);
                    1
                }
                NextBytes::ChunkSize | NextBytes::ChunkEnd | NextBytes::Trailers => {
                    self.follow(bytes[0]);
                    1
                }
            };
            bytes = &mut bytes[passed..];
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

    /// Sees where lines end.
    fn follow(&mut self, byte: u8) {
        if byte != b'\n' {
            if let Some(place) = self.line.get_mut(self.length) {
                *place = byte.to_ascii_lowercase();
            }
            self.length = self.length.saturating_add(1);
            self.is_begun |= byte != b'\r';
            return;
        }
        // One that is longer says nothing that is looked for, and has no number at its end that could be read.
        let (line, is_whole) = (&self.line[..self.length.min(LINE_MAX)], self.length <= LINE_MAX);
        let line = line.trim_ascii_end();
        match self.part {
            NextBytes::Head => {
                let next = if self.is_over { after_header(line, is_whole) } else { after_first_line(line) };
                match (next, &self.next) {
                    (None, _) => {}
                    (Some(next), NextBytes::Head) => self.next = next,
                    // Two that say where the body ends.
                    (Some(_), _) => self.next = NextBytes::Lost,
                }
                if line.is_empty() && self.is_over {
                    *self = Self { part: std::mem::take(&mut self.next), ..Self::default() };
                    return;
                }
                self.is_over |= self.is_begun;
            }
            NextBytes::ChunkEnd if line.is_empty() => self.part = NextBytes::ChunkSize,
            NextBytes::ChunkSize => {
                self.part = match chunk_size(line).filter(|_| is_whole) {
                    Some(0) => NextBytes::Trailers,
                    Some(size) => NextBytes::Chunk(size),
                    None => NextBytes::Lost,
                };
            }
            NextBytes::Trailers if line.is_empty() => {
                *self = Self::default();
                return;
            }
            NextBytes::Trailers => {}
            _ => self.part = NextBytes::Lost,
        }
        self.length = 0;
    }
}

/// The bytes that follow the head, as the first line tells: CONNECT asks for a tunnel.
fn after_first_line(line: &[u8]) -> Option<NextBytes> {
    line.starts_with(b"connect ").then_some(NextBytes::Lost)
}

/// The bytes that follow the head, if a header line tells.
fn after_header(line: &[u8], is_whole: bool) -> Option<NextBytes> {
    let (name, value) = match line.iter().position(|&byte| byte == b':') {
        Some(at) => (&line[..at], line[at + 1..].trim_ascii()),
        None => (line, &b""[..]),
    };
    match name {
        b"content-length" => {
            Some(number(value, 10).filter(|_| is_whole).map_or(NextBytes::Lost, NextBytes::Body))
        }
        b"transfer-encoding" if value == b"chunked" && is_whole => Some(NextBytes::ChunkSize),
        b"transfer-encoding" | b"upgrade" => Some(NextBytes::Lost),
        _ => None,
    }
}

/// The size of a chunk, without what may follow the number (RFC 9112 7.1.1).
fn chunk_size(line: &[u8]) -> Option<u64> {
    let end = line.iter().position(|&byte| byte == b';').unwrap_or(line.len());
    number(line[..end].trim_ascii_end(), 16)
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(|byte| byte.is_ascii_hexdigit());
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    u64::from_str_radix(text, radix).ok()
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
    }

    #[test]
    fn of_each_head_that_follows_a_body_and_nothing_within_one() {
        // A body that looks like a head is passed on as it came.
        let head = "GET / HTTP/1.2\r\nHost: a\r\n\r\n";
        let length = head.len();
        let amended_head = head.replace("1.2", "1.1");
        let bodies = [
            format!("Content-Length: {length}\r\n\r\n{head}"),
            format!("A: b\r\ncontent-LENGTH:{length} \r\nC: d\r\n\r\n{head}"),
            "Content-Length: 0\r\n\r\n".to_owned(),
            format!(
                "Transfer-Encoding: Chunked\r\n\r\n{length:x};a=b\r\n{head}\r\n{length:X}\r\n{head}\r\n0\r\n\r\n"
            ),
            format!("Transfer-Encoding: chunked\r\n\r\n{length:04x}\r\n{head}\r\n0\r\nA: / HTTP/1.2\r\n\r\n"),
        ];
        for body in &bodies {
            let all = format!("POST / HTTP/1.2\r\n{body}{head}{head}");
            let expected = format!("POST / HTTP/1.1\r\n{body}{amended_head}{amended_head}");
            for piece in [1, 2, 3, 5, 7, 11, 40, all.len()] {
                assert_eq!(amended(&all, piece), expected, "{piece}");
            }
        }
    }

    #[test]
    fn of_none_that_follows_what_may_be_something_else() {
        let head = "GET / HTTP/1.2\r\nHost: a\r\n\r\n";
        for more in [
            "Content-Length: 1\r\nContent-Length: 1",
            "Content-Length: 0\r\nTransfer-Encoding: chunked",
            "Content-Length: +1",
            "Content-Length: 18446744073709551616",
            "Content-Length: a",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked\r\n\r\nx\r\n",
            "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
            "upgrade: x",
        ] {
            let all = format!("GET / HTTP/1.2\r\n{more}\r\n\r\n{head}");
            for piece in [1, 5, all.len()] {
                assert_eq!(amended(&all, piece), all.replacen("1.2", "1.1", 1), "{more}");
            }
        }
        let tunnel = format!("CONNECT a:1 HTTP/1.2\r\n\r\n{head}");
        assert_eq!(amended(&tunnel, 7), tunnel.replacen("1.2", "1.1", 1));
    }
}
