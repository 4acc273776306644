//! The findings of one check of a head: its meaning, its target, and the reason of a refusal.

use request::chunks::Chunks;
use request::fields::length;
use request::head::{
    CheckedHead, Framing, HEADER_LINES_MAX, HeadRefusal, RequestHead, Room, TARGET_BYTES_MAX, Verb, check,
    check_lines, may_have_ended,
};
use request::target::{HOST_BYTES_MAX, split_host};

const LIMIT: usize = 8 << 10;

/// A head of HTTP/1.1 for `a.test`, with these lines more.
fn with(lines: &str) -> String {
    format!("GET /x HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n")
}

fn whole(text: &str) -> RequestHead<'_> {
    match check(text.as_bytes(), LIMIT) {
        CheckedHead::Whole(head) => head,
        other => panic!("{text:?}: {other:?}"),
    }
}

fn refusal(text: &str) -> HeadRefusal {
    match check(text.as_bytes(), LIMIT) {
        CheckedHead::Refused(refusal) => refusal,
        other => panic!("{text:?}: {other:?}"),
    }
}

fn is_malformed(text: &str) -> bool {
    matches!(refusal(text), HeadRefusal::Malformed(_))
}

#[test]
fn a_request_line_is_taken_apart() {
    let text = "GET /a/b?c=d?e HTTP/1.1\r\nHost: A.Test.:8080\r\n\r\nbody";
    let head = whole(text);
    assert_eq!((head.method, head.verb, head.minor), ("GET", Verb::Get, 1));
    assert_eq!((head.target, head.path, head.query), ("/a/b?c=d?e", "/a/b", Some("c=d?e")));
    assert_eq!((head.host, head.length), (&b"A.Test"[..], text.len() - 4));
    assert_eq!(head.framing, Framing::None);
    assert!(head.keep && !head.expects && !head.unusual);
    assert_eq!(whole(&with("").replace("GET", "HEAD")).verb, Verb::Head);
    assert_eq!(whole(&with("").replace("GET", "PATCH")).verb, Verb::Other);
    assert_eq!(whole(&with("").replace("/x", "/x?")).query, Some(""));
    assert_eq!(whole("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").path, "*");
    assert!(is_malformed("GET * HTTP/1.1\r\nHost: a\r\n\r\n"));
}

#[test]
fn a_head_that_has_not_arrived_is_waited_for_up_to_the_limit() {
    let text = with("X: y\r\n");
    for end in 0..text.len() {
        assert!(matches!(check(&text.as_bytes()[..end], LIMIT), CheckedHead::Partial), "{end}");
    }
    let at = |limit| check(text.as_bytes(), limit);
    assert!(matches!(at(text.len()), CheckedHead::Whole(_)));
    assert!(matches!(at(text.len() - 1), CheckedHead::Refused(HeadRefusal::TooLarge)));
    let part = &text.as_bytes()[..20];
    assert!(matches!(check(part, 21), CheckedHead::Partial));
    assert!(matches!(check(part, 20), CheckedHead::Refused(HeadRefusal::TooLarge)));
    let lines = |count: usize| with(&"X: y\r\n".repeat(count - 1));
    assert!(matches!(check(lines(HEADER_LINES_MAX).as_bytes(), LIMIT), CheckedHead::Whole(_)));
    assert_eq!(refusal(&lines(HEADER_LINES_MAX + 1)), HeadRefusal::TooLarge);
}

#[test]
fn a_target_that_is_too_long_is_told_from_a_head_that_is() {
    let with_target = |bytes: usize| format!("GET /{} HTTP/1.1\r\nHost: a.test\r\n", "x".repeat(bytes - 1));
    let found = |text: &str, limit| match check(text.as_bytes(), limit) {
        CheckedHead::Refused(refusal) => Some(refusal),
        _ => None,
    };
    let filled = |target: usize, limit: usize| {
        let start = with_target(target);
        let rest = "y".repeat(limit.saturating_sub(start.len()));
        format!("{start}X: {rest}\r\n\r\n")
    };
    for (target, limit, refusal) in [
        (100, 8 << 10, HeadRefusal::TooLarge),
        (TARGET_BYTES_MAX, 32 << 10, HeadRefusal::TooLarge),
        (TARGET_BYTES_MAX + 1, 32 << 10, HeadRefusal::TargetTooLong),
        (9000, 8 << 10, HeadRefusal::TargetTooLong),
        (40_000, 32 << 10, HeadRefusal::TargetTooLong),
    ] {
        let text = filled(target, limit);
        for length in [limit, text.len()] {
            assert_eq!(
                found(&text[..length.min(text.len())], limit),
                Some(refusal),
                "{target} {limit} {length}"
            );
        }
    }
}

#[test]
fn a_reader_of_pieces_checks_again_whenever_that_says_something_new() {
    let ends = ["\r\n\r\n", "\n\n", "\n\r\n", "\r\n\n", "\r\n"];
    for end in ends {
        let text = format!("GET /a?b HTTP/1.1\r\nHost: x{end}GET");
        let data = text.as_bytes();
        for searched in 1..data.len() {
            for length in searched + 1..=data.len() {
                let is_partial = |length: usize| matches!(check(&data[..length], 4096), CheckedHead::Partial);
                if is_partial(searched) && !is_partial(length) {
                    assert!(may_have_ended(&data[..length], searched), "{text:?} {searched} {length}");
                }
            }
        }
    }
    for (data, searched) in [("GET / HTTP/1.1\r\nHost: x\r\n", 16), ("a\r\n\r\nb", 8), ("\n", 1), ("", 0)] {
        assert!(!may_have_ended(data.as_bytes(), searched), "{data:?}");
    }
}

#[test]
fn every_refusal_has_its_status() {
    for (refusal, status) in [
        (HeadRefusal::Malformed("x"), 400),
        (HeadRefusal::TooLarge, 431),
        (HeadRefusal::TargetTooLong, 414),
        (HeadRefusal::Version, 505),
        (HeadRefusal::NotImplemented, 501),
        (HeadRefusal::Expectation, 417),
        (HeadRefusal::Late, 408),
        (HeadRefusal::BodyTooLarge, 413),
    ] {
        assert_eq!(refusal.status(), status);
    }
}

#[test]
fn another_version_is_told_from_what_is_none() {
    for line in ["GET / HTTP/2.0", "GET / HTTP/0.9", "\r\nGET / HTTP/3.7"] {
        assert_eq!(refusal(&format!("{line}\r\nHost: a\r\n\r\n")), HeadRefusal::Version, "{line}");
    }
    for line in ["GET / HTTP/x.0", "GET / HTTP/1.x", "GET / HTTP/11.1", "GET / HTTPS/1.1", "GET / http/2.0"] {
        assert!(is_malformed(&format!("{line}\r\nHost: a\r\n\r\n")), "{line}");
    }
}

/// RFC 9110 2.5.
#[test]
fn a_later_minor_version_is_taken_for_the_latest_one() {
    for minor in 2..=9 {
        for start in ["", "\r\n", "\r\n\r\n"] {
            let text = format!("{start}GET /a?b HTTP/1.{minor}\r\nHost: a.test\r\nX: y\r\n\r\nrest");
            let mut room = Room::default();
            let (checked, lines) = check_lines(text.as_bytes(), LIMIT, &mut room);
            let CheckedHead::Whole(head) = checked else { panic!("{text:?}: {checked:?}") };
            assert_eq!((head.method, head.target, head.minor, head.host), ("GET", "/a?b", 1, &b"a.test"[..]));
            assert_eq!((head.length, head.keep, lines.len()), (text.len() - 4, true, 2), "{text:?}");
            for end in 0..head.length {
                let part = check(&text.as_bytes()[..end], LIMIT);
                assert!(matches!(part, CheckedHead::Partial), "{:?}: {part:?}", &text[..end]);
            }
            assert!(matches!(
                check(text.as_bytes(), head.length - 1),
                CheckedHead::Refused(HeadRefusal::TooLarge)
            ));
        }
    }
    for bad in [
        "get / HTTP/1.2",
        "GET  / HTTP/1.2",
        "GET /\x01 HTTP/1.2",
        "GET / HTTP/1.2 ",
        "GET / HTTP/1.2\r",
        "GET HTTP/1.2",
    ] {
        let text = format!("{bad}\r\nHost: a\r\n\r\n");
        assert!(!matches!(check(text.as_bytes(), LIMIT), CheckedHead::Whole(_)), "{bad:?}");
    }
    let two = "GET / HTTP/1.2\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert!(is_malformed(two) && is_malformed("GET / HTTP/1.3\r\nHost: a\n\r\n"));
    assert_eq!(
        refusal(&format!("GET / HTTP/1.2\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(100))),
        HeadRefusal::TooLarge
    );
}

#[test]
fn methods_are_in_capitals_and_some_are_not_answered() {
    for method in ["CONNECT", "TRACE", "TRACK"] {
        let text = format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(refusal(&text), HeadRefusal::NotImplemented, "{method}");
    }
    for method in ["get", "Get", "GET1", "G~T"] {
        assert!(is_malformed(&with("").replace("GET", method)), "{method}");
    }
    for method in ["M-SEARCH", "MK_COL", "QUERY"] {
        assert_eq!(whole(&with("").replace("GET", method)).method, method);
    }
}

#[test]
fn a_line_that_ends_with_a_line_feed_alone_is_refused() {
    let good = with("X: y\r\n");
    assert_eq!(whole(&good).length, good.len());
    for (at, _) in good.match_indices("\r\n") {
        let text = format!("{}{}", &good[..at], &good[at + 1..]);
        assert!(is_malformed(&text), "{text:?}");
    }
    assert!(is_malformed(&format!("\n{good}")));
}

#[test]
fn a_body_has_one_length() {
    let framing = |lines: &str| whole(&with(lines)).framing;
    assert_eq!(framing("Content-Length: 0\r\n"), Framing::None);
    assert_eq!(framing("content-length: 12\r\n"), Framing::Length(12));
    assert_eq!(framing("Transfer-Encoding: Chunked\r\n"), Framing::Chunked);
    for lines in [
        "Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Content-Length: +1\r\n",
    ] {
        assert!(is_malformed(&with(lines)), "{lines}");
    }
    assert!(is_malformed("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"));
}

#[test]
fn a_length_has_one_spelling_and_at_most_18_digits() {
    for (text, number) in [
        ("0", Some(0)),
        ("7", Some(7)),
        ("10", Some(10)),
        ("987654321", Some(987_654_321)),
        ("999999999999999999", Some(999_999_999_999_999_999)),
        ("1000000000000000000", None),
        ("", None),
        ("00", None),
        ("01", None),
        ("-1", None),
        ("1,1", None),
        ("1 ", None),
        ("0x1", None),
    ] {
        assert_eq!(length(text.as_bytes()), number, "{text}");
    }
}

#[test]
fn a_connection_is_kept_as_its_version_and_its_tokens_say() {
    let old = |lines: &str| format!("GET / HTTP/1.0\r\n{lines}\r\n");
    for (text, keep) in [
        (with(""), true),
        (with("Connection: close\r\n"), false),
        (with("Connection: x, Close\r\n"), false),
        (with("Connection: close\r\nConnection: keep-alive\r\n"), false),
        (with("Connection: closed\r\n"), true),
        (old(""), false),
        (old("Connection: Keep-Alive\r\n"), true),
        (old("Connection: Keep-Alive\r\nConnection: x\r\n"), true),
        (old("Connection: keep-alive, close\r\n"), false),
        (old("Connection: upgrade\r\n"), false),
    ] {
        assert_eq!(whole(&text).keep, keep, "{text}");
    }
    assert_eq!(whole(&old("")).host, b"", "HTTP/1.0 may name none");
}

#[test]
fn an_upgrade_needs_a_connection_that_names_it_and_no_body() {
    let upgrade = |text: &str| whole(text).upgrade.map(<[u8]>::to_vec);
    let lines = "Connection: Upgrade\r\nConnection: x\r\nUpgrade: websocket\r\n";
    assert_eq!(upgrade(&with(lines)), Some(b"websocket".to_vec()));
    assert!(whole(&with(lines)).unusual);
    assert_eq!(upgrade(&with("Upgrade: websocket\r\n")), None);
    assert_eq!(upgrade(&with("Connection: close\r\nUpgrade: websocket\r\n")), None);
    assert_eq!(upgrade(&with(&format!("{lines}Content-Length: 1\r\n"))), None);
    assert_eq!(upgrade(&with(lines).replace("1.1", "1.0")), None);
}

#[test]
fn an_expectation_is_the_one_that_there_is() {
    assert!(whole(&with("Expect: 100-Continue\r\n")).expects);
    assert!(!whole(&with("Expect: 100-continue\r\n").replace("1.1", "1.0")).expects);
    assert_eq!(refusal(&with("Expect: 200-ok\r\n")), HeadRefusal::Expectation);
}

#[test]
fn fields_are_found_by_their_names_in_whatever_case() {
    let text = with(
        "IF-NONE-MATCH: one\r\nIf-Modified-Since: two\r\nAccept-Encoding: three\r\nReferer: four\r\n\
         User-Agent: five\r\nX-Other-Name: six\r\n",
    );
    let head = whole(&text);
    assert!(!head.unusual);
    assert_eq!(head.if_none_match, Some(&b"one"[..]));
    assert_eq!(head.if_modified_since, Some(&b"two"[..]));
    assert_eq!(head.accept_encoding, Some(&b"three"[..]));
    assert_eq!((head.referer, head.user_agent), (&b"four"[..], &b"five"[..]));
    let bare = with("");
    let head = whole(&bare);
    assert_eq!((head.if_none_match, head.if_modified_since, head.accept_encoding), (None, None, None));
    assert_eq!((head.referer, head.user_agent), (&b""[..], &b""[..]));
}

#[test]
fn what_the_fast_path_cannot_answer_is_unusual() {
    for line in ["Range", "If-Match", "If-Range", "If-Unmodified-Since", "Upgrade"] {
        assert!(whole(&with(&format!("{line}: x\r\n"))).unusual, "{line}");
    }
    for line in ["If-None-Match", "If-Modified-Since", "Accept-Encoding"] {
        let twice = format!("{line}: x\r\n{line}: y\r\n");
        assert!(whole(&with(&twice)).unusual, "{line} twice");
        // The reason that made it unusual stays.
        assert!(whole(&with(&format!("Range: x\r\n{line}: y\r\n"))).unusual, "{line} after a range");
        assert!(whole(&with(&format!("Range: x\r\n{twice}"))).unusual, "{line} twice after a range");
    }
    // Of the same lengths as those that count.
    for line in ["Hots", "Rangy", "Expext", "Upgrape", "If-Catch", "Donnection", "Transfer-Encodinh"] {
        let text = with(&format!("{line}: close\r\n"));
        assert!(!whole(&text).unusual && whole(&text).keep, "{line}");
    }
}

#[test]
fn there_is_one_host() {
    for (text, host) in [
        ("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "a.test"),
        ("GET http://a.test HTTP/1.1\r\nHost: A.test:80\r\n\r\n", "a.test"),
        ("GET http://a.test/x?y HTTP/1.1\r\nHost: a.test\r\n\r\n", "a.test"),
        ("GET HTTPS://a.test:443/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "a.test"),
        ("GET http://a.test/ HTTP/1.0\r\n\r\n", "a.test"),
        ("GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", "[::1]"),
    ] {
        assert_eq!(whole(text).host, host.as_bytes(), "{text}");
    }
    for text in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET http://a.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n",
        "GET http://a.test/ HTTP/1.1\r\nHost: a.test:8080\r\n\r\n",
        "GET https://a.test/ HTTP/1.1\r\nHost: a.test:80\r\n\r\n",
        "GET http:// HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /# HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\\ HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert!(is_malformed(text), "{text}");
    }
    assert_eq!(whole("GET http://a.test?q HTTP/1.1\r\nHost: a.test\r\n\r\n").path, "/");
    assert_eq!(whole("GET http://a.test?q HTTP/1.1\r\nHost: a.test\r\n\r\n").query, Some("q"));
}

#[test]
fn a_host_is_split_from_its_port() {
    for (text, parts) in [
        ("a", Some(("a", None))),
        ("a.test.", Some(("a.test", None))),
        ("a_b-c.test:", Some(("a_b-c.test", None))),
        ("a:80", Some(("a", Some(80)))),
        ("a:65535", Some(("a", Some(65_535)))),
        ("a:65536", None),
        ("a:000080", None),
        ("a:8x", None),
        ("a:80:80", None),
        (":80", None),
        ("", None),
        (".", None),
        ("[::1]", Some(("[::1]", None))),
        ("[2001:db8::1]:443", Some(("[2001:db8::1]", Some(443)))),
        ("[::1", None),
        ("[::g]", None),
        ("[::1]x", None),
        ("a/b", None),
    ] {
        let parts = parts.map(|(name, port): (&str, Option<u16>)| (name.as_bytes(), port));
        assert_eq!(split_host(text.as_bytes()), parts, "{text}");
    }
    let long = "a".repeat(HOST_BYTES_MAX);
    assert!(split_host(long.as_bytes()).is_some());
    assert!(split_host(format!("{long}a").as_bytes()).is_none());
}

#[test]
fn the_lines_of_a_head_are_those_that_were_checked() {
    let text = with("X-One:  a b\t\r\nx_two:\r\n");
    let mut room = Room::default();
    let (checked, lines) = check_lines(text.as_bytes(), LIMIT, &mut room);
    assert!(matches!(checked, CheckedHead::Whole(head) if head.length == text.len()));
    let lines: Vec<_> = lines.iter().map(|line| (line.name, line.value)).collect();
    assert_eq!(lines, [("Host", &b"a.test"[..]), ("X-One", b"a b"), ("x_two", b"")]);
    for bad in [&text[..text.len() - 1], "GET / HTTP/1.1\r\nX: y\r\n\r\n"] {
        let mut room = Room::default();
        let (checked, lines) = check_lines(bad.as_bytes(), LIMIT, &mut room);
        assert!(!matches!(checked, CheckedHead::Whole(_)) && lines.is_empty(), "{bad:?}");
    }
}

#[test]
fn the_size_of_a_chunk_has_digits_up_to_its_limit() {
    let judged = |text: &str| Chunks::default().look(text.as_bytes());
    assert_eq!(judged("0000000000000003\r\nabc\r\n0\r\n\r\n"), Ok(()));
    assert!(judged("00000000000000003").is_err());
    assert!(judged(";").is_err(), "an extension of no size is refused as soon as it begins");
    // The largest size does not overflow.
    assert_eq!(judged("ffffffffffffffff\r\nabc"), Ok(()));
}

#[test]
fn what_nobody_reads_of_a_chunked_body_has_its_limit() {
    let extension = |bytes| format!("3;{}\r\nabc\r\n0\r\n\r\n", "e".repeat(bytes));
    let trailer = |bytes| format!("0\r\nX:{}\r\n\r\n", "t".repeat(bytes));
    let lines = |count| format!("0\r\n{}\r\n", "X: y\r\n".repeat(count));
    for body in [extension(16_000), trailer(16_000), extension(100).repeat(2), lines(100)] {
        assert_eq!(Chunks::default().look(body.as_bytes()), Ok(()));
    }
    for body in [extension(16_400), trailer(16_400), lines(101), "1;e\r\na\r\n".repeat(9000)] {
        assert!(Chunks::default().look(body.as_bytes()).is_err());
    }
}

#[test]
fn a_chunked_body_is_taken_apart() {
    let body = b"3;a=b\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\nGET";
    for step in 1..=body.len() {
        let (mut chunks, mut data, mut at) = (Chunks::default(), Vec::new(), 0);
        while at < body.len() {
            let bytes = &body[at..body.len().min(at + step)];
            let piece = chunks.take(bytes).expect("a good body");
            data.extend_from_slice(&bytes[piece.framing..piece.framing + piece.data]);
            at += piece.framing + piece.data;
            if chunks.is_ended() {
                break;
            }
        }
        assert_eq!((&data[..], &body[at..], chunks.is_ended()), (&b"abcde"[..], &b"GET"[..], true), "{step}");
    }
}
