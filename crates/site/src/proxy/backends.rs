//! All backends of the site: its services, and the servers behind it.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: none that this module looks at. Must never: let a
//! slow or dead backend hold up anything but the requests that are for it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use ::http::{Request, Response, StatusCode};
use rewrite::Matcher;
use wire::Speech;
use worker::log::Log;

use super::sendfile;
use crate::files::RootFiles;
use crate::http::body::{BoundedBody, ResponseBody};
use crate::http::conn_info::ConnInfo;
use crate::http::response::error;
use crate::proxy::backend::{AtOnce, BackendRequest, HttpBackend, KeepAlive, RequestContext};
use crate::proxy::fastcgi::{BodyMemory, FastCgi, Scripts, Words};
use crate::proxy::limit::BackendId;
use crate::proxy::relay::Relays;
use crate::proxy::service::{QueueLimits, ServiceProxy};
use crate::proxy::stream::BackendDialer;
use crate::proxy::timeout::Timeouts;
use crate::proxy::upstream::Upstream;
use crate::router::rules::{RuleTarget, Rules};

/// The backends, by what names them in the routes.
#[derive(Default)]
pub struct Backends {
    dialer: Rc<BackendDialer>,
    services: BTreeMap<u16, ServiceProxy>,
    /// Sites that requests under TLS are relayed to.
    pub(crate) relays: Relays,
    targets: BTreeMap<u16, Box<dyn HttpBackend>>,
    /// The path of the root directory, as FastCGI servers are told it.
    root: String,
    /// Targets that hear of a request when all of its body has come.
    buffering: BTreeSet<u16>,
    /// Backends that are announced and not made yet.
    announced: Vec<(u16, wire::Backend)>,
}

impl Backends {
    /// Takes note of the servers that rule `target` is for.
    pub fn announce(&mut self, target: u16, backend: wire::Backend) {
        if backend.buffer {
            self.buffering.insert(target);
        }
        self.announced.push((target, backend));
    }

    /// Makes the ways to all backends, now that the rules are known.
    pub(crate) fn begin(&mut self, rules: &Rules, waits: &QueueLimits, log: &Log) {
        let memory = Rc::new(BodyMemory::default());
        for (target, backend) in std::mem::take(&mut self.announced) {
            let timeouts = Timeouts::of(Duration::from_millis(backend.answer_timeout_ms.into()));
            let dialer = self.dialer.clone();
            let way: Box<dyn HttpBackend> = match backend.speech {
                Speech::Http => Box::new(Upstream::new(dialer, target, timeouts, backend.proxy_header)),
                Speech::FastCgi => {
                    let scripts = scripts(rules, target, backend.script.as_str());
                    let rule = rules.iter().find(|rule| rule.number == Some(target));
                    let servers = rule.map(|rule| rule.servers.clone()).unwrap_or_default();
                    let words = Words::new(log.clone(), servers);
                    let to = (dialer, target);
                    Box::new(FastCgi::new(to, backend.requests, timeouts, scripts, words, memory.clone()))
                }
            };
            self.targets.insert(target, way);
        }
        for rule in rules.iter() {
            if let (RuleTarget::Service(partition), Some(path)) = (&rule.target, &rule.matcher.path) {
                let way = ServiceProxy::new(&format!("service at {path}"), *partition, waits.clone());
                self.services.insert(*partition, way);
            }
        }
    }

    /// Says where the root directory is.
    pub fn set_root(&mut self, path: &str) {
        self.root = path.trim_end_matches('/').into();
    }

    /// Takes over the channel to the connector.
    pub fn attach(&self, channel: OwnedFd) -> std::io::Result<()> {
        self.dialer.attach(channel)
    }

    /// The way to the service of `partition`.
    pub fn service(&self, partition: u16) -> Option<&ServiceProxy> {
        self.services.get(&partition)
    }

    /// The kept connections of a backend, if it speaks HTTP/1.1.
    pub(crate) fn link(&self, backend: BackendId) -> Option<&dyn KeepAlive> {
        self.way(backend)?.link()
    }

    /// The way to a backend for requests that are written at once, if it speaks FastCGI.
    pub(crate) fn at_once(&self, backend: BackendId) -> Option<&dyn AtOnce> {
        self.way(backend)?.at_once()
    }

    /// The path of the root directory, as those see it whose files these are.
    pub(crate) fn root_seen(&self, files: Option<&RootFiles>) -> Cow<'_, str> {
        files.map_or(Cow::Borrowed(&*self.root), |files| files.seen_as(&self.root))
    }

    /// Whether a backend hears of a request when all of its body has come.
    ///
    /// Services and other sites do not: those take bodies as they come, and have time for slow ones.
    pub(crate) fn buffers(&self, backend: BackendId) -> bool {
        matches!(backend, BackendId::Target(number) if self.buffering.contains(&number))
    }

    /// The status with which a backend refuses a request before its body is read.
    pub(crate) fn refuses(
        &self,
        backend: BackendId,
        files: Option<&RootFiles>,
        path: &str,
    ) -> Option<StatusCode> {
        self.way(backend)?.refuses(files, path)
    }

    fn way(&self, backend: BackendId) -> Option<&dyn HttpBackend> {
        match backend {
            BackendId::Service(partition) => self.service(partition).map(|way| way as &dyn HttpBackend),
            BackendId::Target(number) => self.targets.get(&number).map(|way| &**way),
            // Not by a rule.
            BackendId::Site(_) | BackendId::Streams => None,
        }
    }

    /// The ways to all services.
    pub(crate) fn services(&self) -> impl Iterator<Item = &ServiceProxy> {
        self.services.values()
    }

    /// Has a backend answer; `files` are those that servers behind the site run, and that their responses may name.
    pub(crate) async fn answer(
        &self,
        backend: BackendId,
        files: Option<&RootFiles>,
        conn: ConnInfo,
        request: Request<BoundedBody>,
    ) -> Response<ResponseBody> {
        let Some(way) = self.way(backend) else {
            return error(StatusCode::BAD_GATEWAY);
        };
        // A service has no path of the site's files, and names none.
        if let BackendId::Service(_) = backend {
            return way.send(BackendRequest { context: RequestContext::without_files(conn), request }).await;
        }
        let root = self.root_seen(files);
        let response =
            way.send(BackendRequest { context: RequestContext { conn, files, root: &root }, request }).await;
        sendfile::take(response, &root, files)
    }
}

/// Which scripts a rule is for.
fn scripts(rules: &Rules, target: u16, script: &str) -> Scripts {
    let rule = rules.iter().find(|rule| rule.number == Some(target)).map(|rule| &rule.matcher);
    let of = |part: fn(&Matcher) -> &Option<String>| rule.and_then(|matcher| part(matcher).clone());
    match of(|matcher| &matcher.suffix) {
        _ if !script.is_empty() => Scripts::One(script.to_owned()),
        Some(suffix) => Scripts::Suffix(suffix),
        None => Scripts::Below(of(|matcher| &matcher.path).unwrap_or_else(|| "/".to_owned())),
    }
}
