//! Internal redirects: a request goes on as one for another path of the site, and what the client has asked for is
//! remembered.
//!
//! Untrusted input: the address of a request. Must never: tell a backend that a path was asked for which was not.

use http::uri::PathAndQuery;
use http::{Request, StatusCode, Uri};
use request::path::NormalPath;

use crate::http::body::BoundedBody;

/// The path and query that a client has asked for, where an internal redirect has led elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct RequestedTarget(pub(crate) PathAndQuery);

/// The error that a script makes the page of; CGI tells it as `REDIRECT_STATUS`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedWith(pub(crate) StatusCode);

/// Replaces the path of an address, and keeps the query.
pub(crate) fn set_path(uri: &mut Uri, path: &str) {
    let query = uri.query().map(str::to_owned);
    set_target(uri, path, query.as_deref());
}

/// Replaces the path and the query of an address.
fn set_target(uri: &mut Uri, path: &str, query: Option<&str>) {
    let target = match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let mut parts = std::mem::take(uri).into_parts();
    parts.path_and_query = PathAndQuery::try_from(target).ok();
    // INVARIANT: the parts were those of an address, and a path in its normal form is one.
    *uri = Uri::from_parts(parts).unwrap_or_default();
}

/// Has a request go on as one for another path of the site; what the client has asked for is remembered.
pub(crate) fn redirect_internally(request: &mut Request<BoundedBody>, path: &NormalPath<'_>) {
    remember(request);
    set_path(request.uri_mut(), &path.spelling());
}

/// The same with another query.
pub(crate) fn rewrite_internally(
    request: &mut Request<BoundedBody>,
    path: &NormalPath<'_>,
    query: Option<&str>,
) {
    remember(request);
    set_target(request.uri_mut(), &path.spelling(), query);
}

fn remember(request: &mut Request<BoundedBody>) {
    let requested = request.uri().path_and_query().cloned();
    if let Some(requested) = requested.filter(|_| request.extensions().get::<RequestedTarget>().is_none()) {
        request.extensions_mut().insert(RequestedTarget(requested));
    }
}
