//! Servers behind the site, which speak HTTP or FastCGI: as rwasa's backpath and nginx's `proxy_pass`.
//!
//! Runs in: the site worker, under the site's uid, which has no network: its connector makes the connections. Untrusted
//! input: requests of clients, and answers of servers, which may be compromised. Must never: let a slow or dead server
//! hold up anything but the requests that are for it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use ::http::{Request, Response, StatusCode};
use wire::Speech;
use worker::log::Log;

use super::http::Http;
use super::sendfile;
use crate::files::Files;
use crate::http::body::{BoundedBody, ResponseBody};
use crate::http::conn_info::ConnInfo;
use crate::http::response::error;
use crate::proxy::backend::{Backend, BackendRequest};
use crate::proxy::fastcgi::{FastCgi, Scripts};
use crate::router::rules::{Matcher, Rules};

pub(crate) use super::connect::Dialer;

/// All servers behind the site, by the number of their target.
#[derive(Default)]
pub struct Backends {
    dialer: Rc<Dialer>,
    targets: HashMap<u16, Box<dyn Backend>>,
    /// The path of the root directory, as FastCGI servers are told it.
    root: String,
    /// What is not made yet.
    announced: Vec<(u16, wire::Backend)>,
}

/// A request for a server behind the site.
pub struct Asked<'a> {
    /// The two ends of the client's connection.
    pub conn: ConnInfo,
    /// The site's files, for answers that name one.
    pub files: Option<&'a Files>,
    /// The request itself.
    pub request: Request<BoundedBody>,
}

impl Backends {
    /// Takes note of a target, which rule `target` is for.
    pub fn announce(&mut self, target: u16, backend: wire::Backend) {
        self.announced.push((target, backend));
    }

    /// Makes the ways to all targets, now that the rules are known.
    pub fn begin(&mut self, rules: &Rules, log: &Log) {
        for (target, backend) in std::mem::take(&mut self.announced) {
            let patience = Duration::from_millis(backend.answer_timeout_ms.into());
            let dialer = self.dialer.clone();
            let way: Box<dyn Backend> = match backend.speech {
                Speech::Http => Box::new(Http::new(dialer, target, patience, backend.proxy_header)),
                Speech::FastCgi => {
                    let scripts = scripts(rules, target, backend.script.as_str());
                    Box::new(FastCgi::new(dialer, target, patience, scripts, log.clone()))
                }
            };
            self.targets.insert(target, way);
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

    /// Has a server of `target` answer.
    pub async fn answer(&self, target: u16, asked: Asked<'_>) -> Response<ResponseBody> {
        let Some(way) = self.targets.get(&target) else {
            return error(StatusCode::BAD_GATEWAY);
        };
        let Asked { conn, files, request } = asked;
        let root = files.map_or(Cow::Borrowed(&*self.root), |files| files.seen_as(&self.root));
        let answer = way.send(BackendRequest { conn, files, root: &root, request }).await;
        sendfile::take(answer, &root)
    }
}

/// Which scripts a rule is for.
fn scripts(rules: &Rules, target: u16, script: &str) -> Scripts {
    let rule = rules.iter().find(|rule| rule.number == target).map(|rule| &rule.matcher);
    match rule {
        _ if !script.is_empty() => Scripts::One(script.to_owned()),
        Some(Matcher::Suffix(suffix)) => Scripts::Suffix(suffix.clone()),
        Some(Matcher::Path(path)) => Scripts::Below(path.clone()),
        None => Scripts::Below("/".to_owned()),
    }
}
