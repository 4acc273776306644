//! Heads that are refused, and why; and those that browsers and common programs send, which are not.

use conditioning::checks::{HeadFault, Setting, check, check_fields};
use proptest::prelude::*;

/// The faults of a head with this target and these lines, leniently and strictly.
fn found(target: &str, lines: &str) -> (Option<HeadFault>, Option<HeadFault>) {
    let head = format!("GET {target} HTTP/1.1\r\nHost: example.org\r\n{lines}\r\n");
    let found = both(head.as_bytes());
    assert_eq!(found_in_parts(target, lines), found, "{target} {lines}");
    found
}

/// The same in the parts that HTTP/2 has. A line that is none stands for what no part can be.
fn found_in_parts(target: &str, lines: &str) -> (Option<HeadFault>, Option<HeadFault>) {
    let fields = || {
        let lines = lines.split_terminator("\r\n").map(|line| line.split_once(':'));
        lines.map(|line| line.map(|(name, value)| (name.as_bytes(), value.trim_ascii().as_bytes())))
    };
    let no_part = |text: &str| text.chars().any(|one| one.is_control() && one != '\t');
    if fields().any(|field| field.is_none_or(|(_, value)| no_part(&String::from_utf8_lossy(value))))
        || lines.starts_with([' ', '\t'])
        || target.contains(' ')
        || no_part(target)
    {
        let head = format!("GET {target} HTTP/1.1\r\nHost: example.org\r\n{lines}\r\n");
        return both(head.as_bytes());
    }
    let host = (&b"host"[..], &b"example.org"[..]);
    let one =
        |setting| check_fields("GET", target, [host].into_iter().chain(fields().flatten()), setting).err();
    (one(Setting::Lenient), one(Setting::Strict))
}

fn both(head: &[u8]) -> (Option<HeadFault>, Option<HeadFault>) {
    (check(head, Setting::Lenient).err(), check(head, Setting::Strict).err())
}

#[test]
fn ordinary_heads_pass() {
    let firefox = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
        Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
        Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nConnection: keep-alive\r\n\
        Cookie: a=b; c=\"d\"; e=%7B%22f%22%3A1%7D\r\nUpgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\n";
    for target in [
        "/",
        "*",
        "http://example.org",
        "http://example.org/a?b=c",
        "/a/b/../c.html?next=%2Fd%2Fe&text=one%0D%0Atwo%00".trim_end_matches("%00"),
        "/search?q=100%25&x=%E2%82%AC",
        "/caf%C3%A9/100%25",
        "/a//b",
        "/.well-known/acme-challenge/x.y_z~",
        "/..a/...;v=1",
    ] {
        assert_eq!(found(target, firefox), (None, None), "{target}");
    }
    for lines in [
        "Range: bytes=0-99, 200-299\r\n",
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n",
        "X-Empty:\r\nTabs:\ta\tb\r\n",
        "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.2\r\n",
        "Content-Disposition: form-data; filename=\"\u{e9}.txt\"\r\n",
    ] {
        assert_eq!(found("/", lines), (None, None), "{lines}");
    }
    for host in [
        "a_b.example",
        "192.0.2.1:8080",
        "[::1]:80",
        "localhost",
        "example.org.",
        "xn--bcher-kva.example:",
        "",
    ] {
        let head = format!("\r\nGET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(both(head.as_bytes()), (None, None), "{host}");
    }
}

#[test]
fn harmful_heads_are_refused() {
    let many = |count: usize, text: &str| text.repeat(count);
    let headers = |count: usize| (0..count).map(|number| format!("X-{number}: y\r\n")).collect::<String>();
    for (target, lines, fault) in [
        (many(17, "/"), String::new(), HeadFault::Slashes),
        (format!("http://example.org{}", many(5000, "/")), String::new(), HeadFault::Slashes),
        (many(513, "/a"), String::new(), HeadFault::Segments),
        (format!("/?{}", many(2000, "a&")), String::new(), HeadFault::Parameters),
        (format!("/{}", many(16 << 10, "a")), String::new(), HeadFault::Target),
        ("/".into(), headers(100), HeadFault::Lines),
        ("/".into(), many(33, "X: y\r\n"), HeadFault::Repeated),
        ("/".into(), many(33, "x: y\r\nX: z\r\n"), HeadFault::Repeated),
        ("/".into(), format!("{}: y\r\n", many(257, "x")), HeadFault::NameLength),
        ("/".into(), format!("X: {}\r\n", many(32769, "y")), HeadFault::ValueLength),
        ("/".into(), format!("Accept: {}\r\n", many(1000, "a,")), HeadFault::Elements),
        ("/".into(), format!("Range: bytes={}\r\n", many(64, "0-,")), HeadFault::Ranges),
        ("/".into(), format!("Request-Range: bytes={}\r\n", many(64, "0-,")), HeadFault::Ranges),
        ("/".into(), "X: a\r\n b\r\n".into(), HeadFault::Folded),
        ("/".into(), "X: a\0b\r\n".into(), HeadFault::Control),
        ("/".into(), "X: a\rb\r\n".into(), HeadFault::Control),
        ("/".into(), "X: \x1b[2J\r\n".into(), HeadFault::Control),
        ("/\x7f".into(), String::new(), HeadFault::Control),
        ("/".into(), "X : y\r\n".into(), HeadFault::Name),
        ("/".into(), "no colon\r\n".into(), HeadFault::Name),
        ("/".into(), ": nothing\r\n".into(), HeadFault::Name),
        ("/".into(), "Proxy: http://attacker.example\r\n".into(), HeadFault::Forged),
        ("/".into(), "User-Agent: () { :; }; /bin/id\r\n".into(), HeadFault::Forged),
        ("/".into(), "Connection: close, Content-Length\r\n".into(), HeadFault::Connection),
        ("/".into(), "Connection: bulkhead-client\r\n".into(), HeadFault::Connection),
        ("/".into(), "Connection: Client-Cert\r\n".into(), HeadFault::Connection),
        ("/".into(), "Host: user@example.org\r\n".into(), HeadFault::Host),
        ("/ /".into(), String::new(), HeadFault::Shape),
    ] {
        let lenient = found(&target, &lines).0;
        assert_eq!(lenient, Some(fault), "{target:.40} {lines:.40}");
        assert!(found(&target, &lines).1.is_some(), "{target:.40} {lines:.40}: only lenient");
    }
    let method = format!("{} / HTTP/1.1\r\n\r\n", many(33, "M"));
    assert_eq!(both(method.as_bytes()).0, Some(HeadFault::Method));
}

#[test]
fn strange_heads_are_refused_strictly() {
    for (target, lines, fault) in [
        ("////", "", HeadFault::Slashes),
        ("/..", "", HeadFault::Climbing),
        ("/a/../../b", "", HeadFault::Climbing),
        ("/a/%2e%2E/.%2e/b", "", HeadFault::Climbing),
        ("/..;x/b", "", HeadFault::Climbing),
        ("/%00", "", HeadFault::Hidden),
        ("/a%2fb", "", HeadFault::Hidden),
        ("/a%5Cb", "", HeadFault::Hidden),
        ("/a%0d%0aSet-Cookie:x", "", HeadFault::Hidden),
        ("/%252e%252e/", "", HeadFault::Hidden),
        ("/?a=%00", "", HeadFault::Hidden),
        ("/%", "", HeadFault::Encoding),
        ("/%2", "", HeadFault::Encoding),
        ("/%+1", "", HeadFault::Encoding),
        ("/?%zz", "", HeadFault::Encoding),
        ("/a\\b", "", HeadFault::Encoding),
        ("/caf\u{e9}", "", HeadFault::Encoding),
        ("/", "X-Original-URL: /admin\r\n", HeadFault::Forged),
        ("/", "X_Forwarded_For: 127.0.0.1\r\n", HeadFault::Name),
        ("/", "Connection: X-Whatever\r\n", HeadFault::Connection),
    ] {
        assert_eq!(found(target, lines), (None, Some(fault)), "{target} {lines}");
    }
    for host in
        ["a..b", "-a.example", "a-.example", "0x7f.1", "2130706433", "127.1", "a:b", "a:123456", "%41", "."]
    {
        let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(both(head.as_bytes()), (None, Some(HeadFault::Host)), "{host}");
    }
}

/// Requests that people send to nginx, Apache and Caddy, and requests that only attackers send.
#[test]
fn the_standard_setting_passes_what_is_read_in_one_way() {
    let standard = |target: &str, lines: &str| {
        let head = format!("GET {target} HTTP/1.1\r\nHost: example.org\r\n{lines}\r\n");
        check(head.as_bytes(), Setting::Standard).err()
    };
    let long = format!("/?{}", "a".repeat(8 << 10));
    for (target, lines) in [
        ("/@scope%2fname", ""),
        ("/api/v4/projects/group%2Fproject", ""),
        ("/?q=100%", ""),
        ("/?q=`x`&y=a\\b&z=%00", ""),
        ("/caf\u{e9}/100%25", ""),
        ("/App%5CModel/%252F", ""),
        ("////", ""),
        (&long, ""),
        ("/", "X_Custom: 1\r\n"),
        ("/", "X-Original-URL: /x\r\n"),
        ("/", "Connection: X-Whatever\r\n"),
    ] {
        assert_eq!(standard(target, lines), None, "{target:.60} {lines}");
    }
    for (target, fault) in [
        ("/..", HeadFault::Climbing),
        ("/a/%2e%2E/.%2e/b", HeadFault::Climbing),
        ("/..;x/b", HeadFault::Climbing),
        ("/%00", HeadFault::Hidden),
        ("/a%0d%0aSet-Cookie:x", HeadFault::Hidden),
        ("/%7f", HeadFault::Hidden),
        ("/%", HeadFault::Encoding),
        ("/%zz", HeadFault::Encoding),
        ("/a\\b", HeadFault::Encoding),
    ] {
        assert_eq!(standard(target, ""), Some(fault), "{target}");
    }
    for host in ["a..b", "127.1", "0x7f.1", "user@a.test"] {
        let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(check(head.as_bytes(), Setting::Standard), Err(HeadFault::Host), "{host}");
    }
}

/// Every limit, on both of its sides.
#[test]
fn limits_are_where_they_are() {
    let strict = |target: &str, lines: &str| found(target, lines).1;
    assert_eq!((strict("///", ""), strict("////", "")), (None, Some(HeadFault::Slashes)));
    let parts = |count| "/a".repeat(count);
    assert_eq!((strict(&parts(64), ""), strict(&parts(65), "")), (None, Some(HeadFault::Segments)));
    let long = |count: usize| format!("/{}", "a".repeat(count - 1));
    assert_eq!((strict(&long(4096), ""), strict(&long(4097), "")), (None, Some(HeadFault::Target)));
    let query = |count| format!("/?{}", "a;".repeat(count));
    assert_eq!((strict(&query(199), ""), strict(&query(200), "")), (None, Some(HeadFault::Parameters)));
    let lines = |count| (1..count).map(|number| format!("x{number}: y\r\n")).collect::<String>();
    assert_eq!((strict("/", &lines(64)), strict("/", &lines(65))), (None, Some(HeadFault::Lines)));
    let same = |count| "Via: x\r\n".repeat(count);
    assert_eq!((strict("/", &same(8)), strict("/", &same(9))), (None, Some(HeadFault::Repeated)));
    let ranges = |count: usize| format!("range: bytes={}0-1\r\n", "0-1,".repeat(count - 1));
    assert_eq!((strict("/", &ranges(8)), strict("/", &ranges(9))), (None, Some(HeadFault::Ranges)));
}

#[test]
fn a_part_of_a_head_is_no_head() {
    let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for end in 0..head.len() {
        assert_eq!(both(&head[..end]), (Some(HeadFault::Shape), Some(HeadFault::Shape)), "{end}");
    }
    assert_eq!(both(head), (None, None));
    assert_eq!(both(b"\r\n\r\n"), (Some(HeadFault::Shape), Some(HeadFault::Shape)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A head that passes the strict setting passes the lenient one, and nothing after the head matters.
    #[test]
    fn strict_is_stricter(bytes in proptest::collection::vec(prop_oneof![
        4 => proptest::sample::select(&b"/%.2eEfF05cC:?&; aHost\r\n"[..]),
        1 => any::<u8>(),
    ], 0..200)) {
        let head = [b"GET /", &bytes[..], b" HTTP/1.1\r\nHost: a\r\nX: ", &bytes[..], b"\r\n\r\n"].concat();
        let (lenient, strict) = both(&head);
        let standard = check(&head, Setting::Standard).err();
        assert!(lenient.is_none() || standard.is_some());
        assert!(standard.is_none() || strict.is_some());
    }
}
