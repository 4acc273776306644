//! The conditions that request heads must meet (`conditioning::checks`), in a gate and in filters alike.
//!
//! A head is whatever bytes there are: a filter may use these checks alone. The comparison is
//! with a reader that decodes and normalizes as a careless program would, and that must find nothing to be afraid of.

use conditioning::checks::{Setting, check};

pub fn fuzz(data: &[u8]) {
    let (lenient, strict) = (check(data, Setting::Lenient), check(data, Setting::Strict));
    assert!(lenient.is_ok() || strict.is_err(), "strict is stricter");
    if lenient.is_err() {
        return;
    }
    let head = whole(data);
    // What follows a head is no part of it, and a part of a head is none.
    for setting in [Setting::Lenient, Setting::Strict] {
        assert_eq!(check(head, setting), check(data, setting));
        assert!(check(&head[..head.len() - 1], setting).is_err());
    }
    let text = |byte: &u8| !byte.is_ascii_control() || b"\t\r\n".contains(byte);
    assert!(head.iter().all(text), "a control character");
    assert!(!head.windows(17).any(|run| run == [b'/'; 17]) || !in_path(head), "beck");
    if strict.is_ok() {
        read_carelessly(head);
    }
}

/// Up to the empty line.
fn whole(data: &[u8]) -> &[u8] {
    let mut begun = false;
    let mut length = 0;
    for line in data.split_inclusive(|&byte| byte == b'\n') {
        length += line.len();
        let empty = line == b"\r\n" || line == b"\n";
        if empty && begun {
            return &data[..length];
        }
        begun |= !empty;
    }
    panic!("accepted without its end")
}

fn target(head: &[u8]) -> &[u8] {
    let line = head.split(|&byte| byte == b'\n').find(|line| !matches!(line, [] | [b'\r']));
    line.unwrap_or_default().split(|&byte| byte == b' ').nth(1).expect("a target")
}

/// Whether the path has that run of slashes, and not something else.
fn in_path(head: &[u8]) -> bool {
    let target = target(head);
    let path = target.split(|&byte| byte == b'?').next().unwrap_or_default();
    path.starts_with(b"/") && path.windows(17).any(|run| run == [b'/'; 17])
}

/// Decodes the path and goes where it leads: never above the root, and never to another place than was looked at.
fn read_carelessly(head: &[u8]) {
    let target = target(head);
    let path = target.split(|&byte| byte == b'?').next().unwrap_or_default();
    if !path.starts_with(b"/") {
        return;
    }
    let mut decoded = Vec::new();
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digits = std::str::from_utf8(&after[..2]).expect("two digits");
        decoded.push(u8::from_str_radix(digits, 16).expect("hexadecimal"));
        rest = &after[2..];
    }
    let slashes = |text: &[u8]| text.iter().filter(|&&byte| byte == b'/').count();
    assert_eq!(slashes(&decoded), slashes(path), "a slash that was hidden");
    assert!(!decoded.iter().any(|&byte| byte.is_ascii_control() || byte == b'\\'));
    let mut depth = 0_i32;
    for segment in decoded.split(|&byte| byte == b'/').filter(|segment| !segment.is_empty()) {
        depth += match segment {
            b"." => 0,
            b".." => -1,
            _ => 1,
        };
        assert!(depth >= 0, "above the root");
    }
}
