//! Decoding of header blocks.
//!
//! Untrusted input: blocks of clients. Must never: keep more than [`TABLE_BYTES`] from one block to the next, or give
//! out more than its caller takes.

use std::collections::VecDeque;

use super::{FIELD_BYTES, STATIC, huffman};

/// LIMIT: bytes of the table of one client, as RFC 7541 counts them; the protocol's default, which we do not raise.
pub(crate) const TABLE_BYTES: usize = 4096;

/// LIMIT: a number in a block; no string of ours is longer.
const NUMBER_MAX: usize = 1 << 24;

/// A block that is none (COMPRESSION_ERROR).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HpackError;

/// One entry: the name, and behind it the value.
#[derive(Debug)]
struct TableEntry {
    text: Box<[u8]>,
    name: usize,
}

/// The decoder of one client's blocks.
#[derive(Debug)]
pub(crate) struct HpackDecoder {
    /// The newest first.
    entries: VecDeque<TableEntry>,
    bytes: usize,
    most: usize,
}

impl Default for HpackDecoder {
    fn default() -> Self {
        Self { entries: VecDeque::new(), bytes: 0, most: TABLE_BYTES }
    }
}

/// Where a name comes from.
enum Name {
    Static(&'static str),
    /// The start of the room for text.
    Text,
}

impl HpackDecoder {
    /// Gives each field of `block` to `take`; `room` is for text on its way.
    pub fn decode(
        &mut self,
        mut block: &[u8],
        room: &mut Vec<u8>,
        mut take: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), HpackError> {
        let mut begun = false;
        while let Some(&first) = block.first() {
            match first {
                0x80.. => {
                    let index = number(&mut block, 7)?;
                    let (name, value) = self.entry(index)?;
                    take(name, value);
                }
                0x20..0x40 => {
                    let most = number(&mut block, 5)?;
                    // RFC 7541 4.2: only at the beginning of a block.
                    if begun || most > TABLE_BYTES {
                        return Err(HpackError);
                    }
                    self.most = most;
                    self.evict();
                    continue;
                }
                _ => self.literal(&mut block, first & 0x40 != 0, room, &mut take)?,
            }
            begun = true;
        }
        Ok(())
    }

    fn literal(
        &mut self,
        block: &mut &[u8],
        keeps: bool,
        room: &mut Vec<u8>,
        take: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), HpackError> {
        room.clear();
        let name = match number(block, if keeps { 6 } else { 4 })? {
            0 => {
                string(block, room)?;
                Name::Text
            }
            index => match index.checked_sub(1).and_then(|index| STATIC.get(index)) {
                Some((name, _)) => Name::Static(name),
                None => {
                    room.extend_from_slice(self.entry(index)?.0);
                    Name::Text
                }
            },
        };
        let start = room.len();
        string(block, room)?;
        let (name, value) = match name {
            Name::Static(name) => (name.as_bytes(), &room[..]),
            Name::Text => room.split_at(start),
        };
        if keeps {
            self.keep(name, value);
        }
        take(name, value);
        Ok(())
    }

    fn entry(&self, index: usize) -> Result<(&[u8], &[u8]), HpackError> {
        let index = index.checked_sub(1).ok_or(HpackError)?;
        if let Some((name, value)) = STATIC.get(index) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        let entry = self.entries.get(index - STATIC.len()).ok_or(HpackError)?;
        Ok(entry.text.split_at(entry.name))
    }

    fn keep(&mut self, name: &[u8], value: &[u8]) {
        self.bytes += name.len() + value.len() + FIELD_BYTES;
        if name.len() + value.len() + FIELD_BYTES > self.most {
            // RFC 7541 4.4: what is larger than the table empties it.
            self.entries = VecDeque::new();
            self.bytes = 0;
            return;
        }
        self.entries.push_front(TableEntry { text: [name, value].concat().into(), name: name.len() });
        self.evict();
    }

    fn evict(&mut self) {
        while self.bytes > self.most {
            let Some(entry) = self.entries.pop_back() else { break };
            self.bytes -= entry.text.len() + FIELD_BYTES;
        }
    }

    /// Gives back what the table does not need.
    pub fn shrink(&mut self) {
        self.entries.shrink_to_fit();
    }
}

/// RFC 7541 5.1, with a prefix of so many bits.
fn number(block: &mut &[u8], bits: u32) -> Result<usize, HpackError> {
    let mut next = || {
        let (&byte, rest) = block.split_first().ok_or(HpackError)?;
        *block = rest;
        Ok(usize::from(byte))
    };
    let mask = (1 << bits) - 1;
    let mut value = next()? & mask;
    if value < mask {
        return Ok(value);
    }
    for shift in [0, 7, 14, 21] {
        let byte = next()?;
        value += (byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return if value <= NUMBER_MAX { Ok(value) } else { Err(HpackError) };
        }
    }
    Err(HpackError)
}

/// RFC 7541 5.2.
fn string(block: &mut &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    let is_coded = block.first().is_some_and(|first| first & 0x80 != 0);
    let length = number(block, 7)?;
    let (text, rest) = block.split_at_checked(length).ok_or(HpackError)?;
    *block = rest;
    match is_coded {
        true => huffman::decode(text, out).then_some(()).ok_or(HpackError),
        false => {
            out.extend_from_slice(text);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Fields = Vec<(String, String)>;

    fn decode(decoder: &mut HpackDecoder, block: &[u8]) -> Result<Fields, HpackError> {
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        decoder.decode(block, &mut Vec::new(), |name, value| fields.push((text(name), text(value))))?;
        assert!(decoder.bytes <= decoder.most && decoder.most <= TABLE_BYTES);
        assert_eq!(decoder.bytes, decoder.entries.iter().map(|entry| entry.text.len() + 32).sum::<usize>());
        Ok(fields)
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        digits.chunks(2).map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect()
    }

    /// RFC 7541 C.3 and C.4: the same three requests, without and with the Huffman code.
    #[test]
    fn the_requests_of_the_rfc() {
        let plain = [
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ];
        let coded = [
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ];
        for blocks in [plain, coded] {
            let mut decoder = HpackDecoder::default();
            let lists = blocks.map(|block| decode(&mut decoder, &hex(block)).unwrap());
            let last = |list: &Fields| list.last().cloned().unwrap();
            let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
            assert_eq!(lists.each_ref().map(Vec::len), [4, 5, 5]);
            assert_eq!(last(&lists[0]), field(":authority", "www.example.com"));
            assert_eq!(last(&lists[1]), field("cache-control", "no-cache"));
            assert_eq!(last(&lists[2]), field("custom-key", "custom-value"));
            assert_eq!(lists[2][3], field(":authority", "www.example.com"));
            assert_eq!((decoder.entries.len(), decoder.bytes), (3, 164));
        }
    }

    #[test]
    fn the_table_keeps_to_its_size() {
        let mut decoder = HpackDecoder::default();
        let long = |name: u8, length: usize| {
            let mut block = vec![0x40, 1, name, 0x7f];
            let rest = length - 127;
            block.extend([(rest & 0x7f) as u8 | 0x80, (rest >> 7) as u8]);
            block.extend(vec![b'v'; length]);
            block
        };
        for name in b'a'..=b'z' {
            decode(&mut decoder, &long(name, 1000)).unwrap();
        }
        assert_eq!(decoder.entries.len(), 3);
        assert_eq!(decode(&mut decoder, &[0xbe]).unwrap()[0].0, "z");
        assert_eq!(decode(&mut decoder, &[0xc1]), Err(HpackError));
        decode(&mut decoder, &long(b'A', 5000)).unwrap();
        assert_eq!(decoder.entries.len(), 0);
        decode(&mut decoder, &long(b'B', 200)).unwrap();
        assert_eq!(decode(&mut decoder, &[0x20, 0x82]).unwrap().len(), 1);
        assert_eq!(decode(&mut decoder, &[0xbe]), Err(HpackError));
    }

    #[test]
    fn what_is_no_block_is_refused() {
        // No index 0; none beyond the table; a size in the middle, or too large; numbers without end, strings neither.
        for block in [
            "80",
            "be",
            "ff8001",
            "8220",
            "3fe21f",
            "ffffffffff7f",
            "ffffffffffffffffffff0f",
            "4005616161",
            "00",
            "0001",
            "000161",
            "00016185",
        ] {
            assert_eq!(decode(&mut HpackDecoder::default(), &hex(block)), Err(HpackError), "{block}");
        }
        assert_eq!(decode(&mut HpackDecoder::default(), &hex("3fe11f")), Ok(Vec::new()));
    }
}
