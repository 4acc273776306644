//! Logs requests that are refused by rules, or by the files that the rules lead to.
//!
//! Untrusted input: the head of a request; the logger escapes it. Must never: say of a refusal less than the operator
//! needs to end it.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri, header};
use http_body::{Body, Frame, SizeHint};
use request::path::NormalPath;
use rewrite::Matcher;
use worker::log::Log;
use worker::refused::{Refusals, RefusedRequest};

use crate::context::SiteContext;
use crate::files::{Missing, RootFiles};
use crate::http::body::{BodyStream, BoxError, ResponseBody};
use crate::http::conn_info::ConnInfo;
use crate::http::response::Own;
use crate::router::rules::{Rule, RuleTarget};

/// A request, as far as the log tells of it.
#[derive(Clone, Copy)]
pub(crate) struct LoggedHead<'a> {
    pub conn: ConnInfo,
    pub method: &'a Method,
    pub uri: &'a Uri,
    pub headers: &'a HeaderMap,
}

impl<'a> LoggedHead<'a> {
    /// The part of `request` that the log names.
    pub fn of<B>(conn: ConnInfo, request: &'a Request<B>) -> Self {
        LoggedHead { conn, method: request.method(), uri: request.uri(), headers: request.headers() }
    }

    /// Logs that the request was refused.
    pub fn refuse(
        self,
        site: &SiteContext,
        status: StatusCode,
        reason: &'static str,
        about: &str,
        remedy: &str,
    ) {
        self.tell(status, (reason, 0), about, remedy, |refused| site.worker.refused(refused));
    }

    fn tell(
        self,
        status: StatusCode,
        (reason, rule): (&'static str, u16),
        about: &str,
        remedy: &str,
        log: impl FnOnce(RefusedRequest<'_>),
    ) {
        let field = self.headers.get(header::HOST).map_or(&b""[..], |host| host.as_bytes());
        let host = self.uri.authority().map_or(field, |authority| authority.as_str().as_bytes());
        let target = self.uri.path_and_query().map_or("", |target| target.as_str());
        log(RefusedRequest {
            status: status.as_u16(),
            client: self.conn.peer.ip(),
            method: self.method.as_str().as_bytes(),
            host,
            target: target.as_bytes(),
            reason,
            rule,
            about,
            remedy,
        });
    }

    /// The same of one that led to the source of a script at `name`.
    pub fn refuse_source(self, site: &SiteContext, name: &[u8]) {
        let about = format!("the file `{}`", String::from_utf8_lossy(name));
        let (reason, remedy) = (
            "the source of a script is never sent",
            "add a route that runs it, or name its suffix in `send_sources`",
        );
        self.refuse(site, StatusCode::FORBIDDEN, reason, &about, remedy);
    }

    /// The same of one that led to a file that cannot be had; nothing of one that is not there.
    pub fn refuse_file(self, site: &SiteContext, files: &RootFiles, path: &NormalPath<'_>, missing: Missing) {
        let name =
            String::from_utf8_lossy(path.as_bytes().strip_prefix(b"/").unwrap_or_default()).into_owned();
        let (status, uid) = (crate::files::response::status_of(missing), rustix::process::getuid().as_raw());
        let (reason, about, remedy) = match missing {
            Missing::Forbidden => (
                "the file, or a folder above it, may not be read",
                format!("{}, by uid {uid}", place(files, &name)),
                format!("`chmod o+r` the file and `o+x` its folders, or `setfacl -m u:{uid}:rX` each"),
            ),
            Missing::Outside => (
                "a symbolic link leads out of its folder, and into none of `follow_links`",
                format!("`{name}`"),
                "name the folder that it leads into in `follow_links`, or put what it leads to into `root`: a bind \
                 mount, or a copy"
                    .to_owned(),
            ),
            Missing::Failed(errno) => {
                ("the file cannot be read", format!("`{name}`: {errno}"), String::new())
            }
            Missing::Busy => {
                ("no descriptor or memory is left for the file", format!("`{name}`"), String::new())
            }
            Missing::NotFound | Missing::Malformed => return,
        };
        self.refuse(site, status, reason, &about, &remedy);
    }

    /// The same of one whose client the rules do not let in.
    pub fn refuse_client(self, site: &SiteContext, rules: &[&Rule]) {
        let Some(rule) = rules.iter().find(|rule| !rule.policy.allows(self.conn.peer.ip())) else { return };
        let about = match rule.number {
            Some(0) => "those of the site".to_owned(),
            _ => format!("those of the route with {}", shown(&rule.matcher)),
        };
        self.refuse(site, StatusCode::FORBIDDEN, "`allow` and `deny` do not let the client in", &about, "");
    }

    /// The same of one whose password is wrong. The name is not logged: people type passwords there.
    pub fn refuse_password(self, site: &SiteContext) {
        if self.headers.contains_key(header::AUTHORIZATION) {
            let (reason, remedy) =
                ("no user of `auth` has this name and password", "`htpasswd -v FILE NAME` tries one");
            self.refuse(site, StatusCode::UNAUTHORIZED, reason, "", remedy);
        }
    }

    /// The same of one whose body is longer than it may be.
    pub fn refuse_body(self, site: &SiteContext, limit: u64) {
        let refusal = request::head::HeadRefusal::BodyTooLarge;
        let about = format!("at most {limit} bytes");
        self.refuse(site, refusal.status(), refusal.reason(), &about, refusal.remedy());
    }
}

/// A file as the operator knows it.
fn place(files: &RootFiles, name: &str) -> String {
    match files.names().folders.alias_of(name.as_bytes()) {
        Some((folder, below)) => format!("`{}` of `alias` {}", String::from_utf8_lossy(below), folder.path),
        None => format!("`{name}` of `root`"),
    }
}

/// The head of a request that is passed on, for the log if nobody answers.
pub(crate) struct ForwardedHead {
    conn: ConnInfo,
    method: Method,
    uri: Uri,
    host: Option<HeaderValue>,
}

impl ForwardedHead {
    pub fn of<B>(conn: ConnInfo, request: &Request<B>) -> Self {
        let host = request.headers().get(header::HOST).cloned();
        Self { conn, method: request.method().clone(), uri: request.uri().clone(), host }
    }

    /// Logs that this worker has answered in the place of the backend of `rule`, or that the backend's answer breaks
    /// off; nothing of what the backend has said.
    pub fn check(
        self,
        site: &SiteContext,
        rule: &Rule,
        response: Response<ResponseBody>,
    ) -> Response<ResponseBody> {
        if response.extensions().get::<Own>().is_some() {
            self.log_own(site, rule, response.status());
            return response;
        }
        let (status, about) = (response.status(), about(rule));
        response.map(|body| match body {
            ResponseBody::Stream(inner) => {
                let (log, refusals) = site.worker.refusals();
                let number = rule.number.unwrap_or_default();
                let told = Some(BrokenBodyReport { passed_on: self, status, number, about, log, refusals });
                ResponseBody::stream(WatchedBody { inner, told })
            }
            body => body,
        })
    }

    fn log_own(&self, site: &SiteContext, rule: &Rule, status: StatusCode) {
        let (reason, remedy) = match status {
            StatusCode::BAD_GATEWAY => (
                "nobody answers: the server cannot be reached, closes the connection, or sends what is no answer",
                "see whether it runs, listens there and lets this server in",
            ),
            StatusCode::SERVICE_UNAVAILABLE => (
                "the server has as many requests as it may have at once, or there is no room for its process",
                "make it faster, or raise `requests` of the route; `bulkhead status` says what waits for room",
            ),
            StatusCode::GATEWAY_TIMEOUT => (
                "the server has not begun its answer in time",
                "make it faster, or raise `answer_timeout` of the route",
            ),
            StatusCode::NOT_FOUND if matches!(rule.target, RuleTarget::FastCgi(_)) => {
                ("there is no such script below `root`", "")
            }
            _ => return,
        };
        let number = rule.number.unwrap_or_default();
        self.tell(status, (reason, number), &about(rule), remedy, |refused| site.worker.refused(refused));
    }

    fn tell(
        &self,
        status: StatusCode,
        reason: (&'static str, u16),
        about: &str,
        remedy: &str,
        log: impl FnOnce(RefusedRequest<'_>),
    ) {
        let headers = self.host.iter().map(|host| (header::HOST, host.clone())).collect();
        let asked = LoggedHead { conn: self.conn, method: &self.method, uri: &self.uri, headers: &headers };
        asked.tell(status, reason, about, remedy, log);
    }
}

/// The backend of a rule, as the configuration names it.
fn about(rule: &Rule) -> Rc<str> {
    rule.backend_name.get_or_init(|| described(rule).into()).clone()
}

fn described(rule: &Rule) -> String {
    let kind = match rule.target {
        RuleTarget::Service(_) => "the service",
        RuleTarget::FastCgi(_) => "`fastcgi` of the route",
        _ => "`upstream` of the route",
    };
    let servers = if rule.servers.is_empty() { String::new() } else { format!(": {}", rule.servers) };
    format!("{kind} with {}{servers}", shown(&rule.matcher))
}

/// The line to be logged if an answer breaks off.
struct BrokenBodyReport {
    passed_on: ForwardedHead,
    status: StatusCode,
    number: u16,
    about: Rc<str>,
    log: Log,
    refusals: Rc<Refusals>,
}

impl BrokenBodyReport {
    fn tell(self, error: &BoxError) {
        let about = format!("{}: {error}", self.about);
        let (reason, remedy) = ("the server broke its answer off", "see what its own log says");
        let log = |refused: RefusedRequest<'_>| self.refusals.note(&self.log, refused);
        self.passed_on.tell(self.status, (reason, self.number), &about, remedy, log);
    }
}

/// A backend's body: the client sees only that the connection ends, so the log says why.
struct WatchedBody {
    inner: BodyStream,
    told: Option<BrokenBodyReport>,
}

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let frame = ready!(this.inner.as_mut().poll_frame(cx));
        if let Some(Err(error)) = &frame
            && let Some(told) = this.told.take()
        {
            told.tell(error);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A rule by the keys that the configuration has.
pub(crate) fn shown(matcher: &Matcher) -> String {
    let pattern = matcher.pattern.as_ref().map(rewrite::Pattern::text);
    let keys =
        [("path", matcher.path.as_deref()), ("suffix", matcher.suffix.as_deref()), ("pattern", pattern)];
    let keys = keys.into_iter().filter_map(|(key, value)| Some(format!("`{key} = \"{}\"`", value?)));
    keys.collect::<Vec<_>>().join(" and ")
}
