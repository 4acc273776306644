//! From the path of a request to a path below the root, and back.
//!
//! Runs in: the site worker, unprivileged; pure. Untrusted input: the path. Must never: let a decoded byte
//! act as a separator, or a segment lead upwards.

/// Why a path names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPath {
    /// An invalid escape, a NUL or a `..`: 400.
    Malformed,
    /// A name that is never served, such as `.git`: 404.
    Hidden,
}

/// A path below the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relative {
    /// Decoded segments joined by `/`, without a leading or trailing one; empty for the root.
    pub bytes: Vec<u8>,
    /// Whether the request's path ended with `/`.
    pub slash: bool,
    /// Whether the request spelt it in the one way [`encode`] would; only such paths are cached, or a client
    /// could fill the cache with spellings of one file.
    pub canonical: bool,
}

/// Decodes and checks the path of a request.
pub fn resolve(raw: &str) -> Result<Relative, BadPath> {
    let rest = raw.strip_prefix('/').ok_or(BadPath::Malformed)?;
    let mut bytes = Vec::with_capacity(rest.len());
    let mut canonical = true;
    let mut segments = rest.split('/').peekable();
    while let Some(segment) = segments.next() {
        if segment.is_empty() {
            canonical &= segments.peek().is_none();
            continue;
        }
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        let start = bytes.len();
        decode(segment.as_bytes(), &mut bytes)?;
        admit(&bytes[start..])?;
    }
    let slash = rest.is_empty() || rest.ends_with('/');
    let mut relative = Relative { bytes, slash, canonical };
    relative.canonical = canonical && encode(&relative) == raw;
    Ok(relative)
}

fn decode(segment: &[u8], out: &mut Vec<u8>) -> Result<(), BadPath> {
    let mut rest = segment;
    while let [first, tail @ ..] = rest {
        if *first != b'%' {
            out.push(*first);
            rest = tail;
            continue;
        }
        let [high, low, tail @ ..] = tail else {
            return Err(BadPath::Malformed);
        };
        let byte = hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low);
        match byte.ok_or(BadPath::Malformed)? {
            0 => return Err(BadPath::Malformed),
            // SECURITY: no file name has a slash, so this one could only mean to become a separator.
            b'/' => return Err(BadPath::Hidden),
            byte => out.push(byte),
        }
        rest = tail;
    }
    Ok(())
}

fn admit(segment: &[u8]) -> Result<(), BadPath> {
    match segment {
        b".." => Err(BadPath::Malformed),
        b".well-known" => Ok(()),
        [b'.', ..] => Err(BadPath::Hidden),
        _ => Ok(()),
    }
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Spells a path for a `Location`: begins with exactly one `/`, so that it can never name another host.
pub fn encode(path: &Relative) -> String {
    let mut out = String::with_capacity(path.bytes.len() + 2);
    out.push('/');
    out.push_str(&encode_name(&path.bytes));
    if path.slash && !path.bytes.is_empty() {
        out.push('/');
    }
    out
}

/// Spells names and the separators between them.
pub fn encode_name(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        // RFC 3986 3.3: pchar, and the separators already there.
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(DIGITS[usize::from(byte >> 4)]));
            out.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(raw: &str) -> Result<String, BadPath> {
        resolve(raw).map(|p| String::from_utf8(p.bytes).unwrap())
    }

    #[test]
    fn decodes_and_refuses() {
        assert_eq!(bytes("/"), Ok(String::new()));
        assert_eq!(bytes("/a/b%20c"), Ok("a/b c".into()));
        assert_eq!(bytes("//a///b/"), Ok("a/b".into()));
        assert_eq!(bytes("/.well-known/x"), Ok(".well-known/x".into()));
        for raw in ["/..", "/a/../b", "/%2e%2E/x", "/.%2e", "/%", "/%4", "/%zz", "/a%00b", "a", ""] {
            assert_eq!(bytes(raw), Err(BadPath::Malformed), "{raw}");
        }
        for raw in ["/.git", "/a/.htaccess", "/.", "/%2ehidden", "/...", "/a%2fb", "/..%2fx", "/.well-known2"]
        {
            assert_eq!(bytes(raw), Err(BadPath::Hidden), "{raw}");
        }
    }

    #[test]
    fn canonical_means_one_spelling() {
        for raw in ["/", "/a", "/a/", "/a/b%20c", "/%C3%A9", "/a+b:c@d"] {
            assert!(resolve(raw).unwrap().canonical, "{raw}");
        }
        for raw in ["//", "//a", "/a//", "/%61", "/%c3%a9", "/a//b", "/a{"] {
            assert!(!resolve(raw).unwrap().canonical, "{raw}");
        }
        assert_eq!(encode(&resolve("//evil.example//x").unwrap()), "/evil.example/x");
    }
}
