//! Decoding of strings in the Huffman code (RFC 7541 5.2, Appendix B).
//!
//! Untrusted input: strings of clients. Must never: make more than 8 bytes of 5.
//!
//! The code is canonical, so the lengths of the codes define the codes: codes of one length count up with their
//! symbols, and each length goes on where the shorter one has ended.

/// Bits of the code of each byte, and of the end of a string.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7,
    15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24,
    23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23,
    23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26,
    26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20,
    21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27,
    27, 27, 26, 30,
];
/// The longest code.
const LONGEST: usize = 30;
/// Bits that the table of short codes is looked up with.
const SHORT: usize = 10;

/// The canonical code.
struct Code {
    /// For the next [`SHORT`] bits: the symbol in the low byte and the bits of its code above; 0 for a longer code.
    short: [u16; 1 << SHORT],
    /// By length: the first code, how many there are, and where their symbols begin.
    ranges: [(u32, u32, usize); LONGEST + 1],
    /// By length and value.
    symbols: [u16; 257],
}

static CODE: Code = build();

const fn build() -> Code {
    let mut code = Code { short: [0; 1 << SHORT], ranges: [(0, 0, 0); LONGEST + 1], symbols: [0; 257] };
    let (mut next, mut place, mut length) = (0_u32, 0, 1);
    while length <= LONGEST {
        next <<= 1;
        let (first, start) = (next, place);
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS[symbol] as usize == length {
                code.symbols[place] = symbol as u16;
                if length <= SHORT {
                    let low = (next as usize) << (SHORT - length);
                    let mut fill = 0;
                    while fill < 1 << (SHORT - length) {
                        code.short[low + fill] = (length as u16) << 8 | symbol as u16;
                        fill += 1;
                    }
                }
                next += 1;
                place += 1;
            }
            symbol += 1;
        }
        code.ranges[length] = (first, (place - start) as u32, start);
        length += 1;
    }
    code
}

/// Appends what `coded` stands for; false if it is no such string.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> bool {
    let (mut bits, mut have) = (0_u64, 0_usize);
    let mut rest = coded.iter();
    loop {
        while have <= 56 {
            let Some(&byte) = rest.next() else { break };
            bits |= u64::from(byte) << (56 - have);
            have += 8;
        }
        let short = CODE.short[(bits >> (64 - SHORT)) as usize];
        let (symbol, length) = match short {
            0 => match long(bits) {
                Some(found) => found,
                None => return false,
            },
            short => (short & 0xff, usize::from(short >> 8)),
        };
        if length > have {
            // The padding: fewer than 8 bits, all of them 1.
            return have < 8 && (have == 0 || bits >> (64 - have) == (1 << have) - 1);
        }
        if symbol > 0xff {
            return false;
        }
        out.push(symbol as u8);
        bits <<= length;
        have -= length;
    }
}

/// A code that is longer than [`SHORT`] bits.
fn long(bits: u64) -> Option<(u16, usize)> {
    (SHORT + 1..=LONGEST).find_map(|length| {
        let (first, count, start) = CODE.ranges[length];
        let value = ((bits >> (64 - length)) as u32).checked_sub(first)?;
        (value < count).then(|| (CODE.symbols[start + value as usize], length))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(coded: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        decode(coded, &mut out).then_some(out)
    }

    /// The code of each symbol, from the lengths alone.
    fn code_of(symbol: usize) -> (u32, usize) {
        let length = usize::from(LENGTHS[symbol]);
        let (first, _, start) = CODE.ranges[length];
        let at = CODE.symbols.iter().position(|&one| usize::from(one) == symbol).unwrap();
        (first + (at - start) as u32, length)
    }

    fn coded(symbols: &[usize]) -> Vec<u8> {
        let mut bits: Vec<bool> = Vec::new();
        for &symbol in symbols {
            let (code, length) = code_of(symbol);
            bits.extend((0..length).rev().map(|bit| code >> bit & 1 == 1));
        }
        while !bits.len().is_multiple_of(8) {
            bits.push(true);
        }
        bits.chunks(8).map(|byte| byte.iter().fold(0, |all, &bit| all << 1 | u8::from(bit))).collect()
    }

    #[test]
    fn the_examples_of_the_rfc() {
        // RFC 7541 C.4, C.6.
        let hosts = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(decoded(&hosts).unwrap(), b"www.example.com");
        assert_eq!(decoded(&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]).unwrap(), b"no-cache");
        // Appendix B.
        assert_eq!(
            (code_of(0), code_of(usize::from(b'z')), code_of(256)),
            ((0x1ff8, 13), (0x7b, 7), (0x3fff_ffff, 30))
        );
    }

    #[test]
    fn every_byte_comes_back() {
        for symbol in 0..256 {
            for others in [&[][..], &[b'a'; 3], &[249; 2]] {
                let symbols: Vec<usize> =
                    others.iter().map(|&b| usize::from(b)).chain([symbol]).chain([1, 2]).collect();
                let bytes: Vec<u8> = symbols.iter().map(|&symbol| symbol as u8).collect();
                assert_eq!(decoded(&coded(&symbols)), Some(bytes));
            }
        }
    }

    #[test]
    fn padding_is_short_and_of_ones() {
        assert_eq!(decoded(&[]), Some(Vec::new()));
        // "0" is 00000 and three bits of padding.
        assert_eq!(decoded(&[0b0000_0111]), Some(b"0".to_vec()));
        assert_eq!(decoded(&[0b0000_0110]), None);
        assert_eq!(decoded(&[0b0000_0111, 0xff]), None);
        assert_eq!(decoded(&[0xff]), None);
        // The end of a string must not be in one.
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(decoded(&coded(&[usize::from(b'a'), 256, usize::from(b'a')])), None);
    }
}
