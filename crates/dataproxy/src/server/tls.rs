//! TLS to a database server.
//!
//! Sees: what claims to be the server, until its certificate shows that. Never: goes on with a server whose certificate
//! is of no authority of the operator's, or for another name.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use certificate::authorities;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, Error as TlsError, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use worker::server_stream::ServerStream;

use super::login_files::LoginFault;

/// The certificate that the proxy shows to a server that asks for one.
#[derive(Debug)]
pub(crate) struct ProxyCertificate(CertifiedKey);

impl ProxyCertificate {
    /// Reads a certificate, with those between it and the authority, and its key, PEM.
    ///
    /// # Errors
    /// The fault of the certificate or the key.
    pub(crate) fn read(certificate: &[u8], key: &[u8]) -> Result<Self, LoginFault> {
        let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| LoginFault::File(format!("the `certificate`: {error}")))?;
        if chain.is_empty() {
            return Err(LoginFault::File("the `certificate`: there is none in the file; it is PEM".into()));
        }
        // SECURITY: what the reader says of a key may have a part of it.
        let no_key =
            |_| LoginFault::File("the `key`: there is none in the file that can be read; it is PEM".into());
        let key = PrivateKeyDer::from_pem_slice(key).map_err(no_key)?;
        let pair = CertifiedKey::from_der(chain, key, &rustls::crypto::aws_lc_rs::default_provider());
        pair.map(Self).map_err(|error| match error {
            TlsError::InconsistentKeys(_) => LoginFault::Halves,
            error => LoginFault::File(format!("the `certificate` and its `key`: {error}")),
        })
    }
}

/// The authorities for the server's certificate, and the certificate that the server is shown.
#[derive(Clone, Debug)]
pub(crate) struct ServerTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl ServerTls {
    /// Certificates are to be for `name`, and of one of these authorities, PEM; a server that asks for one is shown
    /// `identity`.
    ///
    /// # Errors
    /// The fault of the file or the name.
    pub(crate) fn new(file: &[u8], name: &str, identity: Option<ProxyCertificate>) -> Result<Self, String> {
        let roots = authorities::read(file).map_err(|fault| format!("the `server_ca`: {fault}"))?;
        let name = ServerName::try_from(name.to_owned());
        let name = name.map_err(|_| "the server's certificate cannot be for such a name".to_owned())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| format!("TLS: {error}"))?;
        let builder = builder.with_root_certificates(RootCertStore::from_iter(roots));
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(ProxyCertificate(pair)) => {
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair)))
            }
        };
        Ok(Self { config: Arc::new(config), name })
    }

    /// The handshake.
    pub(crate) async fn connect(self, stream: ServerStream) -> io::Result<MaybeTlsStream> {
        let stream = TlsConnector::from(self.config).connect(self.name, stream).await?;
        Ok(MaybeTlsStream::Tls(Box::new(stream)))
    }
}

/// A connection, with TLS or without.
pub(crate) enum MaybeTlsStream {
    Plain(ServerStream),
    Tls(Box<TlsStream<ServerStream>>),
}

impl MaybeTlsStream {
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

/// A stream for reading and writing.
trait Both: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Both for S {}

impl AsyncRead for MaybeTlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.inner().poll_read(cx, buffer)
    }
}

impl AsyncWrite for MaybeTlsStream {
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
