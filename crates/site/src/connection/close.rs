//! How a connection ends: with an error answer, after lingering, or by being handed back.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: what a client still sends, which is thrown
//! away. Must never: wait for a client without a deadline, or lose a byte that was read when it hands a
//! connection back.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use request::error;
use rustix::net::Shutdown;
use tokio::io::{AsyncRead, ReadBuf};
use worker::refused::RefusedRequest;

use crate::connection::socket::{ConnectionSocket, expired};
use crate::connection::state::{ClientConnection, ConnectionEnd, LastResponse, NextStep};
use crate::connection::stream::ClientStream;
use crate::head::HeadRefusal;
use crate::http::access_record::{AccessRecord, LoggedRequest};

/// LIMIT: after an answer to a client that may still be sending, what comes is read and thrown away for so long before
/// the connection is closed, as nginx does it: a browser shows the answer to an upload that is too large only once the
/// whole upload is sent. The connection makes room as an idle one does.
const LINGER: Duration = Duration::from_secs(30);
/// LIMIT: without a byte, the connection is closed sooner.
const LINGER_SILENCE: Duration = Duration::from_secs(2);

impl ClientConnection<'_> {
    /// Answers a request that is refused, and counts the refusal.
    pub(crate) fn refusal(&self, refusal: HeadRefusal, logged: Option<LoggedRequest>) -> NextStep {
        self.site.shed.note(|shed| match refusal {
            HeadRefusal::Late => shed.late_head += 1,
            HeadRefusal::BodyTooLarge => {}
            _ => shed.malformed += 1,
        });
        let access = AccessRecord::refused(&self.conn, refusal.status().as_u16(), 0, self.since);
        let access = match &logged {
            Some(logged) => logged.describe(access),
            None => access,
        };
        let (method, target) = (access.method.as_bytes(), access.target.as_bytes());
        // Of what was no head, the first line, such as it is.
        let line = self.preread.split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii_end();
        self.site.worker.refused(RefusedRequest {
            status: access.status,
            client: self.conn.peer.ip(),
            method,
            host: access.host,
            target: if method.is_empty() { line } else { target },
            reason: refusal.reason(),
            rule: 0,
            about: "",
            remedy: refusal.remedy(),
        });
        NextStep::End(LastResponse::refusal(refusal, logged))
    }

    /// Sends an error response, and ends the connection.
    pub(crate) async fn end_with(&mut self, last: LastResponse) -> NextStep {
        let LastResponse { status, sentence, logged } = last;
        let preread = std::mem::take(&mut self.preread);
        let is_head = logged.as_ref().map_or_else(|| preread.starts_with(b"HEAD "), LoggedRequest::is_head);
        self.site.clock.tick(Instant::now());
        let hsts = self.site.hsts.borrow().clone().filter(|_| self.conn.tls);
        let hsts = hsts.as_ref().map_or_else(String::new, |hsts| String::from_utf8_lossy(&hsts.line).into());
        let (text, body_bytes) = error::closing(status, &sentence, &self.site.clock.date(), &hsts, is_head);
        let sent = self.write(text.as_bytes()).await;
        self.record_later(logged.as_ref(), status.as_u16(), body_bytes as u64);
        if sent.is_some() {
            self.linger().await;
        }
        NextStep::Close
    }

    /// Closes our side and reads on for a while: unread input would make the kernel reset the connection,
    /// and the client could lose the answer.
    pub(crate) async fn linger(&mut self) {
        let Some(mut stream) = self.lend() else { return };
        if let ClientStream::Tls(tls) = &mut stream {
            tls.close();
        }
        // Bytes that still come are dropped unread, so they need not be decrypted.
        let stream = stream.tcp();
        if rustix::net::shutdown(&*stream, Shutdown::Write).is_err() {
            return;
        }
        self.slot.mark_idle();
        let end = Instant::now() + LINGER;
        let (mut silent_at, mut timer) = (Instant::now() + LINGER_SILENCE, None);
        poll_fn(|cx| {
            let mut scratch = self.site.scratch.borrow_mut();
            loop {
                let mut buffer = ReadBuf::new(&mut scratch);
                match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
                    Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                        silent_at = Instant::now() + LINGER_SILENCE;
                    }
                    Poll::Ready(_) => return Poll::Ready(()),
                    Poll::Pending => break,
                }
            }
            self.slot.wake(cx);
            let is_over = self.slot.must_go() || expired(cx, &mut timer, silent_at.min(end));
            if is_over { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        self.slot.mark_busy();
    }

    /// Says that this is the end, where TLS has a word for it. A connection that broke off in the midst of an answer is
    /// no longer here, so that it does not look whole.
    pub(crate) fn close(&mut self) -> ConnectionEnd {
        if let Some(ConnectionSocket::Registered(ClientStream::Tls(mut tls))) = self.socket.take() {
            tls.close();
        }
        ConnectionEnd::Closed
    }

    /// Gives the connection up, to the gate; one under TLS can only be closed.
    pub(crate) fn hand_back(&mut self) -> ConnectionEnd {
        if self.conn.relayed.is_some() {
            // It is nobody's but the worker's that relays.
            return self.close();
        }
        let stream = match self.socket.take() {
            Some(ConnectionSocket::Fresh(stream)) => stream.into(),
            Some(ConnectionSocket::Registered(ClientStream::Plain(stream))) => match stream.into_std() {
                Ok(stream) => stream.into(),
                Err(_) => return ConnectionEnd::Closed,
            },
            tls => {
                self.socket = tls;
                return self.close();
            }
        };
        ConnectionEnd::HandBack { stream, preread: std::mem::take(&mut self.preread) }
    }
}
