//! A FastCGI server made of one end of a socket pair.

use std::time::Duration;

use bytes::Bytes;
use fastcgi::record::{Beginning, STDIN_END};
use http_body_util::{BodyExt as _, StreamBody};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::*;
use crate::http::body::BodyError;
use crate::proxy::stream::BackendStream;

const STDOUT: u8 = 6;
const END_REQUEST: u8 = 3;

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test)
}

async fn settle() {
    // The runtime looks for events at least once in so many turns.
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
    let [high, low] = (content.len() as u16).to_be_bytes();
    let head = [1, kind, 0, 1, high, low, padding, 0];
    [&head[..], content, &vec![0; padding.into()]].concat()
}

fn end(padding: u8) -> Vec<u8> {
    record(END_REQUEST, &[0; 8], padding)
}

/// The records of a request without a body.
fn bare() -> Vec<u8> {
    [Beginning::new().finish(), STDIN_END.to_vec()].concat()
}

fn outgoing(body: BoundedBody, length: u64) -> FastCgiWriter {
    FastCgiWriter::new(Beginning::new().finish(), TimedUpload::new(body, UploadProgress::new()), length)
}

/// A request on a connection of its own, which its server has the other end of.
fn begin(connections: &Connections, outgoing: FastCgiWriter) -> (RunningRequest, UnixStream) {
    let (ours, theirs) = sys::seqpacket::stream_pair().unwrap();
    let connection = connections.begin(BackendStream::of_pair(ours).unwrap());
    (request_on(connection, outgoing), UnixStream::from_std(theirs.into()).unwrap())
}

fn request_on(connection: FastCgiConnection, outgoing: FastCgiWriter) -> RunningRequest {
    let log = worker::log::Log::new(None, wire::NO_PARTITION, 10).unwrap();
    RunningRequest::new(connection, outgoing, Rc::new(Words::new(log, "here".to_owned())))
}

fn without_body() -> FastCgiWriter {
    outgoing(BoundedBody::empty(), 0)
}

/// The body of the answer; `None` if it is broken.
async fn body(mut running: RunningRequest, connections: &Connections, to_head: bool) -> Option<Vec<u8>> {
    let reply = running.head().await.ok()?;
    let answer = running.answer(reply, to_head, connections, Some(Duration::from_secs(9))).ok()?;
    Some(answer.into_body().collect().await.ok()?.to_bytes().to_vec())
}

#[test]
fn an_answer_is_the_same_however_it_arrives_and_its_connection_is_kept_at_its_end() {
    let answer = [
        record(STDOUT, b"Content-Type: text/plain\r\n\r", 3),
        record(STDOUT, b"\nhel", 0),
        record(STDOUT, b"lo", 255),
        end(7),
    ]
    .concat();
    for cut in 0..answer.len() {
        run(async {
            let connections = Connections::new(2);
            let (running, mut server) = begin(&connections, without_body());
            let (first, rest) = answer.split_at(cut);
            server.write_all(first).await.unwrap();
            let (told, kept_early) = tokio::join!(body(running, &connections, false), async {
                settle().await;
                let kept_early = connections.take().is_some();
                server.write_all(rest).await.unwrap();
                kept_early
            });
            assert_eq!((told.as_deref(), kept_early), (Some(&b"hello"[..]), false), "{cut}");
            settle().await;
            // The next request goes on this connection.
            let connection = connections.take().unwrap();
            server.write_all(&answer).await.unwrap();
            let told = body(request_on(connection, without_body()), &connections, false).await;
            assert_eq!(told.as_deref(), Some(&b"hello"[..]), "{cut}");
        });
    }
}

#[test]
fn a_connection_with_more_on_it_than_the_answer_is_not_kept() {
    let page = record(STDOUT, b"A: b\r\n\r\nx", 0);
    let cases = [
        ([&page[..], &end(0)].concat(), true, true),
        ([&page[..], &end(0), &end(0)].concat(), false, false),
        ([&page[..], &end(0), b"\x01"].concat(), true, false),
        ([&page[..], &end(3)[..18]].concat(), false, false),
        (end(0), false, false),
        (record(STDOUT, b"Content-Length: 2\r\n\r\nx", 0), false, false),
        ([record(STDOUT, b"Content-Length: 2\r\n\r\nx", 0), end(0)].concat(), false, true),
        ([record(STDOUT, b"Content-Length: 1\r\n\r\nxyz", 0), end(0)].concat(), true, true),
    ];
    for (at, (says, is_whole, is_kept)) in cases.into_iter().enumerate() {
        run(async {
            let connections = Connections::new(2);
            let (running, mut server) = begin(&connections, without_body());
            server.write_all(&says).await.unwrap();
            let told = tokio::join!(body(running, &connections, false), async {
                settle().await;
                server.shutdown().await.unwrap();
            });
            // One that has ended is not used again, so whether it was kept is seen by what it has.
            let kept = connections.count();
            assert_eq!((told.0.is_some(), kept > 0), (is_whole, is_kept), "{at}");
        });
    }
}

#[test]
fn a_head_has_no_body_and_no_length_to_keep() {
    run(async {
        for (head, to_head) in [("Content-Length: 9", true), ("Status: 304\r\nContent-Length: 9", false)] {
            let connections = Connections::new(2);
            let (running, mut server) = begin(&connections, without_body());
            let says = [record(STDOUT, format!("{head}\r\n\r\n").as_bytes(), 0), end(0)].concat();
            server.write_all(&says).await.unwrap();
            assert_eq!(body(running, &connections, to_head).await, Some(Vec::new()));
            assert!(connections.take().is_some(), "{head}");
        }
    });
}

#[test]
fn all_of_a_request_is_written_at_once_if_it_is_there() {
    run(async {
        let connections = Connections::new(2);
        let cases = [(without_body(), bare()), {
            let text = Beginning::new().finish();
            let whole = [&text[..], &record(5, b"a=b", 0), &STDIN_END].concat();
            (outgoing(BoundedBody::whole(Bytes::from_static(b"a=b")), 3), whole)
        }];
        for (request, expected) in cases {
            let (mut running, mut server) = begin(&connections, request);
            let mut read = vec![0; 1000];
            let written = async {
                let count = server.read(&mut read).await.unwrap();
                server.shutdown().await.unwrap();
                count
            };
            let (head, count) = tokio::join!(running.head(), written);
            assert_eq!(read[..count], expected);
            assert!(matches!(head, Err(FastCgiFailure::Gone { heard: false })));
        }
    });
}

/// A body that comes in these pieces.
fn in_pieces(pieces: Vec<Bytes>) -> BoundedBody {
    let frames = pieces.into_iter().map(|piece| Ok::<_, BodyError>(http_body::Frame::data(piece)));
    BoundedBody::new(StreamBody::new(futures_util::stream::iter(frames)), 1 << 30, Rc::default())
}

/// The content of the records of a body, up to its end.
async fn stdin_of(server: &mut UnixStream) -> Vec<u8> {
    let (mut content, mut head) = (Vec::new(), [0; 8]);
    loop {
        server.read_exact(&mut head).await.unwrap();
        let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
        let mut piece = vec![0; length];
        server.read_exact(&mut piece).await.unwrap();
        match (head[1], length) {
            (5, 0) => return content,
            (5, _) => content.extend_from_slice(&piece),
            _ => {}
        }
    }
}

#[test]
fn a_body_is_whole_however_it_comes() {
    let lengths: [&[usize]; 5] = [&[1], &[65_528], &[65_529], &[3, 0, 200_000, 1], &[1_000_000]];
    for lengths in lengths {
        run(async {
            let connections = Connections::new(2);
            let pieces: Vec<Bytes> =
                lengths.iter().map(|&length| vec![length as u8; length].into()).collect();
            let whole = pieces.concat();
            let (running, mut server) = begin(&connections, outgoing(in_pieces(pieces), whole.len() as u64));
            let served = async {
                let content = stdin_of(&mut server).await;
                let says = [record(STDOUT, b"A: b\r\n\r\nok", 0), end(0)].concat();
                server.write_all(&says).await.unwrap();
                content
            };
            let (told, content) = tokio::join!(body(running, &connections, false), served);
            assert_eq!((told.as_deref(), content == whole), (Some(&b"ok"[..]), true), "{lengths:?}");
            assert!(connections.take().is_some());
        });
    }
}

#[test]
fn a_body_that_is_not_as_long_as_announced_is_never_ended() {
    for announced in [4, 6] {
        run(async {
            let connections = Connections::new(2);
            let request = outgoing(in_pieces(vec!["he".into(), "llo".into()]), announced);
            let (mut running, mut server) = begin(&connections, request);
            let head = running.head().await;
            assert!(matches!(head, Err(FastCgiFailure::Client(StatusCode::BAD_REQUEST))));
            drop(running);
            let mut read = Vec::new();
            server.read_to_end(&mut read).await.unwrap();
            assert!(!read.ends_with(&STDIN_END));
        });
    }
}

/// A server that does not read all of a request still answers, and is not asked for more.
#[test]
fn an_answer_before_the_end_of_the_request_is_whole_and_its_connection_is_not_kept() {
    run(async {
        let connections = Connections::new(2);
        let request = outgoing(in_pieces(vec![vec![0; 10 << 20].into()]), 10 << 20);
        let (running, mut server) = begin(&connections, request);
        let says = [record(STDOUT, b"Status: 413\r\n\r\nno", 0), end(0)].concat();
        server.write_all(&says).await.unwrap();
        assert_eq!(body(running, &connections, false).await.as_deref(), Some(&b"no"[..]));
        assert_eq!(connections.count(), 0);
    });
}

#[test]
fn a_request_with_a_body_is_the_same_when_it_is_written_again() {
    run(async {
        let body = Bytes::from((0..200_000_u32).map(|at| at as u8).collect::<Vec<_>>());
        let mut whole = BoundedBody::whole(body.clone());
        whole.keep();
        let mut outgoing = outgoing(whole, body.len() as u64);
        let mut written = Vec::new();
        for _ in 0..2 {
            let (ours, theirs) = sys::seqpacket::stream_pair().unwrap();
            let (mut stream, mut server) =
                (BackendStream::of_pair(ours).unwrap(), UnixStream::from_std(theirs.into()).unwrap());
            let reading = tokio::task::spawn_local(async move {
                let mut all = Vec::new();
                server.read_to_end(&mut all).await.unwrap();
                all
            });
            std::future::poll_fn(|cx| outgoing.poll(cx, &mut stream)).await.unwrap();
            drop(stream);
            written.push(reading.await.unwrap());
            outgoing.restart();
        }
        assert!(written[0] == written[1] && written[0].len() > body.len());
    });
}
