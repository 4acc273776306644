//! Static files: what is served, what is not, conditions and ranges.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{BIG, Server, big, put, put_new, settle};

#[test]
fn serves_files_and_indexes() {
    let server = Server::start();
    for _ in 0..2 {
        let answer = server.get("/small.txt", "");
        assert_eq!((answer.status, answer.text()), (200, "0123456789"));
        assert_eq!(answer.field("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(answer.field("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.field("accept-ranges"), Some("bytes"));
        assert_eq!(answer.field("server"), Some("bulkhead"));
        assert_eq!(answer.field("date").unwrap().len(), 29);
    }
    assert_eq!(server.get("/", "").text(), "<h1>home</h1>");
    assert_eq!(server.get("/?q", "").text(), "<h1>home</h1>");
    assert_eq!(server.get("/sub/", "").text(), "sub home");
    assert_eq!(server.get("/a%20b.txt", "").text(), "space");
    assert_eq!(server.get("/%73mall.txt", "").text(), "0123456789");
    assert_eq!(server.get("//small.txt", "").text(), "0123456789");
    assert_eq!(server.get("/empty.txt", "").text(), "");
    assert_eq!(server.get("/big.bin", "").body, big());
    let head = server.ask("HEAD /big.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(head.field("content-length"), Some(BIG.to_string().as_str()));
}

#[test]
fn refuses_and_redirects() {
    let server = Server::start();
    for (path, status) in [
        ("/none", 404),
        ("/small.txt/", 404),
        ("/small.txt/x", 404),
        ("/.hidden", 404),
        ("/bare/", 404),
        ("/../secret.txt", 400),
        ("/sub/%2e%2e/small.txt", 400),
        ("/a%00", 400),
        ("/a%2", 400),
        ("/a%2fb", 404),
    ] {
        assert_eq!(server.get(path, "").status, status, "{path}");
    }
    let moved = server.get("/sub?a=b", "");
    assert_eq!((moved.status, moved.field("location")), (301, Some("/sub/?a=b")));
    assert_eq!(server.get("//sub", "").field("location"), Some("/sub/"));
    assert_eq!(server.get("/%2fsub", "").status, 404);
}

#[test]
fn never_leaves_the_root() {
    use std::os::unix::fs::symlink;
    let server = Server::start();
    symlink("../secret.txt", server.root.join("up")).unwrap();
    symlink(server.root.parent().unwrap().join("secret.txt"), server.root.join("absolute")).unwrap();
    symlink("..", server.root.join("parent")).unwrap();
    symlink("/proc/self/root", server.root.join("magic")).unwrap();
    symlink("loop", server.root.join("loop")).unwrap();
    symlink("small.txt", server.root.join("inside")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        server.root.join("fifo"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    for path in ["/up", "/absolute", "/parent/secret.txt", "/magic/etc/passwd", "/loop", "/fifo", "/parent/"]
    {
        assert_eq!(server.get(path, "").status, 404, "{path}");
    }
    assert_eq!(server.get("/inside", "").text(), "0123456789");
}

#[test]
fn permission_is_403() {
    use std::os::unix::fs::PermissionsExt;
    if rustix::process::geteuid().is_root() {
        return;
    }
    let server = Server::start();
    let path = server.root.join("small.txt");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(server.get("/small.txt", "").status, 403);
}

#[test]
fn methods() {
    let server = Server::start();
    for (method, status) in [("POST", 405), ("PUT", 405), ("DELETE", 405), ("OPTIONS", 204)] {
        let answer = server.ask(&format!("{method} /small.txt HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!((answer.status, answer.field("allow")), (status, Some("GET, HEAD, OPTIONS")), "{method}");
    }
    assert_eq!(server.ask("TRACE /small.txt HTTP/1.1\r\nHost: a\r\n\r\n").status, 501);
    assert_eq!(server.ask("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").status, 204);
}

#[test]
fn conditions_fast_and_general() {
    let server = Server::start();
    let first = server.get("/small.txt", "");
    let (etag, modified) = (first.field("etag").unwrap(), first.field("last-modified").unwrap());
    for (lines, status) in [
        (format!("If-None-Match: {etag}\r\n"), 304),
        (format!("If-None-Match: {etag}\r\nIf-Modified-Since: {modified}\r\n"), 304),
        (format!("If-None-Match: W/{etag}\r\n"), 304),
        (format!("If-None-Match: \"x\", {etag}\r\n"), 304),
        ("If-None-Match: \"x\"\r\n".into(), 200),
        (format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {modified}\r\n"), 200),
        (format!("If-Modified-Since: {modified}\r\n"), 304),
        ("If-Modified-Since: Fri, 31 Dec 2100 23:59:59 GMT\r\n".into(), 304),
        ("If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n".into(), 200),
        (format!("If-Match: {etag}\r\n"), 200),
        ("If-Match: \"x\"\r\n".into(), 412),
        (format!("If-Unmodified-Since: {modified}\r\n"), 200),
        ("If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n".into(), 412),
    ] {
        let mut peer = server.connect();
        for _ in 0..2 {
            let answer = peer.ask("GET", "/small.txt", &lines);
            assert_eq!(answer.status, status, "{lines}");
            if status == 304 {
                assert_eq!((answer.field("etag"), answer.field("content-length")), (Some(etag), None));
            }
        }
        assert_eq!(peer.ask("GET", "/small.txt", "").text(), "0123456789");
    }
}

#[test]
fn ranges() {
    let server = Server::start();
    let etag = server.get("/small.txt", "").field("etag").unwrap().to_owned();
    let one = server.get("/small.txt", "Range: bytes=2-4\r\n");
    assert_eq!((one.status, one.text()), (206, "234"));
    assert_eq!(one.field("content-range"), Some("bytes 2-4/10"));
    assert_eq!(server.get("/small.txt", "Range: bytes=-3\r\n").text(), "789");
    assert_eq!(server.get("/small.txt", &format!("Range: bytes=0-0\r\nIf-Range: {etag}\r\n")).text(), "0");
    assert_eq!(server.get("/small.txt", "Range: bytes=0-0\r\nIf-Range: \"x\"\r\n").text(), "0123456789");
    let none = server.get("/small.txt", "Range: bytes=10-\r\n");
    assert_eq!((none.status, none.field("content-range")), (416, Some("bytes */10")));
    assert_eq!(server.get("/empty.txt", "Range: bytes=-1\r\n").status, 200);
    let many = server.get("/small.txt", "Range: bytes=0-1,8-9,3-4\r\n");
    assert_eq!(many.status, 206);
    let boundary = many.field("content-type").unwrap().split_once("boundary=").unwrap().1;
    let part = |range: &str, text: &str| {
        format!(
            "\r\n--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Range: bytes {range}/10\r\n\r\n{text}"
        )
    };
    let expected = part("0-1", "01") + &part("3-4", "34") + &part("8-9", "89");
    assert_eq!(many.text(), format!("{expected}\r\n--{boundary}--\r\n"));
    let big_range = server.get("/big.bin", "Range: bytes=1000000-2500000\r\n");
    assert_eq!(big_range.body, &big()[1_000_000..=2_500_000]);
}

#[test]
fn a_changed_file_is_seen_within_a_second() {
    let server = Server::start();
    assert_eq!(server.get("/small.txt", "").text(), "0123456789");
    put(&server.root.join("small.txt"), b"changed!");
    std::thread::sleep(Duration::from_millis(1050));
    assert_eq!(server.get("/small.txt", "").text(), "changed!");
    std::fs::remove_file(server.root.join("small.txt")).unwrap();
    std::thread::sleep(Duration::from_millis(1050));
    assert_eq!(server.get("/small.txt", "").status, 404);
}

#[test]
fn the_cache_keeps_its_budget() {
    use request::path::NormalPath;
    use site::files::FoundPath;
    use site::files::cache::Cache;
    use site::files::cache::CachedRoot;
    use site::files::cache::ResponseHeaders;
    let server = Server::start();
    for number in 0..50 {
        put_new(&server.root.join(format!("{number}.txt")), &[b'x'; 1000]);
    }
    settle(&server.root.join("49.txt"));
    let root = CachedRoot::new(std::fs::File::open(&server.root).unwrap().into(), Default::default());
    let response_headers = ResponseHeaders::default();
    let cache = Cache::new(50_000);
    let fill = |path: &str, tick| {
        let path = NormalPath::parse(path).unwrap();
        match root.files.lookup(&path) {
            Ok(FoundPath::File(file)) => cache.fill(&root, &path, &file, &response_headers, tick).is_some(),
            _ => false,
        }
    };
    for round in 0..3 {
        for number in 0..50 {
            let path = format!("/{number}.txt");
            if cache.get(&root, &path, 1).is_none() {
                assert!(fill(&path, 1));
            }
            assert!(cache.bytes() <= 50_000, "{round} {number}");
            assert!(cache.get(&root, "/0.txt", 1).is_some() || number > 0);
        }
        // An entry that is used all the time stays.
        assert!(cache.len() >= 9, "{}", cache.len());
    }
    assert!(cache.get(&root, "/0.txt", 2).is_some());
    // Another spelling of a path is the same entry.
    let before = cache.len();
    assert!(fill("/%30.txt", 2) && cache.len() == before && cache.get(&root, "/%30.txt", 2).is_none());
    assert!(!fill("/big.bin", 2));
}
