//! The one normal form of a request's path, for sites, rules, files and the servers behind.
//!
//! Runs in: gates and site workers, unprivileged; pure. Untrusted input: the path of a request. Must never: let two
//! spellings that lead to one file, or that one backend takes for one path, fall under different rules.
//!
//! RFC 3986 6.2.2; empty segments are left out, as file systems and nginx (`merge_slashes`) do.

use std::borrow::Cow;

/// Stands for an escaped slash, which is part of a name and no separator: no path has a NUL of its own.
pub const ESCAPED_SLASH: u8 = 0;

/// LIMIT: how often escapes are decoded once more to find what a careless backend could make of a path; nobody decodes
/// more than twice.
const DECODINGS_MAX: usize = 3;

/// A path with a segment `.` or `..`, a NUL, or an escape that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidPath;

/// A path in its normal form: decoded, without empty segments and dot segments, with [`ESCAPED_SLASH`] for escaped
/// slashes. It begins with `/`, or is the `*` of `OPTIONS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormalPath<'a>(Cow<'a, [u8]>);

impl<'a> NormalPath<'a> {
    /// The normal form of a path as sent, without the query.
    ///
    /// # Errors
    /// The path has dot segments, a NUL or an escape that is none. No client that normalises its addresses sends one.
    pub fn parse(raw: &'a str) -> Result<Self, InvalidPath> {
        if is_plain(raw.as_bytes()) {
            return Ok(Self(Cow::Borrowed(raw.as_bytes())));
        }
        let raw = raw.as_bytes();
        let mut out = Vec::with_capacity(raw.len() + 1);
        for segment in raw.split(|&byte| byte == b'/') {
            push_segment(&mut out, |out| decode(segment, out))?;
        }
        Ok(Self(Cow::Owned(ended(out, raw.ends_with(b"/")))))
    }

    /// A path of the site itself: a name below the root of its files, as bytes without a leading slash.
    ///
    /// # Errors
    /// As of [`NormalPath::parse`].
    pub fn of_file(relative: &[u8]) -> Result<NormalPath<'static>, InvalidPath> {
        if relative.contains(&0) {
            return Err(InvalidPath);
        }
        Self::of_segments(relative)
    }

    /// The same, with bytes of its own.
    pub fn into_owned(self) -> NormalPath<'static> {
        NormalPath(Cow::Owned(self.0.into_owned()))
    }

    /// The decoded bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether the path is that of a folder: whether it ends with `/`.
    pub fn is_folder(&self) -> bool {
        self.0.ends_with(b"/")
    }

    /// Whether the path is at or below `prefix`; a prefix that does not end in `/` ends at a segment's border.
    pub fn is_below(&self, prefix: &str) -> bool {
        covers(prefix.as_bytes(), &self.0)
    }

    /// The part after `prefix`, which the path is at or below.
    pub fn below(&self, prefix: &str) -> Option<&[u8]> {
        self.is_below(prefix).then(|| &self.0[prefix.len()..])
    }

    /// The path with every byte escaped that could be misread; equal paths have equal spellings. Begins with exactly
    /// one `/`, so that a `Location` can never name another host.
    pub fn spelling(&self) -> String {
        escape(&self.0)
    }

    /// Whether a backend could take the path for another one, so that [`NormalPath::readings`] has something to say.
    pub fn is_ambiguous(&self) -> bool {
        self.0.iter().any(|byte| matches!(byte, &ESCAPED_SLASH | b'\\' | b';' | b'%' | b'?' | b'#'))
    }

    /// The paths for which backends could take the path beside the path itself: with escapes decoded again; ended at an
    /// escaped question mark or number sign; without the parameters of its segments (`/admin;x/`, as Tomcat reads it),
    /// which end at the next slash, or at an escaped one as well; with escaped slashes and backslashes as separators;
    /// and all of these together.
    ///
    /// # Errors
    /// There are dot segments in one of these readings: the path could lead anywhere.
    pub fn readings(&self) -> Result<Vec<NormalPath<'static>>, InvalidPath> {
        if !self.is_ambiguous() {
            return Ok(Vec::new());
        }
        let mut texts = vec![self.0.to_vec()];
        for step in READINGS {
            for at in 0..texts.len() {
                let text = step(&texts[at]);
                if !texts.contains(&text) {
                    texts.push(text);
                }
            }
        }
        let mut readings = Vec::new();
        for text in &texts {
            // INVARIANT: the separators of a reading are slashes; an escaped slash in it is part of a name, as in the
            // path.
            let path = NormalPath::of_segments(text)?;
            if path != *self && !readings.contains(&path) {
                readings.push(path);
            }
        }
        Ok(readings)
    }

    fn of_segments(text: &[u8]) -> Result<NormalPath<'static>, InvalidPath> {
        let mut out = Vec::with_capacity(text.len() + 1);
        for segment in text.split(|&byte| byte == b'/') {
            push_segment(&mut out, |out| {
                out.extend_from_slice(segment);
                Ok(())
            })?;
        }
        Ok(NormalPath(Cow::Owned(ended(out, text.ends_with(b"/")))))
    }
}

/// A backend's reading of a path.
type Reading = fn(&[u8]) -> Vec<u8>;

/// The steps by which a backend may read a path, in the order in which it may take them. Each may be left out.
const READINGS: [Reading; 5] = [
    |text| without_parameters(text, |byte| byte == b'/'),
    decode_again,
    |text| text.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default().to_vec(),
    |text| without_parameters(text, is_any_separator),
    |text| text.iter().map(|&byte| if is_any_separator(byte) { b'/' } else { byte }).collect(),
];

fn is_any_separator(byte: u8) -> bool {
    matches!(byte, b'/' | b'\\' | ESCAPED_SLASH)
}

/// Leaves out what is between a semicolon and the next separator.
fn without_parameters(text: &[u8], is_separator: fn(u8) -> bool) -> Vec<u8> {
    let mut is_left_out = false;
    let stays = |byte: &u8| {
        is_left_out = (is_left_out || *byte == b';') && !is_separator(*byte);
        !is_left_out
    };
    text.iter().copied().filter(stays).collect()
}

/// Whether `path` is at or below `prefix`; a prefix that does not end in `/` ends at a segment's border.
pub fn covers(prefix: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| prefix.ends_with(b"/") || rest.is_empty() || rest.starts_with(b"/"))
}

/// A path as sent, as backends get it: without empty segments, with escapes of unreserved characters decoded and the
/// other ones in upper case. Escapes of reserved characters stay, since backends tell `%3B` from `;`.
///
/// INVARIANT: it has the same [`NormalPath`] as `raw`, which has passed [`NormalPath::parse`].
pub fn for_backend(raw: &str) -> Cow<'_, str> {
    if is_plain(raw.as_bytes()) && raw.bytes().all(is_path_byte) {
        return Cow::Borrowed(raw);
    }
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match (byte, escaped(tail)) {
            (b'/', _) if out.ends_with('/') => {}
            (b'%', Some(byte)) => {
                push_escaped(&mut out, byte, is_unreserved);
                rest = &tail[2..];
            }
            (byte, _) => push_escaped(&mut out, *byte, is_path_byte),
        }
    }
    Cow::Owned(out)
}

/// Names, and the slashes between them, as they stand in an address; an [`ESCAPED_SLASH`] as `%2F`.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 8);
    for &byte in bytes {
        match byte {
            ESCAPED_SLASH => out.push_str("%2F"),
            byte => push_escaped(&mut out, byte, is_path_byte),
        }
    }
    out
}

/// A path as the value of a parameter in a query: what would end the value, or be read as a blank, is escaped too.
pub fn escape_value(bytes: &[u8]) -> String {
    let stays = |byte| is_unreserved(byte) || byte == b'/' || byte == b':';
    let mut out = String::with_capacity(bytes.len() + 8);
    for &byte in bytes {
        push_escaped(&mut out, if byte == ESCAPED_SLASH { b'/' } else { byte }, |_| {
            byte != ESCAPED_SLASH && stays(byte)
        });
    }
    out
}

fn is_plain(raw: &[u8]) -> bool {
    let mut after_slash = false;
    raw.iter().all(|&byte| {
        let is_plain = match byte {
            b'%' | ESCAPED_SLASH => false,
            b'/' | b'.' => !after_slash,
            _ => true,
        };
        after_slash = byte == b'/';
        is_plain
    })
}

/// Adds a segment and the slash before it, unless the segment is empty.
fn push_segment(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), InvalidPath>,
) -> Result<(), InvalidPath> {
    let start = out.len();
    out.push(b'/');
    write(out)?;
    match &out[start + 1..] {
        b"" => out.truncate(start),
        b"." | b".." => return Err(InvalidPath),
        _ => {}
    }
    Ok(())
}

/// The segments with their last slash, if there is one.
fn ended(mut segments: Vec<u8>, slash: bool) -> Vec<u8> {
    if slash || segments.is_empty() {
        segments.push(b'/');
    }
    segments
}

fn decode(segment: &[u8], out: &mut Vec<u8>) -> Result<(), InvalidPath> {
    let mut rest = segment;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first == ESCAPED_SLASH {
            return Err(InvalidPath);
        }
        if *first != b'%' {
            out.push(*first);
            continue;
        }
        match escaped(tail).ok_or(InvalidPath)? {
            ESCAPED_SLASH => return Err(InvalidPath),
            b'/' => out.push(ESCAPED_SLASH),
            byte => out.push(byte),
        }
        rest = &tail[2..];
    }
    Ok(())
}

/// Decodes what still looks like escapes, as a backend does that decodes once too often.
fn decode_again(path: &[u8]) -> Vec<u8> {
    let mut path = path.to_vec();
    for _ in 0..DECODINGS_MAX {
        let mut out = Vec::with_capacity(path.len());
        let mut rest = &path[..];
        while let [first, tail @ ..] = rest {
            rest = tail;
            match escaped(tail).filter(|_| *first == b'%') {
                Some(byte) => {
                    out.push(byte);
                    rest = &tail[2..];
                }
                None => out.push(*first),
            }
        }
        if out == path {
            break;
        }
        path = out;
    }
    path
}

/// The byte that two hexadecimal digits stand for.
fn escaped(digits: &[u8]) -> Option<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    match digits {
        [high, low, ..] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    }
}

fn push_escaped(out: &mut String, byte: u8, stays: impl Fn(u8) -> bool) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if stays(byte) {
        out.push(char::from(byte));
    } else {
        out.push('%');
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

/// RFC 3986 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// RFC 3986 3.3: `pchar`, and the slashes between segments.
fn is_path_byte(byte: u8) -> bool {
    is_unreserved(byte) || b"!$&'()*+,;=:@/".contains(&byte)
}

/// The entry for fuzzing: what holds for every path that anybody can send.
pub fn fuzz_path(raw: &str) {
    let Ok(path) = NormalPath::parse(raw) else { return };
    if path.as_bytes() == b"*" {
        return;
    }
    let is_sound = |path: &NormalPath<'_>| {
        let inner = path.as_bytes().strip_prefix(b"/").expect("it begins with a slash");
        let inner = inner.strip_suffix(b"/").unwrap_or(inner);
        inner.is_empty() || inner.split(|&byte| byte == b'/').all(|name| !matches!(name, b"" | b"." | b".."))
    };
    assert!(is_sound(&path), "{path:?}");
    let spelling = path.spelling();
    assert!(!spelling.starts_with("//"), "a Location to another host: {spelling}");
    assert!(spelling.bytes().all(|byte| byte.is_ascii_graphic()), "{spelling}");
    assert_eq!(NormalPath::parse(&spelling).as_ref(), Ok(&path), "the spelling leads elsewhere");
    let sent = for_backend(raw);
    assert_eq!(NormalPath::parse(&sent).as_ref(), Ok(&path), "a backend gets another path");
    assert_eq!(for_backend(&sent), sent, "what a backend gets is not normal");
    for reading in path.readings().unwrap_or_default() {
        assert!(is_sound(&reading) && reading != path, "{reading:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(raw: &str) -> Result<Vec<u8>, InvalidPath> {
        NormalPath::parse(raw).map(|path| path.as_bytes().to_vec())
    }

    #[test]
    fn spellings_of_one_path() {
        for (raw, path) in [
            ("/", "/"),
            ("//", "/"),
            ("/a", "/a"),
            ("/a/", "/a/"),
            ("//a//b//", "/a/b/"),
            ("/%61dmin/x", "/admin/x"),
            ("/a%2Fb", "/a\0b"),
            ("/a%252fb", "/a%2fb"),
            ("/%C3%A9", "/é"),
            ("/.git", "/.git"),
            ("/a%20b", "/a b"),
            ("/...", "/..."),
            ("*", "*"),
        ] {
            assert_eq!(normal(raw).as_deref(), Ok(path.as_bytes()), "{raw}");
        }
        assert_eq!(normal("/%ff").as_deref(), Ok(&b"/\xff"[..]));
        for raw in [
            "/.", "/..", "/a/../b", "/%2e%2e/", "/.%2e", "/a/./b", "/%", "/%zz", "/%4", "/a%00", "/a\0",
            "//../x",
        ] {
            assert_eq!(normal(raw), Err(InvalidPath), "{raw}");
        }
    }

    #[test]
    fn what_backends_get() {
        for (raw, sent) in [
            ("/", "/"),
            ("//a///b/", "/a/b/"),
            ("/%61%2f%3b", "/a%2F%3B"),
            ("/a;b=c,d+e%2B", "/a;b=c,d+e%2B"),
            ("/a{b}", "/a%7Bb%7D"),
            ("/%c3%a9", "/%C3%A9"),
            ("/a%2F/b", "/a%2F/b"),
        ] {
            assert_eq!(for_backend(raw), sent, "{raw}");
            fuzz_path(raw);
        }
    }

    #[test]
    fn what_backends_may_take_a_path_for() {
        let readings = |raw| {
            let readings = NormalPath::parse(raw)?.readings()?;
            Ok::<_, InvalidPath>(readings.iter().map(NormalPath::spelling).collect::<Vec<_>>())
        };
        for (raw, reading) in [
            ("/admin;x=1/y", "/admin/y"),
            ("/admin%3bx/y", "/admin/y"),
            ("/admin%2Fx", "/admin/x"),
            ("/admin%5cx", "/admin/x"),
            ("/admin%252Fx", "/admin/x"),
            ("/;/admin/", "/admin/"),
            ("/a%2F", "/a/"),
            ("/admin%3fx", "/admin"),
            ("/admin%23x", "/admin"),
            ("/a/admin%253fx/y", "/a/admin"),
            ("/a;x%2Fy/admin", "/a/admin"),
            ("/a;x%2Fy/admin", "/a/y/admin"),
            ("/a%2Fadmin;b%2Fc%3Fd", "/a/admin"),
            ("/a%2Fadmin;b%2Fc%3Fd", "/a/admin/c"),
        ] {
            assert!(readings(raw).unwrap().contains(&reading.to_owned()), "{raw}: {:?}", readings(raw));
        }
        for raw in ["/a/b", "/100%25", "/a.b/c-d_e~f"] {
            assert_eq!(readings(raw), Ok(Vec::new()), "{raw}");
        }
        for raw in [
            "/x/..;/a",
            "/x/.;y/a",
            "/x/..%2fa",
            "/x/%252e%252e/a",
            "/x/..%5ca",
            "/x%2f..",
            "/%3b/..%3b/a",
            "/x/..%3fa",
            "/x/.%23",
            "/x;y%2f../a",
        ] {
            assert_eq!(readings(raw), Err(InvalidPath), "{raw}");
        }
    }

    #[test]
    fn a_path_has_no_more_readings_than_steps_can_make() {
        let raw = "/a;b%2Fc%255cd%3Fe%253Bf/g;h%2523i%2fj";
        assert!(NormalPath::parse(raw).unwrap().readings().unwrap().len() < 1 << READINGS.len());
    }
}
