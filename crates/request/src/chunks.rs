//! The framing of a chunked body (RFC 9112 7.1).
//!
//! Runs in: site workers, unprivileged; pure, no input or output. Untrusted input: the body. Must never: keep a byte of
//! it, or let pass what two readers could understand differently.

/// LIMIT: digits of a size; more could overflow.
const DIGITS_MAX: u8 = 16;

/// LIMIT: bytes of extensions and of the trailer of one body, together: nobody reads them. hyper allows as many of
/// each.
const EXTRA_BYTES_MAX: u16 = 16 << 10;

/// LIMIT: lines of the trailer, as many as a head may have.
const LINES_MAX: u8 = 100;

/// Why the framing is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a chunked body with {0}")]
pub struct ChunkError(pub &'static str);

/// How far a body has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    state: ChunkState,
    /// The size so far, and then the bytes of the chunk that are to come.
    size: u64,
    digits: u8,
    /// Bytes of extensions and of the trailer.
    extra: u16,
    /// Lines of the trailer.
    lines: u8,
    sender: Sender,
}

/// Whose body it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sender {
    #[default]
    Client,
    /// A server behind us; some old ones put blanks behind a size (RFC 9112 7.1.1).
    Server,
}

/// The result of [`Chunks::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Bytes of framing.
    pub framing: usize,
    /// Bytes of data behind those.
    pub data: usize,
}

/// The part that is expected next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkState {
    #[default]
    Size,
    Blank,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// The first byte of a line of the trailer, or of the empty line that ends it.
    Line,
    Name,
    Value,
    ValueLf,
    EndLf,
    Ended,
}

impl Chunks {
    /// The body of a response.
    pub fn of_server() -> Self {
        Self { sender: Sender::Server, ..Self::default() }
    }

    /// Looks at the next bytes of the body; nothing behind its end is looked at.
    ///
    /// # Errors
    /// They are not those of a chunked body.
    pub fn look(&mut self, mut bytes: &[u8]) -> Result<(), ChunkError> {
        loop {
            let Piece { framing, data } = self.take(bytes)?;
            if framing + data == 0 {
                return Ok(());
            }
            bytes = &bytes[framing + data..];
        }
    }

    /// Reads the next bytes of the body, up to the end of the first piece of data, or, of a server's, to the beginning
    /// of the trailer; nothing behind the end of the body.
    ///
    /// # Errors
    /// They are not those of a chunked body.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Piece, ChunkError> {
        for (framing, &byte) in bytes.iter().enumerate() {
            match self.state {
                ChunkState::Ended => return Ok(Piece { framing, data: 0 }),
                ChunkState::Data => {
                    let left = bytes.len() - framing;
                    let data = usize::try_from(self.size).map_or(left, |size| size.min(left));
                    self.size -= data as u64;
                    if self.size == 0 {
                        self.state = ChunkState::DataCr;
                    }
                    return Ok(Piece { framing, data });
                }
                ChunkState::SizeLf => {
                    self.state = self.step(byte)?;
                    if self.state == ChunkState::Line && self.sender == Sender::Server {
                        return Ok(Piece { framing: framing + 1, data: 0 });
                    }
                }
                _ => self.state = self.step(byte)?,
            }
        }
        Ok(Piece { framing: bytes.len(), data: 0 })
    }

    /// Whether the body is over.
    pub fn is_ended(&self) -> bool {
        self.state == ChunkState::Ended
    }

    /// Whether what comes next belongs to the trailer, or to the empty line behind it.
    pub fn is_in_trailer(&self) -> bool {
        matches!(
            self.state,
            ChunkState::Line | ChunkState::Name | ChunkState::Value | ChunkState::ValueLf | ChunkState::EndLf
        )
    }

    fn step(&mut self, byte: u8) -> Result<ChunkState, ChunkError> {
        if matches!(
            self.state,
            ChunkState::Blank
                | ChunkState::Extension
                | ChunkState::Line
                | ChunkState::Name
                | ChunkState::Value
        ) {
            self.extra += 1;
            if self.extra > EXTRA_BYTES_MAX {
                return Err(ChunkError("too long extensions or a too long trailer"));
            }
        }
        Ok(match (self.state, byte) {
            (ChunkState::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => self.digit(byte)?,
            (ChunkState::Size, b';') if self.digits > 0 => ChunkState::Extension,
            (ChunkState::Size | ChunkState::Extension, b'\r') if self.digits > 0 => ChunkState::SizeLf,
            // RFC 9112 7.1.1 lets blanks stand before an extension, for the sake of old senders: no client is one.
            (ChunkState::Size, b'\t' | b' ') if self.digits > 0 && self.sender == Sender::Server => {
                ChunkState::Blank
            }
            (ChunkState::Blank, b'\t' | b' ') => ChunkState::Blank,
            (ChunkState::Blank, b';') => ChunkState::Extension,
            (ChunkState::Blank, b'\r') => ChunkState::SizeLf,
            (ChunkState::Size | ChunkState::Blank, _) => return Err(ChunkError("a bad size")),
            (ChunkState::Extension, b'\t' | b' '..=b'~') => ChunkState::Extension,
            (ChunkState::Extension, _) => return Err(ChunkError("a bad extension")),
            (ChunkState::SizeLf, b'\n') => {
                self.digits = 0;
                if self.size == 0 { ChunkState::Line } else { ChunkState::Data }
            }
            (ChunkState::DataCr, b'\r') => ChunkState::DataLf,
            (ChunkState::DataLf, b'\n') => ChunkState::Size,
            (ChunkState::Line, b'\r') => ChunkState::EndLf,
            (ChunkState::Name, b':') => ChunkState::Value,
            (ChunkState::Line, byte) if is_token(byte) => self.line()?,
            (ChunkState::Name, byte) if is_token(byte) => ChunkState::Name,
            (ChunkState::Value, b'\r') => ChunkState::ValueLf,
            (ChunkState::Value, b'\t' | b' '..=b'~' | 0x80..) => ChunkState::Value,
            (ChunkState::Line | ChunkState::Name | ChunkState::Value, _) => {
                return Err(ChunkError("a bad trailer"));
            }
            (ChunkState::ValueLf, b'\n') => ChunkState::Line,
            (ChunkState::EndLf, b'\n') => ChunkState::Ended,
            _ => return Err(ChunkError("a bad end of a line or of a chunk")),
        })
    }

    fn line(&mut self) -> Result<ChunkState, ChunkError> {
        self.lines += 1;
        if self.lines > LINES_MAX {
            return Err(ChunkError("a trailer of too many lines"));
        }
        Ok(ChunkState::Name)
    }

    fn digit(&mut self, digit: u8) -> Result<ChunkState, ChunkError> {
        self.digits += 1;
        if self.digits > DIGITS_MAX {
            return Err(ChunkError("a size of too many digits"));
        }
        let value = char::from(digit).to_digit(16).unwrap_or(0);
        self.size = self.size << 4 | u64::from(value);
        Ok(ChunkState::Size)
    }
}

/// Whether a byte may stand in a token (RFC 9110 5.6.2).
pub fn is_token(byte: u8) -> bool {
    TOKENS[usize::from(byte)]
}

const TOKENS: [bool; 256] = {
    let (mut table, mut byte, others) = ([false; 256], 0, b"!#$%&'*+-.^_`|~");
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
};

/// The entry for fuzzing.
pub fn fuzz(data: &[u8]) {
    let (&cut, body) = match data.split_first() {
        Some(both) => both,
        None => return,
    };
    let (mut whole, mut pieces) = (Chunks::default(), Chunks::default());
    let (first, second) = body.split_at(usize::from(cut).min(body.len()));
    // INVARIANT: where a body is cut makes no difference.
    let judged = whole.look(body);
    assert_eq!(judged, pieces.look(first).and_then(|()| pieces.look(second)));
    if judged.is_ok() {
        assert_eq!(whole, pieces);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_may_put_blanks_behind_a_size() {
        for body in ["3 \r\nabc\r\n0\t \r\n\r\n", "3 ;a=b\r\nabc\r\n0\r\n\r\n"] {
            let mut chunks = Chunks::of_server();
            assert_eq!((chunks.look(body.as_bytes()), chunks.is_ended()), (Ok(()), true), "{body:?}");
            assert!(judge(body.as_bytes()).is_err());
        }
        for body in [" 3\r\n", "3 3\r\n", "3 \n", "3 x\r\n"] {
            assert!(Chunks::of_server().look(body.as_bytes()).is_err(), "{body:?}");
        }
        assert!(Chunks::of_server().look(format!("3{}", " ".repeat(1 << 15)).as_bytes()).is_err());
    }

    #[test]
    fn a_trailer_is_seen_where_it_begins() {
        let (mut chunks, body) = (Chunks::of_server(), b"1\r\na\r\n0\r\nX: y\r\n\r\nz");
        assert_eq!(chunks.take(body), Ok(Piece { framing: 3, data: 1 }));
        assert!(!chunks.is_in_trailer());
        assert_eq!(chunks.take(&body[4..]), Ok(Piece { framing: 5, data: 0 }));
        assert!(chunks.is_in_trailer());
        assert_eq!(chunks.take(&body[9..]), Ok(Piece { framing: 8, data: 0 }));
        assert!(chunks.is_ended() && !chunks.is_in_trailer());
    }

    /// Whether a body is good, and whether it is over.
    fn judge(body: &[u8]) -> Result<bool, &'static str> {
        for cut in 0..=body.len().min(64) {
            let mut data = vec![cut as u8];
            data.extend_from_slice(body);
            fuzz(&data);
        }
        let mut chunks = Chunks::default();
        chunks.look(body).map(|()| chunks.state == ChunkState::Ended).map_err(|malformed| malformed.0)
    }

    #[test]
    fn good_bodies() {
        for body in [
            "0\r\n\r\n",
            "3\r\nabc\r\n0\r\n\r\n",
            "00000A\r\n0123456789\r\n000\r\n\r\n",
            "3;a=b\r\nabc\r\n0;c\r\n\r\n",
            "3;a=\"b c\"\r\nabc\r\n0\r\n\r\n",
            "1\r\n\r\r\n0\r\nX-One: a\r\nX-Two:\tb \r\n\r\n",
            "0\r\n\r\nwhatever follows\n",
        ] {
            assert_eq!(judge(body.as_bytes()), Ok(true), "{body:?}");
            let short = &body.as_bytes()[..body.find("\r\n\r\n").unwrap()];
            assert_eq!(judge(short), Ok(false), "{short:?}");
        }
    }

    #[test]
    fn bad_bodies() {
        for body in [
            "\r\n",
            " 3\r\n",
            "3 \r\n",
            "3\t\r\n",
            "3 ;a\r\n",
            "x\r\n",
            "0x3\r\n",
            "+3\r\n",
            "-3\r\n",
            "3_\r\n",
            "3\n",
            "3\r3",
            ";a\r\n",
            "3;a\n",
            "3;a\x01\r\n",
            "3;a\0\r\n",
            "3;\r\r\n",
            "10000000000000003\r\n",
            "00000000000000003\r\n",
            "3\r\nabcd\r\n",
            "3\r\nabc\n",
            "3\r\nabc\rX",
            "3\r\nabcXX",
            "0\n",
            "0\r\n\n",
            "0\r\n\rX",
            "0\r\n X: a\r\n",
            "0\r\nX-One: a\n",
            "0\r\nX-One: a\r\n b\r\n",
            "0\r\nX One: a\r\n",
            "0\r\nX-One : a\r\n",
            "0\r\n: a\r\n",
            "0\r\nX-One\r\n",
            "0\r\nX: a\0\r\n",
        ] {
            assert!(judge(body.as_bytes()).is_err(), "{body:?}");
        }
    }
}
