//! A handshake that waits for a signature.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the first bytes of a connection. Must never: send a
//! client the beginnings of two answers.

use std::mem;
use std::task::{Context, Poll, ready};

use rustls::server::UnbufferedServerConnection;

use super::{End, TlsStream};

impl TlsStream {
    /// Ready unless the handshake waits for a signature; begins it again where it has waited.
    pub(super) fn poll_signature(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(beginning) = &mut self.beginning
            && let Some(wait) = &mut beginning.wait
        {
            ready!(wait.as_mut().poll(cx));
            beginning.wait = None;
            let Ok(connection) = UnbufferedServerConnection::new(beginning.config.clone()) else {
                (self.beginning, self.end) = (None, End::Failed);
                break;
            };
            self.connection = connection;
            self.read_again();
        }
        Poll::Ready(())
    }

    /// Has another connection of rustls read what the one before has read.
    fn read_again(&mut self) {
        let Some(beginning) = &mut self.beginning else { return };
        let (said, mut records) = (mem::take(&mut beginning.said), mem::take(&mut beginning.records));
        // The repeated handshake says the same bytes, as they depend on nothing but the client's, and they are not sent
        // again.
        (self.outgoing, self.written) = (Vec::new(), said);
        let used = self.process(&mut records);
        self.incoming = records.split_off(used);
        if let Some(beginning) = &mut self.beginning
            && beginning.wait.is_some()
        {
            beginning.said = said;
        }
    }
}
