//! The whole logger in one runtime, with real channels, pipes and files.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use logger::serve;
use wire::log::{Access, Level, Record, append, begin};
use wire::{AccessRight, ChildToLauncher, LauncherToLogger, NO_PARTITION, Text};
use worker::ProcessStart;
use worker::channel::Channel;
use worker::log::Log;

type Control = Channel<ChildToLauncher, LauncherToLogger>;

/// A directory that goes away with the test.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A logger at work, seen from the launcher.
struct Bench {
    control: Control,
    directory: Directory,
    logger: tokio::task::JoinHandle<Result<(), String>>,
}

impl Bench {
    async fn new(name: &str, format: u8) -> Self {
        let bench = Self::successor(name, format).await;
        bench.send(LauncherToLogger::Read {}, None).await;
        bench
    }

    /// One beside which another logger still reads.
    async fn successor(name: &str, format: u8) -> Self {
        let directory = std::env::temp_dir().join(format!("bulkhead-logger-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (ours, theirs) = sys::seqpacket::pair().unwrap();
        let logger = tokio::task::spawn_local(async move {
            let start = ProcessStart { control: theirs, say: None, log: None };
            serve(start).await.map_err(|error| error.to_string())
        });
        let bench = Self { control: Control::new(ours).unwrap(), directory: Directory(directory), logger };
        bench.send(LauncherToLogger::Format { format, flush_ms: 10, access_bytes: u64::MAX }, None).await;
        for site in [1, 2, NO_PARTITION] {
            let file = bench.create(&format!("access.{site}"));
            bench.send(LauncherToLogger::AccessLog { site, name: Text::new("a") }, Some(file)).await;
        }
        let file = bench.create("error");
        bench.send(LauncherToLogger::ErrorLog {}, Some(file)).await;
        bench.send(LauncherToLogger::Begin {}, None).await;
        assert_eq!(bench.receive().await, ChildToLauncher::Ready {});
        bench
    }

    fn create(&self, name: &str) -> OwnedFd {
        let path = self.directory.0.join(name);
        OpenOptions::new().append(true).create(true).open(path).unwrap().into()
    }

    async fn send(&self, message: LauncherToLogger, descriptor: Option<OwnedFd>) {
        let descriptor = descriptor.as_ref().map(AsFd::as_fd);
        self.control.send(&message, descriptor).await.unwrap();
    }

    async fn receive(&self) -> ChildToLauncher {
        self.control.receive().await.unwrap().unwrap().0
    }

    async fn client(&self, label: &str, right: AccessRight) -> OwnedFd {
        let (ours, theirs) = sys::seqpacket::pair().unwrap();
        let label = Text::new(label);
        self.send(LauncherToLogger::Client { label, right }, Some(theirs)).await;
        ours
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.directory.0.join(name)).unwrap()
    }

    /// Waits until a log holds a text.
    async fn await_text(&self, name: &str, text: &str) {
        for _ in 0..500 {
            if self.read(name).contains(text) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no {text:?} in {name}: {}", self.read(name));
    }

    /// Ends the logger by closing the control channel.
    async fn end(self) -> (Directory, Result<(), String>) {
        drop(self.control);
        (self.directory, self.logger.await.unwrap())
    }
}

fn run(test: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test());
}

fn access(site: u16, target: &'static [u8]) -> Access<'static> {
    Access {
        time_us: 1_795_233_906_789_012,
        duration_us: 5,
        site,
        peer: SocketAddr::from(([192, 0, 2, 7], 80)),
        status: 200,
        body_bytes: 3,
        version: 1,
        method: b"GET",
        target,
        host: b"a.example",
        referer: b"",
        agent: b"",
    }
}

fn batch(sequence: u64, records: &[Record<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    begin(&mut bytes, sequence);
    records.iter().for_each(|record| append(&mut bytes, record));
    bytes
}

fn send(client: &OwnedFd, bytes: &[u8]) {
    sys::seqpacket::send(client, bytes, None).unwrap();
}

#[test]
fn records_reach_their_files() {
    run(async || {
        let bench = Bench::new("reach", 0).await;
        let log = Log::new(Some(bench.client("site a", AccessRight::Site(1)).await), 1, 10).unwrap();
        let gate = Log::new(Some(bench.client("gate", AccessRight::Every).await), NO_PARTITION, 10).unwrap();
        log.access(&access(1, b"/one"));
        log.event(Level::Error, format_args!("broken {}\n", 7));
        gate.access(&access(2, b"/two"));
        gate.access(&access(NO_PARTITION, b"/none"));
        bench.await_text("access.1", "\n").await;
        bench.await_text("access.2", "\n").await;
        assert_eq!(
            bench.read("access.1"),
            "192.0.2.7 - - [21/Nov/2026:04:05:06 +0000] \"GET /one HTTP/1.1\" 200 3\n"
        );
        assert!(bench.read("access.2").contains("GET /two "));
        assert!(bench.read("access.65535").contains("GET /none "));
        assert!(bench.read("error").ends_with("Z error [site a] broken 7\\x0a\n"));
        bench.send(LauncherToLogger::Report {}, None).await;
        let ChildToLauncher::Counters { counters } = bench.receive().await else {
            panic!("no counters");
        };
        assert_eq!((counters.connections_now, counters.connections, counters.requests), (2, 2, 4));
        assert_eq!(bench.end().await.1, Ok(()));
    });
}

#[test]
fn a_hostile_client_is_refused_but_kept() {
    run(async || {
        let bench = Bench::new("hostile", 0).await;
        let client = bench.client("site a", AccessRight::Site(1)).await;
        let foreign = Record::Access(access(2, b"/foreign"));
        let none = Record::Access(access(NO_PARTITION, b"/none"));
        let own = Record::Access(access(1, b"/own"));
        send(&client, &batch(40, &[foreign, none, own]));
        send(&client, b"\x01nonsense that is long enough");
        send(&client, &vec![7; wire::MESSAGE_MAX + 1]);
        send(&client, &batch(48, &[own]));
        bench.await_text("error", "lost 5 records of site a").await;
        let error = bench.read("error");
        assert!(error.contains("warning [logger] refused 2 records of site a"), "{error}");
        assert!(error.contains("malformed batches of site a"), "{error}");
        assert_eq!(bench.read("access.1").matches("GET /own ").count(), 2);
        assert_eq!(bench.read("access.2").len() + bench.read("access.65535").len(), 0);
        assert_eq!(bench.end().await.1, Ok(()));
    });
}

/// A client that answers no requests is of no site, and must not pass for one of every site.
#[test]
fn without_a_right_there_are_only_events() {
    run(async || {
        let bench = Bench::new("events", 0).await;
        let admin = bench.client("admin", AccessRight::None).await;
        let forged = [0, 1, 2, NO_PARTITION].map(|site| Record::Access(access(site, b"/forged")));
        let event = Record::Event { time_us: 0, level: Level::Warning, text: b"an event" };
        send(&admin, &batch(0, &forged));
        send(&admin, &batch(4, &[event]));
        bench.await_text("error", "warning [admin] an event").await;
        bench.await_text("error", "warning [logger] refused 4 records of admin").await;
        for log in ["access.1", "access.2", "access.65535"] {
            assert_eq!(bench.read(log), "");
        }
        assert_eq!(bench.end().await.1, Ok(()));
    });
}

#[test]
fn too_many_events_are_suppressed_and_counted() {
    run(async || {
        let bench = Bench::new("suppress", 0).await;
        let log = Log::new(Some(bench.client("site a", AccessRight::Site(1)).await), 1, 10).unwrap();
        for count in 0..1500 {
            log.event(Level::Info, count);
        }
        log.flush().await;
        bench.await_text("error", "suppressed 500 lines of site a").await;
        assert_eq!(bench.read("error").lines().count(), 1001);
    });
}

#[test]
fn standard_error_becomes_lines() {
    run(async || {
        let bench = Bench::new("stderr", 0).await;
        let (read, write) = std::io::pipe().unwrap();
        let label = Text::new("gate");
        bench.send(LauncherToLogger::Stderr { label }, Some(read.into())).await;
        let mut write = File::from(OwnedFd::from(write));
        write.write_all(b"warning: one\nerror: t\x1bwo\n\nthree\nla").unwrap();
        bench.await_text("error", "three").await;
        assert!(!bench.read("error").contains("la\n"));
        write.write_all(&[b'x'; 2046]).unwrap();
        drop(write);
        bench.await_text("error", "] lax").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let error = bench.read("error");
        let ends: Vec<_> = error.lines().map(|line| &line[25..]).collect();
        assert_eq!(ends[..3], ["warning [gate] one", "error [gate] t\\x1bwo", "info [gate] three"]);
        assert_eq!(ends.len(), 5);
        assert_eq!(ends[4].len(), "info [gate] ".len() + 1024);
    });
}

#[test]
fn what_is_queued_is_written_at_the_end() {
    run(async || {
        let bench = Bench::new("end", 2).await;
        let client = bench.client("site a", AccessRight::Site(1)).await;
        bench.send(LauncherToLogger::Report {}, None).await;
        bench.receive().await;
        let own = Record::Access(access(1, b"/own"));
        // Nothing yields between these and the end, so all of it is in the queue by then.
        (0..20).for_each(|number| send(&client, &batch(number * 50, &[own; 50])));
        let (directory, result) = bench.end().await;
        assert_eq!(result, Ok(()));
        let written = fs::read_to_string(directory.0.join("access.1")).unwrap();
        assert_eq!(written.lines().count(), 1000);
        assert!(written.lines().all(|line| line.starts_with("{\"time\":\"2026-11-21T04:05:06.789Z\"")));
    });
}

/// Two that look at one channel would each discard what the other has looked at.
#[test]
fn a_successor_leaves_everything_where_it_is_until_it_is_told_to_read() {
    run(async || {
        let bench = Bench::successor("successor", 0).await;
        let (client, theirs) = sys::seqpacket::pair().unwrap();
        let seen = theirs.try_clone().unwrap();
        let (label, right) = (Text::new("site a"), AccessRight::Site(1));
        bench.send(LauncherToLogger::Client { label, right }, Some(theirs)).await;
        send(&client, &batch(0, &[Record::Access(access(1, b"/own"))]));
        bench.send(LauncherToLogger::Report {}, None).await;
        bench.receive().await;
        let (directory, _) = bench.end().await;
        assert_eq!(fs::read_to_string(directory.0.join("access.1")).unwrap(), "");
        assert!(
            sys::seqpacket::peek(&seen, &mut [0; 1024]).unwrap().is_some(),
            "it is there for the next one"
        );
    });
}

#[test]
fn what_is_written_has_left_the_channel() {
    run(async || {
        let bench = Bench::new("written", 0).await;
        let (client, theirs) = sys::seqpacket::pair().unwrap();
        let seen = theirs.try_clone().unwrap();
        let (label, right) = (Text::new("site a"), AccessRight::Site(1));
        bench.send(LauncherToLogger::Client { label, right }, Some(theirs)).await;
        send(&client, &batch(0, &[Record::Access(access(1, b"/own"))]));
        bench.await_text("access.1", "/own").await;
        let error = sys::seqpacket::peek(&seen, &mut [0; 1024]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
        assert_eq!(bench.end().await.1, Ok(()));
    });
}

#[test]
fn a_line_for_a_log_that_is_not_open_waits_in_its_channel() {
    run(async || {
        let bench = Bench::new("later", 0).await;
        let later = || LauncherToLogger::AccessLogLater { site: 3, name: Text::new("c") };
        bench.send(later(), None).await;
        let (client, theirs) = sys::seqpacket::pair().unwrap();
        let seen = theirs.try_clone().unwrap();
        let (label, right) = (Text::new("gate 0"), AccessRight::Every);
        bench.send(LauncherToLogger::Client { label, right }, Some(theirs)).await;
        send(&client, &batch(0, &[Record::Access(access(1, b"/first"))]));
        let both = [Record::Access(access(3, b"/third")), Record::Access(access(1, b"/behind"))];
        send(&client, &batch(1, &both));
        assert_eq!(bench.receive().await, ChildToLauncher::LogWanted { site: 3 });
        bench.await_text("access.1", "/first").await;
        let waits = || sys::seqpacket::peek(&seen, &mut [0; 1024]).is_ok_and(|found| found.is_some());
        assert!(waits() && !bench.read("access.1").contains("/behind"));
        let file = bench.create("access.3");
        bench.send(LauncherToLogger::AccessLog { site: 3, name: Text::new("c") }, Some(file)).await;
        bench.await_text("access.3", "/third").await;
        bench.await_text("access.1", "/behind").await;
        assert!(!waits());
        // It is closed, and asked for again, by a logger that ends: the next one finds the line.
        bench.send(later(), None).await;
        send(&client, &batch(3, &[Record::Access(access(3, b"/held"))]));
        assert_eq!(bench.receive().await, ChildToLauncher::LogWanted { site: 3 });
        let (directory, result) = bench.end().await;
        assert_eq!((result, waits()), (Ok(()), true));
        assert!(!fs::read_to_string(directory.0.join("access.3")).unwrap().contains("/held"));
    });
}

#[test]
fn the_last_logger_leaves_no_line_behind() {
    run(async || {
        let bench = Bench::new("last", 0).await;
        let later = LauncherToLogger::AccessLogLater { site: 3, name: Text::new("c") };
        bench.send(later, None).await;
        let client = bench.client("gate 0", AccessRight::Every).await;
        send(&client, &batch(0, &[Record::Access(access(3, b"/third"))]));
        assert_eq!(bench.receive().await, ChildToLauncher::LogWanted { site: 3 });
        bench.send(LauncherToLogger::Last {}, None).await;
        let none = format!("access.{NO_PARTITION}");
        bench.await_text(&none, "/third").await;
        assert_eq!(bench.end().await.1, Ok(()));
    });
}

#[test]
fn a_client_of_an_earlier_logger_has_no_gap() {
    run(async || {
        let bench = Bench::new("restart", 0).await;
        let client = bench.client("site a", AccessRight::Site(1)).await;
        send(&client, &batch(1000, &[Record::Access(access(1, b"/own"))]));
        drop(client);
        bench.await_text("access.1", "/own").await;
        bench.send(LauncherToLogger::Report {}, None).await;
        let ChildToLauncher::Counters { counters } = bench.receive().await else {
            panic!("no counters");
        };
        assert_eq!((counters.connections_now, counters.connections), (0, 1));
        let (directory, _) = bench.end().await;
        assert_eq!(fs::read_to_string(directory.0.join("error")).unwrap(), "");
    });
}

#[test]
fn nonsense_of_the_launcher_ends_the_logger() {
    run(async || {
        let bench = Bench::new("nonsense", 0).await;
        bench.send(LauncherToLogger::Format { format: 9, flush_ms: 0, access_bytes: 0 }, None).await;
        let (_, result) = bench.end().await;
        assert!(result.unwrap_err().contains("format 9"));
        let bench = Bench::new("missing", 0).await;
        bench.send(LauncherToLogger::AccessLog { site: 5, name: Text::new("a") }, None).await;
        assert!(bench.end().await.1.is_err());
    });
}
