//! The first message of a TLS connection, as far as finding its site takes: whether it is whole, and the name that the
//! client asks for.
//!
//! Runs in: gates, unprivileged; pure, no input or output, no memory of its own. Untrusted input: all of it. Must
//! never: panic, allocate, or look at more of it than that; the site's worker checks the rest.
//!
//! RFC 8446 5.1: a handshake message may lie in several records, and a record in several segments.

/// LIMIT: bytes of a whole hello with the headers of its records: one record at its largest. Post-quantum key shares
/// make it about 2 KiB.
pub const HELLO_BYTES_MAX: usize = 16 * 1024;
/// LIMIT: a name of DNS (RFC 1035 2.3.4).
const NAME_BYTES_MAX: usize = 255;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
const RECORD_HEADER: usize = 5;
const MESSAGE_HEADER: usize = 4;

/// The result of [`check`].
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it lives on the stack for a moment; a box would be an allocation"
)]
pub enum CheckedHello {
    /// It has not arrived completely. With less than so many bytes there is nothing new to see: who sends it in records
    /// of a byte each is looked at a few dozen times, not for each.
    Partial(usize),
    /// The bytes do not begin as TLS does.
    Foreign,
    /// It begins as TLS does, and is no hello.
    Malformed,
    /// A whole one.
    Whole(Hello),
}

/// The first message of a client.
#[derive(Debug)]
pub struct Hello {
    name: [u8; NAME_BYTES_MAX],
    name_bytes: usize,
    /// Whether it offers HTTP/2.
    pub http2: bool,
}

impl Hello {
    /// The host that it asks for, in lower case and without a final dot; empty if it names none.
    pub fn name(&self) -> &[u8] {
        &self.name[..self.name_bytes]
    }
}

/// Looks at what has arrived of a connection.
pub fn check(bytes: &[u8]) -> CheckedHello {
    match walk(bytes) {
        WalkResult::Partial(least) => CheckedHello::Partial(least),
        WalkResult::Foreign => CheckedHello::Foreign,
        WalkResult::Malformed => CheckedHello::Malformed,
        WalkResult::Whole(length) => match RecordReader::new(bytes, MESSAGE_HEADER + length).hello() {
            Some(hello) => CheckedHello::Whole(hello),
            None => CheckedHello::Malformed,
        },
    }
}

enum WalkResult {
    Partial(usize),
    Foreign,
    Malformed,
    /// So many bytes of message, without its header, are all there.
    Whole(usize),
}

/// Goes from record to record, without a look at what is in them but the message's header; so that a client which sends
/// byte by byte costs little each time.
fn walk(bytes: &[u8]) -> WalkResult {
    match bytes {
        [] => return WalkResult::Partial(1),
        // SSL 2 and 3, and what is no TLS at all; no request begins with the byte of a handshake.
        [first, ..] if *first != HANDSHAKE => return WalkResult::Foreign,
        [_, major, ..] if *major != 3 => return WalkResult::Foreign,
        _ => {}
    }
    let (mut at, mut has) = (0, 0);
    let mut header = [0; MESSAGE_HEADER];
    // LIMIT: as many records as `HELLO_BYTES_MAX` has room for, of a byte each.
    loop {
        let Some([kind, major, _, high, low]) =
            bytes.get(at..).and_then(<[u8]>::first_chunk::<RECORD_HEADER>)
        else {
            return WalkResult::Partial(at + RECORD_HEADER + missing(has, header));
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        at += RECORD_HEADER;
        if *kind != HANDSHAKE || *major != 3 || length == 0 || at + length > HELLO_BYTES_MAX {
            return WalkResult::Malformed;
        }
        let there = &bytes[at.min(bytes.len())..(at + length).min(bytes.len())];
        for (place, byte) in header.iter_mut().skip(has).zip(there) {
            *place = *byte;
        }
        has += there.len();
        let [kind, high, middle, low] = header;
        let message = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        if has >= 1 && kind != CLIENT_HELLO || has >= MESSAGE_HEADER && message > HELLO_BYTES_MAX {
            return WalkResult::Malformed;
        }
        if has >= MESSAGE_HEADER && has >= MESSAGE_HEADER + message {
            return WalkResult::Whole(message);
        }
        if there.len() < length {
            return WalkResult::Partial(bytes.len() + missing(has, header));
        }
        at += length;
    }
}

/// Bytes of the message, of which so many and this header are known, that are still to come.
fn missing(has: usize, [_, high, middle, low]: [u8; MESSAGE_HEADER]) -> usize {
    let message = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
    let whole = if has < MESSAGE_HEADER { MESSAGE_HEADER } else { MESSAGE_HEADER + message };
    whole.saturating_sub(has)
}

/// Reads the bytes of a message that [`walk`] has found whole, across the borders of its records.
struct RecordReader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Bytes that are left of the record.
    record: usize,
    /// Bytes that may still be read: of the message, or of the innermost vector.
    left: usize,
}

impl<'a> RecordReader<'a> {
    fn new(bytes: &'a [u8], left: usize) -> Self {
        Self { bytes, at: 0, record: 0, left }
    }

    fn hello(mut self) -> Option<Hello> {
        // Its header, version and random.
        self.skip(MESSAGE_HEADER + 2 + 32)?;
        let session = usize::from(self.u8()?);
        self.skip(session)?;
        let suites = usize::from(self.u16()?);
        self.skip(suites)?;
        let compressions = usize::from(self.u8()?);
        self.skip(compressions)?;
        let mut hello = Hello { name: [0; NAME_BYTES_MAX], name_bytes: 0, http2: false };
        // Without extensions, it ends here.
        if self.left > 0 {
            let outer = self.enter_u16()?;
            self.extensions(&mut hello)?;
            self.leave(outer)?;
        }
        (self.left == 0).then_some(hello)
    }

    fn extensions(&mut self, hello: &mut Hello) -> Option<()> {
        let (mut named, mut spoken) = (false, false);
        while self.left > 0 {
            let kind = self.u16()?;
            let outer = self.enter_u16()?;
            match kind {
                // One that comes twice could be read in two ways.
                SERVER_NAME if std::mem::replace(&mut named, true) => return None,
                ALPN if std::mem::replace(&mut spoken, true) => return None,
                SERVER_NAME => self.server_name(hello)?,
                ALPN => self.protocols(hello)?,
                _ => self.skip(self.left)?,
            }
            self.leave(outer)?;
        }
        Some(())
    }

    /// RFC 6066 3: a list, which has one name of the one kind there is.
    fn server_name(&mut self, hello: &mut Hello) -> Option<()> {
        let outer = self.enter_u16()?;
        let kind = self.u8()?;
        let length = usize::from(self.u16()?);
        if kind != 0 || length == 0 || length > NAME_BYTES_MAX {
            return None;
        }
        for place in &mut hello.name[..length] {
            *place = self.u8()?.to_ascii_lowercase();
        }
        let has_dot = hello.name[..length].ends_with(b".");
        hello.name_bytes = length - usize::from(has_dot);
        self.leave(outer)
    }

    /// RFC 7301 3.1.
    fn protocols(&mut self, hello: &mut Hello) -> Option<()> {
        let outer = self.enter_u16()?;
        while self.left > 0 {
            let length = usize::from(self.u8()?);
            match length {
                0 => return None,
                2 => hello.http2 |= [self.u8()?, self.u8()?] == *b"h2",
                _ => self.skip(length)?,
            }
        }
        self.leave(outer)
    }

    /// Begins a vector whose length is in two bytes; what is left around it.
    fn enter_u16(&mut self) -> Option<usize> {
        let length = usize::from(self.u16()?);
        let outer = self.left.checked_sub(length)?;
        self.left = length;
        Some(outer)
    }

    /// Ends a vector, which must be used up.
    fn leave(&mut self, outer: usize) -> Option<()> {
        let done = self.left == 0;
        self.left = outer;
        done.then_some(())
    }

    fn u8(&mut self) -> Option<u8> {
        self.left = self.left.checked_sub(1)?;
        self.next_record()?;
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        self.record -= 1;
        Some(byte)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.u8()?, self.u8()?]))
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        self.left = self.left.checked_sub(count)?;
        let mut count = count;
        while count > 0 {
            self.next_record()?;
            let step = count.min(self.record);
            self.at += step;
            self.record -= step;
            count -= step;
        }
        Some(())
    }

    /// Passes the header of the next record where one has ended; a record is never empty.
    fn next_record(&mut self) -> Option<()> {
        if self.record == 0 {
            let [_, _, _, high, low] = self.bytes.get(self.at..)?.first_chunk::<RECORD_HEADER>()?;
            self.record = usize::from(u16::from_be_bytes([*high, *low]));
            self.at += RECORD_HEADER;
        }
        (self.record > 0).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector16(content: &[u8]) -> Vec<u8> {
        [&(content.len() as u16).to_be_bytes()[..], content].concat()
    }

    fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &vector16(content)].concat()
    }

    fn name(text: &str) -> Vec<u8> {
        extension(SERVER_NAME, &vector16(&[&[0][..], &vector16(text.as_bytes())].concat()))
    }

    fn message(extensions: &[Vec<u8>]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 1, 1, 0]);
        if !extensions.is_empty() {
            body.extend(vector16(&extensions.concat()));
        }
        let mut out = vec![CLIENT_HELLO, 0];
        out.extend((body.len() as u16).to_be_bytes());
        out.extend(body);
        out
    }

    fn records(message: &[u8], size: usize) -> Vec<u8> {
        message.chunks(size).flat_map(|part| [&[HANDSHAKE, 3, 1][..], &vector16(part)].concat()).collect()
    }

    fn whole(bytes: &[u8]) -> Option<(String, bool)> {
        match check(bytes) {
            CheckedHello::Whole(hello) => {
                Some((String::from_utf8(hello.name().to_vec()).unwrap(), hello.http2))
            }
            _ => None,
        }
    }

    #[test]
    fn finds_the_name_in_one_record_and_in_many() {
        let alpn = extension(ALPN, &vector16(b"\x08http/1.1\x02h2"));
        let message = message(&[extension(10, &[0, 2, 0, 29]), alpn, name("WWW.A.test.")]);
        for size in [message.len(), 100, 10, 6, 5, 4, 3, 2, 1] {
            let bytes = records(&message, size);
            assert_eq!(whole(&bytes), Some(("www.a.test".into(), true)), "records of {size}");
            for end in 0..bytes.len() {
                let found = check(&bytes[..end]);
                let CheckedHello::Partial(least) = found else {
                    panic!("{end} of records of {size}: {found:?}")
                };
                assert!(end < least && least <= bytes.len(), "{end} of records of {size}: {least}");
            }
            // The bytes after it are the worker's.
            assert_eq!(whole(&[&bytes[..], b"more"].concat()), Some(("www.a.test".into(), true)));
        }
    }

    #[test]
    fn one_in_records_of_a_byte_is_looked_at_a_few_dozen_times() {
        let bytes = records(&message(&[extension(21, &[0; 2500]), name("a.test")]), 1);
        assert!(bytes.len() < HELLO_BYTES_MAX);
        let (mut looks, mut least) = (0, 1);
        while let CheckedHello::Partial(next) = check(&bytes[..least]) {
            (looks, least) = (looks + 1, next);
        }
        assert!(looks < 64 && whole(&bytes[..least]).is_some(), "{looks} looks, {least} bytes");
        assert!(matches!(
            check(&records(&message(&[extension(21, &[0; 2800])]), 1)),
            CheckedHello::Malformed
        ));
    }

    #[test]
    fn takes_one_without_name_or_extensions() {
        assert_eq!(whole(&records(&message(&[]), 500)), Some((String::new(), false)));
        assert_eq!(
            whole(&records(&message(&[extension(43, &[2, 3, 4])]), 500)),
            Some((String::new(), false))
        );
    }

    #[test]
    fn refuses_what_is_none() {
        assert!(matches!(check(b"GET / HTTP/1.1\r\n"), CheckedHello::Foreign));
        assert!(matches!(check(&[HANDSHAKE, 2]), CheckedHello::Foreign));
        for bad in [
            records(&message(&[name("a.test"), name("b.test")]), 500),
            records(&message(&[name("")]), 500),
            records(&message(&[name(&"a".repeat(256))]), 500),
            records(&message(&[vec![0, 0, 0, 9, 0]]), 500),
            records(&message(&[extension(ALPN, &vector16(b"\x00"))]), 500),
            records(&message(&[extension(ALPN, b"\x00\x05\x02h2")]), 500),
            records(&[2, 0, 0, 0], 500),
            records(&[CLIENT_HELLO, 0xff, 0xff, 0xff], 500),
            vec![HANDSHAKE, 3, 1, 0, 0],
            vec![HANDSHAKE, 3, 1, 0xff, 0xff],
            [records(&message(&[]), 10)[..15].to_vec(), vec![23, 3, 3, 0, 1, 0]].concat(),
        ] {
            assert!(matches!(check(&bad), CheckedHello::Malformed), "{bad:?}");
        }
    }
}
