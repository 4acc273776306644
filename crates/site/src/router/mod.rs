//! Who answers a request: rules, on what terms, and what they lead to.
//!
//! Untrusted input: requests. Must never: take an action before the access policy of every rule that covers the path is met.

pub mod access;
pub(crate) mod authorize;
mod custom_error;
mod destination;
mod dispatch;
pub mod hook;
pub mod rules;

use std::rc::Rc;
use std::time::Instant;

use http::header::HeaderMap;
use http::{Request, Response, StatusCode};
use request::path::{NormalPath, for_backend};

use self::authorize::{Origin, authorize};
use self::destination::host_of;
use self::dispatch::{Answered, Location, act};
use self::rules::RouteMatch;
use crate::context::Site;
use crate::files::cache::{Root, Roots};
use crate::http::body::{BoundedBody, ResponseBody};
use crate::http::compress::dynamic::{self, Asked};
use crate::http::internal_redirect::set_path;
use crate::http::request::CheckedRequest;
use crate::http::response;

/// Answers a request whose head has been checked.
pub(crate) async fn respond(
    site: &Site,
    CheckedRequest { conn, message: mut request }: CheckedRequest,
) -> Response<ResponseBody> {
    let raw = request.uri().path().to_owned();
    let Ok(path) = NormalPath::parse(&raw) else {
        return response::error(StatusCode::BAD_REQUEST);
    };
    let Ok(mut route) = site.rules.find(&path) else {
        return response::error(StatusCode::BAD_REQUEST);
    };
    if !is_ours_in_every_reading(site, &request, &path) {
        return response::error(StatusCode::BAD_REQUEST);
    }
    normalize(&mut request);
    let is_too_large = route.body_bytes().is_some_and(|limit| request.body_mut().limit_to(limit));
    let asked = Asked::new(request.method(), request.headers(), conn.tls);
    let root = root_of(site, &request);
    let kept = custom_error::Kept::of(site.cache.settings(), &request);
    let answered = match authorize(site, &route.covering, Origin::Client, conn, request.headers()).await {
        Some(refused) => Answered::own(refused),
        None if is_too_large => Answered::own(response::error(StatusCode::PAYLOAD_TOO_LARGE)),
        None => {
            let location = Location { root: root.as_ref(), path: &path, route: &mut route };
            // Boxed: a future of its own size would enlarge that of every request.
            Box::pin(act(site, location, conn, request)).await
        }
    };
    let mut response = match (answered.own, kept) {
        (true, None) => answered.response,
        (true, Some(kept)) => {
            custom_error::apply(site, root.as_ref(), &route, conn, kept, answered.response).await
        }
        (false, _) => dynamic::compress(answered.response, &asked, site.cache.settings(), &site.negotiator),
    };
    add_headers(&route, response.headers_mut());
    response
}

/// Whether the path is this site's however a backend could read it.
///
/// SECURITY: else the rules of the site that it could lead to would not be asked.
fn is_ours_in_every_reading(site: &Site, request: &Request<BoundedBody>, path: &NormalPath<'_>) -> bool {
    match path.widest() {
        Ok(None) => true,
        Ok(Some(widest)) => {
            site.worker.owns_reading(host_of(request).unwrap_or_default().as_bytes(), &widest)
        }
        Err(_) => false,
    }
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
fn root_of(site: &Site, request: &Request<BoundedBody>) -> Option<Rc<Root>> {
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
