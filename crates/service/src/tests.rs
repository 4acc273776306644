//! A worker's life against a played launcher, gate, site worker and logger, in one process.
//!
//! Runs in: the test. Sees: what the tests make up. Never: runs outside of tests.

use std::cell::Cell;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use wire::log::{Batch, Record};
use wire::{Bundle, Bytes, ChildToLauncher, FromWorker, LauncherToService, Source, ToWorker, WorkerLimits};
use worker::ProcessStart;
use worker::channel::Channel;

use crate::process::{Native, RequestHandler, Tower, serve};
use crate::{Context, Error, Request, Response, Service};

const BODY_MAX: u64 = 1000;
const SITE: u16 = 3;
const HEAD_MS: u32 = 400;
const IDLE_MS: u32 = 1500;

type Gate = Channel<FromWorker, ToWorker>;

/// The worker under test and its surroundings.
struct World {
    launcher: Channel<ChildToLauncher, LauncherToService>,
    log: OwnedFd,
    worker: JoinHandle<Result<(), Error>>,
}

/// Counts, and says what it sees.
struct Probe {
    word: String,
    count: Cell<u32>,
}

impl Service for Probe {
    async fn init(cx: &Context) -> Result<Self, Error> {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(Self { word: cx.option("--word")?.to_owned(), count: Cell::new(0) })
    }

    async fn process(&self, mut request: Request) -> Response {
        self.count.set(self.count.get() + 1);
        match request.path() {
            "/slow" => tokio::time::sleep(Duration::from_millis(200)).await,
            "/client" => {
                let ours = ["bulkhead-client", "client-cert", "client-cert-chain"];
                let seen = ours.iter().any(|name| request.headers().contains_key(*name));
                return Response::text(format!("{} {seen}", request.client()));
            }
            "/body" => {
                return match request.bytes().await {
                    Ok(bytes) => Response::text(format!("{} bytes", bytes.len())),
                    Err(error) => error.into(),
                };
            }
            "/headers" => return Response::text(headers(&request)),
            "/ignores-body" => {
                let _ = request.bytes().await;
            }
            _ => {}
        }
        Response::text(format!("{} {}", self.word, self.count.get()))
    }
}

/// The names and values that arrived, and the target.
fn headers(request: &Request) -> String {
    let lines = request.headers().iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    format!("{}\n{}", request.uri(), lines.join("\n"))
}

async fn probe(cx: &Context) -> Result<Native<Probe>, Error> {
    Ok(Native(Probe::init(cx).await?))
}

fn limits() -> WorkerLimits {
    WorkerLimits {
        head_bytes: 8192,
        head_timeout_ms: HEAD_MS,
        body_bytes: BODY_MAX,
        idle_timeout_ms: IDLE_MS,
        start_timeout_ms: 1000,
        connections: 100,
        flush_ms: 10,
        idle_stop_ms: 0,
    }
}

fn limits_message() -> LauncherToService {
    LauncherToService::Limits { limits: limits(), site: SITE, owns_host: false, dumps: false, jit: true }
}

/// Runs a test on a runtime like a worker's.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limited = async { tokio::time::timeout(Duration::from_secs(20), test).await.unwrap() };
    LocalSet::new().block_on(&runtime, limited);
}

impl World {
    fn new<P: RequestHandler>(
        arguments: &[&str],
        owns_host: bool,
        init: impl AsyncFnOnce(&Context) -> Result<P, Error> + 'static,
    ) -> Self {
        let (control, theirs) = sys::seqpacket::pair().unwrap();
        let (log, log_theirs) = sys::seqpacket::pair().unwrap();
        let launcher = Channel::new(control).unwrap();
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let start = ProcessStart { control: theirs, say: None, log: Some(log_theirs) };
        let worker = spawn_local(serve(start, arguments, init));
        let world = Self { launcher, log, worker };
        world.send(&LauncherToService::Limits {
            limits: limits(),
            site: SITE,
            owns_host,
            dumps: false,
            jit: true,
        });
        world
    }

    /// A world with [`Probe`] in it, up and running, and a source.
    async fn probe(owns_host: bool, source: Source) -> (Self, Gate) {
        let world = Self::new(&["--word", "answer"], owns_host, probe);
        let gate = world.attach(source);
        world.begin().await;
        (world, gate)
    }

    fn send(&self, message: &LauncherToService) {
        self.launcher.try_send(message, None).unwrap();
    }

    fn attach(&self, source: Source) -> Gate {
        let (ours, theirs) = sys::seqpacket::pair().unwrap();
        let message = LauncherToService::Attach { source };
        self.launcher.try_send(&message, Some(theirs.as_fd())).unwrap();
        Gate::new(ours).unwrap()
    }

    async fn begin(&self) {
        self.send(&LauncherToService::Begin {});
        let (answer, _) = self.launcher.receive().await.unwrap().unwrap();
        assert_eq!(answer, ChildToLauncher::Ready {});
    }

    /// Retires the worker and gives the source's answer to `Drain`.
    async fn retire(self, gate: Gate) -> Vec<String> {
        self.launcher.finish();
        loop {
            match gate.receive().await.unwrap() {
                Some((FromWorker::Drain {}, _)) => gate.finish(),
                Some(_) => {}
                None => break,
            }
        }
        self.end().await
    }

    /// Waits for the worker's end and gives the access log.
    async fn end(self) -> Vec<String> {
        self.worker.await.unwrap().unwrap();
        records(&self.log)
    }
}

/// The records that have arrived at the logger, as `METHOD TARGET STATUS BYTES` each.
fn records(log: &OwnedFd) -> Vec<String> {
    let mut buffer = vec![0; wire::MESSAGE_MAX];
    let mut lines = Vec::new();
    while let Ok(Some(got)) = sys::seqpacket::receive(log, &mut buffer) {
        for record in Batch::decode(&buffer[..got.len]).unwrap() {
            let Record::Access(access) = record.unwrap() else {
                continue;
            };
            assert_eq!(access.site, SITE);
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let (method, target) = (text(access.method), text(access.target));
            lines.push(format!("{method} {target} {} {}", access.status, access.body_bytes));
        }
    }
    lines
}

/// Passes a connection on, as a source does.
fn pass(gate: &Gate, stream: impl AsFd, preread: &str, relayed: bool) {
    let bundle = Bundle {
        id: 7,
        peer: peer(),
        local: SocketAddr::from(([127, 0, 0, 1], 80)),
        kind: if relayed { wire::Kind::Relayed } else { wire::Kind::Plain },
        preread: Bytes(preread.as_bytes().to_vec()),
    };
    let message = ToWorker::Connection { bundle };
    gate.try_send(&message, Some(stream.as_fd())).unwrap();
}

fn peer() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 4711))
}

/// A client's TCP connection: the client's end, and ours.
async fn client() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

/// Sends `request` on a new client connection, of which the source has `preread` some, and gives the answer.
async fn ask(gate: &Gate, preread: &str, request: &str) -> String {
    let (mut client, ours) = client().await;
    client.write_all(request.as_bytes()).await.unwrap();
    pass(gate, ours, preread, false);
    rest(&mut client).await
}

async fn rest(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// The next answer on a connection that stays open.
async fn one(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut answer = vec![0; 4096];
    let count = stream.read(&mut answer).await.unwrap();
    String::from_utf8(answer[..count].to_vec()).unwrap()
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n")
}

fn credits(message: Option<(FromWorker, Option<OwnedFd>)>) -> u16 {
    match message {
        Some((FromWorker::Returns { credits, .. }, _)) => credits,
        other => panic!("no credits: {other:?}"),
    }
}

#[test]
fn credits_are_granted_only_after_init() {
    run(async {
        let world = World::new(&["--word", "x"], false, probe);
        let gate = world.attach(Source::Gate);
        world.send(&LauncherToService::Begin {});
        let late = world.attach(Source::Gate);
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(gate.try_receive().is_none(), "nothing is granted before init is done");
        let (answer, _) = world.launcher.receive().await.unwrap().unwrap();
        assert_eq!(answer, ChildToLauncher::Ready {});
        assert!(credits(gate.receive().await.unwrap()) > 0);
        assert!(credits(late.receive().await.unwrap()) > 0);
    });
}

#[test]
fn an_init_that_fails_ends_the_worker() {
    run(async {
        let world = World::new(&[], false, probe);
        world.send(&LauncherToService::Begin {});
        let error = world.worker.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("--word"), "{error}");
        assert!(world.launcher.receive().await.unwrap().is_none(), "no Ready");
    });
}

/// A worker whose `init` never comes to an end.
async fn hangs(_: &Context) -> Result<Native<Probe>, Error> {
    std::future::pending().await
}

#[test]
fn a_worker_is_retired_while_its_init_hangs() {
    run(async {
        let world = World::new(&[], false, hangs);
        let gate = world.attach(Source::Gate);
        world.send(&LauncherToService::Begin {});
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!world.worker.is_finished());
        world.launcher.finish();
        world.worker.await.unwrap().unwrap();
        assert!(gate.receive().await.unwrap().is_none(), "it was given no credits");
    });
}

#[test]
fn what_the_launcher_says_during_init_is_done_afterwards() {
    run(async {
        let world = World::new(&["--word", "x"], false, probe);
        world.send(&LauncherToService::Begin {});
        world.send(&LauncherToService::Report {});
        let late = world.attach(Source::Gate);
        let (answer, _) = world.launcher.receive().await.unwrap().unwrap();
        assert_eq!(answer, ChildToLauncher::Ready {});
        let (answer, _) = world.launcher.receive().await.unwrap().unwrap();
        assert!(matches!(answer, ChildToLauncher::Counters { .. }), "{answer:?}");
        assert!(ask(&late, "", &get("/")).await.ends_with("x 1"));
        world.retire(late).await;
    });
}

#[test]
fn a_launcher_that_talks_nonsense_ends_the_worker_with_an_error() {
    run(async {
        for (first, second) in [
            (LauncherToService::Begin {}, None),
            (LauncherToService::Report {}, None),
            (limits_message(), Some(limits_message())),
            (limits_message(), Some(LauncherToService::Attach { source: Source::Gate })),
        ] {
            let (control, theirs) = sys::seqpacket::pair().unwrap();
            let launcher: Channel<ChildToLauncher, LauncherToService> = Channel::new(control).unwrap();
            let (_log, log_theirs) = sys::seqpacket::pair().unwrap();
            launcher.try_send(&first, None).unwrap();
            if let Some(second) = second {
                launcher.try_send(&second, None).unwrap();
            }
            let start = ProcessStart { control: theirs, say: None, log: Some(log_theirs) };
            let error = serve(start, Vec::new(), hangs).await.unwrap_err().to_string();
            assert!(error.contains("out of turn"), "{error}");
        }
    });
}

#[test]
fn a_launcher_that_says_nothing_ends_the_worker_in_peace() {
    run(async {
        let (control, theirs) = sys::seqpacket::pair().unwrap();
        drop(control);
        serve(ProcessStart { control: theirs, say: None, log: None }, Vec::new(), hangs).await.unwrap();
    });
}

#[test]
fn taken_bytes_come_before_the_socket() {
    run(async {
        let (world, gate) = World::probe(false, Source::Gate).await;
        let answer = ask(&gate, "GET / HT", "TP/1.1\r\nHost: a.test\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("answer 1"), "{answer}");
        assert_eq!(world.retire(gate).await, ["GET / 200 8"]);
    });
}

#[test]
fn the_end_follows_the_answer_although_the_gate_still_has_the_connection() {
    run(async {
        let (_world, gate) = World::probe(false, Source::Gate).await;
        let (mut client, ours) = client().await;
        client.write_all(get("/").as_bytes()).await.unwrap();
        pass(&gate, &ours, "", false);
        assert!(rest(&mut client).await.starts_with("HTTP/1.1 200"));
    });
}

#[test]
fn a_client_connection_is_for_one_request() {
    run(async {
        let (world, gate) = World::probe(false, Source::Gate).await;
        let answer = ask(&gate, "", &(get("/1") + &get("/2"))).await;
        assert!(answer.contains("connection: close\r\n"), "{answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
        assert_eq!(world.retire(gate).await, ["GET /1 200 8"]);
    });
}

#[test]
fn the_owner_of_a_host_keeps_connections_for_this_host() {
    run(async {
        let (world, gate) = World::probe(true, Source::Gate).await;
        let (mut client, ours) = client().await;
        pass(&gate, ours, "", false);
        for count in 1..=3 {
            client.write_all(get("/").as_bytes()).await.unwrap();
            let answer = one(&mut client).await;
            assert!(answer.ends_with(&format!("answer {count}")), "{answer}");
        }
        let other = "GET /x HTTP/1.1\r\nHost: b.test\r\n\r\n";
        client.write_all(other.as_bytes()).await.unwrap();
        assert!(rest(&mut client).await.starts_with("HTTP/1.1 421 "));
        let log = world.retire(gate).await;
        assert_eq!(log.len(), 4);
        assert!(log[3].starts_with("GET /x 421 "), "{}", log[3]);
    });
}

/// How long it takes from now until a connection is closed, in ms, and what arrives until then.
async fn closed_after(client: &mut TcpStream) -> (u128, String) {
    let began = std::time::Instant::now();
    let answer = rest(client).await;
    (began.elapsed().as_millis(), answer)
}

#[test]
fn a_head_on_a_kept_connection_has_its_own_deadline() {
    run(async {
        let (world, gate) = World::probe(true, Source::Gate).await;
        let (mut client, ours) = client().await;
        pass(&gate, ours, "", false);
        client.write_all(get("/").as_bytes()).await.unwrap();
        assert!(one(&mut client).await.ends_with("answer 1"));
        // It may be idle for longer than a head may take.
        tokio::time::sleep(Duration::from_millis(u64::from(HEAD_MS) + 200)).await;
        let body = "POST /body HTTP/1.1\r\nHost: a.test\r\nContent-Length: 6\r\n\r\nabc";
        client.write_all(body.as_bytes()).await.unwrap();
        // A body that arrives late is no head that does.
        tokio::time::sleep(Duration::from_millis(u64::from(HEAD_MS) + 200)).await;
        client.write_all(b"def").await.unwrap();
        assert!(one(&mut client).await.ends_with("6 bytes"));
        // Nor does it help to send a little at a time.
        client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        tokio::time::sleep(Duration::from_millis(u64::from(HEAD_MS) / 2)).await;
        client.write_all(b"X: y\r\n").await.unwrap();
        let (ms, answer) = closed_after(&mut client).await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer:?}");
        assert!((100..1000).contains(&ms), "after {ms} ms");
        assert_eq!(world.retire(gate).await, ["GET / 200 8", "POST /body 200 7", "  408 0"]);
    });
}

#[test]
fn a_kept_connection_without_a_request_is_closed_in_silence() {
    run(async {
        let (world, gate) = World::probe(true, Source::Gate).await;
        let (mut client, ours) = client().await;
        pass(&gate, ours, "", false);
        client.write_all(get("/").as_bytes()).await.unwrap();
        assert!(one(&mut client).await.ends_with("answer 1"));
        let (ms, answer) = closed_after(&mut client).await;
        assert_eq!(answer, "");
        assert!(ms > 1200, "after {ms} ms");
        assert_eq!(world.retire(gate).await.len(), 1);
    });
}

#[test]
fn a_kept_connection_ends_when_the_worker_retires() {
    run(async {
        let (world, gate) = World::probe(true, Source::Gate).await;
        let (mut client, ours) = client().await;
        client.write_all(get("/").as_bytes()).await.unwrap();
        pass(&gate, ours, "", false);
        assert!(one(&mut client).await.ends_with("answer 1"));
        assert_eq!(world.retire(gate).await.len(), 1);
        assert_eq!(rest(&mut client).await, "");
    });
}

#[test]
fn a_relayed_connection_serves_many_and_names_the_client() {
    run(async {
        let (world, gate) = World::probe(false, Source::Site).await;
        let (mut site, ours) = UnixStream::pair().unwrap();
        pass(&gate, ours, "", true);
        for port in [1, 2, 3] {
            let request =
                format!("GET /client HTTP/1.1\r\nHost: a\r\nbulkhead-client: 198.51.100.7:{port}\r\n\r\n");
            site.write_all(request.as_bytes()).await.unwrap();
            let answer = one(&mut site).await;
            assert!(answer.ends_with(&format!("198.51.100.7:{port} false")), "{answer}");
        }
        drop(site);
        world.send(&LauncherToService::Report {});
        let (answer, _) = world.launcher.receive().await.unwrap().unwrap();
        assert!(matches!(answer, ChildToLauncher::Counters { counters } if counters.requests == 3));
        assert!(world.retire(gate).await.is_empty(), "the site's worker logs these");
    });
}

#[test]
fn a_client_cannot_name_itself() {
    run(async {
        let (_world, gate) = World::probe(false, Source::Gate).await;
        let request = "GET /client HTTP/1.1\r\nHost: a\r\nBulkhead-Client: 10.0.0.1:1\r\nClient-Cert: :AA==:\r\n\
                       Client-Cert-Chain: :AA==:\r\n\r\n";
        // That a gate calls a connection relayed does not make it so: what counts is whose channel it came on.
        let (mut client, ours) = client().await;
        client.write_all(request.as_bytes()).await.unwrap();
        pass(&gate, ours, "", true);
        let answer = rest(&mut client).await;
        assert!(answer.ends_with(&format!("{} false", peer())), "{answer}");
    });
}

#[test]
fn what_a_client_says_in_our_name_is_not_believed_here_either() {
    run(async {
        let (_world, gate) = World::probe(false, Source::Gate).await;
        let request = "GET http://a/headers HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Host: \
                       evil\r\nX-Real-IP: 6.6.6.6\r\nX_Real_IP: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nX-Original-URL: \
                       /admin\r\nProxy: evil\r\nConnection: x-own\r\nX-Own: 1\r\nTE: trailers\r\nUpgrade: h2c\r\n\
                       X-Good: 1\r\n\r\n";
        let (mut client, ours) = client().await;
        client.write_all(request.as_bytes()).await.unwrap();
        pass(&gate, ours, "", false);
        let answer = rest(&mut client).await;
        let ip = peer().ip();
        let seen = format!(
            "/headers\nforwarded: for={ip};proto=http;host=\"a\"\nhost: a\nx-forwarded-for: {ip}\n\
             x-forwarded-host: a\nx-forwarded-proto: http\nx-good: 1"
        );
        assert!(answer.ends_with(&seen), "{answer}");
    });
}

#[test]
fn a_retiring_worker_answers_what_it_has_and_what_is_on_its_way() {
    run(async {
        let (world, gate) = World::probe(false, Source::Gate).await;
        let (mut slow, ours) = client().await;
        slow.write_all(get("/slow").as_bytes()).await.unwrap();
        pass(&gate, ours, "", false);
        tokio::time::sleep(Duration::from_millis(20)).await;
        world.launcher.finish();
        while !matches!(gate.receive().await.unwrap(), Some((FromWorker::Drain {}, _))) {}
        // Sent before the gate heard of the retirement.
        let (mut late, ours) = client().await;
        late.write_all(get("/late").as_bytes()).await.unwrap();
        pass(&gate, ours, "", false);
        gate.finish();
        assert!(rest(&mut late).await.ends_with("answer 2"));
        assert!(rest(&mut slow).await.ends_with("answer 2"));
        assert_eq!(world.end().await, ["GET /late 200 8", "GET /slow 200 8"]);
    });
}

#[test]
fn relayed_connections_are_served_until_the_site_closes_them() {
    run(async {
        let (world, gate) = World::probe(false, Source::Site).await;
        let (mut site, ours) = UnixStream::pair().unwrap();
        pass(&gate, ours, "", true);
        site.write_all(get("/").as_bytes()).await.unwrap();
        assert!(one(&mut site).await.ends_with("answer 1"));
        world.launcher.finish();
        while !matches!(gate.receive().await.unwrap(), Some((FromWorker::Drain {}, _))) {}
        gate.finish();
        site.write_all(get("/").as_bytes()).await.unwrap();
        assert!(one(&mut site).await.ends_with("answer 2"));
        drop(site);
        world.end().await;
    });
}

#[test]
fn bodies_have_a_limit() {
    run(async {
        let (world, gate) = World::probe(false, Source::Gate).await;
        let post = |path: &str, length: usize, body: &str| {
            format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}")
        };
        let answer = ask(&gate, "", &post("/body", 1000, &"x".repeat(1000))).await;
        assert!(answer.ends_with("1000 bytes"), "{answer}");
        let (mut client, ours) = client().await;
        client.write_all(post("/declared", 1001, "").as_bytes()).await.unwrap();
        pass(&gate, ours, "", false);
        assert!(one(&mut client).await.starts_with("HTTP/1.1 413 "));
        drop(client);
        for path in ["/body", "/ignores-body"] {
            let (mut client, ours) = self::client().await;
            let chunk = format!("258\r\n{}\r\n", "x".repeat(600));
            let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
            client.write_all((head + &chunk + &chunk).as_bytes()).await.unwrap();
            pass(&gate, ours, "", false);
            assert!(one(&mut client).await.starts_with("HTTP/1.1 413 "), "{path}");
        }
        let log = world.retire(gate).await;
        assert_eq!(log.len(), 4);
        assert_eq!(log.iter().filter(|line| line.contains(" 413 ")).count(), 3);
    });
}

#[test]
fn a_body_that_does_not_arrive_is_not_waited_for_forever() {
    run(async {
        let (_world, gate) = World::probe(false, Source::Gate).await;
        let (mut client, ours) = client().await;
        let head = "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nx";
        client.write_all(head.as_bytes()).await.unwrap();
        pass(&gate, ours, "", false);
        assert!(one(&mut client).await.starts_with("HTTP/1.1 408 "));
    });
}

#[test]
fn a_client_that_has_shut_down_its_side_gets_its_answer() {
    run(async {
        let (_world, gate) = World::probe(false, Source::Gate).await;
        let (mut client, ours) = client().await;
        client.write_all(get("/slow").as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        pass(&gate, ours, "", false);
        assert!(rest(&mut client).await.ends_with("answer 1"));
    });
}

#[test]
fn malformed_requests_are_answered_and_logged() {
    run(async {
        let (world, gate) = World::probe(false, Source::Gate).await;
        let answer = ask(&gate, "", "GET / HTTP/1.1\r\nbad header\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert_eq!(world.retire(gate).await, ["  400 0"]);
    });
}

#[test]
fn an_axum_router_is_a_service() {
    use axum::{Router, extract::Extension, routing::get as route, routing::post};
    run(async {
        let world = World::new(&[], false, async |_: &Context| {
            let client =
                |Extension(crate::Client(peer)): Extension<crate::Client>| async move { peer.to_string() };
            let length = |body: String| async move { body.len().to_string() };
            Ok(Tower(Router::new().route("/client", route(client)).route("/length", post(length))))
        });
        let gate = world.attach(Source::Gate);
        world.begin().await;
        assert!(ask(&gate, "", &get("/client")).await.ends_with("192.0.2.1:4711"));
        assert!(ask(&gate, "", &get("/none")).await.starts_with("HTTP/1.1 404 "));
        let body = "POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
        assert!(ask(&gate, "", body).await.ends_with("\r\n\r\n3"));
        let large = "x".repeat(1200);
        let body = format!(
            "POST /length HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4b0\r\n{large}\r\n0\r\n\r\n"
        );
        assert!(ask(&gate, "", &body).await.starts_with("HTTP/1.1 413 "));
        assert_eq!(world.retire(gate).await.len(), 4);
    });
}

#[test]
fn what_is_no_socket_does_no_harm() {
    run(async {
        let (_world, gate) = World::probe(false, Source::Gate).await;
        let file = std::fs::File::open("/dev/null").unwrap();
        pass(&gate, file, "", false);
        assert!(ask(&gate, "", &get("/")).await.ends_with("answer 1"));
    });
}
