//! Requests that are passed on as they came, on a kept connection: their heads are written as they are read, with a
//! body that came with them, and nothing is made of them. A response that is not as simple, or does not come, is for
//! the general path: it takes the exchange over where that is.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the checked head of a request, and what a backend
//! sends. Must never: pass on what the general path would not, or in other words.

use std::cell::RefCell;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use http::Extensions;
use request::fields::{self, ForwardedOrigin, is_passed_on};
use request::path::for_backend;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::http1::{Http1Failure, with_scratch};
use super::limit::{BackendId, Permit};
use super::stream::BackendStream;
use crate::head::{Framing, RequestField, RequestHead, Verb};
use crate::http::access_record::LoggedRequest;
use crate::http::conn_info::ConnInfo;
use crate::http1::response::{RequestTraits, push_line};
use crate::router::rules::{AccessPolicy, RouteMatch};

/// LIMIT: bytes of a head that is passed on so: most heads. The buffer of one is used again for others.
const HEAD_BYTES_MAX: usize = 4 << 10;

/// LIMIT: exchanges that are kept to be used again, with their buffers: at most 24 KiB each. More than run at once are
/// of no use.
const SPARE_MAX: usize = 64;
/// Bytes of a request for which memory is kept: most forms.
const TEXT_BYTES: usize = 16 << 10;
/// Room for what a request gets on its way to a backend.
const ADDED_BYTES: usize = 256;
/// Methods of requests that mostly have a body. The `http` crate, and every backend, knows them.
const WITH_BODY: [&str; 4] = ["POST", "PUT", "PATCH", "DELETE"];
/// Bytes of a response for which memory is kept: most of those that are passed back so.
const RESPONSE_BYTES: usize = 4 << 10;

/// A connection to a backend with a request on it, and how far that has come.
pub(crate) struct SentRequest {
    pub stream: BackendStream,
    /// Of its pool, when it was taken.
    pub generation: u64,
    /// The text to be written of the request, and how much of it has been.
    pub text: Vec<u8>,
    pub written: usize,
    /// The bytes of the response so far.
    pub partial: Vec<u8>,
    /// How the connection has failed.
    pub failure: Option<Http1Failure>,
    /// When the request has come.
    pub since: Instant,
    permit: Option<Permit>,
}

impl SentRequest {
    /// A request that has come at this time, and that nothing is written of.
    pub fn new(
        (stream, generation): (BackendStream, u64),
        text: Vec<u8>,
        permit: Permit,
        since: std::time::Instant,
    ) -> Self {
        let (since, permit) = (since.into(), Some(permit));
        Self { stream, generation, text, written: 0, partial: Vec::new(), failure: None, since, permit }
    }

    /// Whether all of the request is written.
    pub fn is_written(&self) -> bool {
        self.written == self.text.len()
    }

    /// Writes the request, and has `read` see what has come of the response.
    pub fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        read: impl FnOnce(&mut Self, &[u8]) -> T,
    ) -> Poll<Result<T, Http1Failure>> {
        while !self.is_written() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.text[self.written..])? {
                Poll::Ready(0) => return Poll::Ready(Err(Http1Failure::Gone { reset: false })),
                Poll::Ready(count) => self.written += count,
                Poll::Pending => break,
            }
        }
        with_scratch(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
            Poll::Ready(match buffer.filled() {
                [] => Err(Http1Failure::Gone { reset: false }),
                data => Ok(read(self, data)),
            })
        })
    }
}

/// One exchange with a client on a kept connection to a backend.
pub(crate) struct Direct {
    pub backend: BackendId,
    /// The head as the client sent it, for the general path.
    pub raw: Vec<u8>,
    /// The request as the log names it.
    pub logged: Option<LoggedRequest>,
    pub traits: RequestTraits,
    /// Whether its client may take a response in one of our encodings.
    pub takes_encoded: bool,
    /// `None` once the response has come.
    pub under_way: Option<SentRequest>,
    /// The request, until it is under way.
    pub text: Vec<u8>,
    /// Bytes of the body, and of what the request has behind it.
    pub body_bytes: usize,
    pub behind_body: usize,
    /// Whether it is of FastCGI.
    pub is_fastcgi: bool,
    /// The response.
    pub response: Vec<u8>,
    pub deadline: std::time::Instant,
    /// Whether it can be seen that the client has gone.
    pub visible: bool,
    pub timer: Option<Pin<Box<Sleep>>>,
}

impl Direct {
    fn new() -> Box<Self> {
        Box::new(Self {
            backend: BackendId::Streams,
            raw: Vec::new(),
            logged: None,
            traits: RequestTraits { is_head: false, minor: 1, keep: false },
            takes_encoded: false,
            under_way: None,
            text: Vec::new(),
            body_bytes: 0,
            behind_body: 0,
            is_fastcgi: false,
            response: Vec::new(),
            deadline: std::time::Instant::now(),
            visible: true,
            timer: None,
        })
    }
}

impl Direct {
    /// The part of `text` that was the request's body before it was written for the backend.
    pub fn body<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        let end = text.len() - self.behind_body;
        &text[end - self.body_bytes..end]
    }
}

/// Exchanges that are over, whose buffers and timers are used again.
#[derive(Default)]
#[expect(
    clippy::vec_box,
    reason = "an exchange stays where it is while it goes from the pool to a connection and back"
)]
pub(crate) struct Spare(RefCell<Vec<Box<Direct>>>);

impl Spare {
    /// An exchange to begin with.
    pub fn take(&self) -> Box<Direct> {
        self.0.borrow_mut().pop().unwrap_or_else(Direct::new)
    }

    /// Keeps one that is over.
    pub fn keep(&self, mut direct: Box<Direct>) {
        direct.response.shrink_to(RESPONSE_BYTES);
        direct.text.clear();
        direct.text.shrink_to(TEXT_BYTES);
        let mut spare = self.0.borrow_mut();
        if spare.len() < SPARE_MAX {
            spare.push(direct);
        }
    }
}

/// Among the extensions of a request: that it is under way already. The first of all clones has that.
#[derive(Clone)]
pub(crate) struct ResumedRequest(Arc<Mutex<Option<SentRequest>>>);

impl ResumedRequest {
    /// To be gone on with.
    pub fn new(under_way: SentRequest) -> Self {
        Self(Arc::new(Mutex::new(Some(under_way))))
    }

    /// The place with a backend that the request has.
    pub fn permit(extensions: &Extensions) -> Option<Permit> {
        let Self(under_way) = extensions.get()?;
        under_way.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.permit.take()
    }

    /// Takes the request that is to be continued.
    pub fn take(extensions: &mut Extensions) -> Option<SentRequest> {
        let Self(under_way) = extensions.remove()?;
        under_way.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The body of a request behind whose head `rest` came, if all of it did.
pub(crate) fn body<'a>(head: &RequestHead<'_>, rest: &'a [u8]) -> Option<&'a [u8]> {
    match head.framing {
        Framing::None => Some(&[]),
        Framing::Length(length) => rest.get(..usize::try_from(length).ok()?),
        Framing::Chunked => None,
    }
}

/// Whether nothing of a request needs more than its head, and what came with that, to be passed on.
pub(crate) fn is_simple(head: &RequestHead<'_>) -> bool {
    let is_read = head.verb != Verb::Other && head.framing == Framing::None;
    let is_write = WITH_BODY.contains(&head.method) && head.framing != Framing::Chunked;
    (is_read || is_write)
        && !head.expects
        && head.upgrade.is_none()
        && head.target.starts_with('/')
        // A path with another form for backends, or one that is no URI for the `http` crate, goes to the general path.
        && for_backend(head.path) == head.path
        && head.query.is_none_or(|query| !query.contains('"'))
        && head.length <= HEAD_BYTES_MAX
}

/// The backend that answers a request with a body of so many bytes, if the rules neither change a message nor ask more
/// of the client than its address.
pub(crate) fn backend(route: &RouteMatch<'_>, conn: ConnInfo, body: (usize, u64)) -> Option<BackendId> {
    let (body_bytes, limit) = body;
    if body_bytes as u64 > route.body_bytes().unwrap_or(limit) {
        return None;
    }
    let rule = route.rule.filter(|rule| !rule.fallback && !rule.strip_prefix)?;
    let backend = rule.target.backend()?;
    let is_open = |policy: &AccessPolicy| policy.is_plain() && policy.allows(conn.peer.ip());
    route.covering.iter().all(|rule| is_open(&rule.policy)).then_some(backend)
}

/// Appends a simple request with this body as its backend gets it; `false` if a line of it is not for this path.
pub(crate) fn encode(
    out: &mut Vec<u8>,
    head: &RequestHead<'_>,
    lines: &[RequestField<'_>],
    conn: ConnInfo,
    names_client: bool,
    body: &[u8],
) -> bool {
    out.reserve(head.length + ADDED_BYTES + body.len());
    for part in [head.method, " ", head.target, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    let (mut host, mut tells_length) = (&b""[..], false);
    for RequestField { name, value } in lines {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        match name.len() {
            5 | 10 if fields::is_about_others(name, value) => return false,
            14 if is("content-length") => {
                tells_length = true;
                continue;
            }
            4 if is("host") => host = value,
            _ => {}
        }
        if is_passed_on(name.as_bytes()) {
            push_theirs(out, name, value);
        }
    }
    if host.is_empty() {
        return false;
    }
    fields::push_forwarded_lines(out, ForwardedOrigin { peer: conn.peer, scheme: conn.scheme() }, host);
    if names_client {
        fields::push_client_line(out, conn.peer);
    }
    if tells_length {
        // INVARIANT: a `Vec` takes whatever is written.
        let _ = write!(out, "content-length: {}\r\n", body.len());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
    true
}

/// Appends a line of a message, its name in lower case, as the general path has all names.
pub(crate) fn push_theirs(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    let start = out.len();
    push_line(out, name.as_bytes(), value);
    out[start..start + name.len()].make_ascii_lowercase();
}

#[cfg(test)]
mod tests;
