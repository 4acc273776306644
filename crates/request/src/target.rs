//! The target of a request and its host, of which there must be one.
//!
//! Runs in: gates and site workers, unprivileged; pure. Untrusted input: the target and the value of `Host`. Must
//! never: let two readers find two hosts in one request.

use crate::head::HeadRefusal;

/// LIMIT: bytes of a host name, 253 by DNS, and room for a bracketed address.
pub const HOST_BYTES_MAX: usize = 255;

/// The texts that a byte may be part of: a target, a host name. One look per byte instead of a handful of comparisons.
const PARTS: [u8; 256] = {
    let mut parts = [0; 256];
    let mut at = 0;
    while at < parts.len() {
        let byte = at as u8;
        // RFC 3986 2: what a URI is made of; a `#` would begin a fragment, which is never sent.
        if byte.is_ascii_graphic() && !matches!(byte, b'#' | b'<' | b'>' | b'`' | b'\\') {
            parts[at] |= TARGET;
        }
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_') {
            parts[at] |= HOST;
        }
        at += 1;
    }
    parts
};
const TARGET: u8 = 1;
const HOST: u8 = 2;

fn consists_of(part: u8, bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| PARTS[usize::from(byte)] & part != 0)
}

/// A request target, taken apart.
pub struct RequestTarget<'a> {
    /// The path as sent.
    pub path: &'a str,
    /// The query as sent, without `?`.
    pub query: Option<&'a str>,
    /// The authority of an absolute-form target, and its scheme's port.
    pub authority: Option<(&'a [u8], u16)>,
}

/// Takes the target of a request apart.
pub fn split<'a>(method: &str, target: &'a str) -> Result<RequestTarget<'a>, HeadRefusal> {
    if !consists_of(TARGET, target.as_bytes()) {
        return Err(HeadRefusal::Malformed("a byte that no target has"));
    }
    if target == "*" && method == "OPTIONS" {
        return Ok(RequestTarget { path: target, query: None, authority: None });
    }
    if target.starts_with('/') {
        let (path, query) = split_query(target);
        return Ok(RequestTarget { path, query, authority: None });
    }
    let (rest, port) = match target.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (rest, 80),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (rest, 443),
        _ => return Err(HeadRefusal::Malformed("not a target")),
    };
    let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (path, query) = split_query(rest);
    let path = if path.is_empty() { "/" } else { path };
    Ok(RequestTarget { path, query, authority: Some((authority.as_bytes(), port)) })
}

fn split_query(text: &str) -> (&str, Option<&str>) {
    match text.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (text, None),
    }
}

/// The one host that `Host` and an absolute-form target agree on.
pub fn agree<'a>(
    minor: u8,
    host: Option<&'a [u8]>,
    target: &RequestTarget<'a>,
) -> Result<&'a [u8], HeadRefusal> {
    let named = match host {
        Some(value) => Some(split_host(value).ok_or(HeadRefusal::Malformed("not a Host"))?),
        None if minor == 1 => return Err(HeadRefusal::Malformed("no Host")),
        None => None,
    };
    let Some((authority, scheme_port)) = target.authority else {
        return Ok(named.map_or(&b""[..], |(name, _)| name));
    };
    let (name, port) = split_host(authority).ok_or(HeadRefusal::Malformed("not an authority"))?;
    // RFC 9112 3.2.2: the authority wins; a client that says two things is refused.
    if let Some((other, other_port)) = named
        && (!name.eq_ignore_ascii_case(other)
            || port.unwrap_or(scheme_port) != other_port.unwrap_or(scheme_port))
    {
        return Err(HeadRefusal::Malformed("Host and target disagree"));
    }
    Ok(name)
}

/// A host as it is compared: in lower case, without port and trailing dot; empty if it is none.
pub fn lower_host(value: &[u8]) -> String {
    let name = split_host(value).map_or(&b""[..], |(name, _)| name);
    String::from_utf8_lossy(name).to_ascii_lowercase()
}

/// Splits `host[:port]` or `[address][:port]`; takes away the trailing dot of an absolute name.
pub fn split_host(value: &[u8]) -> Option<(&[u8], Option<u16>)> {
    let end = match value.first()? {
        b'[' => value.iter().position(|&b| b == b']')? + 1,
        _ => value.iter().position(|&b| b == b':').unwrap_or(value.len()),
    };
    let (name, rest) = value.split_at(end);
    let port = match rest {
        [] | [b':'] => None,
        [b':', digits @ ..] if digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit) => {
            let port = digits.iter().fold(0, |sum, &digit| sum * 10 + u32::from(digit - b'0'));
            Some(u16::try_from(port).ok()?)
        }
        _ => return None,
    };
    let name = name.strip_suffix(b".").unwrap_or(name);
    let good = match name {
        [b'[', address @ .., b']'] => {
            std::str::from_utf8(address).ok()?.parse::<std::net::Ipv6Addr>().is_ok()
        }
        _ => consists_of(HOST, name),
    };
    (good && !name.is_empty() && name.len() <= HOST_BYTES_MAX).then_some((name, port))
}
