//! The operator's pages in place of ours, for answers that say that something is wrong.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: the request that has failed. Must never: send a
//! page that its own rules keep from the client, or the source of one that is a script.

use std::rc::Rc;

use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use request::path::NormalPath;
use request::range::Span;

use crate::config::settings::Settings;
use crate::context::SiteContext;
use crate::files::cache::CachedRoot;
use crate::files::serve;
use crate::files::{File, FoundPath};
use crate::http::body::{BodyPiece, BoundedBody, FileBody, ResponseBody};
use crate::http::conn_info::ConnInfo;
use crate::http::internal_redirect::{FailedWith, redirect_internally};
use crate::router::authorize::{PathOrigin, authorize};
use crate::router::dispatch::{Location, pass_on};
use crate::router::rules::RouteMatch;

/// The head of a request, kept for a script that makes the page of its error.
pub(crate) struct KeptHead(Parts);

impl KeptHead {
    /// That of a request, where the site has pages of its own.
    pub fn of<B>(settings: &Settings, request: &Request<B>) -> Option<KeptHead> {
        if settings.error_pages.is_empty() {
            return None;
        }
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.method = request.method().clone();
        parts.uri = request.uri().clone();
        parts.version = request.version();
        parts.headers = request.headers().clone();
        Some(KeptHead(parts))
    }
}

/// The operator's page in place of `response`, if there is one for its status.
pub(crate) async fn apply(
    site: &SiteContext,
    root: Option<&Rc<CachedRoot>>,
    failed: &RouteMatch<'_>,
    conn: ConnInfo,
    kept: KeptHead,
    response: Response<ResponseBody>,
) -> Response<ResponseBody> {
    let status = response.status();
    let page = site.cache.settings().error_pages.iter().find(|(one, _)| *one == status.as_u16());
    let path = page.and_then(|(_, page)| NormalPath::of_file(page.as_bytes()).ok());
    let (Some(path), Some(root)) = (path, root) else {
        return response;
    };
    let Ok(mut route) = site.rules.find(&path) else {
        return response;
    };
    let resolved = serve::resolve(&site.rules, root, &path, &mut route);
    // The rules that have refused the request would refuse their own page.
    let asked = |rule: &&&crate::router::rules::Rule| {
        !failed.covering.iter().any(|known| std::ptr::eq(*known, **rule))
    };
    let others: Vec<_> = route.covering.iter().filter(asked).copied().collect();
    if authorize(site, &others, PathOrigin::Server, conn, &kept.0.headers).await.is_some() {
        return response;
    }
    match (resolved.run, resolved.found) {
        (Some((rule, name)), _) => {
            let mut request = for_script(kept, &name, status);
            let mut location = Location { root: Some(root), path: &name, route: &mut route };
            let made = Box::pin(pass_on(site, &mut location, rule, conn, &mut request)).await.response;
            if made.status().is_success() { with_status(made, &response) } else { response }
        }
        (None, Ok(FoundPath::File(file))) => with_file(response, file),
        _ => response,
    }
}

/// A request for the script at `path`, which reads nothing of what the client has sent but the head.
fn for_script(kept: KeptHead, path: &NormalPath<'_>, status: StatusCode) -> Request<BoundedBody> {
    let mut request = Request::from_parts(kept.0, BoundedBody::empty());
    if *request.method() != Method::HEAD {
        *request.method_mut() = Method::GET;
    }
    for name in [header::CONTENT_LENGTH, header::CONTENT_TYPE, header::TRANSFER_ENCODING, header::RANGE] {
        request.headers_mut().remove(name);
    }
    request.extensions_mut().insert(FailedWith(status));
    redirect_internally(&mut request, path);
    request
}

/// A script's page with the status of the error, and what the answer has to say of it, such as `WWW-Authenticate`.
fn with_status(mut made: Response<ResponseBody>, error: &Response<ResponseBody>) -> Response<ResponseBody> {
    *made.status_mut() = error.status();
    for name in [header::WWW_AUTHENTICATE, header::ALLOW, header::RETRY_AFTER, header::CONTENT_RANGE] {
        if let Some(value) = error.headers().get(&name) {
            made.headers_mut().insert(name, value.clone());
        }
    }
    made
}

fn with_file(response: Response<ResponseBody>, file: File) -> Response<ResponseBody> {
    let (mut parts, _) = response.into_parts();
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.media));
    parts.headers.insert(header::CONTENT_LENGTH, file.version.size.into());
    let body = match file.version.size {
        0 => ResponseBody::Empty,
        length => ResponseBody::File(FileBody::new(file.fd, [BodyPiece::Span(Span { start: 0, length })])),
    };
    Response::from_parts(parts, body)
}
