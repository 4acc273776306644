//! Who answers a request: files, a service, another server, or a rule by itself; and on what terms.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: requests, and what services and upstreams answer.
//! Must never: take an action before the terms of every rule that covers the path are met.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use wire::CHALLENGES;
use worker::routes::covers;

use crate::answer;
use crate::body::{BoundedBody, ResponseBody};
use crate::compress::dynamic::{self, Asked};
use crate::partition::{Ends, Partition, Site};
use crate::path::encode_name;
use crate::proxy::headers::clean_answer;
use crate::roots::{Root, Roots};
use crate::rules::auth::Verdict;
use crate::rules::spelling::{moved, spelt};
use crate::rules::{Action, Matcher, Plan, Rule};
use crate::statics;
use crate::upgrade;

/// Where a request leads: a folder of files, and what the rules say.
#[derive(Clone, Copy)]
struct Place<'r> {
    root: Option<&'r Rc<Root>>,
    plan: &'r Plan<'r>,
}

/// An answer, and whether it is this worker's own: others' are passed on as they are.
pub(crate) struct Answered {
    pub(crate) response: Response<ResponseBody>,
    pub(crate) own: bool,
}

impl Answered {
    fn own(response: Response<ResponseBody>) -> Self {
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
    let path = request.uri().path().to_owned();
    let Ok(plan) = site.rules.plan(&path) else {
        return answer::error(StatusCode::BAD_REQUEST);
    };
    let asked = Asked::new(request.method(), request.headers(), ends.tls);
    let root = root_of(site, &request);
    let answered = match admit(site, &plan, ends.peer, request.headers()).await {
        Some(refused) => Answered::own(refused),
        None => act(site, Place { root: root.as_ref(), plan: &plan }, ends, request).await,
    };
    let mut response = match answered.own {
        true => statics::with_page(answered.response, site.cache.settings(), root.as_deref()),
        false => dynamic::compress(answered.response, &asked, site.cache.settings(), &site.negotiator),
    };
    add_headers(&plan, response.headers_mut());
    response
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
    if !matches!(site.roots, Roots::Hosts(_)) {
        return site.roots.find(b"", tick);
    }
    let field = || request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let authority = request.uri().authority().map(http::uri::Authority::as_str).or_else(field)?;
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    site.roots.find(host.as_bytes(), tick)
}

/// The refusal, if a rule does not let this client ask.
async fn admit<P: Partition>(
    site: &Site<P>,
    plan: &Plan<'_>,
    peer: SocketAddr,
    headers: &HeaderMap,
) -> Option<Response<ResponseBody>> {
    if !plan.guarded {
        return None;
    }
    if !plan.covering.iter().all(|rule| rule.terms.admits(peer.ip())) {
        return Some(answer::error(StatusCode::FORBIDDEN));
    }
    let mut fields = headers.get_all(header::AUTHORIZATION).iter();
    let field = fields.next().filter(|_| fields.next().is_none());
    for members in plan.covering.iter().filter_map(|rule| rule.terms.members.as_ref()) {
        let users = members.users.borrow().clone();
        let verdict = match field {
            Some(field) => users.verify(&site.guesses, peer.ip(), field.as_bytes()).await,
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
        let mut response = answer::error(StatusCode::SERVICE_UNAVAILABLE);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        return response;
    }
    let mut response = answer::error(StatusCode::UNAUTHORIZED);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge.clone());
    response
}

/// Does what the rules say, or what there is without them.
async fn act<P: Partition>(
    site: &Site<P>,
    place: Place<'_>,
    ends: Ends,
    request: Request<BoundedBody>,
) -> Answered {
    if let Some(service) = service_of(site, place.plan, request.uri().path()) {
        return Answered::foreign(site.partition.relay(service, ends, request).await);
    }
    let Some(rule) = place.plan.rule else {
        return Answered::own(from_files(site, place, request).await);
    };
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let proves = matches!(rule.action, Action::Redirect { .. }) && is_challenge(request.uri().path());
    if !(rule.fallback || proves) || !reads {
        return by_rule(site, place, rule, ends, request).await;
    }
    let (parts, body) = request.into_parts();
    let response = statics::answer(site, place.root, place.plan, &parts).await;
    if response.status() != StatusCode::NOT_FOUND {
        return Answered::own(response);
    }
    by_rule(site, place, rule, ends, Request::from_parts(parts, body)).await
}

/// Whether it is what proves to an authority that the host is ours: what is there is no matter of redirection.
fn is_challenge(path: &str) -> bool {
    spelt(path).is_ok_and(|path| covers(CHALLENGES, &path))
}

/// The service that the path belongs to, if no rule's path is longer.
pub(crate) fn service_of<P: Partition>(site: &Site<P>, plan: &Plan<'_>, path: &str) -> Option<usize> {
    let service = site.partition.service(path)?;
    (plan.reach() <= site.partition.reach(service)).then_some(service)
}

async fn from_files<P: Partition>(
    site: &Site<P>,
    place: Place<'_>,
    request: Request<BoundedBody>,
) -> Response<ResponseBody> {
    let (parts, body) = request.into_parts();
    drop(body);
    statics::answer(site, place.root, place.plan, &parts).await
}

async fn by_rule<P: Partition>(
    site: &Site<P>,
    place: Place<'_>,
    rule: &Rule,
    ends: Ends,
    request: Request<BoundedBody>,
) -> Answered {
    match &rule.action {
        Action::Terms => Answered::own(answer::error(StatusCode::NOT_FOUND)),
        Action::Redirect { to, status } => Answered::own(redirect(rule, to, *status, request.uri())),
        Action::Rewrite(to) => rewritten(site, place, (rule, to), ends, request).await,
        Action::Upstream | Action::Fastcgi | Action::Hook(_) => {
            passed_on(site, place, rule, ends, request).await
        }
    }
}

/// Has another server answer, or a function of this one.
async fn passed_on<P: Partition>(
    site: &Site<P>,
    place: Place<'_>,
    rule: &Rule,
    ends: Ends,
    request: Request<BoundedBody>,
) -> Answered {
    let Action::Hook(name) = &rule.action else {
        return Answered::foreign(
            site.partition.forward(rule, place.root.map(|root| &root.files), ends, request).await,
        );
    };
    match site.hooks.call(name, ends, request).await {
        // A function says itself what it has to say of an error.
        Ok(response) => Answered::foreign(response),
        Err(head) => Answered::own(statics::answer(site, place.root, place.plan, &head).await),
    }
}

/// Sends the client to where the rule says, with what followed the rule's path, in its one spelling.
fn redirect(rule: &Rule, to: &str, status: StatusCode, uri: &http::Uri) -> Response<ResponseBody> {
    let location = match target_of(rule, to, uri.path()) {
        Some(place) if to.ends_with('/') => {
            uri.query().map_or(place.clone(), |query| format!("{place}?{query}"))
        }
        Some(place) => place,
        None => return answer::error(StatusCode::BAD_REQUEST),
    };
    answer::elsewhere(location, status)
}

/// The path or URL that stands for `raw` under the rule.
fn target_of(rule: &Rule, to: &str, raw: &str) -> Option<String> {
    let Matcher::Path(from) = &rule.matcher else {
        return Some(to.to_owned());
    };
    let path = spelt(raw).ok()?;
    let target = moved(&path, from, to);
    // What was decoded to be compared is encoded again: a backslash or a line end must not reach a client.
    Some(match target.strip_prefix(to).filter(|_| target.len() > to.len()) {
        Some(rest) => format!("{to}{}", encode_name(rest.as_bytes()).replace("%00", "%2F")),
        None => target,
    })
}

/// Answers as for another path, by what is there: no second rule changes it again.
async fn rewritten<P: Partition>(
    site: &Site<P>,
    place: Place<'_>,
    (rule, to): (&Rule, &str),
    ends: Ends,
    request: Request<BoundedBody>,
) -> Answered {
    let (mut parts, body) = request.into_parts();
    let target = target_of(rule, to, parts.uri.path());
    let uri = target.and_then(|path| {
        let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        http::Uri::try_from(format!("{path}{query}")).ok()
    });
    let Some(plan) = uri.as_ref().and_then(|uri| site.rules.plan(uri.path()).ok()) else {
        return Answered::own(answer::error(StatusCode::BAD_REQUEST));
    };
    // SECURITY: the terms of where it leads hold as well.
    if let Some(refused) = admit(site, &plan, ends.peer, &parts.headers).await {
        return Answered::own(refused);
    }
    if let Some(uri) = uri.as_ref() {
        parts.uri = uri.clone();
    }
    let request = Request::from_parts(parts, body);
    let there = Place { root: place.root, plan: &plan };
    if let Some(service) = service_of(site, &plan, request.uri().path()) {
        return Answered::foreign(site.partition.relay(service, ends, request).await);
    }
    match plan.rule {
        Some(rule) if matches!(rule.action, Action::Upstream | Action::Fastcgi | Action::Hook(_)) => {
            passed_on(site, there, rule, ends, request).await
        }
        _ => Answered::own(from_files(site, there, request).await),
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
    if upgrade::opened(&response).is_some() {
        return response;
    }
    if response.status().is_informational() {
        return answer::error(StatusCode::BAD_GATEWAY);
    }
    clean_answer(response.headers_mut());
    response
}
