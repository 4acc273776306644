//! A connection of HTTP/1.1 to who answers requests: a server behind the site, or a service.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: none that it looks at; hyper reads the answers. Must
//! never: go on with a request that nobody waits for any more.

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Connection, SendRequest};
use hyper::rt::{Read, Write};
use tokio::task::AbortHandle;

use crate::http::body::BoxError;
use crate::proxy::pool::Reusable;

/// The connection.
pub(crate) struct Http1Client<B> {
    sender: SendRequest<B>,
    driver: AbortHandle,
}

/// Ends a connection when it is dropped, unless that was called off.
///
/// hyper, told that nobody waits for an answer, polls on without end for as long as the other side does not take a body.
struct Cut<'a>(Option<&'a AbortHandle>);

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.0.into_iter().for_each(AbortHandle::abort);
    }
}

impl<B> Http1Client<B>
where
    B: Body + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    /// Takes over the two halves of a handshake.
    pub fn new<I>(sender: SendRequest<B>, connection: Connection<I, B>) -> Self
    where
        I: Read + Write + Send + Unpin + 'static,
        B::Data: Send + 'static,
    {
        // What goes wrong on it is seen by the request that it goes wrong for.
        let driver = tokio::task::spawn_local(connection.with_upgrades()).abort_handle();
        Self { sender, driver }
    }

    /// Sends a request. The connection ends if this is dropped before the answer begins.
    pub async fn send(
        &mut self,
        request: Request<B>,
    ) -> Result<Response<Incoming>, TrySendError<Request<B>>> {
        let mut cut = Cut(Some(&self.driver));
        let outcome = self.sender.try_send_request(request).await;
        cut.0 = None;
        outcome
    }

    /// Waits until it takes another request; whether it does.
    pub async fn ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }
}

impl<B: 'static> Reusable for Http1Client<B> {
    fn is_reusable(&self) -> bool {
        self.sender.is_ready()
    }
}
