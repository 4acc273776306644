//! HTTP/2: what a request and its answer are, over TLS and in plaintext.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::h2c::{CALM, END_STREAM, GOAWAY, HEADERS, Raw, SETTINGS};
use common::{BIG, HSTS, Server, big, limits};
use h2::client::SendRequest;
use http::{HeaderMap, Request, StatusCode};
use site::ClientLimits;

/// A server that gives a busy machine time.
fn patient() -> Server {
    Server::with(ClientLimits { idle_timeout: Duration::from_secs(10), ..limits() })
}

struct Got {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Got {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// Runs a client in plaintext, by prior knowledge.
fn with_client(server: &Server, test: impl AsyncFnOnce(SendRequest<Bytes>)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let address = server.address;
    tokio::task::LocalSet::new().block_on(&runtime, async move {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (sender, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::task::spawn_local(async move {
            let _ = connection.await;
        });
        test(sender).await;
    });
}

fn request(method: &str, path: &str) -> Request<()> {
    Request::builder().method(method).uri(format!("http://a.example{path}")).body(()).unwrap()
}

async fn ask(sender: &SendRequest<Bytes>, request: Request<()>, body: &[u8]) -> Result<Got, h2::Error> {
    let mut sender = sender.clone().ready().await?;
    let (answer, mut stream) = sender.send_request(request, body.is_empty())?;
    if !body.is_empty() {
        stream.send_data(Bytes::copy_from_slice(body), true)?;
    }
    let (parts, mut incoming) = answer.await?.into_parts();
    let mut all = Vec::new();
    while let Some(data) = incoming.data().await {
        let data = data?;
        incoming.flow_control().release_capacity(data.len())?;
        all.extend_from_slice(&data);
    }
    Ok(Got { status: parts.status, headers: parts.headers, body: all })
}

#[test]
fn answers_like_http1() {
    let server = patient();
    with_client(&server, async |sender| {
        for _ in 0..3 {
            let got = ask(&sender, request("GET", "/small.txt"), b"").await.unwrap();
            assert_eq!((got.status.as_u16(), got.text()), (200, "0123456789"));
            for (name, value) in [
                ("server", "bulkhead"),
                ("content-length", "10"),
                ("content-type", "text/plain; charset=utf-8"),
            ] {
                assert_eq!(got.headers[name], value);
            }
            assert!(
                got.headers.contains_key("date") && !got.headers.contains_key("strict-transport-security")
            );
            let got = ask(&sender, request("HEAD", "/small.txt"), b"").await.unwrap();
            assert_eq!((got.headers["content-length"].to_str().unwrap(), got.text()), ("10", ""));
            assert_eq!(ask(&sender, request("GET", "/none"), b"").await.unwrap().status, 404);
            assert_eq!(ask(&sender, request("GET", "/empty.txt"), b"").await.unwrap().text(), "");
            assert_eq!(ask(&sender, request("GET", "/big.bin"), b"").await.unwrap().body, big());
            assert_eq!(ask(&sender, request("GET", "/svc/big"), b"").await.unwrap().body.len(), BIG);
            assert_eq!(
                ask(&sender, request("GET", "/svc/chunks"), b"").await.unwrap().text(),
                "chunk 2;chunk 1;chunk 0;"
            );
            assert_eq!(ask(&sender, request("GET", "/svc/where"), b"").await.unwrap().text(), "in the clear");
            for path in ["/svc/echo", "/svc/mirror"] {
                let body = vec![b'x'; 90_000];
                assert_eq!(ask(&sender, request("POST", path), &body).await.unwrap().body, body);
            }
            assert_eq!(ask(&sender, request("GET", "/svc/close"), b"").await.unwrap().text(), "bye");
            assert!(ask(&sender, request("GET", "/svc/fail"), b"").await.is_err());
            assert_eq!(
                ask(&sender, request("POST", "/svc/echo"), &[b'x'; 100_001]).await.unwrap().status,
                413
            );
        }
    });
    let records = server.records();
    assert_eq!(records.len(), 39);
    assert_eq!(records[0], ("GET".into(), "/small.txt".into(), 200, 10));
    assert_eq!(records[1], ("HEAD".into(), "/small.txt".into(), 200, 0));
    assert_eq!(records[5], ("GET".into(), "/svc/big".into(), 200, BIG as u64));
    assert!(server.shared.versions.lock().unwrap().iter().all(|version| *version == 2));
}

#[test]
fn requests_are_held_to_the_same_rules() {
    let server = patient();
    with_client(&server, async |sender| {
        let with = |lines: &[(&str, &str)]| {
            let mut request = request("GET", "/svc/head?x=/y");
            for (name, value) in lines {
                request
                    .headers_mut()
                    .append(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
            }
            request
        };
        let lines = [("x_forwarded_for", "1"), ("cookie", "a=1"), ("x-two", "b"), ("cookie", "b=2")];
        let got = ask(&sender, with(&lines), b"").await.unwrap();
        let head = ["GET /svc/head?x=/y", "cookie=\"a=1; b=2\"", "host=\"a.example\"", "x-two=\"b\""];
        assert_eq!(got.text(), head.join("\n"));
        assert_eq!(ask(&sender, with(&[("host", "A.example")]), b"").await.unwrap().status, 200);
        assert_eq!(ask(&sender, with(&[("host", "b.example")]), b"").await.unwrap().status, 400);
        assert_eq!(
            ask(&sender, with(&[("content-length", "1, 1")]), b"")
                .await
                .map(|got| got.status)
                .unwrap_or(StatusCode::BAD_REQUEST),
            400
        );
        let mut foreign = request("GET", "/");
        *foreign.uri_mut() = "http://Other.Example.:8080/".parse().unwrap();
        assert_eq!(ask(&sender, foreign, b"").await.unwrap().status, 421);
        let mut user = request("GET", "/");
        *user.uri_mut() = "http://me@a.example/".parse().unwrap();
        assert_eq!(ask(&sender, user, b"").await.unwrap().status, 400);
        assert_eq!(ask(&sender, request("GET", "/../secret.txt"), b"").await.unwrap().status, 400);
        assert_eq!(ask(&sender, request("GET", "/%2e%2e/secret.txt"), b"").await.unwrap().status, 400);
    });
}

#[test]
fn many_at_once() {
    let server = patient();
    with_client(&server, async |sender| {
        let began = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..120 {
            let sender = sender.clone();
            tasks.spawn_local(
                async move { ask(&sender, request("GET", "/svc/slow"), b"").await.unwrap().status },
            );
        }
        while let Some(status) = tasks.join_next().await {
            assert_eq!(status.unwrap(), 200);
        }
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    });
}

#[test]
fn a_stream_that_is_reset_ends_the_work_for_it() {
    let server = patient();
    with_client(&server, async |sender| {
        let mut sender = sender.ready().await.unwrap();
        let (answer, mut stream) = sender.send_request(request("GET", "/svc/never"), true).unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        stream.send_reset(h2::Reason::CANCEL);
        drop(answer);
        tokio::time::sleep(Duration::from_millis(100)).await;
        server.dropped(1);
        assert_eq!(ask(&sender, request("GET", "/small.txt"), b"").await.unwrap().status, 200);
    });
    assert_eq!(server.records()[0], ("GET".into(), "/svc/never".into(), 499, 0));
}

#[test]
fn slow_bodies_and_idle_connections_end() {
    let server = Server::start();
    with_client(&server, async |sender| {
        let mut sender = sender.ready().await.unwrap();
        let (answer, _stream) = sender.send_request(request("POST", "/svc/echo"), false).unwrap();
        assert_eq!(answer.await.unwrap().status(), 408);
    });
    let mut idle = Raw::connect(&server);
    let began = Instant::now();
    assert_eq!(idle.wait(GOAWAY, 0).unwrap().payload[4..8], [0; 4]);
    assert!(began.elapsed() > Duration::from_millis(700));
    while idle.next().is_some() {}
    assert!(began.elapsed() < Duration::from_secs(4));
    // Not even the preface.
    let mut half = server.connect();
    half.send("PRI * HTTP/2.0\r\n");
    let began = Instant::now();
    half.rest();
    assert!(began.elapsed() < Duration::from_secs(3));
}

#[test]
fn draining_lets_requests_finish() {
    let server = Server::start();
    let mut peer = Raw::connect(&server);
    peer.request(1, "GET", "/svc/slow", &[]);
    std::thread::sleep(Duration::from_millis(30));
    server.drain();
    assert!(peer.wait(GOAWAY, 0).is_some());
    assert_eq!(peer.wait(HEADERS, 1).unwrap().flags & END_STREAM, 0);
    let began = Instant::now();
    while peer.next().is_some() {}
    assert!(began.elapsed() < Duration::from_secs(4));
    assert_eq!(server.shared.handed_back.lock().unwrap().len(), 0);
}

#[test]
fn chosen_by_alpn() {
    let (server, client) = Server::secure();
    let mut client = (*client).clone();
    client.alpn_protocols = vec![b"h2".to_vec()];
    let client = Arc::new(client);
    let mut peer = common::tls::secure(&server, &client);
    while peer.stream.conn.is_handshaking() {
        peer.stream.conn.complete_io(&mut peer.stream.sock).unwrap();
    }
    assert_eq!(peer.stream.conn.alpn_protocol(), Some(&b"h2"[..]));
    let mut raw = Raw::over(peer.stream, &[]);
    raw.request(1, "GET", "/svc/where", &[]);
    let head = raw.wait(HEADERS, 1).unwrap();
    assert_eq!(raw.wait(0, 1).unwrap().payload, b"over TLS");
    // The value is in the block as it is, or in Huffman's code, which is shorter.
    assert!(head.payload.len() > HSTS.len() / 2);
    let curl = std::process::Command::new("curl")
        .args([
            "-sSk",
            "--http2",
            "-o",
            "/dev/null",
            "-w",
            "%{http_version} %{response_code} %{size_download} %header{strict-transport-security}",
        ])
        .arg("--connect-to")
        .arg(format!("a.example:443:{}", server.address))
        .arg("https://a.example/big.bin")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(curl.stdout).unwrap(), format!("2 200 {BIG} {HSTS}"), "{:?}", curl.stderr);
}

#[test]
fn other_peoples_clients_pass_the_strict_checks() {
    let ends = common::tls::ends();
    let server = Server::over(
        ClientLimits { checks: conditioning::checks::Setting::Strict, ..limits() },
        Some(ends.server),
    );
    let url = format!("https://{}/big.bin", server.address);
    let run = |program: &str, words: &[&str]| {
        let output = std::process::Command::new(program).args(words).arg(&url).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let wanted = "%{http_version} %{response_code} %{size_download}";
    assert_eq!(
        run("curl", &["-sk", "--compressed", "-o", "/dev/null", "-w", wanted]),
        format!("2 200 {BIG}")
    );
    assert_eq!(run("curl", &["-sk", "-d", "x=1", "-o", "/dev/null", "-w", wanted])[..5], *"2 405");
    // From the package nghttp2-client.
    assert!(run("nghttp", &["-nv"]).contains(":status: 200"));
    let load = run("h2load", &["-n", "200", "-c", "5", "-m", "20"]);
    assert!(load.contains("200 succeeded, 0 failed"), "{load}");
    assert!(server.records().iter().all(|record| [200, 405].contains(&record.2)));
}

#[test]
fn frames_that_never_end_are_not_waited_for() {
    let server = Server::with(ClientLimits { head_timeout: Duration::from_millis(300), ..limits() });
    let mut peer = Raw::connect(&server);
    assert!(peer.wait(SETTINGS, 0).is_some());
    // A HEADERS frame of which the rest stays away.
    peer.send(&[0, 0, 100, HEADERS, 4, 0, 0, 0, 1, 0x82]);
    let began = Instant::now();
    let reason = peer.ended();
    assert!(began.elapsed() < Duration::from_secs(5) && reason != Some(CALM));
}
