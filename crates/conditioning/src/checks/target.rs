//! The first line of a head: its method, and above all its target.
//!
//! Runs in: gates, site workers, filters; pure. Sees: what anybody may send. Never: decodes twice.

use super::{CheckLimits, HeadFault, Setting};

/// Checks the line `METHOD TARGET VERSION`.
pub fn check_request_line(line: &[u8], setting: Setting, limits: &CheckLimits) -> Result<(), HeadFault> {
    let mut words = line.split(|&byte| byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(HeadFault::Shape);
    };
    if method.is_empty() || target.is_empty() || !version.starts_with(b"HTTP/") {
        return Err(HeadFault::Shape);
    }
    check(method, target, setting, limits)
}

/// Checks a method and a target.
pub fn check(method: &[u8], target: &[u8], setting: Setting, limits: &CheckLimits) -> Result<(), HeadFault> {
    if method.len() > limits.method_bytes {
        return Err(HeadFault::Method);
    }
    if target.len() > limits.target_bytes {
        return Err(HeadFault::Target);
    }
    let (path, query) = match target.iter().position(|&byte| byte == b'?') {
        Some(at) => (&target[..at], &target[at + 1..]),
        None => (target, &[][..]),
    };
    let path = after_authority(path);
    if query.iter().filter(|&&byte| byte == b'&' || byte == b';').count() >= limits.parameters {
        return Err(HeadFault::Parameters);
    }
    check_slashes(path, limits)?;
    match setting {
        Setting::Lenient => Ok(()),
        Setting::Standard => {
            check_path(path)?;
            check_climbing(path)
        }
        Setting::Strict => {
            check_encoding(path, true)?;
            check_encoding(query, false)?;
            check_climbing(path)
        }
    }
}

/// The path of an absolute-form target.
fn after_authority(path: &[u8]) -> &[u8] {
    if path.starts_with(b"/") {
        return path;
    }
    let Some(at) = path.windows(3).position(|three| three == b"://") else {
        return path;
    };
    let rest = &path[at + 3..];
    rest.iter().position(|&byte| byte == b'/').map_or(&[], |at| &rest[at..])
}

/// The beck attack: programs that take slashes away one by one take quadratic time.
fn check_slashes(path: &[u8], limits: &CheckLimits) -> Result<(), HeadFault> {
    let (mut run, mut segments) = (0, 0);
    for &byte in path {
        if byte != b'/' {
            run = 0;
            continue;
        }
        run += 1;
        segments += 1;
        if run > limits.slashes {
            return Err(HeadFault::Slashes);
        }
        if segments > limits.segments {
            return Err(HeadFault::Segments);
        }
    }
    Ok(())
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|digit| digit as u8)
}

/// The byte that `%` and these two stand for.
fn decoded(rest: &[u8]) -> Option<u8> {
    match rest {
        [high, low, ..] => Some(hex(*high)? << 4 | hex(*low)?),
        _ => None,
    }
}

/// Allows a path that is read in one way: any escape but that of a control character, and any byte but a backslash,
/// which some programs take for a slash. A query is its reader's own business.
fn check_path(path: &[u8]) -> Result<(), HeadFault> {
    check_bytes(path, |_| true, |byte, _| byte.is_ascii_control())
}

/// Allows only text without any doubt: visible bytes, and escapes that hide nothing.
fn check_encoding(text: &[u8], in_path: bool) -> Result<(), HeadFault> {
    // In a query, line breaks are those of a text field, and slashes those of another URL.
    let hides = |byte, after: &[u8]| match byte {
        0 => true,
        b'/' | b'\\' => in_path,
        b'%' => in_path && decoded(after).is_some(),
        byte => in_path && byte.is_ascii_control(),
    };
    check_bytes(text, |byte| byte.is_ascii_graphic(), hides)
}

/// Checks every byte and every escape: one that stands for a byte which it `hides`, before what comes after it, is
/// refused; so are backslashes, and bytes that are not `plain`.
fn check_bytes(
    text: &[u8],
    plain: impl Fn(u8) -> bool,
    hides: impl Fn(u8, &[u8]) -> bool,
) -> Result<(), HeadFault> {
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let byte = decoded(after).ok_or(HeadFault::Encoding)?;
            rest = &after[2..];
            if hides(byte, rest) {
                return Err(HeadFault::Hidden);
            }
        } else if byte == b'\\' || !plain(byte) {
            return Err(HeadFault::Encoding);
        }
    }
    Ok(())
}

/// How a path's part changes how deep it is; dots may be encoded.
fn check_climbing(path: &[u8]) -> Result<(), HeadFault> {
    let mut depth = 0_i32;
    for segment in path.split(|&byte| byte == b'/') {
        // Parameters of a part (`..;x`) are no part of it for some programs.
        let bare = segment.split(|&byte| byte == b';').next().unwrap_or(segment);
        match dots(bare) {
            _ if segment.is_empty() => {}
            Some(1) => {}
            Some(2) => depth -= 1,
            _ => depth += 1,
        }
        if depth < 0 {
            return Err(HeadFault::Climbing);
        }
    }
    Ok(())
}

/// How many dots a part consists of, if of nothing else.
fn dots(mut segment: &[u8]) -> Option<usize> {
    let mut count = 0;
    while !segment.is_empty() {
        segment = match segment {
            [b'.', rest @ ..] => rest,
            [b'%', b'2', b'e' | b'E', rest @ ..] => rest,
            _ => return None,
        };
        count += 1;
    }
    Some(count)
}
