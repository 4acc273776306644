//! HTTP servers behind the site, as rwasa's backpath and nginx's `proxy_pass`.
//!
//! Runs in: the site worker, under the site's uid, which has no network: its connector makes the connections. Untrusted
//! input: none that this module looks at. Must never: send one client's requests on a connection that names another.

use std::rc::Rc;
use std::time::Duration;

use http::StatusCode;
use tokio::io::AsyncWriteExt;
use wire::ProxyHeader;

use crate::http::conn_info::ConnInfo;
use crate::proxy::backend::KeepAlive;
use crate::proxy::http::Peer;
use crate::proxy::pool::{Bounds, Pool};
use crate::proxy::stream::{BackendDialer, BackendStream};
use crate::proxy::timeout::Timeouts;

/// LIMIT: connections of one target that are kept for further requests; more than run at once are of no use.
const IDLE_MAX: usize = 64;
/// LIMIT: how long a connection is kept. Servers close what is idle, Node, Apache and uvicorn after 5 s, and what is
/// sent at that moment is lost; a new connection costs less.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// The way to the servers of one target.
pub(crate) struct Upstream {
    dialer: Rc<BackendDialer>,
    target: u16,
    timeouts: Timeouts,
    proxy_header: ProxyHeader,
    pool: Pool<BackendStream>,
}

impl Upstream {
    pub fn new(
        dialer: Rc<BackendDialer>,
        target: u16,
        timeouts: Timeouts,
        proxy_header: ProxyHeader,
    ) -> Self {
        let pool = Pool::new(Bounds { connections: IDLE_MAX, idle: Some(IDLE_TIMEOUT) });
        let kept = pool.clone();
        dialer.on_moved(target, move || kept.clear());
        Self { dialer, target, timeouts, proxy_header, pool }
    }
}

impl KeepAlive for Upstream {
    fn pool(&self) -> &Pool<BackendStream> {
        &self.pool
    }

    fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// A connection that begins with the name of a client is that client's.
    fn keeps(&self) -> bool {
        self.proxy_header == ProxyHeader::None
    }
}

impl Peer for Upstream {
    const RESET_MEANS_UNREAD: bool = false;

    async fn connect(&self, conn: ConnInfo) -> Result<BackendStream, StatusCode> {
        let mut stream = BackendStream::connect(&self.dialer, self.target).await?;
        let header = match self.proxy_header {
            ProxyHeader::None => Vec::new(),
            ProxyHeader::Version1 => request::proxy::version1(conn.peer, conn.local),
            ProxyHeader::Version2 => request::proxy::version2(conn.peer, conn.local),
        };
        // The header fits into the buffer of a new connection.
        stream.write_all(&header).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
        Ok(stream)
    }

    /// Connections that are kept may be to the same server.
    fn fell_silent(&self, stream: &BackendStream) {
        stream.fell_silent(&self.dialer);
        self.pool.clear();
    }
}
