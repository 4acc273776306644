//! One header line.
//!
//! Runs in: gates, site workers, filters; pure. Sees: what anybody may send. Never: looks at a value without need.

use super::{CheckLimits, HeadFault, Setting};

/// A line, taken apart.
pub struct HeaderLine<'a> {
    pub name: &'a [u8],
    pub value: &'a [u8],
    /// The name as a number, whatever its case.
    pub number: u32,
}

/// Takes a line apart, in one pass over its name.
pub fn split(line: &[u8]) -> Result<HeaderLine<'_>, HeadFault> {
    let mut sum = 0_u64;
    for (at, &byte) in line.iter().enumerate() {
        match TOKEN[usize::from(byte)] {
            0 if byte == b':' && at > 0 => {
                let (name, value) = (&line[..at], line[at + 1..].trim_ascii());
                return Ok(HeaderLine { name, value, number: mix(sum) });
            }
            0 if at == 0 && (byte == b' ' || byte == b'\t') => return Err(HeadFault::Folded),
            0 => return Err(HeadFault::Name),
            lower => sum = add(sum, lower),
        }
    }
    Err(HeadFault::Name)
}

/// The number of a name.
pub fn number(name: &[u8]) -> Result<u32, HeadFault> {
    let lower = name.iter().map(|&byte| TOKEN[usize::from(byte)]);
    let sum = lower.clone().fold(0, add);
    if name.is_empty() || lower.min() == Some(0) { Err(HeadFault::Name) } else { Ok(mix(sum)) }
}

fn add(sum: u64, lower: u8) -> u64 {
    sum.rotate_left(5) ^ u64::from(lower)
}

fn mix(sum: u64) -> u32 {
    (sum.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// RFC 9110 5.6.2: what names are made of, in lower case; 0 for what they are not made of.
const TOKEN: [u8; 256] = {
    let mut token = [0; 256];
    let signs = b"!#$%&'*+-.^_`|~";
    let mut at = 0;
    while at < signs.len() {
        token[signs[at] as usize] = signs[at];
        at += 1;
    }
    let mut byte = 0_u8;
    while byte < 128 {
        if byte.is_ascii_alphanumeric() {
            token[byte as usize] = byte.to_ascii_lowercase();
        }
        byte += 1;
    }
    token
};

/// Checks one line by itself.
pub fn check(name: &[u8], value: &[u8], setting: Setting, limits: &CheckLimits) -> Result<(), HeadFault> {
    if name.len() > limits.name_bytes {
        return Err(HeadFault::NameLength);
    }
    if value.len() > limits.value_bytes {
        return Err(HeadFault::ValueLength);
    }
    // A function definition for a shell that a program behind passes its environment to (CVE-2014-6271).
    if value.starts_with(b"() {") {
        return Err(HeadFault::Forged);
    }
    if value.len() >= limits.elements && elements(value) > limits.elements {
        return Err(HeadFault::Elements);
    }
    check_by_name(name, value, setting, limits)
}

fn elements(value: &[u8]) -> usize {
    1 + value.iter().filter(|&&byte| byte == b',').count()
}

fn check_by_name(name: &[u8], value: &[u8], setting: Setting, limits: &CheckLimits) -> Result<(), HeadFault> {
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    let strict = setting == Setting::Strict;
    match name.len() {
        4 if is(b"host") => check_host(value, setting != Setting::Lenient),
        // Becomes HTTP_PROXY, which programs take for their own setting (CVE-2016-5385).
        5 if is(b"proxy") => Err(HeadFault::Forged),
        // Each range is a part of an answer to be held at once (CVE-2011-3192).
        5 | 13 if is(b"range") || is(b"request-range") => match elements(value) > limits.ranges {
            true => Err(HeadFault::Ranges),
            false => Ok(()),
        },
        10 if is(b"connection") => check_connection(value, strict),
        // Another target than the one that everybody in front has looked at.
        13 | 14 if strict && (is(b"x-rewrite-url") || is(b"x-original-url")) => Err(HeadFault::Forged),
        // CGI and its descendants take `_` for `-`: a name that nobody in front has looked at.
        _ if strict && name.contains(&b'_') => Err(HeadFault::Name),
        _ => Ok(()),
    }
}

/// RFC 9110 7.6.1: what `Connection` names is taken away on the way, so it must not name what is meant for the end.
fn check_connection(value: &[u8], strict: bool) -> Result<(), HeadFault> {
    const USUAL: [&[u8]; 6] = [b"close", b"keep-alive", b"upgrade", b"te", b"http2-settings", b""];
    const ENDS: [&[u8]; 9] = [
        b"host",
        b"content-length",
        b"transfer-encoding",
        b"authorization",
        b"cookie",
        b"x-forwarded-for",
        b"forwarded",
        b"bulkhead-client",
        b"client-cert",
    ];
    for token in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
        let among = |names: &[&[u8]]| names.iter().any(|name| token.eq_ignore_ascii_case(name));
        if if strict { !among(&USUAL) } else { among(&ENDS) } {
            return Err(HeadFault::Connection);
        }
    }
    Ok(())
}

/// A name, or an address, as a browser would write it, and a port.
fn check_host(value: &[u8], strict: bool) -> Result<(), HeadFault> {
    // The text before an `@` is a user's name; no client sends it here, and some programs take it for the host.
    if value.iter().any(|byte| matches!(byte, b'@' | b'/' | b'\\' | b' ' | b'\t' | b',')) {
        return Err(HeadFault::Host);
    }
    // RFC 9112 3.2: the value is empty where the target has no authority.
    if !strict || value.is_empty() || value.starts_with(b"[") {
        return Ok(());
    }
    let end = value.iter().position(|&byte| byte == b':').unwrap_or(value.len());
    let (name, port) = (&value[..end], value.get(end + 1..));
    let name = name.strip_suffix(b".").unwrap_or(name);
    let labels_good = name.split(|&byte| byte == b'.').all(is_label);
    let port_good = port.is_none_or(|port| port.len() <= 5 && port.iter().all(u8::is_ascii_digit));
    match labels_good && port_good && (!ends_in_number(name) || is_address(name)) {
        true => Ok(()),
        false => Err(HeadFault::Host),
    }
}

/// RFC 1123 2.1, and the `_` that some names have all the same.
fn is_label(label: &[u8]) -> bool {
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=63).contains(&label.len())
        && label.iter().all(inner)
        && !label.starts_with(b"-")
        && !label.ends_with(b"-")
}

/// A last label that is a number makes a name an address, in whatever way it is written (`0x7f.1`, `2130706433`).
fn ends_in_number(name: &[u8]) -> bool {
    let last = name.rsplit(|&byte| byte == b'.').next().unwrap_or(name);
    last.iter().all(u8::is_ascii_digit) || last.starts_with(b"0x") || last.starts_with(b"0X")
}

fn is_address(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok_and(|name| name.parse::<std::net::Ipv4Addr>().is_ok())
}
