//! How a connection under TLS begins.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the handshake, which rustls reads. Must never: wait
//! for a client without a deadline, or keep one that stands still from being sent away.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::connection::socket::{ConnectionSocket, expired, register};
use crate::connection::state::{ClientConnection, NextStep};
use crate::connection::stream::ClientStream;
use crate::tls::stream::TlsStream;

/// How it ended.
enum Shaken {
    Hands,
    Failed,
    Late,
    MustGo,
}

impl ClientConnection<'_> {
    /// Has the client prove nothing, and us everything; then waits for its first request.
    pub(crate) async fn handshake(&mut self) -> NextStep {
        let Ok(mut tls) = self.begin_tls() else {
            return NextStep::Close;
        };
        let deadline = self.arrived + self.site.worker.limits().head_timeout;
        self.slot.mark_idle();
        let shaken = poll_fn(|cx| self.poll_handshake(cx, &mut tls, deadline)).await;
        self.slot.mark_busy();
        // A wait takes a timer that is set for a sign that it is woken when the worker retires.
        self.timer = None;
        match shaken {
            Shaken::Hands => {}
            Shaken::Late => {
                self.site.shed.note(|shed| shed.late_head += 1);
                return NextStep::Close;
            }
            Shaken::Failed | Shaken::MustGo => return NextStep::Close,
        }
        self.arrived = Instant::now();
        self.since = self.arrived;
        let next = if tls.is_http2() { NextStep::Http2 } else { NextStep::Read };
        self.socket = Some(ConnectionSocket::Registered(ClientStream::Tls(tls)));
        next
    }

    fn begin_tls(&mut self) -> io::Result<Box<TlsStream>> {
        let Some(ConnectionSocket::Fresh(socket)) = self.socket.take() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        // A worker that was told of no certificate gets no such connections.
        let config = self.site.tls.borrow().clone().ok_or(io::ErrorKind::Unsupported)?;
        let preread = std::mem::take(&mut self.preread);
        let tcp = register(socket)?;
        let stream = TlsStream::new(tcp, config, &preread, self.conn.peer, Rc::clone(self.site) as _);
        stream.map(Box::new).map_err(io::Error::other)
    }

    fn poll_handshake(
        &mut self,
        cx: &mut Context<'_>,
        tls: &mut TlsStream,
        deadline: Instant,
    ) -> Poll<Shaken> {
        if let Poll::Ready(done) = tls.poll_handshake(cx) {
            return Poll::Ready(if done.is_ok() { Shaken::Hands } else { Shaken::Failed });
        }
        if self.slot.must_go() {
            return Poll::Ready(Shaken::MustGo);
        }
        self.slot.wake(cx);
        if expired(cx, &mut self.timer, deadline) { Poll::Ready(Shaken::Late) } else { Poll::Pending }
    }
}
