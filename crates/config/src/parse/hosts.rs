//! Hosts a site answers to, and addresses to listen at.
//!
//! Runs in: the launcher (root) and the `bulkhead` command. Input: strings of the operator's file. Must
//! never: resolve a name, or keep two spellings of one host apart.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::KeyFault;

/// LIMIT: RFC 1035 2.3.4.
const LABEL_BYTES_MAX: usize = 63;
/// LIMIT: RFC 1035 2.3.4, less the root's label.
const HOST_BYTES_MAX: usize = 253;

/// A host in the one spelling that is compared: lower case, IPv6 in brackets and in short form.
pub(crate) fn host(text: &str) -> Result<String, KeyFault> {
    let host = text.to_ascii_lowercase();
    if host == "*" {
        return Ok(host);
    }
    if let Ok(address) = without_brackets(&host).parse::<Ipv6Addr>() {
        return Ok(format!("[{address}]"));
    }
    refuse_urls(&host)?;
    if looks_like_ipv4(&host) {
        let address: Result<Ipv4Addr, _> = host.parse();
        return address
            .map(|address| address.to_string())
            .map_err(|_| KeyFault::new("an IPv4 address is four numbers from 0 to 255"));
    }
    check_name(host.strip_prefix("*.").unwrap_or(&host))?;
    Ok(host)
}

/// An IPv6 address stands in brackets wherever a port may follow.
fn without_brackets(text: &str) -> &str {
    text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text)
}

/// A URL, a port or a path given along with the host: the usual mistakes.
fn refuse_urls(host: &str) -> Result<(), KeyFault> {
    let bare = host.split_once("://").map_or(host, |(_, rest)| rest);
    let bare = bare.split_once('/').map_or(bare, |(before, _)| before);
    let bare = bare.split_once(':').map_or(bare, |(before, _)| before);
    let bare = bare.trim_end_matches('.');
    if bare == host {
        return Ok(());
    }
    let rule = "a host has no scheme, no port, no path and no dot at the end";
    Err(match check_name(bare) {
        Ok(()) => KeyFault::with_help(rule, format!("write `\"{bare}\"`")),
        Err(_) => KeyFault::new(rule),
    })
}

/// Whoever ends a host with a number means an address: no top-level domain is a number.
fn looks_like_ipv4(host: &str) -> bool {
    host.rsplit('.').next().is_some_and(|last| !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit()))
}

fn check_name(name: &str) -> Result<(), KeyFault> {
    if name.contains('*') {
        return Err(KeyFault::new("a `*` stands alone or as the whole first label (`*.example.org`)"));
    }
    if !name.is_ascii() {
        return Err(KeyFault::with_help(
            "a host is written in ASCII",
            "write its `xn--` form, as browsers send it",
        ));
    }
    if name.is_empty() || name.len() > HOST_BYTES_MAX {
        return Err(KeyFault::new(format!("a host has 1 to {HOST_BYTES_MAX} bytes")));
    }
    name.split('.').try_for_each(check_label)
}

fn check_label(label: &str) -> Result<(), KeyFault> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b);
    if label.is_empty() || label.len() > LABEL_BYTES_MAX {
        return Err(KeyFault::new(format!("between the dots of a host are 1 to {LABEL_BYTES_MAX} bytes")));
    }
    if !label.bytes().all(allowed) {
        return Err(KeyFault::new("a host has only letters, digits, `.`, `-` and `_`"));
    }
    if label.starts_with('-') || label.ends_with('-') {
        return Err(KeyFault::new("no part of a host starts or ends with `-`"));
    }
    Ok(())
}

/// An address and port to listen at.
pub(crate) fn address(text: &str) -> Result<SocketAddr, KeyFault> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 => Err(KeyFault::new("a port is 1 to 65535")),
        Ok(address) => Ok(address),
        Err(_) => Err(why_no_address(text)),
    }
}

/// The name of a server and its port, in lower case.
///
/// # Errors
/// `None`: it is not meant to be one.
pub(crate) fn server_name(text: &str) -> Result<(String, u16), Option<KeyFault>> {
    let (host, port) = text.rsplit_once(':').ok_or(None)?;
    let name = host.to_ascii_lowercase();
    if name.is_empty() || name.contains(['*', ':', '[', '/']) || looks_like_ipv4(&name) {
        return Err(None);
    }
    // A dot at the end says that the name is whole.
    check_name(name.strip_suffix('.').unwrap_or(&name)).map_err(Some)?;
    match port.parse() {
        Ok(port @ 1..) => Ok((name, port)),
        _ => Err(Some(KeyFault::new("a port is 1 to 65535"))),
    }
}

fn why_no_address(text: &str) -> KeyFault {
    let bare = without_brackets(text);
    if let Ok(address) = bare.parse::<IpAddr>() {
        let fixed = SocketAddr::new(address, 8080);
        return KeyFault::with_help("it has no port", format!("write for example `\"{fixed}\"`"));
    }
    let rule = "an address is an IP address and a port";
    let Some((host, port)) = text.rsplit_once(':') else {
        return KeyFault::with_help(rule, "write for example `\"127.0.0.1:8080\"`");
    };
    let is_address = without_brackets(host).parse::<IpAddr>().is_ok();
    if is_address && !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) {
        return KeyFault::new("a port is 1 to 65535");
    }
    match (host, port.parse::<u16>()) {
        ("" | "*", Ok(port)) => KeyFault::with_help(
            rule,
            format!("write `\"0.0.0.0:{port}\"` or `\"[::]:{port}\"` for every address"),
        ),
        ("localhost", Ok(port)) => {
            KeyFault::with_help("names are not looked up here", format!("write `\"127.0.0.1:{port}\"`"))
        }
        (_, Ok(_)) => KeyFault::with_help(rule, "write the IP address itself; names are not looked up here"),
        (_, Err(_)) => KeyFault::with_help(rule, "write for example `\"127.0.0.1:8080\"`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_one_spelling() {
        let cases = [
            ("localhost", "localhost"),
            ("Example.ORG", "example.org"),
            ("*.example.org", "*.example.org"),
            ("*", "*"),
            ("127.0.0.1", "127.0.0.1"),
            ("::1", "[::1]"),
            ("[0:0::1]", "[::1]"),
            ("a_b.test", "a_b.test"),
        ];
        for (text, expected) in cases {
            assert_eq!(host(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn hosts_refused() {
        let long = format!("{}.test", "x".repeat(64));
        let bad = [
            "",
            ".",
            "a..b",
            "a.",
            "-a.b",
            "a b",
            "é.test",
            "a*.test",
            "*.*.test",
            "*.",
            "256.1.1.1",
            "1.2.3",
        ];
        for text in bad.iter().copied().chain([
            "a.test:80",
            "http://a.test",
            "a.test/x",
            "[::1]:80",
            "[::1",
            "[[::1]]",
            &long,
        ]) {
            assert!(host(text).is_err(), "{text}");
        }
        assert_eq!(host("http://a.test:80/x").unwrap_err().help.unwrap(), "write `\"a.test\"`");
    }

    #[test]
    fn server_names() {
        for (text, name, port) in [
            ("localhost:3000", "localhost", 3000),
            ("App.Internal:80", "app.internal", 80),
            ("my_app:1", "my_app", 1),
            ("app.test.:65535", "app.test.", 65535),
        ] {
            assert_eq!(server_name(text).unwrap(), (name.to_owned(), port));
        }
        for other in
            ["app", ":80", "*:80", "*.app:80", "10.0.0.256:80", "10.1:80", "[::1]:80", "::1:80", "a/b:80"]
        {
            assert!(server_name(other).unwrap_err().is_none(), "{other}");
        }
        let long = "a".repeat(64) + ".test:80";
        for bad in
            ["app:0", "app:65536", "app:", "app:http", "-app:80", "a..b:80", "a b:80", "app..:80", &long]
        {
            assert!(server_name(bad).unwrap_err().is_some(), "{bad}");
        }
    }

    #[test]
    fn addresses() {
        assert!(address("127.0.0.1:8080").is_ok());
        assert!(address("[::]:80").is_ok());
        let help = |text: &str| address(text).unwrap_err().help.unwrap_or_default();
        assert_eq!(help("127.0.0.1"), "write for example `\"127.0.0.1:8080\"`");
        assert_eq!(help("::1"), "write for example `\"[::1]:8080\"`");
        assert_eq!(help("localhost:80"), "write `\"127.0.0.1:80\"`");
        assert!(help(":80").starts_with("write `\"0.0.0.0:80\"`"));
        assert_eq!(address("127.0.0.1:0").unwrap_err().rule, "a port is 1 to 65535");
        assert_eq!(address("127.0.0.1:99999").unwrap_err().rule, "a port is 1 to 65535");
    }
}
