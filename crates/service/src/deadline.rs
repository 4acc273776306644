//! How long an answer may take.
//!
//! Runs in: a service's worker. Sees no untrusted bytes. Never: stops what it does not own.

use std::time::{Duration, Instant};

use http::StatusCode;
use worker::ANSWER_TIMEOUT;

use crate::{Request, Response};

/// When a request began, in its extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestStart(pub(crate) Instant);

/// Something took too long; converts into 503 with `Retry-After`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it took too long")]
pub struct Late;

impl Request {
    /// When an answer must have begun: the site's worker gives 504 after that, 60 s after the request. On connections
    /// of the service's own nobody does, but a client has given up by then.
    pub fn deadline(&self) -> Instant {
        let begun = self.extensions().get::<RequestStart>().map_or_else(Instant::now, |begun| begun.0);
        begun + ANSWER_TIMEOUT
    }

    /// Runs `work` for at most `limit`, and no longer than until a second before the [deadline](Self::deadline). Then
    /// `work` is dropped where it waits.
    ///
    /// # Errors
    /// It took too long.
    pub async fn within<F: Future>(&self, limit: Duration, work: F) -> Result<F::Output, Late> {
        let left = self.deadline().saturating_duration_since(Instant::now());
        let limit = limit.min(left.saturating_sub(Duration::from_secs(1)));
        tokio::time::timeout(limit, work).await.map_err(|_| Late)
    }
}

impl From<Late> for Response {
    fn from(_: Late) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let seconds = request::error::retry_after(status).unwrap_or_default();
        Self::status_page(status).with_header(http::header::RETRY_AFTER, &seconds.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ends_in_time_or_is_dropped() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let request = Request::get("/");
            let limit = Duration::from_millis(20);
            assert_eq!(request.within(limit, async { 1 }).await, Ok(1));
            let late = request.within(limit, std::future::pending::<()>()).await.unwrap_err();
            let response = Response::from(late);
            assert_eq!(
                (response.status().as_u16(), response.headers()["retry-after"].to_str().unwrap()),
                (503, "5")
            );
            // One that has begun long ago has no time left, whatever the limit.
            let mut old = Request::get("/");
            let begun = Instant::now().checked_sub(ANSWER_TIMEOUT).unwrap();
            old.extensions_mut().insert(RequestStart(begun));
            assert_eq!(old.deadline(), begun + ANSWER_TIMEOUT);
            let hour = Duration::from_secs(3600);
            assert_eq!(old.within(hour, std::future::pending::<()>()).await, Err(Late));
        });
    }
}
