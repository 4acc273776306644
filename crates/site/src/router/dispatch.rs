//! Who answers a request: files, a service, another server, or a rule by itself; and on what terms.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: requests, and what services and upstreams answer.
//! Must never: take an action before the terms of every rule that covers the path are met.

use std::rc::Rc;

use http::{Method, Request, Response, StatusCode};
use request::path::{NormalPath, escape};
use wire::CHALLENGES;

use crate::context::Site;
use crate::files::cache::Root;
use crate::files::response as file_response;
use crate::files::serve::{self, Outcome};
use crate::http::body::{BoundedBody, ResponseBody};
use crate::http::conn_info::ConnInfo;
use crate::http::internal_redirect::redirect_internally;
use crate::http::response;
use crate::http::websocket;
use crate::proxy::headers::clean_answer;
use crate::proxy::response::leave_out_body;
use crate::proxy::sendfile::{Named, Wishes, with_file};
use crate::router::authorize::{Origin, authorize};
use crate::router::rules::{Matcher, RouteMatch, Rule, Target};

/// Where a request leads: a path, what the rules say of it, and a folder of files.
pub(crate) struct Location<'p, 'r> {
    pub root: Option<&'p Rc<Root>>,
    pub path: &'p NormalPath<'p>,
    pub route: &'p mut RouteMatch<'r>,
}

/// An answer, and whether it is this worker's own: others' are passed on as they are.
pub(crate) struct Answered {
    pub(crate) response: Response<ResponseBody>,
    pub(crate) own: bool,
}

impl Answered {
    pub(crate) fn own(response: Response<ResponseBody>) -> Self {
        Self { response, own: true }
    }

    fn foreign(response: Response<ResponseBody>) -> Self {
        Self { response: tidy(response), own: false }
    }
}

/// Does what the rules say, or what there is without them.
pub(super) async fn act<'r>(
    site: &'r Site,
    location: Location<'_, 'r>,
    conn: ConnInfo,
    request: Request<BoundedBody>,
) -> Answered {
    let Some(rule) = location.route.rule else {
        return from_files(site, location, None, conn, request).await;
    };
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let proves = matches!(rule.target, Target::Redirect { .. }) && location.path.is_below(CHALLENGES);
    if reads && (rule.fallback || proves) {
        // What proves to an authority that the host is ours is no matter of redirection.
        return from_files(site, location, Some(rule), conn, request).await;
    }
    by_rule(site, location, rule, conn, request).await
}

/// Answers from files; without one, by the rule `miss`.
async fn from_files<'r>(
    site: &'r Site,
    mut location: Location<'_, 'r>,
    miss: Option<&'r Rule>,
    conn: ConnInfo,
    request: Request<BoundedBody>,
) -> Answered {
    let (parts, body) = request.into_parts();
    let outcome =
        serve::answer(site, location.root, (location.path, &mut *location.route), conn, &parts).await;
    let mut request = Request::from_parts(parts, body);
    match (outcome, miss) {
        (Outcome::Answer(response), _) | (Outcome::Missing(response), None) => Answered::own(response),
        (Outcome::Missing(_), Some(rule)) => by_rule(site, location, rule, conn, request).await,
        (Outcome::Run(rule, name), _) => {
            redirect_internally(&mut request, &name);
            location.path = &name;
            pass_on(site, &mut location, rule, conn, request).await
        }
    }
}

async fn by_rule<'r>(
    site: &'r Site,
    mut location: Location<'_, 'r>,
    rule: &Rule,
    conn: ConnInfo,
    request: Request<BoundedBody>,
) -> Answered {
    match &rule.target {
        Target::Files => Answered::own(response::error(StatusCode::NOT_FOUND)),
        Target::Redirect { to, status } => {
            Answered::own(redirect(rule, to, *status, location.path, request.uri().query()))
        }
        Target::Rewrite(to) => rewrite(site, location, (rule, to), conn, request).await,
        Target::Service(_) | Target::Upstream(_) | Target::FastCgi(_) | Target::Hook(_) => {
            pass_on(site, &mut location, rule, conn, request).await
        }
    }
}

/// Has another server answer, or a function of this one.
pub(crate) async fn pass_on<'r>(
    site: &'r Site,
    location: &mut Location<'_, 'r>,
    rule: &Rule,
    conn: ConnInfo,
    request: Request<BoundedBody>,
) -> Answered {
    let Target::Hook(name) = &rule.target else {
        let Some(backend) = rule.target.backend() else {
            return Answered::own(response::error(StatusCode::NOT_FOUND));
        };
        if matches!(rule.target, Target::Service(_)) {
            return Answered::foreign(site.worker.forward(backend, None, conn, request).await);
        }
        let wishes = Wishes::of(&request);
        let files = location.root.map(|root| &root.files);
        let response = site.worker.forward(backend, files, conn, request).await;
        return named_file(site, location.root, conn, &wishes, response).await;
    };
    match site.hooks.call(name, conn, request).await {
        // A function says itself what it has to say of an error.
        Ok(response) => Answered::foreign(response),
        Err(head) => {
            let outcome =
                serve::answer(site, location.root, (location.path, &mut *location.route), conn, &head).await;
            Answered::own(match outcome {
                Outcome::Answer(response) | Outcome::Missing(response) => response,
                // Another rule's program: the function that was asked has passed it on to the files, which have none.
                Outcome::Run(..) => response::error(StatusCode::NOT_FOUND),
            })
        }
    }
}

/// The file that an answer names in place of its body, if its rules let the client have it.
async fn named_file(
    site: &Site,
    root: Option<&Rc<Root>>,
    conn: ConnInfo,
    wishes: &Wishes,
    mut response: Response<ResponseBody>,
) -> Answered {
    let Some(Named(path)) = response.extensions_mut().remove::<Named>() else {
        return Answered::foreign(response);
    };
    // It names what is not the site's: a server that was led astray, or is not ours any more.
    let (Some(path), Some(root)) = (path, root) else {
        return Answered::foreign(response::error(StatusCode::NOT_FOUND));
    };
    let Ok(mut route) = site.rules.find(&path) else {
        return Answered::foreign(response::error(StatusCode::NOT_FOUND));
    };
    let resolved = serve::resolve(&site.rules, root, &path, &mut route);
    if let Some(refused) = authorize(site, &route.covering, Origin::Server, conn, &wishes.headers).await {
        return Answered::foreign(refused);
    }
    Answered::foreign(match resolved.found {
        Ok(crate::files::Found::File(file)) if resolved.run.is_none() => with_file(&response, file, wishes),
        // A program, or a directory, whose path is not for the client to see.
        Ok(_) => response::error(StatusCode::NOT_FOUND),
        Err(missing) => file_response::missing(missing),
    })
}

/// Sends the client to where the rule says, with what followed the rule's path, in its one spelling.
fn redirect(
    rule: &Rule,
    to: &str,
    status: StatusCode,
    path: &NormalPath<'_>,
    query: Option<&str>,
) -> Response<ResponseBody> {
    let location = target_of(rule, to, path);
    let query = query.filter(|_| to.ends_with('/'));
    response::elsewhere(response::with_query(location, query), status)
}

/// The path or URL that stands for `path` under the rule: what follows the rule's path is added if both end with a slash.
fn target_of(rule: &Rule, to: &str, path: &NormalPath<'_>) -> String {
    match &rule.matcher {
        Matcher::Path(from) if from.ends_with('/') && to.ends_with('/') => {
            // What was decoded to be compared is encoded again: a backslash or a line end must not reach a client.
            format!("{to}{}", escape(path.below(from).unwrap_or_default()))
        }
        _ => to.to_owned(),
    }
}

/// Answers as for another path, by what is there: no second rule changes it again.
async fn rewrite(
    site: &Site,
    location: Location<'_, '_>,
    (rule, to): (&Rule, &str),
    conn: ConnInfo,
    mut request: Request<BoundedBody>,
) -> Answered {
    let target = target_of(rule, to, location.path);
    let Ok(path) = NormalPath::parse(&target) else {
        return Answered::own(response::error(StatusCode::BAD_REQUEST));
    };
    let Ok(mut route) = site.rules.find(&path) else {
        return Answered::own(response::error(StatusCode::BAD_REQUEST));
    };
    // SECURITY: the terms of where it leads hold as well. Where the client has chosen a part of that, it has asked for it.
    let origin = if target == *to { Origin::Server } else { Origin::Client };
    if let Some(refused) = authorize(site, &route.covering, origin, conn, request.headers()).await {
        return Answered::own(refused);
    }
    redirect_internally(&mut request, &path);
    let rule = route.rule.filter(|rule| rule.passes_on());
    let mut there = Location { root: location.root, path: &path, route: &mut route };
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
