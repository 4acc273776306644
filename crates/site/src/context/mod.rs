//! The services that the site worker provides to its connections, and the state that all of them share.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: none of its own. Must never: be used from
//! a second thread.

mod forward;
mod rates;
mod report;
pub mod state;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use conditioning::checks;
use http::Response;
use http::header::HeaderValue;
use request::accept_encoding::Negotiator;
use request::path::NormalPath;
use sys::memory::Pages;
use worker::counters::DropCounters;

use crate::config::setup::SiteSetup;
use crate::connection::idle_pool::IdlePool;
use crate::connection::socket::ConnectionSocket;
use crate::context::state::WorkerState;
use crate::files::cache::{self, CACHE_BYTES, Cache};
use crate::files::cache::{CachedRoot, Roots};
use crate::head::HeadRefusal;
use crate::http::body::{Intake, ResponseBody};
use crate::http::clock::DateClock;
use crate::http::conn_info::ConnInfo;
use crate::http::finish::{Codec, finish};
use crate::proxy::direct::Spare;
use crate::router::access::guesses::Guesses;
use crate::router::hook::Hooks;
use crate::router::rules::{RouteMatch, Rule, RuleTarget, Rules};
use crate::tls::stream::FailureWatch;

/// LIMIT: bytes read from a socket at once. One buffer serves all connections, so that an idle one holds none.
const SCRATCH_BYTES: usize = 64 << 10;

/// `Strict-Transport-Security`, in the two forms that answers need it in.
#[derive(Debug)]
pub(crate) struct Hsts {
    pub value: HeaderValue,
    /// The whole line.
    pub line: Vec<u8>,
}

/// The reason why a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitReason {
    /// Files are answered at once.
    Never,
    /// A password is to be verified.
    Password,
    /// Somebody else works on the request.
    Backend,
}

/// The state that all connections of a worker share.
pub struct SiteContext {
    /// Which requests are this worker's, its services, limits and log.
    pub worker: WorkerState,
    /// Where the static files are.
    pub roots: Roots,
    /// The rules, by path.
    pub rules: Rc<Rules>,
    /// Whether an index file may be a program of a backend.
    pub(crate) index_runs: bool,
    /// Clients that wait for a password to be verified.
    pub guesses: Rc<Guesses>,
    /// Functions that routes name.
    pub hooks: Hooks,
    /// The cached answers.
    pub cache: Cache,
    /// Which encodings clients take.
    pub negotiator: Negotiator,
    /// The time.
    pub clock: DateClock,
    /// How many connections and requests were dropped.
    pub shed: DropCounters,
    /// How connections under TLS are set up; those that come from now on take this one.
    pub tls: RefCell<Option<Arc<rustls::ServerConfig>>>,
    pub(crate) hsts: RefCell<Option<Rc<Hsts>>>,
    pub(crate) idle_pool: IdlePool,
    pub(crate) scratch: RefCell<Pages>,
    /// Exchanges whose memory is used again.
    pub(crate) spare: Spare,
}

impl SiteContext {
    /// Serves what `worker` owns, as the launcher has said in `setup`.
    pub fn set_up(mut worker: WorkerState, mut setup: SiteSetup) -> SiteContext {
        let names = setup.names();
        let rules = names.rules.clone();
        worker.begin(&rules);
        let runs = |name: &String| {
            let name = NormalPath::of_file(name.as_bytes());
            name.is_ok_and(|name| {
                rules.find(&name).is_ok_and(|route| route.rule.is_some_and(Rule::passes_on))
            })
        };
        let index_runs = names.index.iter().any(runs);
        let roots = match (setup.root.take(), setup.vhosts.take()) {
            (Some(root), _) => Roots::One(CachedRoot::new(root, names)),
            (None, Some(folder)) => Roots::hosts(folder, names),
            (None, None) if names.folders.has_aliases() => Roots::One(CachedRoot::without_folder(names)),
            (None, None) => Roots::None,
        };
        let idle_pool = IdlePool::new(worker.limits().connections);
        let settings = std::mem::take(&mut setup.settings);
        SiteContext {
            worker,
            roots,
            rules,
            index_runs,
            guesses: Guesses::new(),
            hooks: Hooks::default(),
            negotiator: Negotiator::new(&settings.encodings),
            cache: Cache::with(CACHE_BYTES, settings, Box::<cache::ClockPolicy>::default()),
            clock: DateClock::default(),
            shed: DropCounters::default(),
            tls: RefCell::default(),
            hsts: RefCell::default(),
            idle_pool,
            scratch: RefCell::new(Pages::zeroed(SCRATCH_BYTES)),
            spare: Spare::default(),
        }
    }

    /// Begins to hear of changes to files; without it, they are looked at every second.
    pub fn watch_files(self: &Rc<Self>) {
        if self.cache.watch.begin().is_ok() {
            let site = self.clone();
            tokio::task::spawn_local(async move { site.cache.watch.receive().await });
        }
    }

    /// The reason for which a request for a path waits, as far as the path and its rules tell.
    pub(crate) fn waits_for(&self, path: &NormalPath<'_>, route: &RouteMatch<'_>) -> WaitReason {
        let is_passed_on = route.rule.is_some_and(Rule::passes_on) || (path.is_folder() && self.index_runs);
        // Where a rewritten path leads is found out later, and its terms with it.
        let is_rewritten = route
            .rule
            .is_some_and(|rule| matches!(rule.target, RuleTarget::Rewrite(_) | RuleTarget::TryFiles(_)));
        let waits = |rule: &Rule| rule.passes_on() || rule.policy.basic_auth.is_some();
        match is_passed_on {
            true => WaitReason::Backend,
            false if route.private() || (is_rewritten && self.rules.iter().any(waits)) => {
                WaitReason::Password
            }
            false => WaitReason::Never,
        }
    }

    /// Makes a response one for the client, with what all responses say.
    pub(crate) fn finish(
        &self,
        conn: ConnInfo,
        codec: Codec,
        intake: Intake,
        response: Response<ResponseBody>,
    ) -> Response<ResponseBody> {
        self.clock.tick(Instant::now());
        let hsts = self.hsts.borrow();
        let hsts = hsts.as_ref().filter(|_| conn.tls).map(|hsts| &hsts.value);
        finish(response, codec, intake, self.clock.date_value(), hsts)
    }

    /// Has every answer over TLS say this in `Strict-Transport-Security`.
    pub fn set_hsts(&self, value: Option<HeaderValue>) {
        let hsts = value.map(|value| {
            let line = [b"Strict-Transport-Security: ", value.as_bytes(), b"\r\n"].concat();
            Rc::new(Hsts { value, line })
        });
        *self.hsts.borrow_mut() = hsts;
    }

    /// The value of `Strict-Transport-Security` for answers on `socket`.
    pub(crate) fn hsts_over(&self, socket: &ConnectionSocket) -> Option<Rc<Hsts>> {
        match socket.plain() {
            Some(_) => None,
            None => self.hsts.borrow().clone(),
        }
    }

    /// Checks a head for what only attackers send, or nobody has reason to.
    pub(crate) fn examine<'a>(
        &self,
        method: &str,
        target: &str,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<(), HeadRefusal> {
        let checked = checks::check_fields(method, target, fields, self.worker.limits().checks);
        checked.map_err(worker::refused::refusal)
    }
}

impl FailureWatch for SiteContext {
    fn failed(&self, peer: SocketAddr, error: &rustls::Error) {
        self.shed.note(|shed| shed.malformed += 1);
        self.worker.tls_failed(peer, error);
    }
}
