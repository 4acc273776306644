//! Values at their limits, and paths at the borders of segments.

use request::accept_encoding::{self, Encoding};
use request::hello;
use request::path::{NormalPath, covers};
use request::proxy::{self, ProxyPreamble};
use request::script::{ends_with, split_script};

fn path(raw: &str) -> NormalPath<'_> {
    NormalPath::parse(raw).expect("a path")
}

#[test]
fn a_prefix_ends_at_the_border_of_a_segment() {
    for (prefix, raw, below) in [
        ("/search", "/search", Some("")),
        ("/search", "/search/x", Some("/x")),
        ("/search", "/searching", None),
        ("/search", "/sea", None),
        ("/package/", "/package/", Some("")),
        ("/package/", "/package/apt", Some("apt")),
        ("/package/", "/package", None),
        ("/", "/anything", Some("anything")),
        ("/a", "/b", None),
    ] {
        let path = path(raw);
        assert_eq!(path.below(prefix), below.map(str::as_bytes), "{prefix} {raw}");
        assert_eq!(path.is_below(prefix), below.is_some(), "{prefix} {raw}");
        assert_eq!(covers(prefix.as_bytes(), raw.as_bytes()), below.is_some(), "{prefix} {raw}");
    }
}

#[test]
fn a_path_is_that_of_a_folder_if_it_ends_with_a_slash() {
    assert!(path("/").is_folder() && path("/a/").is_folder());
    assert!(!path("/a").is_folder() && !path("/a/b").is_folder());
}

#[test]
fn a_name_that_is_nothing_but_the_suffix_is_no_script() {
    assert!(ends_with(b"/a.php", ".php") && ends_with(b"a.php", ".php") && ends_with(b"/xphp", "php"));
    assert!(ends_with(b"/php", "php") && ends_with(b"/.php", ".php"), "a name that ends so");
    assert!(!ends_with(b"/a.php/", ".php"));
    assert_eq!(split_script(b"/.php/x", ".php"), None);
    assert_eq!(split_script(b"/php/x", "php"), None);
    assert_eq!(split_script(b"/a.php/b", ".php"), Some((&b"/a.php"[..], &b"/b"[..])));
}

#[test]
fn the_smallest_difference_of_weights_decides() {
    let first = |value: &str| accept_encoding::parse(value.as_bytes(), &Encoding::ALL).iter().next();
    assert_eq!(first("br;q=0.999, gzip"), Some(Encoding::Gzip));
    assert_eq!(first("br;q=0.998, gzip;q=0.999"), Some(Encoding::Gzip));
    assert_eq!(first("br, gzip"), Some(Encoding::Br), "the order of the server's own list");
    assert_eq!(first("gzip;q=0.001"), Some(Encoding::Gzip));
    assert_eq!(first("gzip;q=0"), None);
}

#[test]
fn an_encoding_has_a_token_and_a_suffix() {
    assert_eq!(Encoding::ALL.map(Encoding::token), ["br", "zstd", "gzip"]);
    assert_eq!(Encoding::ALL.map(Encoding::suffix), ["br", "zst", "gz"]);
}

#[test]
fn a_line_of_the_proxy_protocol_has_an_end_within_its_limit() {
    let without_end = |bytes: usize| format!("PROXY {}", "x".repeat(bytes - 6));
    assert_eq!(proxy::parse(without_end(106).as_bytes()), ProxyPreamble::Partial);
    assert!(matches!(proxy::parse(without_end(107).as_bytes()), ProxyPreamble::Bad(_)));
}

#[test]
fn a_binary_header_carries_no_more_than_its_limit() {
    let header = |announced: u16| {
        let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21\x11".to_vec();
        bytes.extend(announced.to_be_bytes());
        bytes
    };
    assert_eq!(proxy::parse(&header(2048)), ProxyPreamble::Partial);
    assert!(matches!(proxy::parse(&header(2049)), ProxyPreamble::Bad(_)));
    let mut whole = header(2048);
    whole.extend([192, 0, 2, 1, 192, 0, 2, 2, 0, 80, 0, 81]);
    whole.extend(vec![0; 2048 - 12]);
    assert!(matches!(proxy::parse(&whole), ProxyPreamble::Header { length, .. } if length == 16 + 2048));
}

/// A hello of TLS that asks for this name.
fn hello(name: &[u8]) -> Vec<u8> {
    fn vector(content: &[u8]) -> Vec<u8> {
        [&(content.len() as u16).to_be_bytes()[..], content].concat()
    }
    let names = vector(&[&[0][..], &vector(name)].concat());
    let extensions = vector(&[&[0, 0][..], &vector(&names)].concat());
    let random = [7; 32];
    // No session, one cipher suite, no compression.
    let body = [&[3, 3][..], &random, &[0, 0, 2, 0x13, 1, 1, 0], &extensions].concat();
    let message = [&[1, 0][..], &vector(&body)].concat();
    [&[22, 3, 1][..], &vector(&message)].concat()
}

#[test]
fn a_name_in_a_hello_has_a_longest_length() {
    for bytes in [1, 254, 255] {
        let name = vec![b'A'; bytes];
        let sent = hello(&name);
        let hello::CheckedHello::Whole(found) = hello::check(&sent) else { panic!("{bytes}") };
        assert_eq!(found.name(), name.to_ascii_lowercase());
    }
    for bytes in [0, 256] {
        assert!(
            !matches!(hello::check(&hello(&vec![b'a'; bytes])), hello::CheckedHello::Whole(_)),
            "{bytes}"
        );
    }
    assert!(matches!(hello::check(&[]), hello::CheckedHello::Partial(1)));
}
