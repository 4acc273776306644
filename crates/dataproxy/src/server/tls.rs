//! TLS to a database server.
//!
//! Sees: what claims to be the server, until its certificate shows that. Never: goes on with a server whose certificate is of no
//! authority of the operator's, or for another name.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use certificate::authorities;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use worker::server_stream::ServerStream;

/// What the server's certificate is checked by.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// Certificates are to be for `name`, and of one of these authorities, PEM.
    ///
    /// # Errors
    /// What is wrong with the file or the name.
    pub(crate) fn new(file: &[u8], name: &str) -> Result<Self, String> {
        let roots = authorities::read(file).map_err(|fault| format!("the authorities: {fault}"))?;
        let name = ServerName::try_from(name.to_owned());
        let name = name.map_err(|_| "the server's certificate cannot be for such a name".to_owned())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| format!("TLS: {error}"))?;
        let config = builder.with_root_certificates(RootCertStore::from_iter(roots)).with_no_client_auth();
        Ok(Self { config: Arc::new(config), name })
    }

    /// The handshake.
    pub(crate) async fn connect(self, stream: ServerStream) -> io::Result<Stream> {
        let stream = TlsConnector::from(self.config).connect(self.name, stream).await?;
        Ok(Stream::Tls(Box::new(stream)))
    }
}

/// A connection, with TLS or without.
pub(crate) enum Stream {
    Plain(ServerStream),
    Tls(Box<TlsStream<ServerStream>>),
}

impl Stream {
    /// Whether it does not leave this machine.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Self::Plain(ServerStream::Unix(_)))
    }

    fn inner(self: Pin<&mut Self>) -> Pin<&mut (dyn Both + '_)> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream),
            Self::Tls(stream) => Pin::new(&mut **stream),
        }
    }
}

/// What is read from and written to.
trait Both: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Both for S {}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.inner().poll_read(cx, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.inner().poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_shutdown(cx)
    }
}
