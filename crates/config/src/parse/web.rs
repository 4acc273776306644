//! What routes and answers are made of: targets, suffixes, locations, header lines.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: strings of the operator's file. Must never: let
//! through what would end a header line, or a header that tells how long an answer is.

use std::path::Path;

use rewrite::Pattern;

use super::{KeyFault, hosts, names};
use crate::statics_schema::Target;

/// LIMIT: as long as a path may be, with a host in front.
const LOCATION_BYTES_MAX: usize = 1024;
/// LIMIT: what fits in every client's buffer with others beside it.
const VALUE_BYTES_MAX: usize = 2048;
/// LIMIT: sun_path is 108 bytes and must end in NUL (unix(7)).
const SOCKET_BYTES_MAX: usize = 107;

/// Header lines that the server itself has to get right: framing, connection, validators and ranges.
const OWN_HEADERS: [&str; 17] = [
    "accept-ranges",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "date",
    "etag",
    "keep-alive",
    "last-modified",
    "proxy-connection",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
    "vary",
];

/// Header lines that say how long a message is, and whose it is: nobody but the server writes them, or takes them away.
const FRAMING_HEADERS: [&str; 16] = [
    "client-cert",
    "client-cert-chain",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "expect",
    "forwarded",
    "keep-alive",
    "location",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
];

/// What a server behind is told of the client.
const FORWARDED_HEADERS: [&str; 5] =
    ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-prefix", "x-real-ip"];

/// `unix:app.sock`, `127.0.0.1:3000` or `app.internal:3000`.
pub(crate) fn target(text: &str, dir: &Path) -> Result<Target, KeyFault> {
    if let Some((scheme @ ("http" | "https"), rest)) = text.split_once("://") {
        let rest = rest.split('/').next().unwrap_or_default();
        let rest = if rest.contains(':') { rest.to_owned() } else { format!("{rest}:80") };
        let rule = match scheme {
            "http" => "it is an address without a scheme and a path: `upstream` speaks HTTP/1.1",
            _ => "no TLS is spoken to servers behind a site",
        };
        return Err(KeyFault::with_help(rule, format!("write for example `\"{}\"`", rest.escape_debug())));
    }
    let Some(path) = text.strip_prefix("unix:") else {
        let fault = match (hosts::address(text), hosts::server_name(text)) {
            (Ok(address), _) => return Ok(Target::Tcp(address)),
            (_, Ok((name, port))) => return Ok(Target::Name(name, port)),
            (_, Err(Some(fault))) => return Err(fault),
            (Err(fault), Err(None)) => fault,
        };
        let rule =
            format!("it is neither `unix:` and a path nor an address or name with a port; {}", fault.rule);
        return Err(match text.contains(':') || text.is_empty() {
            true => KeyFault { rule, ..fault },
            false if text.contains('/') || text.ends_with(".sock") => {
                KeyFault::with_help(rule, format!("write for example `\"unix:{}\"`", text.escape_debug()))
            }
            false => {
                KeyFault::with_help(rule, format!("write for example `\"{}:3000\"`", text.escape_debug()))
            }
        });
    };
    if path.is_empty() {
        return Err(KeyFault::with_help(
            "the socket's path is empty",
            "write for example `\"unix:app.sock\"`",
        ));
    }
    names::literal(path)?;
    names::no_nul(path)?;
    let path = dir.join(path);
    match path.as_os_str().len() {
        0..=SOCKET_BYTES_MAX => Ok(Target::Unix(path)),
        bytes => Err(KeyFault::new(format!(
            "the socket's whole path has {bytes} bytes, and at most {SOCKET_BYTES_MAX} can be connected to"
        ))),
    }
}

/// `.php`.
pub(crate) fn suffix(text: &str) -> Result<(), KeyFault> {
    let rule = "a suffix is `.` and letters, digits, `.`, `_` or `-`";
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    match text.as_bytes() {
        [b'.', rest @ ..] if (1..=32).contains(&rest.len()) && rest.iter().all(|b| allowed(*b)) => Ok(()),
        [first, ..] if allowed(*first) && *first != b'.' => {
            Err(KeyFault::with_help(rule, format!("write `\".{}\"`", text.escape_debug())))
        }
        _ => Err(KeyFault::with_help(rule, "write for example `\".php\"`")),
    }
}

/// `.nojekyll`.
pub(crate) fn hidden_name(text: &str) -> Result<(), KeyFault> {
    let is_name = text.len() > 1 && text.len() <= 255 && text != ".." && !text.contains('/');
    if !text.starts_with('.') || !is_name || text.chars().any(char::is_control) {
        let rule = "a hidden name is `.` and the rest of a file's or a folder's name";
        return Err(KeyFault::with_help(rule, "write for example `\".nojekyll\"`"));
    }
    Ok(())
}

/// An expression that paths are compared with.
pub(crate) fn pattern(text: &str) -> Result<Pattern, KeyFault> {
    Pattern::new(text).map_err(|rule| {
        KeyFault::with_help(format!("it {rule}"), "write for example `'^/article/(\\d+)$'`, in single quotes")
    })
}

/// Another path of the site, with variables.
pub(crate) fn rewrite(text: &str, pattern: Option<&Pattern>) -> Result<String, KeyFault> {
    if !text.starts_with('/') {
        return Err(KeyFault::with_help("a path begins with `/`", "write for example `\"/index.php\"`"));
    }
    location(text, pattern)
}

/// A path that is tried; the last may be a status.
pub(crate) fn tried_file(text: &str, is_last: bool, pattern: Option<&Pattern>) -> Result<String, KeyFault> {
    match text.strip_prefix('=') {
        None if text.starts_with("$uri") => template(text, pattern),
        None => rewrite(text, pattern),
        Some(status) => match status.parse::<u16>() {
            Ok(400..=599) if is_last => Ok(text.to_owned()),
            Ok(400..=599) => Err(KeyFault::new("a status ends the list")),
            _ => Err(KeyFault::with_help("an error's status is 400 to 599", "write for example `\"=404\"`")),
        },
    }
}

fn template(text: &str, pattern: Option<&Pattern>) -> Result<String, KeyFault> {
    match rewrite::RewriteTarget::parse(text, pattern) {
        Ok(_) => Ok(text.to_owned()),
        Err(rule) => Err(KeyFault::new(rule)),
    }
}

/// Where a redirect leads: a path of this host, or a whole URL; with variables.
pub(crate) fn location(text: &str, pattern: Option<&Pattern>) -> Result<String, KeyFault> {
    plain_location(text)?;
    template(text, pattern)
}

fn plain_location(text: &str) -> Result<(), KeyFault> {
    let whole = text.starts_with("http://") || text.starts_with("https://");
    let local = text.starts_with('/') && !text.starts_with("//");
    if !whole && !local {
        let rule = "a redirect leads to a path (`/new/`) or to a URL (`https://...`)";
        return Err(KeyFault::with_help(rule, "begin it with `/` or `https://`"));
    }
    if text.len() > LOCATION_BYTES_MAX {
        return Err(KeyFault::new(format!("a location has at most {LOCATION_BYTES_MAX} bytes")));
    }
    // Braces are around the names of variables.
    match text.bytes().find(|byte| !byte.is_ascii_graphic() || b"\"<>\\^`|".contains(byte)) {
        None => Ok(()),
        Some(_) => Err(KeyFault::new("a location has no blanks, no controls, no quotes, and only ASCII")),
    }
}

fn header_token(text: &str) -> Result<(), KeyFault> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"-".contains(&b);
    match text.is_empty() || text.len() > 64 || !text.bytes().all(token) {
        true => Err(KeyFault::new("a header's name is 1 to 64 letters, digits and `-`")),
        false => Ok(()),
    }
}

/// A header's name that an operator may set.
pub(crate) fn header_name(text: &str) -> Result<(), KeyFault> {
    header_token(text)?;
    match OWN_HEADERS.iter().any(|own| text.eq_ignore_ascii_case(own)) {
        true => Err(KeyFault::new("the server itself writes this header")),
        false => Ok(()),
    }
}

/// A header of requests that an operator may set.
pub(crate) fn request_header_name(text: &str) -> Result<(), KeyFault> {
    header_token(text)?;
    let mut own = FRAMING_HEADERS.iter().chain(&FORWARDED_HEADERS);
    match own.any(|own| text.eq_ignore_ascii_case(own)) {
        true => Err(KeyFault::new("the server itself writes this header of requests")),
        false => Ok(()),
    }
}

/// A header of answers that an operator may hide.
pub(crate) fn hidden_header_name(text: &str) -> Result<(), KeyFault> {
    header_token(text)?;
    match FRAMING_HEADERS.iter().any(|own| text.eq_ignore_ascii_case(own)) {
        true => Err(KeyFault::new("a client cannot read the answer without this header")),
        false => Ok(()),
    }
}

/// A header's value, or nothing, which takes the header away.
pub(crate) fn request_header_value(text: &str) -> Result<(), KeyFault> {
    if text.is_empty() { Ok(()) } else { header_value(text) }
}

/// A header's value.
pub(crate) fn header_value(text: &str) -> Result<(), KeyFault> {
    if text.len() > VALUE_BYTES_MAX {
        return Err(KeyFault::new(format!("a header's value has at most {VALUE_BYTES_MAX} bytes")));
    }
    let visible = text.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
    match visible && text.trim() == text && !text.is_empty() {
        true => Ok(()),
        false => {
            Err(KeyFault::new("a header's value is printable ASCII, not empty, without blanks at its ends"))
        }
    }
}

/// `text/html; charset=utf-8`.
pub(crate) fn media_type(text: &str) -> Result<(), KeyFault> {
    header_value(text)?;
    let essence = text.split(';').next().unwrap_or_default().trim_end();
    let token = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&b))
    };
    match essence.split_once('/').is_some_and(|(kind, subtype)| token(kind) && token(subtype))
        && text.len() <= 128
    {
        true => Ok(()),
        false => Err(KeyFault::with_help(
            "a media type is a type and a subtype, and at most 128 bytes",
            "write for example `\"application/wasm\"`",
        )),
    }
}

/// What a browser shows when it asks for a password: stands in quotes.
pub(crate) fn realm(text: &str) -> Result<(), KeyFault> {
    header_value(text)?;
    match text.contains(['"', '\\']) || text.len() > 128 {
        true => Err(KeyFault::new("a realm has no quotes or backslashes, and at most 128 bytes")),
        false => Ok(()),
    }
}

/// A file below a root, for an error page.
pub(crate) fn below_root(text: &str) -> Result<(), KeyFault> {
    let bad = |part: &str| part.is_empty() || part.starts_with('.');
    let long = text.len() > 512 || text.chars().any(char::is_control);
    match text.split('/').any(bad) || long {
        true => Err(KeyFault::with_help(
            "a page is a file below the root, named from there, without hidden folders",
            "write for example `\"errors/404.html\"`",
        )),
        false => Ok(()),
    }
}

/// A hook's name.
pub(crate) fn hook(text: &str) -> Result<(), KeyFault> {
    names::name(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let dir = Path::new("/srv");
        assert_eq!(target("unix:app.sock", dir), Ok(Target::Unix("/srv/app.sock".into())));
        assert_eq!(target("unix:/run/a", dir), Ok(Target::Unix("/run/a".into())));
        assert_eq!(target("app.internal:80", dir), Ok(Target::Name("app.internal".into(), 80)));
        assert_eq!(target("[::1]:80", dir), Ok(Target::Tcp("[::1]:80".parse().unwrap())));
        let typed = target("http://localhost:3000/", dir).unwrap_err();
        assert_eq!(typed.help.unwrap(), "write for example `\"localhost:3000\"`");
        for bad in [
            "",
            "https://a",
            "unix:~/a",
            "unix:",
            "unix:a\0",
            "app.sock",
            "localhost",
            "localhost:0",
            "127.0.0.1",
            "127.0.0.1:0",
        ] {
            assert!(target(bad, dir).is_err(), "{bad}");
        }
        assert!(target(&format!("unix:/{}", "x".repeat(107)), dir).is_err());
    }

    #[test]
    fn suffixes_locations_and_headers() {
        assert!([".php", ".tar.gz", ".x-y_z"].iter().all(|good| suffix(good).is_ok()));
        assert!(["", ".", "php", "./", ".a/b", ".%", ".é"].iter().all(|bad| suffix(bad).is_err()));
        assert!(
            ["/", "/new/", "https://a.test/x?y=1#z", "https://$host$uri"]
                .iter()
                .all(|good| location(good, None).is_ok())
        );
        for bad in
            ["", "new", "//evil.test/", "javascript:x", "/a b", "/\r\nX: 1", "/é", "/\\a", "/\"", "ftp://a"]
        {
            assert!(location(bad, None).is_err(), "{bad}");
        }
        assert!(["X-Frame-Options", "a"].iter().all(|good| header_name(good).is_ok()));
        for bad in ["", "Content-Length", "TRANSFER-encoding", "a b", "a:", "Set_Cookie", "ä"] {
            assert!(header_name(bad).is_err(), "{bad}");
        }
        assert!(header_value("max-age=1; x").is_ok());
        assert!(["", " a", "a\r\nb", "a\0", "é"].iter().all(|bad| header_value(bad).is_err()));
        assert!(below_root("errors/404.html").is_ok());
        assert!(["", "/a", "a//b", "../a", "a/.git", "a/"].iter().all(|bad| below_root(bad).is_err()));
        assert!(realm("Members only").is_ok() && realm("a\"b").is_err());
    }
}
