//! Who answers a request: files, a service, another server, or a rule by itself; and on what terms.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: requests, and what services and upstreams answer.
//! Must never: take an action before the terms of every rule that covers the path are met.

use std::rc::Rc;
use std::time::Instant;

use http::header::{self, HeaderMap, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Uri};
use request::path::{NormalPath, escape, for_backend};
use wire::CHALLENGES;

use crate::context::{Partition, Site};
use crate::files::cache::{Root, Roots};
use crate::files::response as file_response;
use crate::files::serve::{self, Outcome};
use crate::http::body::{BoundedBody, ResponseBody};
use crate::http::compress::dynamic::{self, Asked};
use crate::http::conn_info::Ends;
use crate::http::response;
use crate::http::websocket;
use crate::proxy::headers::clean_answer;
use crate::proxy::response::leave_out_body;
use crate::proxy::sendfile::{Named, Wishes, with_file};
use crate::router::access::users::Verdict;
use crate::router::custom_error;
use crate::router::rules::{Action, Matcher, Plan, Rule};

/// Where a request leads: a path, what the rules say of it, and a folder of files.
pub(crate) struct Place<'p, 'r> {
    pub root: Option<&'p Rc<Root>>,
    pub path: &'p NormalPath<'p>,
    pub plan: &'p mut Plan<'r>,
}

/// Who has asked for a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The client, by its name.
    Client,
    /// This server, or one behind the site: an internal redirect.
    Server,
}

/// The path and query that a client has asked for, where an internal redirect has led elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Requested(pub(crate) PathAndQuery);

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

/// Answers a request whose head has been checked.
pub(crate) async fn respond<P: Partition>(
    site: &Site<P>,
    ends: Ends,
    mut request: Request<BoundedBody>,
) -> Response<ResponseBody> {
    tell_certificate(&mut request);
    let raw = request.uri().path().to_owned();
    let Ok(path) = NormalPath::parse(&raw) else {
        return response::error(StatusCode::BAD_REQUEST);
    };
    let Ok(mut plan) = site.rules.plan(&path) else {
        return response::error(StatusCode::BAD_REQUEST);
    };
    if !is_ours_in_every_reading(site, &request, &path) {
        return response::error(StatusCode::BAD_REQUEST);
    }
    normalize(&mut request);
    let asked = Asked::new(request.method(), request.headers(), ends.tls);
    let root = root_of(site, &request);
    let kept = custom_error::Kept::of(site.cache.settings(), &request);
    let answered = match admit(site, &plan.covering, Origin::Client, ends, request.headers()).await {
        Some(refused) => Answered::own(refused),
        None => {
            let place = Place { root: root.as_ref(), path: &path, plan: &mut plan };
            // Boxed: a future of its own size would enlarge that of every request.
            Box::pin(act(site, place, ends, request)).await
        }
    };
    let mut response = match (answered.own, kept) {
        (true, None) => answered.response,
        (true, Some(kept)) => {
            custom_error::apply(site, root.as_ref(), &plan, ends, kept, answered.response).await
        }
        (false, _) => dynamic::compress(answered.response, &asked, site.cache.settings(), &site.negotiator),
    };
    add_headers(&plan, response.headers_mut());
    response
}

/// Whether the path is this site's however a backend could read it.
///
/// SECURITY: else the rules of the site that it could lead to would not be asked.
fn is_ours_in_every_reading<P: Partition>(
    site: &Site<P>,
    request: &Request<BoundedBody>,
    path: &NormalPath<'_>,
) -> bool {
    match path.widest() {
        Ok(None) => true,
        Ok(Some(widest)) => {
            site.partition.owns_reading(host_of(request).unwrap_or_default().as_bytes(), &widest)
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

/// Replaces the path of an address, and keeps the query.
fn set_path(uri: &mut Uri, path: &str) {
    let target = match uri.query() {
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
    let requested = request.uri().path_and_query().cloned();
    if let Some(requested) = requested.filter(|_| request.extensions().get::<Requested>().is_none()) {
        request.extensions_mut().insert(Requested(requested));
    }
    set_path(request.uri_mut(), &path.spelling());
}

/// The certificate that a client has shown on its connection; goes with its requests.
#[derive(Clone)]
pub(crate) struct Shown(pub(crate) HeaderValue);

/// Makes the headers of RFC 9440 say what was shown, and nothing else.
///
/// SECURITY: on every request, before anybody reads it: whoever is behind us believes them.
fn tell_certificate<B>(request: &mut Request<B>) {
    let shown = request.extensions_mut().remove::<Shown>();
    let headers = request.headers_mut();
    headers.remove(certificate::CLIENT_CERT_CHAIN);
    headers.remove(certificate::CLIENT_CERT);
    if let Some(Shown(value)) = shown {
        headers.insert(certificate::CLIENT_CERT, value);
    }
}

/// The folder of the request's host.
fn root_of<P: Partition>(site: &Site<P>, request: &Request<BoundedBody>) -> Option<Rc<Root>> {
    let tick = site.clock.tick(Instant::now());
    match site.roots {
        Roots::Hosts(_) => site.roots.find(host_of(request)?.as_bytes(), tick),
        _ => site.roots.find(b"", tick),
    }
}

/// The host, in lower case, without port and final dot.
fn host_of(request: &Request<BoundedBody>) -> Option<String> {
    let field = || request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let authority = request.uri().authority().map(http::uri::Authority::as_str).or_else(field)?;
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    Some(host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase())
}

/// The refusal, if one of the rules does not let this client have what they are for.
pub(crate) async fn admit<P: Partition>(
    site: &Site<P>,
    rules: &[&Rule],
    origin: Origin,
    ends: Ends,
    headers: &HeaderMap,
) -> Option<Response<ResponseBody>> {
    if rules.iter().any(|rule| rule.terms.internal) && origin == Origin::Client {
        return Some(response::error(StatusCode::NOT_FOUND));
    }
    if !rules.iter().all(|rule| rule.terms.admits(ends.peer.ip())) {
        return Some(response::error(StatusCode::FORBIDDEN));
    }
    let mut fields = headers.get_all(header::AUTHORIZATION).iter();
    let field = fields.next().filter(|_| fields.next().is_none());
    for members in rules.iter().filter_map(|rule| rule.terms.members.as_ref()) {
        let users = members.users.borrow().clone();
        let verdict = match field {
            Some(field) => users.verify(&site.guesses, ends.peer.ip(), field.as_bytes()).await,
            None => Verdict::Bad,
        };
        if verdict == Verdict::Busy {
            site.shed.note(|shed| shed.unavailable += 1);
        }
        if verdict != Verdict::Good {
            return Some(unauthorised(verdict, &members.challenge));
        }
    }
    None
}

fn unauthorised(verdict: Verdict, challenge: &HeaderValue) -> Response<ResponseBody> {
    if verdict == Verdict::Busy {
        let mut response = response::error(StatusCode::SERVICE_UNAVAILABLE);
        response.headers_mut().insert(header::RETRY_AFTER, response::RETRY_AFTER);
        return response;
    }
    let mut response = response::error(StatusCode::UNAUTHORIZED);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge.clone());
    response
}

/// Does what the rules say, or what there is without them.
async fn act<'r, P: Partition>(
    site: &'r Site<P>,
    place: Place<'_, 'r>,
    ends: Ends,
    request: Request<BoundedBody>,
) -> Answered {
    if let Some(service) = service_of(site, place.plan, place.path) {
        return Answered::foreign(site.partition.relay(service, ends, request).await);
    }
    let Some(rule) = place.plan.rule else {
        return from_files(site, place, None, ends, request).await;
    };
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let proves = matches!(rule.action, Action::Redirect { .. }) && place.path.is_below(CHALLENGES);
    if reads && (rule.fallback || proves) {
        // What proves to an authority that the host is ours is no matter of redirection.
        return from_files(site, place, Some(rule), ends, request).await;
    }
    by_rule(site, place, rule, ends, request).await
}

/// The service that the path belongs to, if no rule's path is longer.
pub(crate) fn service_of<P: Partition>(
    site: &Site<P>,
    plan: &Plan<'_>,
    path: &NormalPath<'_>,
) -> Option<usize> {
    let service = site.partition.service(path)?;
    (plan.reach() <= site.partition.reach(service)).then_some(service)
}

/// Answers from files; without one, by the rule `miss`.
async fn from_files<'r, P: Partition>(
    site: &'r Site<P>,
    mut place: Place<'_, 'r>,
    miss: Option<&'r Rule>,
    ends: Ends,
    request: Request<BoundedBody>,
) -> Answered {
    let (parts, body) = request.into_parts();
    let outcome = serve::answer(site, place.root, (place.path, &mut *place.plan), ends, &parts).await;
    let mut request = Request::from_parts(parts, body);
    match (outcome, miss) {
        (Outcome::Answer(response), _) | (Outcome::Missing(response), None) => Answered::own(response),
        (Outcome::Missing(_), Some(rule)) => by_rule(site, place, rule, ends, request).await,
        (Outcome::Run(rule, name), _) => {
            redirect_internally(&mut request, &name);
            place.path = &name;
            pass_on(site, &mut place, rule, ends, request).await
        }
    }
}

async fn by_rule<'r, P: Partition>(
    site: &'r Site<P>,
    mut place: Place<'_, 'r>,
    rule: &Rule,
    ends: Ends,
    request: Request<BoundedBody>,
) -> Answered {
    match &rule.action {
        Action::Terms => Answered::own(response::error(StatusCode::NOT_FOUND)),
        Action::Redirect { to, status } => {
            Answered::own(redirect(rule, to, *status, place.path, request.uri().query()))
        }
        Action::Rewrite(to) => rewrite(site, place, (rule, to), ends, request).await,
        Action::Upstream | Action::Fastcgi | Action::Hook(_) => {
            pass_on(site, &mut place, rule, ends, request).await
        }
    }
}

/// Has another server answer, or a function of this one.
pub(crate) async fn pass_on<'r, P: Partition>(
    site: &'r Site<P>,
    place: &mut Place<'_, 'r>,
    rule: &Rule,
    ends: Ends,
    request: Request<BoundedBody>,
) -> Answered {
    let Action::Hook(name) = &rule.action else {
        let wishes = Wishes::of(&request);
        let files = place.root.map(|root| &root.files);
        let response = site.partition.forward(rule, files, ends, request).await;
        return named_file(site, place.root, ends, &wishes, response).await;
    };
    match site.hooks.call(name, ends, request).await {
        // A function says itself what it has to say of an error.
        Ok(response) => Answered::foreign(response),
        Err(head) => {
            let outcome = serve::answer(site, place.root, (place.path, &mut *place.plan), ends, &head).await;
            Answered::own(match outcome {
                Outcome::Answer(response) | Outcome::Missing(response) => response,
                // Another rule's program: the function that was asked has passed it on to the files, which have none.
                Outcome::Run(..) => response::error(StatusCode::NOT_FOUND),
            })
        }
    }
}

/// The file that an answer names in place of its body, if its rules let the client have it.
async fn named_file<P: Partition>(
    site: &Site<P>,
    root: Option<&Rc<Root>>,
    ends: Ends,
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
    let Ok(mut plan) = site.rules.plan(&path) else {
        return Answered::foreign(response::error(StatusCode::NOT_FOUND));
    };
    let resolved = serve::resolve(&site.rules, root, &path, &mut plan);
    if let Some(refused) = admit(site, &plan.covering, Origin::Server, ends, &wishes.headers).await {
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
async fn rewrite<P: Partition>(
    site: &Site<P>,
    place: Place<'_, '_>,
    (rule, to): (&Rule, &str),
    ends: Ends,
    mut request: Request<BoundedBody>,
) -> Answered {
    let target = target_of(rule, to, place.path);
    let Ok(path) = NormalPath::parse(&target) else {
        return Answered::own(response::error(StatusCode::BAD_REQUEST));
    };
    let Ok(mut plan) = site.rules.plan(&path) else {
        return Answered::own(response::error(StatusCode::BAD_REQUEST));
    };
    // SECURITY: the terms of where it leads hold as well. Where the client has chosen a part of that, it has asked for it.
    let origin = if target == *to { Origin::Server } else { Origin::Client };
    if let Some(refused) = admit(site, &plan.covering, origin, ends, request.headers()).await {
        return Answered::own(refused);
    }
    redirect_internally(&mut request, &path);
    if let Some(service) = service_of(site, &plan, &path) {
        return Answered::foreign(site.partition.relay(service, ends, request).await);
    }
    let rule = plan.rule.filter(|rule| rule.passes_on());
    let mut there = Place { root: place.root, path: &path, plan: &mut plan };
    match rule {
        Some(rule) => pass_on(site, &mut there, rule, ends, request).await,
        None => Box::pin(from_files(site, there, None, ends, request)).await,
    }
}

/// The headers of all rules that cover the path; those of the narrower rule stand in place of others' of the same name.
pub(crate) fn add_headers(plan: &Plan<'_>, headers: &mut HeaderMap) {
    for (name, value) in plan.headers() {
        headers.insert(name, value.clone());
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
