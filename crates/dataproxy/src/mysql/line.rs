//! Packets of MariaDB's and MySQL's protocol on a connection.

use std::io;

use bytes::{Buf as _, BytesMut};
use mysql_common::io::ParseBuf;
use mysql_common::proto::codec::{PacketCodec, packet_to_chunks};
use mysql_common::proto::{MyDeserialize, MySerialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use worker::server_stream::ServerStream;

use crate::server::{MaybeTlsStream, ServerTls};

/// LIMIT: bytes of one packet of the server's; a row has at most as many.
const PACKET_MAX: usize = 16 << 20;
/// LIMIT: a larger packet's memory is given back before the next one comes.
const KEPT_MAX: usize = 64 << 10;

/// See the file's head.
pub(super) struct PacketStream {
    stream: MaybeTlsStream,
    codec: PacketCodec,
    input: BytesMut,
    output: BytesMut,
    /// The packet that was read last.
    packet: Vec<u8>,
}

impl PacketStream {
    pub(super) fn new(stream: ServerStream) -> Self {
        let mut codec = PacketCodec::default();
        codec.max_allowed_packet = PACKET_MAX;
        let stream = MaybeTlsStream::Plain(stream);
        Self { stream, codec, input: BytesMut::new(), output: BytesMut::new(), packet: Vec::new() }
    }

    /// Speaks TLS from now on.
    ///
    /// SECURITY: what has come without TLS is not taken for what comes with it.
    pub(super) async fn secure(self, tls: ServerTls) -> io::Result<Self> {
        let is_empty = self.input.is_empty() && self.output.is_empty();
        match self.stream {
            MaybeTlsStream::Plain(stream) if is_empty => {
                Ok(Self { stream: tls.connect(stream).await?, ..self })
            }
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the server speaks before its turn")),
        }
    }

    /// Whether nobody can read along, because the server is on this machine.
    pub(super) fn is_local(&self) -> bool {
        self.stream.is_local()
    }

    /// Whether nobody can read along, because there is TLS.
    pub(super) fn is_secured(&self) -> bool {
        matches!(self.stream, MaybeTlsStream::Tls(_))
    }

    /// Sends a command.
    pub(super) async fn command(&mut self, packet: &impl MySerialize) -> io::Result<()> {
        self.put(packet);
        self.flush().await?;
        self.begin_answer();
        Ok(())
    }

    /// Adds a command to what is sent next.
    pub(super) fn put(&mut self, packet: &impl MySerialize) {
        let mut bytes = Vec::new();
        packet.serialize(&mut bytes);
        packet_to_chunks(0, &mut &bytes[..], &mut self.output);
    }

    /// The packets of the next command's answer come, which are numbered from 1 on, as the command's own is 0.
    pub(super) fn begin_answer(&mut self) {
        // The codec counts by what it writes, and has not written the command, so that others may have been written
        // since.
        self.codec.reset_seq_id();
        let _ = self.codec.encode(&mut [].as_slice(), &mut BytesMut::new());
    }

    /// Sends a packet.
    pub(super) async fn send(&mut self, packet: &impl MySerialize) -> io::Result<()> {
        let mut bytes = Vec::new();
        packet.serialize(&mut bytes);
        self.send_bytes(&bytes).await
    }

    /// Sends a packet that is written already.
    pub(super) async fn send_bytes(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.codec.encode(&mut bytes, &mut self.output).map_err(io::Error::other)?;
        self.flush().await
    }

    /// Sends what was added.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        while self.output.has_remaining() {
            self.stream.write_buf(&mut self.output).await?;
        }
        self.stream.flush().await
    }

    /// The next packet, which has at least one byte.
    pub(super) async fn packet(&mut self) -> io::Result<&[u8]> {
        self.packet.clear();
        self.packet.shrink_to(KEPT_MAX);
        while !self.codec.decode(&mut self.input, &mut self.packet).map_err(io::Error::other)? {
            self.input.reserve(8192);
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        if self.packet.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the server sends an empty packet"));
        }
        Ok(&self.packet)
    }

    /// Waits until the server says what nobody has asked for, which is that it ends the connection.
    pub(super) async fn end(&mut self) {
        if self.input.is_empty() {
            let _ = self.stream.read_buf(&mut self.input).await;
        }
    }
}

/// A packet as what it is said to be.
pub(super) fn read<'p, T: MyDeserialize<'p>>(packet: &'p [u8], context: T::Ctx) -> io::Result<T> {
    ParseBuf(packet).parse(context)
}
