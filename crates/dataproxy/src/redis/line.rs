//! Commands and replies on a connection.

use std::io;

use bytes::{Buf as _, BytesMut};
use resp::{ReplyDecoder, RespReply, put_command};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::server::{MaybeTlsStream, SessionFault};

/// LIMIT: a longer command's memory is given back when it is sent.
const KEPT_MAX: usize = 64 << 10;

/// See the file's head.
pub(super) struct RespStream {
    stream: MaybeTlsStream,
    input: BytesMut,
    output: Vec<u8>,
}

impl RespStream {
    pub(super) fn new(stream: MaybeTlsStream) -> Self {
        Self { stream, input: BytesMut::new(), output: Vec::new() }
    }

    /// Adds a command to what is sent next.
    pub(super) fn put<W: AsRef<[u8]>>(&mut self, words: &[W]) {
        put_command(words, &mut self.output);
    }

    /// Sends all commands.
    pub(super) async fn send(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.output).await?;
        self.stream.flush().await?;
        self.output.clear();
        self.output.shrink_to(KEPT_MAX);
        Ok(())
    }

    /// The next reply, of which so many bytes are wanted, and whether it is not all there.
    pub(super) async fn reply(&mut self, room: usize) -> io::Result<(RespReply, bool)> {
        let mut decoder = ReplyDecoder::new(room);
        loop {
            let mut rest = &self.input[..];
            let reply = decoder.take(&mut rest).map_err(io::Error::other)?;
            let taken = self.input.len() - rest.len();
            self.input.advance(taken);
            if let Some(reply) = reply {
                return Ok((reply, decoder.is_cut()));
            }
            self.input.reserve(8192);
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Sends a command of our own and waits for the reply.
    pub(super) async fn ask(&mut self, words: &[&str], room: usize) -> io::Result<RespReply> {
        self.put(words);
        self.send().await?;
        Ok(self.reply(room).await?.0)
    }

    /// Waits until the server says what nobody has asked for, which is that it ends the connection.
    pub(super) async fn end(&mut self) {
        if self.input.is_empty() {
            let _ = self.stream.read_buf(&mut self.input).await;
        }
    }
}

pub(super) fn lost(error: io::Error) -> SessionFault {
    SessionFault::Broken(format!("the server is lost: {error}"))
}
