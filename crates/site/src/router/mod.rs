//! Rules: on what terms a request is answered, and by which backend.
//!
//! Untrusted input: requests. Must never: take an action before the access policy of every rule that covers the path is
//! met.

pub mod access;
pub(crate) mod authorize;
mod custom_error;
pub(crate) mod destination;
mod dispatch;
pub mod hook;
pub(crate) mod refused;
pub mod rules;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use http::header::HeaderMap;
use http::{Request, Response, StatusCode};
use request::path::{NormalPath, for_backend};

use self::authorize::{PathOrigin, authorize};
use self::destination::host_of;
use self::dispatch::{Location, RoutedAnswer, act};
use self::refused::LoggedHead;
use self::rules::RouteMatch;
use crate::context::{SiteContext, WaitReason};
use crate::files::cache::{CachedRoot, Roots};
use crate::http::body::{BoundedBody, ResponseBody};
use crate::http::compress::dynamic;
use crate::http::conn_info::ConnInfo;
use crate::http::internal_redirect::set_path;
use crate::http::request::CheckedRequest;
use crate::http::response;
use crate::proxy::relay::RelayTarget;

/// Answers a request whose head has been checked; says in `waits` what it waits for, before it does.
#[expect(clippy::manual_async_fn, reason = "an argument of an `async fn` takes its room twice")]
pub(crate) fn respond<'a>(
    site: &'a SiteContext,
    CheckedRequest { conn, message: mut request }: CheckedRequest,
    waits: Option<&'a Cell<WaitReason>>,
) -> impl Future<Output = Response<ResponseBody>> + 'a {
    async move { respond_to(site, conn, &mut request, waits).await }
}

async fn respond_to(
    site: &SiteContext,
    conn: ConnInfo,
    request: &mut Request<BoundedBody>,
    waits: Option<&Cell<WaitReason>>,
) -> Response<ResponseBody> {
    let raw = request.uri().path().to_owned();
    let Ok(path) = NormalPath::parse(&raw) else {
        return refuse_path(site, conn, request, "a path with dot segments, or an encoding that is none");
    };
    if let Some(partition) = request.extensions().get().map(RelayTarget::partition) {
        waits.into_iter().for_each(|waits| waits.set(WaitReason::Backend));
        // Boxed: this case is rare.
        return Box::pin(relay(site, partition, conn, request)).await;
    }
    let Ok(mut route) = site.rules.find(&path) else {
        return refuse_path(site, conn, request, "a path in which a backend could read dot segments");
    };
    waits.into_iter().for_each(|waits| waits.set(site.waits_for(&path, &route)));
    if !is_ours_in_every_reading(site, request, &path) {
        return refuse_path(site, conn, request, "a path that a backend could read as one of another site");
    }
    normalize(request);
    let limit = route.body_bytes().unwrap_or(site.worker.limits().body_bytes);
    let is_too_large = request.body_mut().limit_to(limit);
    let asked = dynamic::EncodingRequest::new(request.method(), request.headers(), conn.tls);
    let root = root_of(site, request);
    let kept = custom_error::KeptHead::of(site.cache.settings(), request).map(Box::new);
    let answered = match authorize(site, &route.covering, PathOrigin::Client, conn, request.headers()).await {
        Some(refused) => {
            match refused.status() {
                StatusCode::FORBIDDEN => LoggedHead::of(conn, request).refuse_client(site, &route.covering),
                StatusCode::UNAUTHORIZED => LoggedHead::of(conn, request).refuse_password(site),
                _ => {}
            }
            RoutedAnswer::own(refused)
        }
        None if is_too_large => {
            LoggedHead::of(conn, request).refuse_body(site, limit);
            RoutedAnswer::own(response::error(StatusCode::PAYLOAD_TOO_LARGE))
        }
        None => {
            let location = Location { root: root.as_ref(), path: &path, route: &mut route };
            act(site, location, conn, request).await
        }
    };
    let mut response = match (answered.own, kept) {
        (true, None) => answered.response,
        (true, Some(kept)) => {
            // Boxed: this case is rare.
            Box::pin(custom_error::apply(site, root.as_ref(), &route, conn, *kept, answered.response)).await
        }
        (false, _) => dynamic::compress(answered.response, &asked, site.cache.settings(), &site.negotiator),
    };
    add_headers(&route, response.headers_mut());
    response
}

/// Has the site of `partition` answer, whose rules, limits and pages hold for the request, and none of ours.
async fn relay(
    site: &SiteContext,
    partition: u16,
    conn: ConnInfo,
    request: &mut Request<BoundedBody>,
) -> Response<ResponseBody> {
    request.body_mut().limit_to(u64::MAX);
    RoutedAnswer::foreign(site.worker.relay(partition, conn, request).await).response
}

fn refuse_path(
    site: &SiteContext,
    conn: ConnInfo,
    request: &Request<BoundedBody>,
    reason: &'static str,
) -> Response<ResponseBody> {
    LoggedHead::of(conn, request).refuse(site, StatusCode::BAD_REQUEST, reason, "", "");
    response::error_saying(StatusCode::BAD_REQUEST, reason)
}

/// Whether the path is this site's however a backend could read it.
///
/// SECURITY: else the rules of the site that it could lead to would not be asked.
fn is_ours_in_every_reading(
    site: &SiteContext,
    request: &Request<BoundedBody>,
    path: &NormalPath<'_>,
) -> bool {
    if !path.is_ambiguous() {
        return true;
    }
    let host = host_of(request).unwrap_or_default();
    let owns = |reading: &NormalPath<'_>| site.worker.owns_reading(host.as_bytes(), reading);
    path.readings().is_ok_and(|readings| readings.iter().all(owns))
}

/// Puts the path into the form that every backend gets.
fn normalize(request: &mut Request<BoundedBody>) {
    let sent = for_backend(request.uri().path());
    if sent != request.uri().path() {
        let sent = sent.into_owned();
        set_path(request.uri_mut(), &sent);
    }
}

/// The folder of the request's host.
pub(crate) fn root_of<B>(site: &SiteContext, request: &Request<B>) -> Option<Rc<CachedRoot>> {
    let tick = site.clock.tick(Instant::now());
    match site.roots {
        Roots::Hosts(_) => site.roots.find(host_of(request)?.as_bytes(), tick),
        _ => site.roots.find(b"", tick),
    }
}

/// The headers of all rules that cover the path; those of the narrower rule stand in place of others' of the same name.
pub(crate) fn add_headers(route: &RouteMatch<'_>, headers: &mut HeaderMap) {
    for (name, value) in route.headers() {
        headers.insert(name, value.clone());
    }
}
