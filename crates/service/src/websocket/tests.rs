//! The handshake by its headers, and a WebSocket over a pipe, with the library's own client at the other end.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, Method, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::handshake::{HandshakeRequest, check_origin};
use super::*;

fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, value.parse().unwrap());
    }
    headers
}

const GOOD: [(&str, &str); 3] = [
    ("upgrade", "WebSocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

#[test]
fn a_handshake_is_that_of_rfc_6455() {
    let asked = HandshakeRequest::of(&Method::GET, &headers(&GOOD)).unwrap();
    assert_eq!(asked.accept(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", "RFC 6455 1.3");
    assert_eq!(HandshakeRequest::of(&Method::POST, &headers(&GOOD)).unwrap_err(), NoWebSocket::NotAsked);
    for (left_out, why) in
        [(0, NoWebSocket::NotAsked), (1, NoWebSocket::NotAsked), (2, NoWebSocket::Malformed)]
    {
        let mut lines = GOOD.to_vec();
        lines.remove(left_out);
        assert_eq!(HandshakeRequest::of(&Method::GET, &headers(&lines)).unwrap_err(), why, "{left_out}");
    }
    let answer = Response::from(NoWebSocket::NotAsked);
    assert_eq!(answer.status(), StatusCode::UPGRADE_REQUIRED);
    assert_eq!(
        (&answer.headers()["upgrade"], &answer.headers()["sec-websocket-version"]),
        (&"websocket".parse().unwrap(), &"13".parse().unwrap())
    );
}

#[test]
fn protocols_are_those_that_are_offered() {
    let offered =
        [&GOOD[..], &[("sec-websocket-protocol", "a, b"), ("sec-websocket-protocol", "c")]].concat();
    let asked = HandshakeRequest::of(&Method::GET, &headers(&offered)).unwrap();
    assert!(asked.offers("a") && asked.offers("b") && asked.offers("c") && !asked.offers("A"));
}

#[test]
fn a_page_of_another_origin_is_refused() {
    let check = |origin: &'static str| {
        check_origin(&headers(&[("host", "a.test:8443"), ("origin", origin)]), &["https://friend.test"])
            .is_ok()
    };
    for good in ["https://a.test:8443", "HTTPS://A.test:8443", "https://friend.test"] {
        assert!(check(good), "{good}");
    }
    for bad in [
        "https://a.test",
        "https://b.test:8443",
        "null",
        "",
        "https://a.test:8443.evil.test",
        "https://evil.test/://a.test:8443",
        "http://friend.test",
    ] {
        assert!(!check(bad), "{bad}");
    }
    assert!(check_origin(&headers(&[("host", "a.test")]), &[]).is_ok(), "no browser");
    let two = headers(&[("host", "a.test"), ("origin", "https://a.test"), ("origin", "https://b.test")]);
    assert!(check_origin(&two, &[]).is_err());
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test);
}

async fn open(bytes_max: usize, quiet: u64) -> (WebSocket, DuplexStream) {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    (WebSocket::over(Box::new(ours), bytes_max, Duration::from_millis(quiet)).await, theirs)
}

async fn client(connection: DuplexStream) -> WebSocketStream<DuplexStream> {
    WebSocketStream::from_raw_socket(connection, Role::Client, None).await
}

/// Sends bytes, and returns with what the service is told, and which code the client is.
async fn after(bytes: &[u8], bytes_max: usize) -> (String, u16) {
    let (mut socket, mut raw) = open(bytes_max, 60_000).await;
    raw.write_all(bytes).await.unwrap();
    let error = socket.next().await.unwrap_err();
    let said = error.to_string();
    tokio::join!(socket.finish(Some(Err(error.into()))), async {
        let mut end = [0; 4];
        raw.read_exact(&mut end).await.unwrap();
        drop(raw);
        assert_eq!(end[0], 0x88, "a frame that closes");
        (said, u16::from_be_bytes([end[2], end[3]]))
    })
    .1
}

#[test]
fn what_is_no_message_ends_it_with_a_code() {
    run(async {
        let masked =
            |first, content: &[u8]| [&[first, 0x80 | content.len() as u8, 0, 0, 0, 0], content].concat();
        assert_eq!(
            after(&masked(0x81, b"longer"), 5).await,
            ("a message is longer than 5 bytes".into(), 1009)
        );
        let two = [masked(0x01, b"abc"), masked(0x80, b"def")].concat();
        assert_eq!(after(&two, 5).await.1, 1009, "in pieces");
        assert_eq!(after(&masked(0x81, b"\xff\xff"), 5).await.1, 1007);
        assert_eq!(after(&masked(0x83, b""), 5).await.1, 1002, "a frame of no kind");
        assert_eq!(after(b"\x81\x01x", 5).await.1, 1002, "without a mask");
        assert_eq!(after(b"\xf1\x80\0\0\0\0", 5).await.1, 1002, "bits that nobody has agreed to");
    });
}

#[test]
fn a_silent_client_is_asked_and_then_left() {
    run(async {
        let (mut socket, mut raw) = open(100, 20).await;
        assert!(matches!(socket.next().await, Err(WebSocketError::Silent)));
        let mut ping = [0; 2];
        raw.read_exact(&mut ping).await.unwrap();
        assert_eq!(ping, [0x89, 0], "it was asked once");
    });
}

#[test]
fn a_client_that_answers_may_be_silent() {
    run(async {
        let (mut socket, raw) = open(100, 20).await;
        let mut client = client(raw).await;
        let quiet = async {
            let mut pings = 0;
            while pings < 5 {
                pings += usize::from(matches!(client.next().await, Some(Ok(Frame::Ping(_)))));
            }
            client.send(Frame::text("awake")).await.unwrap();
        };
        let (message, ()) = tokio::join!(socket.next(), quiet);
        assert_eq!(message.unwrap(), Some(Message::from("awake")));
    });
}

#[test]
fn an_end_has_the_code_of_what_has_happened() {
    run(async {
        for (outcome, code) in [(None, 1001), (Some(Ok(())), 1000), (Some(Err("broken".into())), 1011)] {
            let (socket, raw) = open(100, 60_000).await;
            let mut client = client(raw).await;
            let ((), end) = tokio::join!(socket.finish(outcome), client.next());
            let Some(Ok(Frame::Close(Some(end)))) = end else { panic!("{end:?}") };
            assert_eq!(u16::from(end.code), code);
        }
    });
}

#[test]
fn a_reason_is_cut_where_a_character_ends() {
    run(async {
        let (mut socket, raw) = open(100, 60_000).await;
        let mut client = client(raw).await;
        let reason = "ä".repeat(100);
        let ((), end) = tokio::join!(socket.close(4000, &reason), client.next());
        let Some(Ok(Frame::Close(Some(end)))) = end else { panic!("{end:?}") };
        assert_eq!((u16::from(end.code), end.reason.len()), (4000, 122));
        assert!(matches!(socket.next().await, Ok(None)), "it is heard no more");
        assert!(socket.send("x").await.is_err());
    });
}
