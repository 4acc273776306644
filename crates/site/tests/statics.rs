//! Encodings, caching, routes and terms, over real sockets.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use common::{Answer, Server, Told, limits, put};
use wire::{HeaderOf, LauncherToSite, RuleAction, Text};

const GZIP: &str = "Accept-Encoding: gzip\r\n";
const ALL: &str = "Accept-Encoding: gzip, deflate, br, zstd\r\n";

fn settings() -> LauncherToSite {
    LauncherToSite::Statics {
        cache_control: 300,
        stat_interval_ms: 0,
        listing: false,
        br: 1,
        zstd: 2,
        gzip: 3,
        static_level: 4,
        dynamic_level: 2,
        max_bytes: 8 << 20,
    }
}

fn text(lines: usize) -> String {
    (0..lines).map(|n| format!("line {n} of a text that can be compressed\n")).collect()
}

fn start(told: impl FnOnce(&Path) -> Told) -> Server {
    Server::told(limits(), |root| {
        put(&root.join("page.html"), text(100).as_bytes());
        put(&root.join("large.txt"), text(50_000).as_bytes());
        put(&root.join("picture.png"), &[7; 4000]);
        told(root)
    })
}

fn plain() -> Server {
    start(|_| vec![(settings(), None)])
}

fn rule(
    number: u16,
    suffix: bool,
    at: &str,
    action: RuleAction,
    status: u16,
    to: &str,
    fallback: bool,
) -> LauncherToSite {
    let (path, suffix) = if suffix { ("", at) } else { (at, "") };
    LauncherToSite::Rule {
        rule: number,
        path: Text::new(path),
        suffix: Text::new(suffix),
        pattern: Text::new(""),
        action,
        status,
        to: Text::new(to),
        fallback,
        internal: false,
        strip_prefix: false,
        body_bytes: u64::MAX,
    }
}

fn decoded(answer: &Answer) -> Vec<u8> {
    let (mut out, body) = (Vec::new(), &answer.body[..]);
    match answer.field("content-encoding") {
        Some("gzip") => flate2::read::GzDecoder::new(body).read_to_end(&mut out).unwrap(),
        Some("br") => brotli::Decompressor::new(body, 4096).read_to_end(&mut out).unwrap(),
        Some("zstd") => zstd::stream::read::Decoder::new(body).unwrap().read_to_end(&mut out).unwrap(),
        other => panic!("{other:?}"),
    };
    out
}

#[test]
fn each_encoding_first_and_kept() {
    let server = plain();
    let identity = server.get("/page.html", "");
    assert_eq!(identity.field("vary"), Some("Accept-Encoding"));
    assert_eq!(identity.field("cache-control"), Some("public, max-age=300, s-maxage=900"));
    assert_eq!(identity.field("content-encoding"), None);
    let mut tags = vec![identity.field("etag").unwrap().to_owned()];
    for (encoding, accept) in
        [("gzip", GZIP), ("br", ALL), ("zstd", "Accept-Encoding: zstd;q=0.5, gzip;q=0.4\r\n")]
    {
        // Made, then from the fast path: the same, in every field.
        let answers = [server.get("/page.html", accept), server.get("/page.html", accept)];
        for answer in &answers {
            assert_eq!((answer.status, answer.field("content-encoding")), (200, Some(encoding)));
            assert_eq!(decoded(answer), text(100).as_bytes());
            assert_eq!(answer.field("vary"), Some("Accept-Encoding"));
            assert_eq!(answer.field("accept-ranges"), None);
            assert_eq!(answer.field("cache-control"), identity.field("cache-control"));
            assert_eq!(answer.field("content-length"), Some(&*answer.body.len().to_string()));
        }
        assert_eq!(answers[0].body, answers[1].body);
        let tag = answers[0].field("etag").unwrap();
        assert_eq!(answers[1].field("etag"), Some(tag));
        for lines in
            [format!("{accept}If-None-Match: {tag}\r\n"), format!("{accept}If-None-Match: \"x\", {tag}\r\n")]
        {
            let unchanged = server.get("/page.html", &lines);
            assert_eq!((unchanged.status, unchanged.field("etag")), (304, Some(tag)), "{lines}");
            assert_eq!(unchanged.field("vary"), Some("Accept-Encoding"));
        }
        // Another form is another thing.
        assert_eq!(server.get("/page.html", &format!("If-None-Match: {tag}\r\n")).status, 200);
        let other = format!("{accept}If-None-Match: {}\r\n", tags[0]);
        assert_eq!(server.get("/page.html", &other).status, 200);
        tags.push(tag.to_owned());
    }
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 4);
}

#[test]
fn what_is_sent_as_it_is() {
    let server = plain();
    put(&server.root.join("short.txt"), &[b'a'; 511]);
    put(&server.root.join("huge.txt"), &vec![b'a'; (8 << 20) + 1]);
    for path in ["/short.txt", "/picture.png", "/huge.txt"] {
        for _ in 0..2 {
            let answer = server.get(path, ALL);
            assert_eq!((answer.field("content-encoding"), answer.field("vary")), (None, None), "{path}");
        }
    }
    for lines in ["Accept-Encoding: gzip;q=0\r\n", "Accept-Encoding: identity, gzip;q=0.5\r\n", ""] {
        let answer = server.get("/page.html", lines);
        assert_eq!((answer.field("content-encoding"), answer.body.len()), (None, text(100).len()), "{lines}");
    }
    let range = server.get("/page.html", &format!("{ALL}Range: bytes=0-9\r\n"));
    assert_eq!((range.status, range.field("content-encoding"), range.body.len()), (206, None, 10));
    assert_eq!(range.field("vary"), Some("Accept-Encoding"));
    // Several lines are one list.
    let two = server.get("/page.html", "Accept-Encoding: deflate\r\nAccept-Encoding: gzip\r\n");
    assert_eq!(two.field("content-encoding"), Some("gzip"));
}

#[test]
fn a_large_file_is_streamed_once_and_then_kept() {
    let server = plain();
    let first = server.get("/large.txt", GZIP);
    assert_eq!(first.field("transfer-encoding"), Some("chunked"));
    assert_eq!(decoded(&first), text(50_000).as_bytes());
    for _ in 0..2 {
        let kept = server.get("/large.txt", GZIP);
        assert_eq!(kept.field("content-length"), Some(&*kept.body.len().to_string()));
        assert_eq!((kept.field("etag"), &kept.body), (first.field("etag"), &first.body));
    }
    let identity = server.get("/large.txt", "");
    assert_eq!((identity.body.len(), identity.field("vary")), (text(50_000).len(), Some("Accept-Encoding")));
    let head = server.ask(&format!("HEAD /large.txt HTTP/1.1\r\nHost: a\r\n{GZIP}\r\n"));
    assert_eq!(head.field("content-encoding"), Some("gzip"));
}

#[test]
fn a_client_that_goes_does_not_leave_half_a_form() {
    let server = plain();
    {
        let mut peer = server.connect();
        peer.send(&format!("GET /large.txt HTTP/1.1\r\nHost: a\r\n{ALL}\r\n"));
        let mut some = [0; 10];
        peer.stream.read_exact(&mut some).unwrap();
    }
    let began = Instant::now();
    while *server.shared.ended.lock().unwrap() == 0 {
        assert!(began.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(10));
    }
    for _ in 0..2 {
        assert_eq!(decoded(&server.get("/large.txt", ALL)), text(50_000).as_bytes());
    }
}

/// The first answer that is as it should be.
fn get_until(server: &Server, path: &str, is_right: impl Fn(&Answer) -> bool) -> Answer {
    let began = Instant::now();
    loop {
        let answer = server.get(path, GZIP);
        if is_right(&answer) {
            return answer;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", String::from_utf8_lossy(&answer.body));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn neighbours_are_used_if_they_are_new_enough() {
    let server = plain();
    let (page, neighbour) = (server.root.join("page.html"), server.root.join("page.html.gz"));
    put(&neighbour, b"not really gzip");
    let answer = server.get("/page.html", GZIP);
    assert_eq!((&answer.body[..], answer.field("content-encoding")), (&b"not really gzip"[..], Some("gzip")));
    assert_eq!(answer.field("content-type"), Some("text/html; charset=utf-8"));
    let old = answer.field("etag").unwrap().to_owned();
    // A newer page makes it old.
    let new = server.root.join("page.new");
    std::fs::write(&new, text(90)).unwrap();
    std::fs::rename(&new, &page).unwrap();
    // A file that has just changed is sent as it is.
    let is_made =
        |answer: &Answer| answer.field("content-encoding").is_some() && answer.body != b"not really gzip";
    let answer = get_until(&server, "/page.html", is_made);
    assert_eq!(decoded(&answer), text(90).as_bytes());
    assert_ne!(answer.field("etag"), Some(&*old));
    // And one that is put beside it later is found.
    std::fs::write(&neighbour, b"new").unwrap();
    get_until(&server, "/page.html", |answer| answer.body == b"new");
}

#[test]
fn changes_are_seen_at_once() {
    let server = plain();
    std::fs::create_dir_all(server.root.join("d/e")).unwrap();
    put(&server.root.join("d/e/f.txt"), b"one");
    // Watched for sure from the second look on.
    assert_eq!(server.get("/d/e/f.txt", "").body, b"one");
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(server.get("/d/e/f.txt", "").body, b"one");
    let seen = |expected: &[u8]| {
        std::thread::sleep(Duration::from_millis(60));
        let answer = server.get("/d/e/f.txt", "");
        assert_eq!(String::from_utf8_lossy(&answer.body), String::from_utf8_lossy(expected));
    };
    put(&server.root.join("d/e/f.txt"), b"two");
    seen(b"two");
    put(&server.root.join("d/e/g"), b"three");
    std::fs::rename(server.root.join("d/e/g"), server.root.join("d/e/f.txt")).unwrap();
    seen(b"three");
    // A folder above is replaced.
    std::fs::create_dir_all(server.root.join("n/e")).unwrap();
    put(&server.root.join("n/e/f.txt"), b"four");
    std::fs::rename(server.root.join("d"), server.root.join("o")).unwrap();
    std::fs::rename(server.root.join("n"), server.root.join("d")).unwrap();
    seen(b"four");
    put(&server.root.join("d/e/f.txt"), b"five");
    seen(b"five");
    std::fs::remove_file(server.root.join("d/e/f.txt")).unwrap();
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(server.get("/d/e/f.txt", "").status, 404);
}

#[test]
fn a_link_is_looked_at_every_second() {
    let server = plain();
    std::fs::create_dir_all(server.root.join("bare/x")).unwrap();
    put(&server.root.join("bare/x/target.txt"), b"one");
    std::os::unix::fs::symlink("bare/x/target.txt", server.root.join("link.txt")).unwrap();
    assert_eq!(server.get("/link.txt", "").body, b"one");
    put(&server.root.join("bare/x/target.txt"), b"two");
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(server.get("/link.txt", "").body, b"two");
}

#[test]
fn answers_of_services() {
    let server = plain();
    let answer = server.get("/svc/text", GZIP);
    assert_eq!(decoded(&answer), "service ".repeat(500).as_bytes());
    assert_eq!((answer.field("etag"), answer.field("x-nb")), (Some("W/\"s\""), None));
    assert_eq!(answer.field("vary"), Some("Accept-Encoding"));
    let identity = server.get("/svc/text", "");
    assert_eq!((identity.field("content-encoding"), identity.field("etag")), (None, Some("\"s\"")));
    assert_eq!(identity.field("vary"), Some("Accept-Encoding"));
    assert_eq!(server.get("/svc/early", GZIP).field("content-encoding"), None);
}

#[test]
fn events_are_not_held_back() {
    let server = plain();
    for accept in [GZIP, "Accept-Encoding: br\r\n", "Accept-Encoding: zstd\r\n"] {
        let mut peer = server.connect();
        peer.send(&format!("GET /svc/events HTTP/1.1\r\nHost: a\r\n{accept}\r\n"));
        peer.stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let mut seen = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let count = peer.stream.read(&mut buffer).expect("the event comes while the stream is open");
            assert!(count > 0);
            seen.extend_from_slice(&buffer[..count]);
            let Some(at) = seen.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let chunks = &seen[at + 4..];
            let mut body = Vec::new();
            let mut rest = chunks;
            while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
                let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
                let Some(chunk) = rest.get(end + 2..end + 2 + size) else { break };
                body.extend_from_slice(chunk);
                rest = &rest[end + 4 + size..];
            }
            let mut out = [0; 64];
            let count = match accept {
                GZIP => flate2::read::GzDecoder::new(&body[..]).read(&mut out),
                "Accept-Encoding: br\r\n" => brotli::Decompressor::new(&body[..], 64).read(&mut out),
                _ => zstd::stream::read::Decoder::new(&body[..]).unwrap().read(&mut out),
            };
            if count.is_ok_and(|count| out[..count].starts_with(b"data: one\n\n")) {
                break;
            }
        }
    }
}

#[test]
fn routes_redirect_and_rewrite() {
    let server = start(|_| {
        vec![
            (settings(), None),
            (rule(0, false, "/", RuleAction::Terms, 0, "", false), None),
            (rule(1, false, "/old/", RuleAction::Redirect, 301, "/new/", false), None),
            (rule(2, false, "/moved", RuleAction::Redirect, 302, "https://b.example/x", false), None),
            (rule(3, false, "/r/", RuleAction::Redirect, 307, "/", false), None),
            (rule(4, false, "/", RuleAction::Rewrite, 0, "/index.html", true), None),
            (rule(5, false, "/alias/", RuleAction::Rewrite, 0, "/sub/", false), None),
            (rule(6, true, ".old", RuleAction::Redirect, 308, "/gone.html", false), None),
        ]
    });
    for (path, status, location) in [
        ("/old/", 301, "/new/"),
        ("/old/a%20b/c?q=1", 301, "/new/a%20b/c?q=1"),
        ("/moved?x", 302, "https://b.example/x?x"),
        ("/moved/y", 302, "https://b.example/x"),
        // Never a Location to another host.
        ("/r//evil.example/", 307, "/evil.example/"),
        ("/r/%5Cevil.example/", 307, "/%5Cevil.example/"),
        ("/r/%2Fevil.example/", 307, "/%2Fevil.example/"),
        ("/x/y.old", 308, "/gone.html"),
    ] {
        let answer = server.get(path, "");
        assert_eq!((answer.status, answer.field("location")), (status, Some(location)), "{path}");
    }
    assert_eq!(server.get("/r/%0d%0aX:1", "").field("location"), Some("/%0D%0AX:1"));
    assert_eq!(server.get("/no/such/page", "").body, b"<h1>home</h1>");
    assert_eq!(server.get("/small.txt", "").body, b"0123456789");
    assert_eq!(server.get("/alias/index.html", "").body, b"sub home");
    assert_eq!(server.get("/alias/", "").body, b"sub home");
    assert_eq!(server.get("/x/../old/", "").status, 400);
}

#[test]
fn terms() {
    let hash = bcrypt::hash_with_salt("secret", 4, [7; 16]).unwrap().to_string();
    let server = start(|root| {
        let users = root.join("../users");
        std::fs::write(&users, format!("ann:{hash}\n")).unwrap();
        let network = |rule, network, allow| {
            (LauncherToSite::RuleNetwork { rule, network: Text::new(network), allow }, None)
        };
        let header = |rule, name, value| {
            let (of, name, value) = (HeaderOf::Answer, Text::new(name), Text::new(value));
            (LauncherToSite::RuleHeader { rule, of, name, value }, None)
        };
        let users = Some(std::fs::File::open(users).unwrap().into());
        vec![
            (settings(), None),
            (LauncherToSite::ErrorPage { status: 404, page: Text::new("sub/index.html") }, None),
            (rule(0, false, "/", RuleAction::Terms, 0, "", false), None),
            header(0, "x-site", "1"),
            header(0, "x-over", "site"),
            (rule(1, false, "/sub/", RuleAction::Terms, 0, "", false), None),
            (
                LauncherToSite::RuleUsers { rule: 1, realm: Text::new("here"), path: Text::new("/users") },
                users,
            ),
            header(1, "X-Over", "sub"),
            header(1, "cache-control", "no-store"),
            (rule(2, false, "/closed/", RuleAction::Terms, 0, "", false), None),
            network(2, "127.0.0.0/8", false),
            network(2, "127.0.0.9/32", true),
            (rule(3, false, "/svc/text", RuleAction::Terms, 0, "", false), None),
            network(3, "127.0.0.0/8", false),
        ]
    });
    for _ in 0..2 {
        let answer = server.get("/small.txt", "");
        assert_eq!((answer.field("x-site"), answer.field("x-over")), (Some("1"), Some("site")));
        let answer = server.get("/sub/index.html", "");
        assert_eq!((answer.status, answer.field("x-site")), (401, Some("1")));
        assert_eq!(answer.field("www-authenticate"), Some("Basic realm=\"here\", charset=\"UTF-8\""));
        for path in ["/sub/", "//sub/index.html", "/%73ub/"] {
            assert_eq!(server.get(path, "").status, 401, "{path}");
            assert_eq!(server.get(path, "Authorization: Basic YW5uOndyb25n\r\n").status, 401, "{path}");
            let good = server.get(path, "Authorization: Basic YW5uOnNlY3JldA==\r\n");
            assert_eq!((good.status, &good.body[..]), (200, &b"sub home"[..]), "{path}");
            assert_eq!((good.field("x-over"), good.field("cache-control")), (Some("sub"), Some("no-store")));
        }
        assert_eq!(server.get("/closed/x", "").status, 403);
        assert_eq!(server.get("/svc/text", "").status, 403);
        // A page that is for members is not for others, and nor is it lost for members.
        let missing = server.get("/nowhere", "");
        assert_eq!(missing.status, 404);
        assert_ne!(&missing.body[..], b"sub home");
        let missing = server.get("/nowhere", "Authorization: Basic YW5uOnNlY3JldA==\r\n");
        assert_eq!((missing.status, &missing.body[..]), (404, &b"sub home"[..]));
    }
    let mut allowed = server.connect_from([127, 0, 0, 9]);
    assert_eq!(allowed.ask("GET", "/closed/x", "").status, 404);
}

#[test]
fn listings() {
    let server = start(|root| {
        std::fs::create_dir(root.join("bare/<b>")).unwrap();
        put(&root.join("bare/a&b.txt"), b"12345");
        put(&root.join("bare/.secret"), b"");
        let LauncherToSite::Statics {
            cache_control,
            br,
            zstd,
            gzip,
            static_level,
            dynamic_level,
            max_bytes,
            ..
        } = settings()
        else {
            unreachable!()
        };
        let settings = LauncherToSite::Statics {
            cache_control,
            stat_interval_ms: 0,
            listing: true,
            br,
            zstd,
            gzip,
            static_level,
            dynamic_level,
            max_bytes,
        };
        vec![(settings, None)]
    });
    let html = server.get("/bare/", "");
    assert_eq!((html.status, html.field("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(
        html.text().contains("&lt;b&gt;/</a>") && html.text().contains("a&amp;b.txt</a></td><td>5<"),
        "{}",
        html.text()
    );
    assert!(!html.text().contains("secret") && html.text().find("&lt;b&gt;") < html.text().find("a&amp;b"));
    let json = server.get("/bare/", "Accept: application/json\r\n");
    assert_eq!(json.field("content-type"), Some("application/json"));
    let listed: serde_json::Value = serde_json::from_slice(&json.body).unwrap();
    let file = listed.as_array().unwrap().iter().find(|entry| entry["name"] == "a&b.txt").unwrap();
    assert_eq!((file["kind"].as_str(), file["size"].as_u64()), (Some("file"), Some(5)));
    assert_eq!(server.get("/", "").body, b"<h1>home</h1>");
    assert_eq!((server.get("/nowhere/", "").status, server.get("/bare/.secret/", "").status), (404, 404));
    assert_eq!(plain().get("/bare/", "").status, 404);
}

#[test]
fn a_folder_is_a_site() {
    let server = start(|root| {
        for host in ["a.test", "b.test"] {
            std::fs::create_dir(root.join(host)).unwrap();
            put(&root.join(host).join("index.html"), host.as_bytes());
        }
        let folder = std::fs::File::open(root).unwrap().into();
        vec![(settings(), None), (LauncherToSite::Vhosts {}, Some(folder))]
    });
    let get = |host: &str| server.ask(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    for _ in 0..2 {
        for (host, body) in [("a.test", "a.test"), ("B.TEST:80", "b.test"), ("a.test.", "a.test")] {
            assert_eq!(get(host).text(), body, "{host}");
        }
        for host in ["c.test", ".hidden", "..", "a.test..", "sub%2f", "127.0.0.1"] {
            assert!(matches!(get(host).status, 400 | 404), "{host}");
        }
    }
    std::fs::create_dir(server.root.join("c.test")).unwrap();
    put(&server.root.join("c.test/index.html"), b"new");
    assert_eq!(get("c.test").text(), "new");
    // Another folder takes the name.
    std::fs::rename(server.root.join("a.test"), server.root.join("x.test")).unwrap();
    std::fs::rename(server.root.join("b.test"), server.root.join("a.test")).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!((get("a.test").text(), get("b.test").status, get("x.test").text()), ("b.test", 404, "a.test"));
    let _ = SystemTime::now();
}
