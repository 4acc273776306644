//! The one spelling of a path that rules are compared with, and where a script's name ends in it.
//!
//! Runs in: the site worker, unprivileged; pure. Untrusted input: the path. Must never: let two spellings that lead to
//! one file, or to one script, fall under different rules.

use std::borrow::Cow;

/// A path with a segment `.` or `..`, or with an escape that is none: nobody may ask for it where there are rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strange;

/// What stands for an escaped slash, which is part of a name and no separator: no path has a NUL of its own.
pub const SLASH: char = '\0';

/// A path decoded, with empty segments left out, and [`SLASH`] for escaped slashes.
pub fn spelt(raw: &str) -> Result<Cow<'_, str>, Strange> {
    let plain = raw.bytes().all(|byte| byte != b'%');
    if plain && !raw.contains("//") && !raw.contains("/.") {
        return Ok(Cow::Borrowed(raw));
    }
    let mut out = Vec::with_capacity(raw.len());
    for segment in raw.split('/') {
        let start = out.len();
        decode(segment.as_bytes(), &mut out)?;
        if matches!(&out[start..], b"." | b"..") {
            return Err(Strange);
        }
        if out.len() > start {
            out.push(b'/');
        }
    }
    if !raw.ends_with('/') {
        out.pop();
    }
    out.insert(0, b'/');
    if out.as_slice() == b"//" {
        out.pop();
    }
    // A name that is not UTF-8 is compared as far as it can be: what an operator wrote is ASCII.
    Ok(Cow::Owned(String::from_utf8(out).unwrap_or_else(|error| latin(error.as_bytes()))))
}

/// Each byte a character of its own, so that nothing is lost and no two paths become one.
fn latin(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

fn decode(segment: &[u8], out: &mut Vec<u8>) -> Result<(), Strange> {
    let mut rest = segment;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            out.push(*first);
            continue;
        }
        let [high, low, tail @ ..] = tail else {
            return Err(Strange);
        };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let byte = digit(*high).zip(digit(*low)).map(|(high, low)| (high << 4 | low) as u8);
        match byte.ok_or(Strange)? {
            0 => return Err(Strange),
            b'/' => out.push(SLASH as u8),
            byte => out.push(byte),
        }
        rest = tail;
    }
    Ok(())
}

/// The script and the rest of a path that names one: the first segment that ends with `suffix` ends the script.
///
/// SECURITY: the script is whatever comes first, so that `/photo.jpg/x.php` is the script `/photo.jpg/x.php`, which no
/// folder has, and never `/photo.jpg`. A name that is nothing but the suffix is hidden, and no script.
pub fn split_script<'p>(path: &'p str, suffix: &str) -> Option<(&'p str, &'p str)> {
    let mut end = 0;
    for segment in path.split_inclusive('/') {
        end += segment.len();
        let name = segment.strip_suffix('/').unwrap_or(segment);
        if is_named(name, suffix) {
            return Some(path.split_at(end - (segment.len() - name.len())));
        }
    }
    None
}

/// Whether the last segment ends with `suffix`.
pub fn ends_with(path: &str, suffix: &str) -> bool {
    is_named(path.rsplit('/').next().unwrap_or(path), suffix)
}

fn is_named(name: &str, suffix: &str) -> bool {
    name.len() > suffix.len() && name.ends_with(suffix) && !name.starts_with('.')
}

/// The path that stands for `path`, which is at or below `from`, where `from` became `to`: what follows is added if
/// both end with a slash.
pub fn moved(path: &str, from: &str, to: &str) -> String {
    match path.strip_prefix(from).filter(|_| from.ends_with('/') && to.ends_with('/')) {
        Some(rest) => format!("{to}{rest}"),
        None => to.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling() {
        for (raw, one) in [
            ("/", "/"),
            ("//", "/"),
            ("/a", "/a"),
            ("/a/", "/a/"),
            ("//a//b//", "/a/b/"),
            ("/%61dmin/x", "/admin/x"),
            ("/a%2Fb", "/a\0b"),
            ("/a%252fb", "/a%2fb"),
            ("/%C3%A9", "/é"),
            ("/%ff", "/ÿ"),
            ("/.git", "/.git"),
            ("/a%20b", "/a b"),
        ] {
            assert_eq!(spelt(raw).as_deref(), Ok(one), "{raw}");
        }
        for raw in ["/.", "/..", "/a/../b", "/%2e%2e/", "/.%2e", "/a/./b", "/%", "/%zz", "/%4", "/a%00"] {
            assert_eq!(spelt(raw), Err(Strange), "{raw}");
        }
    }

    #[test]
    fn scripts() {
        for (path, split) in [
            ("/a.php", Some(("/a.php", ""))),
            ("/a.php/b", Some(("/a.php", "/b"))),
            ("/a.php/", Some(("/a.php", "/"))),
            ("/d/a.php/b.php/c", Some(("/d/a.php", "/b.php/c"))),
            ("/photo.jpg/x.php", Some(("/photo.jpg/x.php", ""))),
            ("/.php", None),
            ("/.a.php", None),
            ("/a.phpx", None),
            ("/a.PHP", None),
            ("/", None),
            ("/php", None),
        ] {
            assert_eq!(split_script(path, ".php"), split, "{path}");
        }
        assert!(ends_with("/x/a.php", ".php"));
        assert!(!ends_with("/a.php/b", ".php") && !ends_with("/.php", ".php"));
    }

    #[test]
    fn what_follows_moves_along() {
        assert_eq!(moved("/old/x/y", "/old/", "/new/"), "/new/x/y");
        assert_eq!(moved("/old/", "/old/", "https://a.test/"), "https://a.test/");
        assert_eq!(moved("/old/x", "/old/", "/gone.html"), "/gone.html");
        assert_eq!(moved("/old/x", "/old", "/new/"), "/new/");
    }
}
