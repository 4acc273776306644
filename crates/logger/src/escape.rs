//! Untrusted bytes made harmless for a log.
//!
//! Runs in: the logger. Sees: whatever a client of the web server sent, and what a compromised role makes up.
//! Never: lets a control character, or any byte that is not ASCII, through.

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends bytes that stand between quotes: control characters, quotes, backslashes and bytes from 0x7f on
/// as `\xhh`.
pub fn put_quoted(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes, |byte| is_plain(byte) && byte != b'"');
}

/// Appends bytes that stand for themselves: as [`put_quoted`], but a quote is just that.
pub fn put_text(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes, is_plain);
}

fn put(out: &mut Vec<u8>, bytes: &[u8], plain: impl Fn(u8) -> bool) {
    let mut rest = bytes;
    while let Some(at) = first_special(rest, &plain) {
        let byte = rest[at];
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(&[b'\\', b'x', hex(byte >> 4), hex(byte)]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

/// Where the first byte is that is not plain. The blocks before it are checked without a branch for each byte,
/// that is, by vector instructions.
fn first_special(bytes: &[u8], plain: impl Fn(u8) -> bool) -> Option<usize> {
    let (blocks, _) = bytes.as_chunks::<16>();
    let all_plain = |block: &&[u8; 16]| block.iter().fold(true, |all, byte| all & plain(*byte));
    let start = 16 * blocks.iter().take_while(all_plain).count();
    bytes[start..].iter().position(|byte| !plain(*byte)).map(|at| start + at)
}

/// Appends the inside of a JSON string, in ASCII; what is not UTF-8 becomes U+FFFD.
///
/// RFC 8259 7: a character outside of ASCII may be written as the escapes of its UTF-16 units. Doing so for all
/// of them leaves no invisible character or foreign line separator to whoever reads the log in a terminal.
pub fn put_json(out: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        put_json_text(out, chunk.valid());
        if !chunk.invalid().is_empty() {
            out.extend_from_slice(b"\\ufffd");
        }
    }
}

fn put_json_text(out: &mut Vec<u8>, text: &str) {
    let mut rest = text;
    while let Some(at) = first_special(rest.as_bytes(), |byte| is_plain(byte) && byte != b'"') {
        let (plain, special) = rest.split_at(at);
        out.extend_from_slice(plain.as_bytes());
        let mut chars = special.chars();
        if let Some(first) = chars.next() {
            put_json_char(out, first);
        }
        rest = chars.as_str();
    }
    out.extend_from_slice(rest.as_bytes());
}

fn put_json_char(out: &mut Vec<u8>, char: char) {
    match char {
        '"' => out.extend_from_slice(b"\\\""),
        '\\' => out.extend_from_slice(b"\\\\"),
        _ => {
            for unit in char.encode_utf16(&mut [0; 2]) {
                let [high, low] = unit.to_be_bytes();
                out.extend_from_slice(b"\\u");
                out.extend_from_slice(&[hex(high >> 4), hex(high), hex(low >> 4), hex(low)]);
            }
        }
    }
}

/// Whether a byte can stand in any log as it is, but for quotes.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'\\'
}

fn hex(nibble: u8) -> u8 {
    HEX[usize::from(nibble & 15)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(put: fn(&mut Vec<u8>, &[u8]), bytes: &[u8]) -> String {
        let mut out = Vec::new();
        put(&mut out, bytes);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn escapes_between_quotes() {
        assert_eq!(with(put_quoted, b"/a b?c=d"), "/a b?c=d");
        assert_eq!(with(put_quoted, b"\"\\\r\n\0\x1b[m\x7f\xff~"), r"\x22\x5c\x0d\x0a\x00\x1b[m\x7f\xff~");
        assert_eq!(with(put_text, b"say \"x\"\n"), "say \"x\"\\x0a");
    }

    #[test]
    fn escapes_json() {
        assert_eq!(with(put_json, b"a\"b\\c\n"), r#"a\"b\\c\u000a"#);
        assert_eq!(with(put_json, "é\u{2028}😀".as_bytes()), r"\u00e9\u2028\ud83d\ude00");
        assert_eq!(with(put_json, b"a\xffb\xe2\x82"), r"a\ufffdb\ufffd");
    }

    #[test]
    fn leaves_nothing_but_printable_ascii() {
        let all: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        for put in [put_quoted, put_text, put_json] {
            assert!(with(put, &all).bytes().all(|byte| matches!(byte, b' '..=b'~')));
        }
    }
}
