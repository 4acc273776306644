//! Chooses what answers a request: files, a service, another server, or a rule by itself; and on what terms.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: requests, and what services and upstreams answer.
//! Must never: take an action before the terms of every rule that covers the path are met.

use std::mem::take;
use std::rc::Rc;

use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use request::path::NormalPath;
use wire::CHALLENGES;

use crate::context::SiteContext;
use crate::files::FoundPath;
use crate::files::cache::CachedRoot;
use crate::files::response as file_response;
use crate::files::serve::{self, FileOutcome};
use crate::http::body::{BoundedBody, ResponseBody};
use crate::http::conn_info::ConnInfo;
use crate::http::internal_redirect::{redirect_internally, rewrite_internally, set_path};
use crate::http::response;
use crate::http::websocket;
use crate::proxy::headers::{HeaderChanges, clean_answer};
use crate::proxy::response::leave_out_body;
use crate::proxy::sendfile::{SendfilePath, Wishes, with_file};
use crate::router::authorize::{PathOrigin, authorize};
use crate::router::destination::{Destination, VariableSource, host_of};
use crate::router::refused::{ForwardedHead, LoggedHead};
use crate::router::rules::{RouteMatch, Rule, RuleTarget, TryFile};

/// Where a request leads: a path, what the rules say of it, and a folder of files.
pub(crate) struct Location<'p, 'r> {
    pub root: Option<&'p Rc<CachedRoot>>,
    pub path: &'p NormalPath<'p>,
    pub route: &'p mut RouteMatch<'r>,
}

/// An answer, and whether it is this worker's own: others' are passed on as they are.
pub(crate) struct RoutedAnswer {
    pub(crate) response: Response<ResponseBody>,
    pub(crate) own: bool,
}

impl RoutedAnswer {
    pub(crate) fn own(response: Response<ResponseBody>) -> Self {
        Self { response, own: true }
    }

    /// A backend's answer; or an error in its place, which is ours.
    pub(super) fn foreign(response: Response<ResponseBody>) -> Self {
        let own = response.extensions().get::<response::Own>().is_some();
        Self { response: tidy(response), own }
    }
}

/// Does what the rules say, or what there is without them. A backend that passes the request on takes it out of
/// `request`: a request is large, and would be moved at every step on the way there.
pub(super) async fn act<'r>(
    site: &'r SiteContext,
    location: Location<'_, 'r>,
    conn: ConnInfo,
    request: &mut Request<BoundedBody>,
) -> RoutedAnswer {
    let Some(rule) = location.route.rule else {
        return from_files(site, location, None, conn, request).await;
    };
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let proves = matches!(rule.target, RuleTarget::Redirect { .. }) && location.path.is_below(CHALLENGES);
    if reads && (rule.fallback || proves) {
        // An authority's challenge for the host is never redirected.
        return from_files(site, location, Some(rule), conn, request).await;
    }
    by_rule(site, location, rule, conn, request).await
}

/// Answers from files; without one, by the rule `miss`.
async fn from_files<'r>(
    site: &'r SiteContext,
    mut location: Location<'_, 'r>,
    miss: Option<&'r Rule>,
    conn: ConnInfo,
    request: &mut Request<BoundedBody>,
) -> RoutedAnswer {
    let outcome = serve::answer(
        site,
        location.root,
        (location.path, &mut *location.route),
        LoggedHead::of(conn, request),
    )
    .await;
    match (outcome, miss) {
        (FileOutcome::Answer(response), _) | (FileOutcome::Missing(response), None) => {
            RoutedAnswer::own(response)
        }
        // Boxed: its future would enlarge that of every file.
        (FileOutcome::Missing(_), Some(rule)) => Box::pin(by_rule(site, location, rule, conn, request)).await,
        (FileOutcome::Run(rule, name), _) => {
            redirect_internally(request, &name);
            location.path = &name;
            Box::pin(pass_on(site, &mut location, rule, conn, request)).await
        }
    }
}

async fn by_rule<'r>(
    site: &'r SiteContext,
    mut location: Location<'_, 'r>,
    rule: &Rule,
    conn: ConnInfo,
    request: &mut Request<BoundedBody>,
) -> RoutedAnswer {
    match &rule.target {
        RuleTarget::Files | RuleTarget::Alias => RoutedAnswer::own(response::error(StatusCode::NOT_FOUND)),
        RuleTarget::Redirect { to, status } => {
            let location = destination(rule, to, location.path, request).location();
            RoutedAnswer::own(response::elsewhere(location, *status))
        }
        RuleTarget::Rewrite(to) => {
            let to = destination(rule, to, location.path, request);
            Box::pin(rewrite(site, location.root, to, conn, request)).await
        }
        RuleTarget::TryFiles(tried) => {
            Box::pin(try_files(site, location, (rule, tried), conn, request)).await
        }
        RuleTarget::Service(_) | RuleTarget::Upstream(_) | RuleTarget::FastCgi(_) | RuleTarget::Hook(_) => {
            pass_on(site, &mut location, rule, conn, request).await
        }
    }
}

/// Has another server answer, or a function of this one; with the headers that the rules change.
pub(crate) async fn pass_on<'r>(
    site: &'r SiteContext,
    location: &mut Location<'_, 'r>,
    rule: &Rule,
    conn: ConnInfo,
    request: &mut Request<BoundedBody>,
) -> RoutedAnswer {
    change(request, location.route, rule);
    let mut answered = answer_of(site, location, rule, conn, request).await;
    for name in location.route.hidden_headers() {
        answered.response.headers_mut().remove(name);
    }
    answered
}

/// Changes a request that is passed on, as the rules say.
fn change(request: &mut Request<BoundedBody>, route: &RouteMatch<'_>, rule: &Rule) {
    let mut changes = HeaderChanges { set: route.request_headers().cloned().collect(), prefix: None };
    if let Some(prefix) = rule.matcher.path.as_deref().filter(|_| rule.strip_prefix) {
        let prefix = prefix.trim_end_matches('/');
        // INVARIANT: the path is in the form for backends, in which no letter of a name is escaped. A prefix with
        // characters that are escaped there stays, as the client wrote them differently.
        if let Some(rest) =
            request.uri().path().strip_prefix(prefix).map(|rest| format!("/{}", rest.trim_start_matches('/')))
        {
            set_path(request.uri_mut(), &rest);
            changes.prefix = http::HeaderValue::try_from(prefix).ok();
        }
    }
    if !changes.set.is_empty() || changes.prefix.is_some() {
        request.extensions_mut().insert(changes);
    }
}

async fn answer_of<'r>(
    site: &'r SiteContext,
    location: &mut Location<'_, 'r>,
    rule: &Rule,
    conn: ConnInfo,
    request: &mut Request<BoundedBody>,
) -> RoutedAnswer {
    let RuleTarget::Hook(name) = &rule.target else {
        let Some(backend) = rule.target.backend() else {
            return RoutedAnswer::own(response::error(StatusCode::NOT_FOUND));
        };
        let passed_on = ForwardedHead::of(conn, request);
        if matches!(rule.target, RuleTarget::Service(_)) {
            let response = site.worker.forward(backend, None, conn, request).await;
            return RoutedAnswer::foreign(passed_on.check(site, rule, response));
        }
        let wishes = Wishes::of(request);
        let files = location.root.map(|root| &root.files);
        let response = site.worker.forward(backend, files, conn, request).await;
        let response = passed_on.check(site, rule, response);
        if response.extensions().get::<SendfilePath>().is_none() {
            return RoutedAnswer::foreign(response);
        }
        // Boxed: this case is rare.
        return Box::pin(named_file(site, location.root, conn, &wishes, response)).await;
    };
    // Boxed: its future would enlarge that of every backend.
    match Box::pin(site.hooks.call(name, conn, take(request))).await {
        // A function says itself what it has to say of an error.
        Ok(response) => RoutedAnswer::foreign(response),
        Err(head) => {
            let Parts { method, uri, headers, .. } = &*head;
            let asked = LoggedHead { conn, method, uri, headers };
            let files = serve::answer(site, location.root, (location.path, &mut *location.route), asked);
            let outcome = Box::pin(files).await;
            RoutedAnswer::own(match outcome {
                FileOutcome::Answer(response) | FileOutcome::Missing(response) => response,
                // Another rule's program: the function that was asked has passed it on to the files, which have none.
                FileOutcome::Run(..) => response::error(StatusCode::NOT_FOUND),
            })
        }
    }
}

/// The file that an answer names in place of its body, if its rules let the client have it.
async fn named_file(
    site: &SiteContext,
    root: Option<&Rc<CachedRoot>>,
    conn: ConnInfo,
    wishes: &Wishes,
    mut response: Response<ResponseBody>,
) -> RoutedAnswer {
    let Some(SendfilePath(path)) = response.extensions_mut().remove::<SendfilePath>() else {
        return RoutedAnswer::foreign(response);
    };
    // It names what is not the site's: a server that was led astray, or is not ours any more.
    let (Some(path), Some(root)) = (path, root) else {
        return RoutedAnswer::foreign(response::error(StatusCode::NOT_FOUND));
    };
    let Ok(mut route) = site.rules.find(&path) else {
        return RoutedAnswer::foreign(response::error(StatusCode::NOT_FOUND));
    };
    let resolved = serve::resolve(&site.rules, root, &path, &mut route);
    if let Some(refused) = authorize(site, &route.covering, PathOrigin::Server, conn, &wishes.headers).await {
        return RoutedAnswer::foreign(refused);
    }
    RoutedAnswer::foreign(match resolved.found {
        Ok(FoundPath::File(file)) if resolved.run.is_none() => with_file(&response, file, wishes),
        // A program, or a directory, whose path is not for the client to see.
        Ok(_) => response::error(StatusCode::NOT_FOUND),
        Err(missing) => file_response::missing(missing),
    })
}

/// Where a target of a rule leads for a request.
fn destination(
    rule: &Rule,
    to: &rewrite::RewriteTarget,
    path: &NormalPath<'_>,
    request: &Request<BoundedBody>,
) -> Destination {
    let host = host_of(request).unwrap_or_default();
    VariableSource { path, query: request.uri().query(), host: &host }.destination(rule, to)
}

/// Answers as for the first of these paths at which there is a file, or a folder with an index file; or as for the
/// last.
async fn try_files(
    site: &SiteContext,
    location: Location<'_, '_>,
    (rule, tried): (&Rule, &[TryFile]),
    conn: ConnInfo,
    request: &mut Request<BoundedBody>,
) -> RoutedAnswer {
    let is_there = |to: &Destination| {
        let path = NormalPath::parse(&to.path).ok()?;
        location
            .root?
            .files
            .lookup(&path)
            .ok()
            .filter(|found| path.is_folder() || !matches!(found, FoundPath::Elsewhere(_)))
    };
    let last = tried.len().saturating_sub(1);
    for (number, tried) in tried.iter().enumerate() {
        let to = match tried {
            TryFile::Status(status) => return RoutedAnswer::own(response::error(*status)),
            TryFile::Path(to) => destination(rule, to, location.path, request),
        };
        if number == last || is_there(&to).is_some() {
            let to = if number == last { to } else { to.without_new_slash(location.path) };
            return rewrite(site, location.root, to, conn, request).await;
        }
    }
    RoutedAnswer::own(response::error(StatusCode::NOT_FOUND))
}

/// Answers as for another path, by what is there: no second rule changes it again.
async fn rewrite(
    site: &SiteContext,
    root: Option<&Rc<CachedRoot>>,
    to: Destination,
    conn: ConnInfo,
    request: &mut Request<BoundedBody>,
) -> RoutedAnswer {
    let Ok(path) = NormalPath::parse(&to.path) else {
        return RoutedAnswer::own(response::error(StatusCode::BAD_REQUEST));
    };
    let Ok(mut route) = site.rules.find(&path) else {
        return RoutedAnswer::own(response::error(StatusCode::BAD_REQUEST));
    };
    // SECURITY: the terms of where it leads hold as well. Where the client has chosen a part of that, it has asked for
    // it.
    let origin = if to.is_fixed { PathOrigin::Server } else { PathOrigin::Client };
    if let Some(refused) = authorize(site, &route.covering, origin, conn, request.headers()).await {
        return RoutedAnswer::own(refused);
    }
    rewrite_internally(request, &path, to.query.as_deref());
    let rule = route.rule.filter(|rule| rule.passes_on());
    let mut there = Location { root, path: &path, route: &mut route };
    match rule {
        Some(rule) => pass_on(site, &mut there, rule, conn, request).await,
        None => Box::pin(from_files(site, there, None, conn, request)).await,
    }
}

/// Takes out of an answer of others what is not for the client.
fn tidy(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    if websocket::opened(&response).is_some() {
        return response;
    }
    if response.status().is_informational() {
        return response::error(StatusCode::BAD_GATEWAY);
    }
    clean_answer(response.headers_mut());
    leave_out_body(&mut response);
    response
}
