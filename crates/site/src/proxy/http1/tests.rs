//! A backend made of one end of a socket pair.

use std::rc::Rc;
use std::time::Duration;

use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::mpsc::{Sender, channel};

use super::*;
use crate::http::body::{BodyError, BoundedBody, ResponseBody};
use crate::proxy::pool::{Bounds, Pool};
use crate::proxy::timeout::{TimedUpload, UploadProgress};

/// The outcome of a response.
#[derive(Debug, PartialEq, Eq)]
struct Got {
    body: Vec<u8>,
    trailers: Vec<String>,
    /// Whether it ended as it should.
    is_whole: bool,
    /// Whether its connection was kept.
    is_kept: bool,
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test)
}

fn connection() -> (BackendStream, UnixStream) {
    let (ours, theirs) = sys::seqpacket::stream_pair().unwrap();
    (BackendStream::of_pair(ours).unwrap(), UnixStream::from_std(theirs.into()).unwrap())
}

fn outgoing(method: Method, body: BoundedBody) -> RequestWriter {
    let (parts, ()) = Request::builder().method(method).uri("/p").body(()).unwrap().into_parts();
    RequestWriter::new(&parts, TimedUpload::new(body, UploadProgress::new()))
}

/// A request whose body comes as it is said, and who says it.
fn outgoing_in_pieces() -> (Sender<Bytes>, RequestWriter) {
    let (sender, receiver) = channel::<Bytes>(1);
    let pieces = futures_util::stream::unfold(receiver, |mut receiver| async {
        let piece = receiver.recv().await?;
        Some((Ok::<_, BodyError>(http_body::Frame::data(piece)), receiver))
    });
    let body = BoundedBody::new(StreamBody::new(Box::pin(pieces)), 100, Rc::default());
    (sender, outgoing(Method::POST, body))
}

/// A response that comes while the request is under way.
async fn early_response(
    stream: &mut BackendStream,
    outgoing: &mut RequestWriter,
    backend: &mut UnixStream,
) -> (Response<()>, Bytes) {
    backend.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
    let (head, rest) = send(stream, outgoing, Vec::new()).await.unwrap();
    let mut response = Response::new(());
    *response.headers_mut() = head.headers;
    (response, rest)
}

async fn settle() {
    // The runtime looks for events at least once in so many turns.
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

async fn collect(mut body: ResponseBody) -> (Vec<u8>, Vec<String>, bool) {
    let (mut bytes, mut trailers) = (Vec::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return (bytes, trailers, false) };
        match frame.into_data() {
            Ok(data) => bytes.extend_from_slice(&data),
            Err(frame) => {
                let fields = frame.into_trailers().unwrap();
                trailers.extend(
                    fields.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())),
                );
            }
        }
    }
    (bytes, trailers, true)
}

/// Has a backend send `text` in pieces of `step` bytes, and then close the connection if that `ends` the response.
async fn answered(method: Method, text: &'static [u8], step: usize, ends: bool) -> Option<Got> {
    let (mut stream, mut backend) = connection();
    let to_head = method == Method::HEAD;
    let mut outgoing = outgoing(method, BoundedBody::empty());
    let sending = tokio::task::spawn_local(async move {
        let mut head = [0; 100];
        assert!(backend.read(&mut head).await.unwrap() > 0);
        for piece in text.chunks(step) {
            // A connection that is not kept may be closed before the last byte.
            let _ = backend.write_all(piece).await;
            tokio::task::yield_now().await;
        }
        (!ends).then_some(backend)
    });
    let (head, rest) = send(&mut stream, &mut outgoing, Vec::new()).await.ok()?;
    let mut response = Response::new(());
    (*response.status_mut(), *response.headers_mut()) = (head.status, head.headers.clone());
    let pool = Pool::new(Bounds { connections: 1, idle: None });
    let keep = head.keeps().then(|| Keep { pool: pool.clone(), generation: 0 });
    let body = receive((stream, outgoing), &response, to_head, rest, keep, Some(Duration::from_secs(60)));
    let (body, trailers, is_whole) = collect(body).await;
    let _backend = sending.await.unwrap();
    settle().await;
    Some(Got { body, trailers, is_whole, is_kept: pool.take().is_some() })
}

#[test]
fn responses_are_the_same_however_they_arrive() {
    let whole =
        |body: &[u8], is_kept| Got { body: body.into(), trailers: Vec::new(), is_whole: true, is_kept };
    let trailers = vec!["a: b".to_owned()];
    let cases: [(Method, &[u8], Option<Got>); 12] = [
        (Method::GET, b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", Some(whole(b"abc", true))),
        (
            Method::GET,
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
            Some(whole(b"abc", false)),
        ),
        (
            Method::GET,
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\n\r\n",
            Some(whole(b"abc", false)),
        ),
        (
            Method::GET,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2 \r\nab\r\n1\r\nc\r\n0\r\n\r\n",
            Some(whole(b"abc", true)),
        ),
        (
            Method::GET,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n",
            Some(Got { trailers, ..whole(b"abc", true) }),
        ),
        (
            Method::GET,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nmore",
            Some(whole(b"", false)),
        ),
        (Method::HEAD, b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", Some(whole(b"", true))),
        (Method::GET, b"HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n", Some(whole(b"", true))),
        (
            Method::GET,
            b"HTTP/1.1 103 Early\r\nA: b\r\n\r\nHTTP/1.1 100 C\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
            Some(whole(b"", true)),
        ),
        (Method::GET, b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", Some(whole(b"a", false))),
        (Method::GET, b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", None),
        (Method::GET, b"SSH-2.0-OpenSSH_9.2\r\n", None),
    ];
    run(async {
        for (method, text, expected) in cases {
            for step in [1, 7, 1000] {
                let got = answered(method.clone(), text, step, false).await;
                assert!(got == expected, "{step}: {got:?} {}", String::from_utf8_lossy(text));
            }
        }
    });
}

#[test]
fn the_end_of_a_connection_is_that_of_a_body_only_if_no_other_was_announced() {
    let cases: [(&[u8], &[u8], bool); 4] = [
        (b"HTTP/1.1 200 OK\r\n\r\nabc", b"abc", true),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", b"abc", false),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n", b"abc", false),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nx\r\n", b"abc", false),
    ];
    run(async {
        for (text, body, is_whole) in cases {
            let got = answered(Method::GET, text, 5, true).await.unwrap();
            assert_eq!((&got.body[..], got.is_whole, got.is_kept), (body, is_whole, false));
        }
        assert_eq!(answered(Method::GET, b"HTTP/1.1 200 OK\r\nA", 5, true).await, None);
    });
}

/// A backend that answers first gets the rest of the request all the same, and its connection is kept after that.
#[test]
fn a_request_goes_on_after_an_early_response() {
    run(async {
        let (mut stream, mut backend) = connection();
        let (sender, mut outgoing) = outgoing_in_pieces();
        sender.send(Bytes::from_static(b"one")).await.unwrap();
        let (response, rest) = early_response(&mut stream, &mut outgoing, &mut backend).await;
        let pool = Pool::new(Bounds { connections: 1, idle: None });
        let keep = Some(Keep { pool: pool.clone(), generation: 0 });
        let body = receive((stream, outgoing), &response, false, rest, keep, None);
        assert_eq!(collect(body).await, (b"ok".to_vec(), Vec::new(), true));
        assert!(pool.take().is_none());
        sender.send(Bytes::from_static(b"two")).await.unwrap();
        drop(sender);
        let mut text = Vec::new();
        while !text.ends_with(b"0\r\n\r\n") {
            backend.read_buf(&mut text).await.unwrap();
        }
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "POST /p HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
        );
        settle().await;
        assert!(pool.take().is_some());
    });
}

/// Nor is a client asked for the rest of a request that nobody takes.
#[test]
fn a_request_ends_with_a_backend_that_closes_after_an_early_response() {
    for at_once in [true, false] {
        run(async move {
            let (mut stream, mut backend) = connection();
            let (sender, mut outgoing) = outgoing_in_pieces();
            let (response, rest) = early_response(&mut stream, &mut outgoing, &mut backend).await;
            let pool = Pool::new(Bounds { connections: 1, idle: None });
            let keep = Some(Keep { pool: pool.clone(), generation: 0 });
            let mut backend = Some(backend);
            if at_once {
                backend = None;
                settle().await;
            }
            let body = receive((stream, outgoing), &response, false, rest, keep, None);
            assert_eq!(matches!(body, ResponseBody::Full(_)), at_once);
            assert_eq!(collect(body).await, (b"ok".to_vec(), Vec::new(), true));
            drop(backend);
            let closed = tokio::time::timeout(Duration::from_secs(10), sender.closed()).await;
            closed.expect("the rest of the request is still asked for");
            assert!(pool.take().is_none());
        });
    }
}

#[test]
fn what_has_ended_or_says_something_unasked_is_not_used_again() {
    use crate::proxy::pool::Reusable as _;
    run(async {
        for (says, reusable) in
            [(None, true), (Some(&b""[..]), false), (Some(b"HTTP/1.1 408 Late\r\n"), false)]
        {
            let (stream, mut backend) = connection();
            if let Some(text) = says {
                backend.write_all(text).await.unwrap();
                backend.shutdown().await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert_eq!(stream.is_reusable(), reusable, "{says:?}");
        }
    });
}

#[test]
fn what_has_come_already_is_read_first() {
    const TEXT: &[u8] = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    run(async {
        for cut in 0..=TEXT.len() {
            let (mut stream, mut backend) = connection();
            let mut outgoing =
                RequestWriter::resumed(b"GET / HTTP/1.1\r\n\r\n".to_vec(), 4, UploadProgress::new());
            backend.write_all(&TEXT[cut..]).await.unwrap();
            let (head, rest) = send(&mut stream, &mut outgoing, TEXT[..cut].to_vec()).await.unwrap();
            assert_eq!((head.status.as_u16(), b"ok".starts_with(&rest)), (200, true), "{cut}");
            if cut < TEXT.len() - "ok".len() {
                let mut rest = [0; 100];
                let count = backend.read(&mut rest).await.unwrap();
                assert_eq!(&rest[..count], b"/ HTTP/1.1\r\n\r\n", "{cut}");
            }
        }
    });
}

#[test]
fn what_was_not_sent_is_sent_elsewhere_from_its_beginning() {
    run(async {
        let mut outgoing = outgoing(Method::POST, BoundedBody::whole(Bytes::from_static(b"abc")));
        let (mut stream, backend) = connection();
        drop(backend);
        stream.begin();
        let gone = send(&mut stream, &mut outgoing, Vec::new()).await;
        assert!(matches!(gone, Err(Http1Failure::Gone { .. })) && !stream.has_sent());
        outgoing.restart();
        let (mut stream, mut backend) = connection();
        stream.begin();
        let answering = tokio::task::spawn_local(async move {
            let mut request = vec![0; 100];
            let count = backend.read(&mut request).await.unwrap();
            request.truncate(count);
            backend.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            request
        });
        send(&mut stream, &mut outgoing, Vec::new()).await.unwrap();
        assert!(stream.has_sent() && outgoing.is_written());
        assert_eq!(answering.await.unwrap(), b"POST /p HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc");
    });
}
