//! Heads that the preload library of a guarded server takes for usual (`cc/core/usual.c`) are heads that the gate would
//! pass, whatever its setting: such requests do not come here when their connection was kept.
//!
//! Runs in: tests, with a C compiler.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use conditioning::checks::{self, Setting};
use request::head::{self, CheckedHead};

const HEAD_BYTES: usize = 8 << 10;

/// The C function, as a program.
fn driver(name: &str) -> PathBuf {
    let cc = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cc");
    let program = std::env::temp_dir().join(format!("bulkhead-{name}-{}", std::process::id()));
    let compiled = Command::new("cc")
        .args(["-std=c11", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-I"])
        .arg(cc.join("core"))
        .arg("-o")
        .arg(&program)
        .args([cc.join("tests/usual.c"), cc.join("core/usual.c")])
        .status()
        .unwrap();
    assert!(compiled.success());
    program
}

/// Which of the heads are usual.
fn usual(name: &str, heads: &[Vec<u8>]) -> Vec<bool> {
    let program = driver(name);
    let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = (HEAD_BYTES as u32).to_le_bytes().to_vec();
    for head in heads {
        input.extend((head.len() as u32).to_le_bytes());
        input.extend(head);
    }
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&input).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    std::fs::remove_file(program).unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout.len(), heads.len());
    output.stdout.iter().map(|&byte| byte == b'1').collect()
}

/// Fails unless the gate would pass a head that is usual.
fn assert_passes(bytes: &[u8]) {
    let shown = String::from_utf8_lossy(bytes);
    match head::check(bytes, HEAD_BYTES) {
        CheckedHead::Whole(head) => {
            assert!(head.upgrade.is_none() && !head.expects, "{shown}");
            assert_eq!(checks::check(&bytes[..head.length], Setting::Strict), Ok(()), "{shown}");
        }
        other => panic!("{other:?}: {shown}"),
    }
}

const USUAL: [&str; 9] = [
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /a.txt HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nConnection: keep-alive\r\n\r\n",
    "HEAD /x/y%20z?q=1&b=%2f..//%41 HTTP/1.1\r\nhost: www.example.org:55535\r\nAccept: */*\r\n\r\n",
    "POST /form?a HTTP/1.1\r\nHost: example.org\r\nContent-Length: 5\r\n\r\nhello",
    "DELETE /a-b_c~d.e/%c3%a4(1) HTTP/1.1\r\nHost: xn--bcher-kva.example\r\nX-Empty:\r\nConnection: Close\r\n\r\n",
    "GET /a HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1,2-3\r\nIf-None-Match: \"x\"\r\nCookie: a=b; c=d\r\n\r\n",
    "OPTIONS /a HTTP/1.1\r\nHost: 10.255.0.1\r\nOrigin: https://a.example\r\n\r\n",
    "PUT /a HTTP/1.1\r\nHost: a.b\r\nContent-Length: 1\r\nContent-Type: a/b\r\n\r\nx",
    "PATCH /a/./b HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip, deflate, br\r\n\r\nGET / HTTP/1.1\r\n",
];

const UNUSUAL: [&str; 20] = [
    "",
    "GET / HTTP/1.1\r\nHost: a\r\n",
    "GET / HTTP/1.0\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.1\r\n\r\n",
    "GET / HTTP/1.1\nHost: a\n\n",
    "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /a/../b HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /%2e%2e/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /%2 HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: 2130706433\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: -a\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\n Folded: x\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, cookie\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
    "GET / HTTP/1.1\r\nHost: a\r\nProxy: x\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: () { :;}\r\n\r\n",
];

/// Small numbers that look like chance, the same each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// A usual head with something else in a few places.
fn changed(chance: &mut Chance) -> Vec<u8> {
    const PIECES: [&[u8]; 40] = [
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b" ",
        b"\t",
        b":",
        b"/",
        b"//",
        b"..",
        b".",
        b"%",
        b"%2e",
        b"%2F",
        b"%25",
        b"%00",
        b"?",
        b"#",
        b"\\",
        b";",
        b"@",
        b",",
        b"()",
        b"() {",
        b"_",
        b"-",
        b"\x7f",
        b"\xc3\xa4",
        b"0x7f",
        b"1",
        b"[::1]",
        b"\r\nHost: b",
        b"\r\nContent-Length: 3",
        b"\r\nTransfer-Encoding: chunked",
        b"\r\nExpect: 100-continue",
        b"\r\nUpgrade: websocket",
        b"\r\nConnection: upgrade",
        b"\r\n X: y",
        b"\r\nX-Original-URL: /",
        b" HTTP/1.1",
    ];
    let mut head = USUAL[chance.below(USUAL.len())].as_bytes().to_vec();
    for _ in 0..=chance.below(3) {
        let at = chance.below(head.len() + 1);
        match chance.below(4) {
            0 => drop(head.splice(at..at, PIECES[chance.below(PIECES.len())].iter().copied())),
            1 if at < head.len() => head[at] = chance.below(256) as u8,
            2 if at < head.len() => drop(head.remove(at)),
            _ => {
                let piece = PIECES[chance.below(PIECES.len())];
                let copies = 1 << chance.below(10);
                drop(head.splice(at..at, piece.repeat(copies)));
            }
        }
    }
    head
}

#[test]
fn usual_heads_are_those_that_the_gate_passes() {
    let count = std::env::var("BULKHEAD_USUAL_CASES").map_or(100_000, |count| count.parse().unwrap());
    let mut chance = Chance(7);
    let mut heads: Vec<Vec<u8>> = USUAL.iter().chain(&UNUSUAL).map(|head| head.as_bytes().to_vec()).collect();
    heads.extend((0..count).map(|_| changed(&mut chance)));
    let found = usual("usual", &heads);
    for (head, usual) in heads.iter().zip(&found).take(USUAL.len() + UNUSUAL.len()) {
        let expected = USUAL.iter().any(|known| known.as_bytes() == head);
        assert_eq!(*usual, expected, "{}", String::from_utf8_lossy(head));
    }
    heads.iter().zip(&found).filter(|(_, usual)| **usual).for_each(|(head, _)| assert_passes(head));
    let usual = found.iter().filter(|usual| **usual).count();
    assert!(usual > count / 100 && usual < count, "{usual} of {count} are usual");
}

#[test]
fn a_head_may_be_so_long_and_no_longer() {
    let long = |more: usize| {
        let value = "x".repeat(HEAD_BYTES / 2 - 40 + more);
        let pad = "y".repeat(HEAD_BYTES - HEAD_BYTES / 2 - 2);
        let mut head = format!("GET / HTTP/1.1\r\nHost: a\r\nA: {value}\r\nB: {pad}\r\n\r\n").into_bytes();
        head.extend(b"body");
        head
    };
    let heads: Vec<_> = (0..60).map(long).collect();
    for (head, usual) in heads.iter().zip(usual("long", &heads)) {
        assert_eq!(usual, head.len() - 4 <= HEAD_BYTES, "{}", head.len() - 4);
    }
}
