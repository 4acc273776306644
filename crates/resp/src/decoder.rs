//! Replies, however their bytes arrive.

use crate::{DEPTH_MAX, LINE_MAX, RespError, RespReply, VALUE_BYTES};

/// A list that is not complete.
#[derive(Debug)]
struct Open {
    kind: ListKind,
    /// Values that are to come.
    left: u64,
    values: Vec<RespReply>,
}

/// The use of a list's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListKind {
    List,
    Map,
    /// A message that was not asked for: it stands beside the replies.
    Beside,
}

/// A string whose bytes come.
#[derive(Debug)]
struct Long {
    kind: u8,
    /// With the line end behind them.
    left: u64,
    bytes: Vec<u8>,
    /// Whether it is kept.
    is_kept: bool,
    /// Bytes of it that are still to be kept.
    wanted: usize,
}

/// Reads one reply. Use another for the next one.
#[derive(Debug)]
pub struct ReplyDecoder {
    /// Bytes that may still be kept.
    room: usize,
    is_cut: bool,
    line: Vec<u8>,
    long: Option<Long>,
    open: Vec<Open>,
}

impl ReplyDecoder {
    /// One for a reply of which so many bytes are wanted.
    pub fn new(room: usize) -> Self {
        Self { room, is_cut: false, line: Vec::new(), long: None, open: Vec::new() }
    }

    /// Whether the reply has more than is wanted, and so is not all there.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Takes what arrives, up to the end of the reply; the reply, if that is there.
    ///
    /// # Errors
    /// It is no reply. The decoder must not be used again.
    pub fn take(&mut self, input: &mut &[u8]) -> Result<Option<RespReply>, RespError> {
        while !input.is_empty() {
            let value = match self.long {
                Some(_) => self.take_long(input)?,
                None => self.take_line(input)?,
            };
            if let Some(reply) = value.and_then(|value| self.close(value)) {
                return Ok(Some(reply));
            }
        }
        Ok(None)
    }

    /// Takes bytes of a line; the value that it is, if it is one by itself.
    fn take_line(&mut self, input: &mut &[u8]) -> Result<Option<RespReply>, RespError> {
        let end = input.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let (taken, rest) = input.split_at(end.unwrap_or(input.len()));
        if self.line.len() + taken.len() > LINE_MAX {
            return Err(RespError("a line is too long"));
        }
        self.line.extend_from_slice(taken);
        *input = rest;
        if end.is_none() {
            return Ok(None);
        }
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\r\n").ok_or(RespError("a line ends without CR"))?;
        let (kind, text) = line.split_first().ok_or(RespError("a line is empty"))?;
        self.begin(*kind, text)
    }

    /// Begins what a line says.
    fn begin(&mut self, kind: u8, text: &[u8]) -> Result<Option<RespReply>, RespError> {
        let words = || String::from_utf8_lossy(text).into_owned();
        let value = match kind {
            b'+' | b'(' => RespReply::Bytes(text.to_vec()),
            b'-' => RespReply::Failed(words()),
            b':' => RespReply::Int(number(text)?),
            b'_' => RespReply::Null,
            b'#' => match text {
                b"t" => RespReply::Int(1),
                b"f" => RespReply::Int(0),
                _ => return Err(RespError("a boolean is none")),
            },
            b',' => RespReply::Real(words().parse().map_err(|_| RespError("a real number is none"))?),
            // RESP 2 has no other NULL.
            b'$' | b'*' if text == b"-1" => RespReply::Null,
            b'$' | b'=' | b'!' => return self.begin_long(kind, length(text)?).map(|()| None),
            b'*' | b'~' => return self.begin_list(ListKind::List, length(text)?),
            b'%' => return self.begin_list(ListKind::Map, pairs(text)?),
            b'>' => return self.begin_list(ListKind::Beside, length(text)?),
            b'|' => return self.begin_list(ListKind::Beside, pairs(text)?),
            _ => return Err(RespError("an unknown type")),
        };
        Ok(Some(value))
    }

    fn begin_long(&mut self, kind: u8, length: u64) -> Result<(), RespError> {
        let left = length.checked_add(2).ok_or(RespError("a length is too large"))?;
        let wanted = usize::try_from(length).ok();
        let is_error = kind == b'!';
        // An error is always heard, and has an end.
        let wanted = if is_error {
            wanted.map(|length| length.min(LINE_MAX))
        } else {
            wanted.filter(|length| *length <= self.room)
        };
        let is_kept = wanted.is_some() && (is_error || !self.is_cut);
        self.long = Some(Long { kind, left, bytes: Vec::new(), is_kept, wanted: wanted.unwrap_or(0) });
        Ok(())
    }

    /// Takes bytes of a string; the string, if it ends.
    fn take_long(&mut self, input: &mut &[u8]) -> Result<Option<RespReply>, RespError> {
        let Some(long) = &mut self.long else { return Ok(None) };
        let count = usize::try_from(long.left).map_or(input.len(), |left| left.min(input.len()));
        let (taken, rest) = input.split_at(count);
        *input = rest;
        let text = taken.len().min(usize::try_from(long.left.saturating_sub(2)).unwrap_or(usize::MAX));
        check_end(&taken[text..], long.left - text as u64)?;
        if long.is_kept {
            let kept = text.min(long.wanted);
            long.bytes.extend_from_slice(&taken[..kept]);
            long.wanted -= kept;
        }
        long.left -= taken.len() as u64;
        if long.left > 0 {
            return Ok(None);
        }
        let Some(Long { kind, bytes, is_kept, .. }) = self.long.take() else { return Ok(None) };
        if !is_kept {
            self.is_cut = true;
            return Ok(Some(RespReply::Null));
        }
        Ok(Some(match kind {
            b'!' => RespReply::Failed(String::from_utf8_lossy(&bytes).into_owned()),
            // `txt:` or `mkd:` stands before the text.
            b'=' => RespReply::Bytes(bytes.get(4..).unwrap_or_default().to_vec()),
            _ => RespReply::Bytes(bytes),
        }))
    }

    fn begin_list(&mut self, kind: ListKind, left: u64) -> Result<Option<RespReply>, RespError> {
        if self.open.len() == DEPTH_MAX {
            return Err(RespError("its lists are too deep"));
        }
        let open = Open { kind, left, values: Vec::new() };
        if left > 0 {
            self.open.push(open);
            return Ok(None);
        }
        Ok(open.ended())
    }

    /// Puts a value where it belongs, and ends the lists that are complete with it; the reply, if that is one.
    fn close(&mut self, mut value: RespReply) -> Option<RespReply> {
        loop {
            self.count(&value);
            let Some(open) = self.open.last_mut() else { return Some(value) };
            // Unwanted values are read, and dropped; errors are always kept.
            if open.kind != ListKind::Beside && (!self.is_cut || matches!(value, RespReply::Failed(_))) {
                open.values.push(value);
            }
            open.left -= 1;
            if open.left > 0 {
                return None;
            }
            value = self.open.pop()?.ended()?;
        }
    }

    fn count(&mut self, value: &RespReply) {
        let bytes = match value {
            RespReply::Bytes(bytes) => bytes.len(),
            RespReply::List(_) | RespReply::Map(_) | RespReply::Failed(_) => 0,
            RespReply::Null | RespReply::Int(_) | RespReply::Real(_) => 0,
        };
        match self.room.checked_sub(bytes + VALUE_BYTES) {
            Some(room) => self.room = room,
            None => (self.room, self.is_cut) = (0, true),
        }
    }
}

impl Open {
    /// The value that it is; none if it stands beside the replies.
    fn ended(self) -> Option<RespReply> {
        match self.kind {
            ListKind::List => Some(RespReply::List(self.values)),
            ListKind::Map => Some(RespReply::Map(self.values)),
            ListKind::Beside => None,
        }
    }
}

/// Looks at bytes of a string's line end, of which so many are to come with these.
fn check_end(bytes: &[u8], left: u64) -> Result<(), RespError> {
    let expected = &b"\r\n"[2 - usize::try_from(left.min(2)).unwrap_or(2)..];
    match expected.starts_with(bytes) {
        true => Ok(()),
        false => Err(RespError("a string is longer than it says")),
    }
}

fn number(text: &[u8]) -> Result<i64, RespError> {
    let text = std::str::from_utf8(text).ok();
    text.and_then(|text| text.parse().ok()).ok_or(RespError("a number is none"))
}

fn length(text: &[u8]) -> Result<u64, RespError> {
    u64::try_from(number(text)?).map_err(|_| RespError("a length is negative"))
}

fn pairs(text: &[u8]) -> Result<u64, RespError> {
    length(text)?.checked_mul(2).ok_or(RespError("a length is too large"))
}
