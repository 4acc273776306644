//! Requests on one kept-alive connection to a site.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::event::{PollFd, PollFlags, poll};
use rustls::ServerConfig;
use site::config::setup::SiteSetup;
use site::{AcceptedClient, ClientLimits, MinRate, RouteOwner, SiteContext, WorkerState};
use sys::file_version::FileVersion;
use wire::{Backend, LauncherToSite, ProxyHeader, RuleAction, Speech, Text};
use worker::log::Log;
use worker::receiver::Receiver;

use crate::behind;
use crate::client::{self, Over, Request};
use crate::warm::warm_up;

/// The partition of the service at `/svc/`.
const SERVICE: u16 = 7;
/// The rule of the upstream at `/up/`.
const UPSTREAM: u16 = 1;
/// The rule of the FastCGI server at `/run/`.
const FASTCGI: u16 = 2;

/// Has a site answer `count` of these requests on one connection, after some that are not counted; under TLS with
/// `tls`, for a client with `over`.
///
/// The site is in this thread. `counted` says what this thread has done so far; what is returned is what the thread has
/// done for each request.
pub fn serve(
    request: Request,
    over: Over,
    tls: Option<Arc<ServerConfig>>,
    count: u32,
    counted: impl Fn() -> u64,
) -> Vec<u64> {
    let folder = tempfile::tempdir().unwrap();
    put(&folder.path().join("small.txt"), b"0123456789");
    put(&folder.path().join("index.php"), b"<?php");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let site = site(folder.path());
        let is_tls = tls.is_some();
        *site.tls.borrow_mut() = tls;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (warm, go) = warm_up();
        let client = std::thread::spawn(move || {
            client::ask(TcpStream::connect(address).unwrap(), over, &request, count, warm);
        });
        let (stream, peer) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let local = stream.local_addr().unwrap();
        let stream = stream.into();
        let served = AcceptedClient {
            stream,
            preread: Vec::new(),
            peer,
            local,
            tls: is_tls,
            h2c: !is_tls,
            relayed: None,
        };
        let serving = async { _ = site::serve(&site, served).await };
        let work = go.count(count, serving, counted).await;
        client.join().unwrap();
        work
    })
}

/// Writes a file whose contents are an hour old, and which has settled, as one that has just been changed is not kept.
fn put(path: &Path, contents: &[u8]) {
    std::fs::write(path, contents).unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    let version = || FileVersion::of(&std::fs::metadata(path).unwrap());
    while !version().is_settled(SystemTime::now(), Duration::from_millis(50)) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn site(root: &Path) -> Rc<SiteContext> {
    let mut worker = WorkerState::new(limits(), Receiver::new(1000), Log::new(Some(log()), 3, 1000).unwrap());
    worker.route("*", "/", RouteOwner::Own);
    worker.backends.announce(UPSTREAM, backend(Speech::Http, ""));
    worker.backends.announce(FASTCGI, backend(Speech::FastCgi, "/index.php"));
    worker.backends.set_root("/srv/www");
    let mut setup = SiteSetup::default();
    setup.service("/svc/", SERVICE);
    for rule in [rule(UPSTREAM, "/up/", RuleAction::Upstream), rule(FASTCGI, "/run/", RuleAction::Fastcgi)] {
        assert!(setup.take(rule, None).unwrap().is_none());
    }
    let folder: OwnedFd = std::fs::File::open(root).unwrap().into();
    assert!(setup.take(LauncherToSite::Root {}, Some(folder)).unwrap().is_none());
    let site = Rc::new(SiteContext::set_up(worker, setup));
    let backends = &site.worker.backends;
    backends.service(SERVICE).unwrap().attach(behind::worker(true, false)).unwrap();
    backends.attach(behind::connector(&[(UPSTREAM, behind::http()), (FASTCGI, behind::fastcgi())])).unwrap();
    site.watch_files();
    site
}

/// The site's end of a channel to a logger, which takes everything.
fn log() -> OwnedFd {
    let (ours, theirs) = sys::seqpacket::pair().unwrap();
    std::thread::spawn(move || {
        let mut buffer = vec![0; wire::MESSAGE_MAX];
        loop {
            poll(&mut [PollFd::new(&theirs, PollFlags::IN)], None).unwrap();
            if !matches!(sys::seqpacket::receive(theirs.as_fd(), &mut buffer), Ok(Some(_))) {
                return;
            }
        }
    });
    ours
}

/// As by default, with more time: a thread whose instructions are counted takes a thousand times as long.
fn limits() -> ClientLimits {
    let (patience, rate) = (Duration::from_secs(600), MinRate::new(1, Duration::from_secs(600)));
    ClientLimits {
        head_bytes: 16 << 10,
        head_timeout: patience,
        body_bytes: 1 << 20,
        idle_timeout: patience,
        stall_timeout: patience,
        body_rate: rate,
        response_rate: rate,
        connections: 1000,
        checks: conditioning::checks::Setting::Strict,
        start_timeout: patience,
        idle_stop: None,
    }
}

fn rule(rule: u16, path: &str, action: RuleAction) -> LauncherToSite {
    LauncherToSite::Rule {
        rule,
        path: Text::new(path),
        suffix: Text::new(""),
        pattern: Text::new(""),
        action,
        status: 0,
        to: Text::new("behind"),
        fallback: false,
        internal: false,
        strip_prefix: false,
        body_bytes: u64::MAX,
    }
}

fn backend(speech: Speech, script: &str) -> Backend {
    let script = Text::new(script);
    // Connections are kept to a FastCGI server only by who claims its processes.
    let requests = if speech == Speech::FastCgi { 4 } else { 0 };
    Backend {
        speech,
        proxy_header: ProxyHeader::None,
        answer_timeout_ms: 60_000,
        requests,
        buffer: true,
        script,
    }
}
