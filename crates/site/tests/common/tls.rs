//! The two ends of TLS for the tests.
#![allow(dead_code, clippy::unwrap_used)]

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};

use site::ClientLimits;

use super::{Answer, Peer, Server, limits};

pub type Secure = StreamOwned<ClientConnection, TcpStream>;

/// A certificate for `a.example` and the configurations of both ends.
pub struct Ends {
    pub server: Arc<ServerConfig>,
    pub client: ClientConfig,
    pub roots: RootCertStore,
    /// The certificate once more.
    pub pem: String,
}

pub fn ends() -> Ends {
    let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    let certificate: CertificateDer<'static> = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let mut server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    server.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().unwrap();
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = ClientConfig::builder().with_root_certificates(roots.clone()).with_no_client_auth();
    Ends { server: Arc::new(server), client, roots, pem: made.cert.pem() }
}

impl Server {
    /// A server under TLS, and what its clients need.
    pub fn secure() -> (Server, Arc<ClientConfig>) {
        let ends = ends();
        // Both ends of TLS on a busy machine take their time.
        let limits = ClientLimits { idle_timeout: Duration::from_secs(4), ..limits() };
        (Server::over(limits, Some(ends.server)), Arc::new(ends.client))
    }
}

pub fn secure(server: &Server, config: &Arc<ClientConfig>) -> Peer<Secure> {
    over(server.connect().stream, config)
}

pub fn over(stream: TcpStream, config: &Arc<ClientConfig>) -> Peer<Secure> {
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let name = ServerName::try_from("a.example").unwrap();
    let client = ClientConnection::new(config.clone(), name).unwrap();
    Peer::new(StreamOwned::new(client, stream))
}

pub fn get(server: &Server, config: &Arc<ClientConfig>, path: &str, lines: &str) -> Answer {
    secure(server, config).ask("GET", path, lines)
}
