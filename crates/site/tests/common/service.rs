//! A service behind the site under test: HTTP/1.1 by hyper on the pairs that the worker hands over.

use std::convert::Infallible;
use std::future::pending;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use worker::receiver::Receiver;

use super::{Shared, big};

type Error = Box<dyn std::error::Error + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, Error>;

/// Headers that the worker adds; the tests are about the others.
const ADDED: [&str; 6] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "bulkhead-client",
    "transfer-encoding",
];

/// Starts the service; what is returned is the site's end of the channel.
pub fn start(shared: Arc<Shared>) -> OwnedFd {
    let (ours, theirs) = sys::seqpacket::pair().unwrap();
    let receiver = Receiver::new(1000);
    receiver.attach(theirs, true).unwrap();
    tokio::task::spawn_local(async move {
        while let Some(arrival) = receiver.next().await {
            tokio::task::spawn_local(serve(arrival.stream, shared.clone()));
        }
    });
    ours
}

async fn serve(stream: OwnedFd, shared: Arc<Shared>) {
    let stream = tokio::net::UnixStream::from_std(stream.into()).unwrap();
    let service = hyper::service::service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(answer(request, shared).await) }
    });
    // A client that has gone takes its connection with it.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

struct OnDrop(Arc<Shared>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        *self.0.relay_dropped.lock().unwrap() += 1;
    }
}

fn full(body: impl Into<Bytes>) -> Response<Body> {
    Response::new(Full::new(body.into()).map_err(|never| match never {}).boxed_unsync())
}

fn with(name: &'static str, value: &'static str, mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().append(name, value.parse().unwrap());
    response
}

/// The pieces, each a moment after the one before; then nothing for ever, if it does not end.
fn pieces(pieces: Vec<Result<&'static str, &'static str>>, ends: bool) -> Response<Body> {
    let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
    tokio::task::spawn_local(async move {
        for piece in pieces {
            let frame = piece.map(|text| Frame::data(Bytes::from_static(text.as_bytes())));
            let _ = sender.send(frame.map_err(Error::from)).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if !ends {
            sender.closed().await;
        }
    });
    let stream = futures_util::stream::poll_fn(move |cx| receiver.poll_recv(cx));
    Response::new(StreamBody::new(stream).boxed_unsync())
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Response<Body> {
    *shared.relay_started.lock().unwrap() += 1;
    let _guard = OnDrop(shared);
    let (parts, body) = request.into_parts();
    match parts.uri.path() {
        "/svc/echo" => match body.collect().await {
            Ok(body) => full(body.to_bytes()),
            Err(_) => pending().await,
        },
        // Echoes each frame as it arrives.
        "/svc/mirror" => Response::new(body.map_err(Error::from).boxed_unsync()),
        "/svc/text" => {
            with("content-type", "text/plain", with("etag", "\"s\"", full("service ".repeat(500))))
        }
        // One event, and then nothing for ever.
        "/svc/events" => with("content-type", "text/event-stream", pieces(vec![Ok("data: one\n\n")], false)),
        "/svc/early" => full("early"),
        "/svc/never" => pending().await,
        "/svc/where" => full(match parts.headers["x-forwarded-proto"].as_bytes() {
            b"https" => "over TLS",
            _ => "in the clear",
        }),
        "/svc/slow" => {
            tokio::time::sleep(Duration::from_millis(100)).await;
            full("slow")
        }
        "/svc/chunks" => pieces(vec![Ok("chunk 2;"), Ok("chunk 1;"), Ok("chunk 0;")], true),
        "/svc/big" => full(big()),
        // More than the kernel keeps for a connection.
        "/svc/huge" => full(big().repeat(7)),
        "/svc/close" => with("connection", "close, x-secret", with("x-secret", "1", full("bye"))),
        "/svc/head" => {
            let sent = parts.headers.iter().filter(|(name, _)| !ADDED.contains(&name.as_str()));
            let mut names: Vec<_> = sent.map(|(name, value)| format!("{name}={value:?}")).collect();
            names.sort();
            full(format!("{} {}\n{}", parts.method, parts.uri, names.join("\n")))
        }
        "/svc/fail" => pieces(vec![Ok("part"), Err("broken")], true),
        _ => {
            let mut missing = full("no such path");
            *missing.status_mut() = StatusCode::NOT_FOUND;
            missing
        }
    }
}
