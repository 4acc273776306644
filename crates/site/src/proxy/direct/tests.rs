//! A request that is passed on as it came is as the general path would make it, which goes on where it is left.

use std::cell::RefCell;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::*;
use crate::head::{CheckedHead, Room, check_lines};
use crate::http::body::{BoundedBody, ResponseBody};
use crate::http::request::CheckedRequest;
use crate::http1::request::ReceivedHead;
use crate::proxy::backend::{BackendRequest, HttpBackend, KeepAlive, RequestContext};
use crate::proxy::headers;
use crate::proxy::http::Peer;
use crate::proxy::http1::RequestWriter;
use crate::proxy::limit::ConcurrencyLimit;
use crate::proxy::pool::{Bounds, Pool};
use crate::proxy::timeout::{TimedUpload, Timeouts, UploadProgress};

fn conn() -> ConnInfo {
    let (peer, local) = ("192.0.2.7:5".parse().unwrap(), "127.0.0.1:80".parse().unwrap());
    ConnInfo { peer, local, tls: true, relayed: None }
}

/// The lines of a head in order of their names, those of one name as they are; and what follows it.
fn lines(message: &[u8]) -> Vec<String> {
    let text = String::from_utf8(message.to_vec()).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<String> = head.split("\r\n").map(str::to_owned).collect();
    lines[1..].sort_by_key(|line| line.split(':').next().unwrap().to_owned());
    lines.push(body.to_owned());
    lines
}

fn directly(raw: &str) -> Option<Vec<String>> {
    let mut room = Room::default();
    let (CheckedHead::Whole(head), lines_of) = check_lines(raw.as_bytes(), usize::MAX, &mut room) else {
        panic!("{raw}")
    };
    let mut out = Vec::new();
    let body = body(&head, &raw.as_bytes()[head.length..])?;
    (is_simple(&head) && encode(&mut out, &head, lines_of, conn(), true, body)).then(|| lines(&out))
}

fn in_general(raw: &str) -> Vec<String> {
    let mut room = Room::default();
    let (CheckedHead::Whole(head), lines_of) = check_lines(raw.as_bytes(), usize::MAX, &mut room) else {
        panic!("{raw}")
    };
    let parts = ReceivedHead::new(raw.as_bytes(), &head, lines_of).unwrap_or_else(|_| panic!("{raw}")).parts;
    let body = match head.framing {
        Framing::Length(length) => raw[head.length..head.length + length as usize].to_owned(),
        _ => String::new(),
    };
    let whole = BoundedBody::whole(body.clone().into());
    let mut request = CheckedRequest::new(conn(), parts, None, whole).message;
    headers::prepare(&mut request, conn());
    request.headers_mut().insert(headers::CLIENT, "192.0.2.7:5".parse().unwrap());
    let (parts, whole) = request.into_parts();
    let outgoing = RequestWriter::new(&parts, TimedUpload::new(whole, UploadProgress::new()));
    lines(&[outgoing.text(), body.as_bytes()].concat())
}

#[test]
fn both_paths_say_the_same() {
    for raw in [
        "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "HEAD /a%20b?c=%22[] HTTP/1.1\r\nHost: A.example:80\r\nUser-Agent: u\r\nCookie: a\r\nX-Two: 1\r\ncookie: \
         b\r\n\r\n",
        "GET /x HTTP/1.0\r\nHost: a\r\nConnection: Keep-Alive, close\r\nKeep-Alive: 5\r\nTE: trailers\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: a\r\nForwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nx_real_ip: 6\r\n\
         Bulkhead-Client: 6\r\n\r\n",
        "GET /x HTTP/1.1\r\nHost: a\r\nClient-Cert: :AA==:\r\nClient-Cert-Chain: x\r\nUpgrade: h2c\r\nEmpty:\r\n\
         Range: bytes=0-1\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\ncontent-length: 4\r\nX-One: 1\r\n\r\nbody",
        "PUT /x HTTP/1.1\r\nContent-Length:  4 \r\nHost: a\r\nContent-Type: a/b\r\n\r\nbodyGET /next HTTP/1.1\r\n",
        "DELETE /x HTTP/1.0\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert_eq!(directly(raw), Some(in_general(raw)), "{raw}");
    }
}

#[test]
fn what_needs_more_than_its_lines_is_left_to_others() {
    for raw in [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbod",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\nbody",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "REPORT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: x-own\r\nX-Own: 1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nClose: 1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET //x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /%61 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /x?\" HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
    ] {
        assert_eq!(directly(raw), None, "{raw}");
    }
}

/// A backend to which these connections can be made.
struct Server {
    pool: Pool<BackendStream>,
    new: RefCell<Vec<BackendStream>>,
}

impl KeepAlive for Server {
    fn pool(&self) -> &Pool<BackendStream> {
        &self.pool
    }

    fn timeouts(&self) -> Timeouts {
        Timeouts::of(Duration::from_millis(300))
    }

    fn keeps(&self) -> bool {
        true
    }
}

impl Peer for Server {
    const RESET_MEANS_UNREAD: bool = false;

    async fn connect(&self, _: ConnInfo) -> Result<BackendStream, StatusCode> {
        self.new.borrow_mut().pop().ok_or(StatusCode::BAD_GATEWAY)
    }
}

const TEXT: &[u8] = b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn connection() -> (BackendStream, UnixStream) {
    let (ours, theirs) = sys::seqpacket::stream_pair().unwrap();
    (BackendStream::of_pair(ours).unwrap(), UnixStream::from_std(theirs.into()).unwrap())
}

fn under_way(stream: BackendStream) -> SentRequest {
    let permit = ConcurrencyLimit::new(10).grant_now(BackendId::Target(1), conn().peer.ip()).unwrap();
    SentRequest::new((stream, 0), TEXT.to_vec(), permit, std::time::Instant::now())
}

/// The status of the response, and its body.
async fn resumed(server: &Server, under_way: SentRequest) -> (u16, Vec<u8>) {
    let request = Request::get("/x").header("host", "a").body(BoundedBody::empty()).unwrap();
    resumed_of(server, under_way, request).await
}

async fn resumed_of(
    server: &Server,
    under_way: SentRequest,
    mut request: Request<BoundedBody>,
) -> (u16, Vec<u8>) {
    request.extensions_mut().insert(ResumedRequest::new(under_way));
    assert!(
        ResumedRequest::permit(request.extensions()).is_some()
            && ResumedRequest::permit(request.extensions()).is_none()
    );
    let response: Response<ResponseBody> =
        server.send(BackendRequest { context: RequestContext::without_files(conn()), request }).await;
    let status = response.status().as_u16();
    (status, response.into_body().collect().await.unwrap().to_bytes().to_vec())
}

async fn request_on(backend: &mut UnixStream) -> Vec<u8> {
    let mut bytes = vec![0; TEXT.len()];
    backend.read_exact(&mut bytes).await.unwrap();
    bytes
}

#[test]
fn the_general_path_goes_on_where_the_exchange_is() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let pool = Pool::new(Bounds { connections: 1, idle: None });
        let server = Server { pool, new: RefCell::default() };
        // Some of both messages has gone over the connection.
        let (stream, mut backend) = connection();
        backend.write_all(&RESPONSE[20..]).await.unwrap();
        let half = SentRequest { partial: RESPONSE[..20].to_vec(), written: 7, ..under_way(stream) };
        assert_eq!(resumed(&server, half).await, (200, b"ok".to_vec()));
        assert!(server.pool.take().is_some());
        let mut bytes = vec![0; TEXT.len()];
        let count = backend.read(&mut bytes).await.unwrap();
        assert_eq!(&bytes[..count], &TEXT[7..]);
        // It has failed: the request is sent once more, as it was.
        let ((stream, _), (new, mut backend)) = (connection(), connection());
        server.new.borrow_mut().push(new);
        backend.write_all(RESPONSE).await.unwrap();
        let failed = Some(Http1Failure::Gone { reset: false });
        let failed = SentRequest { failure: failed, written: TEXT.len(), ..under_way(stream) };
        assert_eq!(resumed(&server, failed).await, (200, b"ok".to_vec()));
        assert_eq!(request_on(&mut backend).await, TEXT);
        // No response comes: the time runs from when the request came.
        let (stream, _backend) = connection();
        let late = tokio::time::Instant::now() - Duration::from_millis(290);
        let began = tokio::time::Instant::now();
        let late = SentRequest { since: late, written: TEXT.len(), ..under_way(stream) };
        assert_eq!(resumed(&server, late).await.0, 504);
        assert!(began.elapsed() < Duration::from_millis(290));
    });
}

const UPLOAD: &[u8] = b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nbody";

/// The outcome of an upload whose kept connection ends, of which so much was sent; and the bytes on a new connection.
async fn upload_again(method: &str, sent: usize, found: bool) -> (u16, Vec<u8>) {
    let pool = Pool::new(Bounds { connections: 1, idle: None });
    let server = Server { pool, new: RefCell::default() };
    let ((mut stream, mut kept), (new, mut backend)) = (connection(), connection());
    server.new.borrow_mut().push(new);
    backend.write_all(RESPONSE).await.unwrap();
    stream.begin();
    if sent > 0 {
        stream.write_all(&UPLOAD[..sent]).await.unwrap();
        kept.read_exact(&mut vec![0; sent]).await.unwrap();
    }
    drop(kept);
    let failure = found.then_some(Http1Failure::Gone { reset: false });
    let under_way = SentRequest { text: UPLOAD.to_vec(), written: sent, failure, ..under_way(stream) };
    let request = Request::builder().method(method).uri("/x").header("host", "a");
    let body = BoundedBody::whole(bytes::Bytes::from_static(b"body"));
    let (status, _) = resumed_of(&server, under_way, request.body(body).unwrap()).await;
    let mut heard = vec![0; 200];
    let count = match status {
        200 => backend.read(&mut heard).await.unwrap(),
        _ => 0,
    };
    heard.truncate(count);
    (status, heard)
}

#[test]
fn an_upload_that_may_have_taken_effect_is_not_sent_again() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        // Whether the direct way has found out, or the general path does.
        for found in [true, false] {
            assert_eq!(upload_again("POST", UPLOAD.len(), found).await, (502, Vec::new()));
            assert_eq!(upload_again("POST", 7, found).await, (502, Vec::new()));
            assert_eq!(upload_again("POST", 0, found).await, (200, UPLOAD.to_vec()));
            assert_eq!(upload_again("PUT", UPLOAD.len(), found).await, (200, UPLOAD.to_vec()));
        }
    });
}
