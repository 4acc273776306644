//! TLS, as `tokio-postgres` asks for it.

use std::future::Future;
use std::io;
use std::pin::Pin;

use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

use super::login::GuardedStream;
use crate::server::{MaybeTlsStream, ServerTls};

/// Speaks TLS where there are authorities to check the server by.
pub(super) struct TlsDialer(pub(super) Option<ServerTls>);

impl TlsDialer {
    /// Where there are authorities, a server that speaks no TLS is refused.
    pub(super) fn mode(&self) -> SslMode {
        if self.0.is_some() { SslMode::Require } else { SslMode::Disable }
    }
}

impl TlsConnect<GuardedStream> for TlsDialer {
    type Stream = MaybeTlsStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<MaybeTlsStream>>>>;

    fn connect(self, connection: GuardedStream) -> Self::Future {
        Box::pin(async {
            let tls = self.0.ok_or(io::ErrorKind::Unsupported)?;
            tls.connect(connection.into_inner()).await
        })
    }
}

impl TlsStream for MaybeTlsStream {
    // The operator's authorities have vouched for the server; binding is for clients that check no certificate.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}
