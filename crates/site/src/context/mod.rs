//! What the site worker provides to the connections it serves, and what all of them share.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: none of its own. Must never: be used from
//! a second thread.

mod rates;
pub mod state;

use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use conditioning::checks::{self, Setting};
use http::Response;
use http::header::HeaderValue;
use request::accept_encoding::Negotiator;
use request::path::NormalPath;
use worker::counters::DropCounters;

use crate::config::limits::Limits;
use crate::config::setup::Setup;
use crate::connection::idle_pool::IdlePool;
use crate::connection::socket::Socket;
use crate::files::Files;
use crate::files::cache::{self, CACHE_BYTES, Cache};
use crate::files::cache::{Root, Roots};
use crate::head::Refusal;
use crate::http::access_record::Access;
use crate::http::body::{BoundedBody, Intake, ResponseBody};
use crate::http::clock::Clock;
use crate::http::conn_info::ConnInfo;
use crate::http::finish::{Codec, finish};
use crate::proxy::limit::{Permit, Refused};
use crate::router::access::guesses::Guesses;
use crate::router::hook::Hooks;
use crate::router::rules::{Action, Rule, Rules};
use crate::tls::stream::Watch;

/// LIMIT: bytes read from a socket at once. One buffer serves all connections, so that an idle one holds none.
const SCRATCH_BYTES: usize = 32 << 10;

/// The partition whose requests are answered; the worker's own part.
pub trait Partition: 'static {
    /// Whether a request is this worker's to answer; `host` is in whatever case, without port and trailing dot,
    /// and empty if HTTP/1.0 named none; `path` is as sent. Called for every request.
    fn owns(&self, host: &[u8], path: &str) -> bool;

    /// The service that `path` belongs to; `None` for static files. INVARIANT: the same for the same
    /// path for as long as the process lives; it is not asked for paths in the cache.
    fn service(&self, path: &NormalPath<'_>) -> Option<usize>;

    /// Whether a request that a backend could take for one of this path would still be this worker's; `host` as of
    /// [`Partition::owns`].
    fn owns_reading(&self, host: &[u8], path: &NormalPath<'_>) -> bool {
        let _ = (host, path);
        true
    }

    /// Takes note of a request that was refused because it led to the source of a script; must be quick.
    fn kept_source(&self, peer: SocketAddr, path: &[u8]) {
        let _ = (peer, path);
    }

    /// Bytes of the path that the service answers for, to be compared with those of rules.
    fn reach(&self, service: usize) -> usize {
        let _ = service;
        0
    }

    /// Has what a rule names answer: an upstream, a FastCGI server, a function. As [`Partition::relay`].
    fn forward(
        &self,
        rule: &Rule,
        files: Option<&Files>,
        conn: ConnInfo,
        request: http::Request<BoundedBody>,
    ) -> impl Future<Output = http::Response<ResponseBody>> {
        let _ = (rule, files, conn, request);
        std::future::ready(crate::http::response::error(http::StatusCode::NOT_IMPLEMENTED))
    }

    /// Has a service answer. The head has been checked: origin-form, no `Upgrade`, no names with `_`. Dropped
    /// when the client goes away.
    fn relay(
        &self,
        service: usize,
        conn: ConnInfo,
        request: http::Request<BoundedBody>,
    ) -> impl Future<Output = http::Response<ResponseBody>>;

    /// A place for one more stream of HTTP/2, for as long as it is answered, if they are counted.
    fn admit_stream(&self, conn: ConnInfo) -> Result<Option<Permit>, Refused> {
        let _ = conn;
        Ok(None)
    }

    /// Takes note of an answered request; must be quick.
    fn record(&self, access: &Access<'_>);

    /// Takes note of a connection that failed under TLS, in the handshake or after it; must be quick.
    fn tls_failed(&self, peer: SocketAddr, error: &rustls::Error) {
        let _ = (peer, error);
    }

    /// Takes note of a client one of whose records could not be decrypted: somebody has changed it, or made it up.
    /// Comes after [`Partition::tls_failed`].
    fn tampered(&self, peer: SocketAddr) {
        let _ = peer;
    }

    /// Whether a client may make one more request of this site now; asked once for each. Must be quick.
    fn allows(&self, conn: &ConnInfo, now: Instant) -> bool {
        let _ = (conn, now);
        true
    }

    /// Whether only the first request of a connection is answered here: filters are to see the others as well.
    fn filtered(&self) -> bool {
        false
    }

    /// Whether idle connections are to be handed back, from now on.
    fn draining(&self) -> bool;

    /// Ready once [`Partition::draining`] is true; until then, it needs to be polled only once.
    fn drained(&self) -> impl Future<Output = ()>;

    /// The limits.
    fn limits(&self) -> &Limits;
}

/// `Strict-Transport-Security`, in the two forms that answers need it in.
#[derive(Debug)]
pub(crate) struct Hsts {
    pub value: HeaderValue,
    /// The whole line.
    pub line: Vec<u8>,
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// Files are answered at once.
    Never,
    /// A password is to be verified.
    Password,
    /// Somebody else works on the request.
    Backend,
}

/// What all connections of a worker share.
pub struct Site<P> {
    /// The worker's own part.
    pub partition: P,
    /// Where the static files are.
    pub roots: Roots,
    /// What is done by path.
    pub rules: Rc<Rules>,
    /// Whether an index file may be a program of a backend.
    pub(crate) index_runs: bool,
    /// Who waits for a password to be verified.
    pub guesses: Rc<Guesses>,
    /// Functions that routes name.
    pub hooks: Hooks,
    /// The cached answers.
    pub cache: Cache,
    /// Which encodings clients take.
    pub negotiator: Negotiator,
    /// The time.
    pub clock: Clock,
    /// What was shed.
    pub shed: DropCounters,
    /// How connections under TLS are set up; those that come from now on take this one.
    pub tls: RefCell<Option<Arc<rustls::ServerConfig>>>,
    pub(crate) hsts: RefCell<Option<Rc<Hsts>>>,
    pub(crate) idle_pool: IdlePool,
    pub(crate) scratch: RefCell<Box<[u8]>>,
}

impl<P: Partition> Site<P> {
    /// Serves `partition` as the launcher has said.
    pub fn set_up(partition: P, mut setup: Setup) -> Site<P> {
        let names = setup.names();
        let rules = names.rules.clone();
        let runs = |name: &String| {
            let name = NormalPath::of_file(name.as_bytes());
            name.is_ok_and(|name| {
                rules.find(&name).is_ok_and(|route| route.rule.is_some_and(Rule::passes_on))
            })
        };
        let index_runs = names.index.iter().any(runs);
        let roots = match (setup.root.take(), setup.vhosts.take()) {
            (Some(root), _) => Roots::One(Root::new(root, names)),
            (None, Some(folder)) => Roots::hosts(folder, names),
            (None, None) => Roots::None,
        };
        let idle_pool = IdlePool::new(partition.limits().connections);
        let settings = std::mem::take(&mut setup.settings);
        Site {
            partition,
            roots,
            rules,
            index_runs,
            guesses: Guesses::new(),
            hooks: Hooks::default(),
            negotiator: Negotiator::new(&settings.encodings),
            cache: Cache::with(CACHE_BYTES, settings, Box::<cache::Clock>::default()),
            clock: Clock::default(),
            shed: DropCounters::default(),
            tls: RefCell::default(),
            hsts: RefCell::default(),
            idle_pool,
            scratch: RefCell::new(vec![0; SCRATCH_BYTES].into()),
        }
    }

    /// Serves `partition`, with static files below `root` and the names `index` for directories.
    pub fn new(partition: P, root: Option<OwnedFd>, index: &[String]) -> Site<P> {
        let mut setup = Setup::default();
        (setup.root, setup.index) = (root, index.to_vec());
        Site::set_up(partition, setup)
    }

    /// Begins to hear of changes to files; without it, they are looked at every second.
    pub fn watch_files(self: &Rc<Self>) {
        if self.cache.watch.begin().is_ok() {
            let site = self.clone();
            tokio::task::spawn_local(async move { site.cache.watch.hear().await });
        }
    }

    /// What a request for a path waits for, as far as the path tells.
    pub(crate) fn waits_for(&self, path: &str) -> Waits {
        let Ok(path) = NormalPath::parse(path) else { return Waits::Never };
        let Ok(route) = self.rules.find(&path) else { return Waits::Never };
        let is_passed_on = route.rule.is_some_and(Rule::passes_on) || (path.is_folder() && self.index_runs);
        // Where a rewritten path leads is found out later, and its terms with it.
        let is_rewritten = route.rule.is_some_and(|rule| matches!(rule.action, Action::Rewrite(_)));
        let waits = |rule: &Rule| rule.passes_on() || rule.policy.basic_auth.is_some();
        match is_passed_on || self.partition.service(&path).is_some() {
            true => Waits::Backend,
            false if route.private() || (is_rewritten && self.rules.iter().any(waits)) => Waits::Password,
            false => Waits::Never,
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
        finish(response, codec, intake, &self.clock.date(), hsts)
    }

    /// Has every answer over TLS say this in `Strict-Transport-Security`.
    pub fn set_hsts(&self, value: Option<HeaderValue>) {
        let hsts = value.map(|value| {
            let line = [b"Strict-Transport-Security: ", value.as_bytes(), b"\r\n"].concat();
            Rc::new(Hsts { value, line })
        });
        *self.hsts.borrow_mut() = hsts;
    }

    /// What answers on `socket` are to say of transport security.
    pub(crate) fn hsts_over(&self, socket: &Socket) -> Option<Rc<Hsts>> {
        match socket.plain() {
            Some(_) => None,
            None => self.hsts.borrow().clone(),
        }
    }

    /// Checks a whole head for what only attackers send, or nobody has reason to.
    pub(crate) fn examine(&self, raw: &[u8]) -> Result<(), Refusal> {
        let setting = if self.partition.limits().strict { Setting::Strict } else { Setting::Lenient };
        checks::check(raw, setting).map_err(|_| Refusal::Malformed("a strange head"))
    }
}

impl<P: Partition> Watch for Site<P> {
    fn failed(&self, peer: SocketAddr, error: &rustls::Error) {
        self.shed.note(|shed| shed.malformed += 1);
        self.partition.tls_failed(peer, error);
        if matches!(error, rustls::Error::DecryptError) {
            self.partition.tampered(peer);
        }
    }
}
