//! The bytes of a connection: those that come go to its codec, and those that the codec has go to the client.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: what the client sends, which is passed on. Must
//! never: keep a buffer with nothing in it.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use ::http2::Connection;
use tokio::io::ReadBuf;

use crate::connection::output::SendBuffer;
use crate::connection::stream::ClientStream;
use crate::tls::stream::STEP_BYTES;

thread_local! {
    /// For frames on their way; a worker has one thread, and a connection that waits for nothing needs no buffer.
    static SPARE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Gives the connection a buffer for what is to be sent, or takes an empty one back.
pub(super) fn swap_buffer(connection: &mut Connection) {
    SPARE.with_borrow_mut(|spare| connection.swap_buffer(spare));
}

/// The socket.
pub(super) struct SocketIo {
    pub stream: ClientStream,
    pub output: Rc<SendBuffer>,
    /// Bytes that were read from it before.
    pub preread: Vec<u8>,
}

impl SocketIo {
    /// Reads what has come into `room`; tells how many bytes, and nothing at the end.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        if !self.preread.is_empty() {
            let count = self.preread.len().min(room.len());
            room[..count].copy_from_slice(&self.preread[..count]);
            self.preread.drain(..count);
            if self.preread.is_empty() {
                self.preread = Vec::new();
            }
            return Poll::Ready(Ok(count));
        }
        let mut room = ReadBuf::new(room);
        ready!(self.stream.poll_read(cx, &mut room))?;
        Poll::Ready(Ok(room.filled().len()))
    }

    /// Keeps what was read, for a turn to come.
    pub fn unread(&mut self, bytes: &[u8]) {
        self.preread.splice(..0, bytes.iter().copied());
    }

    /// Writes what the connection has to say: as much at once as one encryption takes.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, connection: &mut Connection) -> Poll<io::Result<()>> {
        let now = Instant::now();
        loop {
            connection.fill(STEP_BYTES, now);
            if connection.output().is_empty() {
                return self.output.poll_flush(cx, &mut self.stream);
            }
            let slices = [IoSlice::new(connection.output())];
            let count = ready!(self.output.poll_write(cx, &mut self.stream, &slices))?;
            connection.sent(count);
        }
    }
}
