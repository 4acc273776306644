//! A request that is passed on as it came, and its response passed back as it came: of both, nothing is made but bytes.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the checked head of a request, and what a backend
//! sends. Must never: wait for a backend without a deadline, or for a client that has gone.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use request::path::NormalPath;

use crate::connection::socket::{ConnectionSocket, expired};
use crate::connection::state::{ClientConnection, NextStep, Partial};
use crate::head::{self, CheckedHead, RequestField, RequestHead, Room};
use crate::http::access_record::LoggedRequest;
use crate::http1::CLIENT_GONE;
use crate::http1::direct::{CommonHeaders, CompressionOffer, WrittenResponse, pass_back};
use crate::http1::request::ReceivedHead;
use crate::http1::response::RequestTraits;
use crate::proxy::backend::RequestContext;
use crate::proxy::direct::{self, Direct, ResumedRequest, SentRequest};
use crate::proxy::fastcgi::{BEHIND_BODY, pass_back_reply};
use crate::proxy::http1::Http1Failure;
use crate::proxy::limit::{BackendId, Permit};
use crate::proxy::stream::BackendStream;
use crate::router::rules::RouteMatch;

/// How long a new connection waits for its response before it is seen whether its client goes. Most responses come
/// sooner, and to watch a connection of one request costs three system calls.
const UNWATCHED: Duration = Duration::from_millis(50);
/// How often it is looked whether a client has gone that has sent more meanwhile, as on the general path.
const GONE_LOOK: Duration = Duration::from_secs(1);

/// The outcome of an exchange.
enum DirectOutcome {
    /// The response is in [`Direct::response`].
    Whole(WrittenResponse),
    /// The response is not for this path, or has not come.
    General,
    /// The client has gone.
    Gone,
}

impl<'a> ClientConnection<'a> {
    /// Begins to pass a request on whose head this is, with which `data` begins; `None` if that is not for this path,
    /// or no connection is kept. `route` is what the rules say of its path, if they have been asked.
    pub(super) fn begin_direct(
        &mut self,
        data: &[u8],
        (head, lines): (&RequestHead<'_>, &[RequestField<'_>]),
        route: Option<RouteMatch<'a>>,
    ) -> Option<NextStep> {
        let site = self.site;
        let path = NormalPath::parse(head.path).ok()?;
        let (raw, rest) = data.split_at(head.length);
        let body = direct::body(head, rest)?;
        if !direct::is_simple(head) || self.is_for_general() || path.is_ambiguous() {
            return None;
        }
        let route = match route {
            Some(route) => route,
            None => site.rules.find(&path).ok()?,
        };
        let backend = direct::backend(&route, self.conn, (body.len(), site.worker.limits().body_bytes))?;
        let Some(link) = site.worker.backends.link(backend) else {
            return self.begin_fastcgi(raw, (head, lines), backend, body);
        };
        if link.refusal().is_some() {
            return None;
        }
        let generation = link.pool().generation();
        let mut stream = link.pool().take()?;
        stream.begin();
        let mut direct = site.spare.take();
        direct.text.clear();
        let is_encoded = direct::encode(&mut direct.text, head, lines, self.conn, link.names_client(), body);
        let permit = site.worker.permit_now(backend, self.conn).filter(|_| is_encoded);
        let Some(permit) = permit else {
            link.pool().put(stream, generation);
            site.spare.keep(direct);
            return None;
        };
        (direct.backend, direct.is_fastcgi) = (backend, false);
        (direct.body_bytes, direct.behind_body) = (body.len(), 0);
        direct.deadline = self.arrived + link.timeouts().answer;
        Some(self.put_under_way(direct, raw, head, ((stream, generation), permit)))
    }

    /// The same for a server of FastCGI, and a request that needs a connection of its own: others go on kept ones.
    fn begin_fastcgi(
        &mut self,
        raw: &[u8],
        (head, lines): (&RequestHead<'_>, &[RequestField<'_>]),
        backend: BackendId,
        body: &[u8],
    ) -> Option<NextStep> {
        let site = self.site;
        let way = site.worker.backends.at_once(backend)?;
        if !matches!(head.method, "POST" | "PATCH") || body.is_empty() || !way.is_ready() {
            return None;
        }
        let permit = site.worker.permit_now(backend, self.conn)?;
        let root = site.roots.find(head.host, site.clock.tick(Instant::now()));
        let files = root.as_ref().map(|root| &root.files);
        let path = site.worker.backends.root_seen(files);
        let mut direct = site.spare.take();
        direct.text.clear();
        let context = RequestContext { conn: self.conn, files, root: &path };
        let Some(connection) = way.begin(&mut direct.text, context, (head, lines), body) else {
            site.spare.keep(direct);
            return None;
        };
        (direct.backend, direct.is_fastcgi) = (backend, true);
        (direct.body_bytes, direct.behind_body) = (body.len(), BEHIND_BODY);
        direct.deadline = self.arrived + way.timeouts().answer;
        Some(self.put_under_way(direct, raw, head, (connection, permit)))
    }

    /// Notes what is the same for all backends.
    fn put_under_way(
        &self,
        mut direct: Box<Direct>,
        raw: &[u8],
        head: &RequestHead<'_>,
        (connection, permit): ((BackendStream, u64), Permit),
    ) -> NextStep {
        direct.raw.clear();
        direct.raw.extend_from_slice(raw);
        direct.logged = Some(LoggedRequest::new(head, head.minor));
        direct.traits = RequestTraits { is_head: head.method == "HEAD", minor: head.minor, keep: head.keep };
        // Several lines of `Accept-Encoding` are for the general path to read.
        let takes = || self.site.negotiator.accepted(head.accept_encoding).iter().next().is_some();
        direct.takes_encoded = head.method != "HEAD" && (head.unusual || takes());
        direct.visible = true;
        let text = std::mem::take(&mut direct.text);
        direct.under_way = Some(SentRequest::new(connection, text, permit, self.arrived));
        NextStep::Direct(direct)
    }

    /// Whether requests of this connection say more than their heads do (of a certificate, or of who relays them), or
    /// TLS still has to say something.
    fn is_for_general(&self) -> bool {
        let is_busy = match &self.socket {
            Some(ConnectionSocket::Registered(stream)) => {
                stream.is_unsent() || stream.client_certificate().is_some()
            }
            _ => false,
        };
        self.conn.relayed.is_some() || is_busy
    }

    /// Waits for the response, and sends it; what is not that simple goes on in general.
    pub(super) async fn direct(&mut self, mut direct: Box<Direct>) -> NextStep {
        match poll_fn(|cx| self.poll_direct(cx, &mut direct)).await {
            DirectOutcome::Whole(written) => self.send_direct(direct, written),
            DirectOutcome::General => self.resume(direct),
            DirectOutcome::Gone => {
                self.record_later(direct.logged.as_ref(), CLIENT_GONE, 0);
                NextStep::Close
            }
        }
    }

    fn poll_direct(&mut self, cx: &mut Context<'_>, direct: &mut Direct) -> Poll<DirectOutcome> {
        if let Poll::Ready(came) = self.poll_response(cx, direct) {
            return Poll::Ready(came.map_or(DirectOutcome::General, DirectOutcome::Whole));
        }
        loop {
            let next = match self.socket.as_mut() {
                Some(ConnectionSocket::Registered(stream)) => {
                    let is_gone = match direct.visible {
                        true => stream.poll_gone(cx, &mut direct.visible),
                        false => stream.is_closed(),
                    };
                    if is_gone {
                        return Poll::Ready(DirectOutcome::Gone);
                    }
                    match direct.visible {
                        true => direct.deadline,
                        false => direct.deadline.min(Instant::now() + GONE_LOOK),
                    }
                }
                Some(ConnectionSocket::Fresh(_)) => direct.deadline.min(self.arrived + UNWATCHED),
                None => return Poll::Ready(DirectOutcome::Gone),
            };
            if !expired(cx, &mut direct.timer, next) {
                return Poll::Pending;
            }
            if next == direct.deadline {
                return Poll::Ready(DirectOutcome::General);
            }
            if let Some(ConnectionSocket::Fresh(_)) = self.socket {
                self.socket = self.lend().map(ConnectionSocket::Registered);
            }
        }
    }

    /// The response, written for the client; `None` if the exchange is not for this path any more.
    fn poll_response(&self, cx: &mut Context<'_>, direct: &mut Direct) -> Poll<Option<WrittenResponse>> {
        let Direct { under_way: Some(under_way), response, traits, takes_encoded, is_fastcgi, .. } = direct
        else {
            return Poll::Ready(None);
        };
        response.clear();
        let polled = under_way.poll(cx, |under_way, data| {
            let asked = (*traits, *takes_encoded);
            let written = self.pass_back(response, data, *is_fastcgi, asked);
            let written = written.filter(|_| under_way.is_written());
            if written.is_none() {
                under_way.partial.extend_from_slice(data);
            }
            written
        });
        polled.map(|came| {
            came.unwrap_or_else(|failure: Http1Failure| {
                under_way.failure = Some(failure);
                None
            })
        })
    }

    fn pass_back(
        &self,
        out: &mut Vec<u8>,
        data: &[u8],
        is_fastcgi: bool,
        (traits, takes_encoded): (RequestTraits, bool),
    ) -> Option<WrittenResponse> {
        let site = self.site;
        site.clock.tick(Instant::now());
        let hsts = self.site.hsts.borrow();
        let hsts = hsts.as_ref().filter(|_| self.conn.tls).map(|hsts| &hsts.value);
        let max_bytes = site.cache.settings().max_bytes;
        let compressed = site.negotiator.offers().then_some(CompressionOffer { max_bytes, takes_encoded });
        let said = CommonHeaders { date: site.clock.date(), hsts, compressed };
        match is_fastcgi {
            true => pass_back_reply(out, data, traits, &said),
            false => pass_back(out, data, traits, &said),
        }
    }

    /// Gives the connection to the backend back, and sends the response.
    fn send_direct(&mut self, mut direct: Box<Direct>, written: WrittenResponse) -> NextStep {
        let WrittenResponse { status, body_bytes } = written;
        if let Some(under_way) = direct.under_way.take() {
            let SentRequest { stream, generation, since, text, .. } = under_way;
            let backends = &self.site.worker.backends;
            if let Some(link) = backends.link(direct.backend).filter(|link| link.keeps()) {
                link.pool().put(stream, generation);
            } else if let Some(way) = backends.at_once(direct.backend) {
                way.leave(stream, generation, since);
            }
            direct.text = text;
        }
        let Some(socket) = &mut self.socket else { return NextStep::Close };
        let keep = direct.traits.keep;
        let Ok(sent) = socket.send([&direct.response, &[], &[], &[]], !keep) else {
            self.record_later(direct.logged.as_ref(), status, 0);
            return NextStep::Close;
        };
        if sent < direct.response.len() || socket.unsent() {
            let (rest, logged) = (direct.response.split_off(sent), direct.logged.take());
            let Some(logged) = logged else { return NextStep::Close };
            return NextStep::Write(Box::new(Partial { rest, logged, status, body_bytes, keep }));
        }
        self.record_later(direct.logged.as_ref(), status, body_bytes);
        self.site.spare.keep(direct);
        if keep { self.go_on() } else { NextStep::Close }
    }

    /// Has the general path go on with an exchange; the body is still to come there, as it is with all.
    fn resume(&mut self, mut direct: Box<Direct>) -> NextStep {
        let mut room = Room::default();
        let (CheckedHead::Whole(head), lines) = head::check_lines(&direct.raw, usize::MAX, &mut room) else {
            // INVARIANT: it was checked before.
            return NextStep::Close;
        };
        match ReceivedHead::new(&direct.raw, &head, lines) {
            Ok(mut received) => {
                if let Some(under_way) = direct.under_way.take() {
                    let body = direct.body(&under_way.text);
                    self.preread.splice(..0, body.iter().copied());
                    received.parts.extensions.insert(ResumedRequest::new(under_way));
                }
                NextStep::General(received)
            }
            Err(refusal) => self.refusal(refusal, direct.logged.take()),
        }
    }
}
