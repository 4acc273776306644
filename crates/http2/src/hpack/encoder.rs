//! Encoding of header blocks, without state: names by the static table, values as they are.
//!
//! Without a table, a block that was made once is good for every connection, and none costs a client memory.

use super::STATIC;

/// The index of the first entry with each name, which begins with the letter that is its place in the alphabet.
const fn firsts() -> [(u8, u8); 26] {
    let mut firsts = [(0, 0); 26];
    let mut at = 0;
    while at < STATIC.len() {
        let first = STATIC[at].0.as_bytes()[0];
        if first.is_ascii_lowercase() {
            let letter = (first - b'a') as usize;
            if firsts[letter].0 == 0 {
                firsts[letter].0 = at as u8 + 1;
            }
            firsts[letter].1 = at as u8 + 1;
        }
        at += 1;
    }
    firsts
}

/// By letter: where its names begin and end in the static table, which is nearly in the order of the alphabet.
const FIRSTS: [(u8, u8); 26] = firsts();

fn index(name: &[u8]) -> Option<usize> {
    let letter = name.first()?.checked_sub(b'a')?;
    let (first, last) = *FIRSTS.get(usize::from(letter))?;
    (usize::from(first).max(1)..=usize::from(last)).find(|&index| STATIC[index - 1].0.as_bytes() == name)
}

fn number(out: &mut Vec<u8>, pattern: u8, bits: u32, value: usize) {
    let mask = (1_usize << bits) - 1;
    if value < mask {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Appends the status, which comes before all fields.
pub fn status(out: &mut Vec<u8>, status: u16) {
    let digits = [status / 100 % 10, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8);
    let whole = (8..=14).find(|&index| STATIC[index - 1].1.as_bytes() == digits);
    match whole {
        Some(index) => out.push(0x80 | index as u8),
        None => {
            number(out, 0, 4, 8);
            number(out, 0, 7, digits.len());
            out.extend_from_slice(&digits);
        }
    }
}

/// Appends a field, whose name has small letters alone.
pub fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    match index(name) {
        Some(index) => number(out, 0, 4, index),
        None => {
            number(out, 0, 4, 0);
            number(out, 0, 7, name.len());
            out.extend_from_slice(name);
        }
    }
    number(out, 0, 7, value.len());
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::super::HpackDecoder;
    use super::*;

    #[test]
    fn what_is_encoded_is_what_is_decoded() {
        let long = "y".repeat(5000);
        let names = STATIC[14..].iter().map(|(name, _)| *name).chain(["x-own", "zebra", "a", "te"]);
        let fields: Vec<(&str, &str)> =
            names.flat_map(|name| [(name, "v"), (name, &long), (name, "")]).collect();
        for code in [100, 200, 204, 206, 304, 400, 404, 500, 503, 999] {
            let mut block = Vec::new();
            status(&mut block, code);
            fields.iter().for_each(|(name, value)| field(&mut block, name.as_bytes(), value.as_bytes()));
            let mut decoded = Vec::new();
            let mut decoder = HpackDecoder::default();
            let take = |name: &[u8], value: &[u8]| decoded.push((name.to_vec(), value.to_vec()));
            decoder.decode(&block, &mut Vec::new(), take).unwrap();
            assert_eq!(decoded[0], (b":status".to_vec(), code.to_string().into_bytes()));
            let expected =
                fields.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
            assert!(decoded[1..].iter().cloned().eq(expected));
        }
        // Of the static table, an index for the name is enough.
        let mut block = Vec::new();
        field(&mut block, b"server", b"");
        assert_eq!(block, [0x0f, 54 - 15, 0]);
    }
}
