//! The access log's record of a request, written when its response has been sent.
//!
//! Runs in: a service's worker. Sees: what a client made up, which it passes on unread. Never: escapes; that is
//! the logger's part.

use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::header::{HOST, REFERER, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use wire::log::Access;
use worker::counters::Counters;
use worker::log::{Log, now_us};

use crate::body::Flow;
use crate::context::Error;
use crate::response::ResponseBody;

/// The status of a request whose client went away before there was an answer (nginx's number).
const CLIENT_GONE: u16 = 499;

/// A request under way; it is counted and logged when dropped.
pub(crate) struct RequestRecord {
    counters: Rc<Counters>,
    entry: Option<RecordEntry>,
    /// The connection that ends with the answer.
    ends: Option<Arc<Flow>>,
}

struct RecordEntry {
    log: Log,
    site: u16,
    peer: SocketAddr,
    begun: Instant,
    version: u8,
    method: Method,
    target: Uri,
    host: Option<HeaderValue>,
    referer: Option<HeaderValue>,
    agent: Option<HeaderValue>,
    status: u16,
    body_bytes: u64,
}

impl RequestRecord {
    /// A request that somebody else logs.
    pub(crate) fn counted(counters: Rc<Counters>) -> Self {
        Self { counters, entry: None, ends: None }
    }

    /// A request of `peer` that has just begun.
    pub(crate) fn logged<B>(
        counters: Rc<Counters>,
        log: Log,
        site: u16,
        peer: SocketAddr,
        request: &http::Request<B>,
    ) -> Self {
        let header = |name: HeaderName| request.headers().get(name).cloned();
        let entry = RecordEntry {
            log,
            site,
            peer,
            begun: Instant::now(),
            version: u8::from(request.version() != Version::HTTP_10),
            method: request.method().clone(),
            target: request.uri().clone(),
            host: header(HOST),
            referer: header(REFERER),
            agent: header(USER_AGENT),
            status: CLIENT_GONE,
            body_bytes: 0,
        };
        Self { counters, entry: Some(entry), ends: None }
    }

    /// Has a connection know when it has the whole answer, after which it ends.
    pub(crate) fn ends(mut self, connection: Arc<Flow>) -> Self {
        self.ends = Some(connection);
        self
    }

    /// Notes the answer.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        if let Some(entry) = &mut self.entry {
            entry.status = status.as_u16();
        }
    }

    fn sent(&mut self, bytes: usize) {
        if let Some(entry) = &mut self.entry {
            entry.body_bytes += bytes as u64;
        }
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        self.counters.answered();
        self.ends.iter().for_each(|connection| connection.has_answered());
        if let Some(entry) = &self.entry {
            entry.write();
        }
    }
}

impl RecordEntry {
    fn write(&self) {
        let target = self.target.to_string();
        self.log.access(&Access {
            time_us: now_us(),
            duration_us: u32::try_from(self.begun.elapsed().as_micros()).unwrap_or(u32::MAX),
            site: self.site,
            peer: self.peer,
            status: self.status,
            body_bytes: self.body_bytes,
            version: self.version,
            method: self.method.as_str().as_bytes(),
            target: target.as_bytes(),
            host: bytes(&self.host),
            referer: bytes(&self.referer),
            agent: bytes(&self.agent),
        });
    }
}

fn bytes(header: &Option<HeaderValue>) -> &[u8] {
    header.as_ref().map_or(b"", HeaderValue::as_bytes)
}

/// Logs a request that was not understood, and was answered with `status` by the HTTP library.
pub(crate) fn log_malformed(log: &Log, site: u16, peer: SocketAddr, status: StatusCode) {
    log.access(&Access {
        time_us: now_us(),
        duration_us: 0,
        site,
        peer,
        status: status.as_u16(),
        body_bytes: 0,
        version: u8::MAX,
        method: b"",
        target: b"",
        host: b"",
        referer: b"",
        agent: b"",
    });
}

/// A response's body whose end is the end of the record.
pub(crate) struct RecordedBody {
    body: ResponseBody,
    record: RequestRecord,
}

impl RecordedBody {
    pub(crate) fn new(body: ResponseBody, record: RequestRecord) -> Self {
        Self { body, record }
    }
}

impl Body for RecordedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let next = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &next {
            self.record.sent(frame.data_ref().map_or(0, Bytes::len));
        }
        next
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
