//! The services as processes, with a played launcher and site worker.
//!
//! Runs in: the test. Sees: what the tests make up. Never: runs outside of tests.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use wire::{
    Bundle, Bytes, ChildToLauncher, FromWorker, LauncherToService, Message, Source, ToWorker, WorkerLimits,
};

const DEADLINE: Duration = Duration::from_secs(10);

/// A service's process, as the launcher sees it.
struct Service {
    process: Child,
    control: OwnedFd,
    _log: OwnedFd,
    site: OwnedFd,
}

impl Service {
    fn start(program: &str, arguments: &[&str]) -> Self {
        let (control, theirs) = sys::seqpacket::pair().unwrap();
        let (log, log_theirs) = sys::seqpacket::pair().unwrap();
        // The shell puts the channels where the launcher would: descriptors 3 and 4.
        let process = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4<&1 0</dev/null 1>&2", program])
            .args(arguments)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::from(log_theirs))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (site, site_theirs) = sys::seqpacket::pair().unwrap();
        let service = Self {
            process,
            control,
            _log: log,
            site,
        };
        let limits = WorkerLimits {
            head_bytes: 8192,
            head_timeout_ms: 1000,
            body_bytes: 1000,
            idle_timeout_ms: 1000,
            start_timeout_ms: 1000,
            connections: 100,
            flush_ms: 10,
        };
        service.tell(
            &LauncherToService::Limits {
                limits,
                site: 0,
                owns_host: false,
            },
            None,
        );
        let attach = LauncherToService::Attach { source: Source::Site };
        service.tell(&attach, Some(site_theirs.as_fd()));
        service.tell(&LauncherToService::Begin {}, None);
        service
    }

    /// Starts a service that is expected to come up.
    fn ready(program: &str, arguments: &[&str]) -> Self {
        let service = Self::start(program, arguments);
        assert_eq!(
            receive::<ChildToLauncher>(&service.control),
            Some(ChildToLauncher::Ready {})
        );
        assert!(matches!(
            receive(&service.site),
            Some(FromWorker::Returns { credits: 1.., .. })
        ));
        service
    }

    fn tell(&self, message: &LauncherToService, descriptor: Option<BorrowedFd<'_>>) {
        // A service that failed at once may be gone already.
        let _ = send(&self.control, message, descriptor);
    }

    /// A connection on which requests are relayed.
    fn relay(&self) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let bundle = Bundle {
            id: 1,
            peer: SocketAddr::from(([127, 0, 0, 1], 1)),
            local: SocketAddr::from(([127, 0, 0, 1], 80)),
            relayed: true,
            taken: Bytes(Vec::new()),
        };
        send(&self.site, &ToWorker::Connection { bundle }, Some(theirs.as_fd())).unwrap();
        ours.set_read_timeout(Some(DEADLINE)).unwrap();
        ours
    }

    /// The exit of the process, and its last words.
    fn end(mut self) -> (std::process::ExitStatus, String) {
        drop((self.control, self.site));
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < DEADLINE, "the service does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut words = String::new();
        self.process
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut words)
            .unwrap();
        (status, words)
    }
}

fn send(
    channel: &OwnedFd,
    message: &impl Message,
    descriptor: Option<BorrowedFd<'_>>,
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    sys::seqpacket::send(channel, &bytes, descriptor)
}

/// The next message; `None` at the end of the channel.
fn receive<M: Message>(channel: &OwnedFd) -> Option<M> {
    let mut buffer = vec![0; wire::MESSAGE_MAX];
    let begun = Instant::now();
    loop {
        match sys::seqpacket::receive(channel, &mut buffer) {
            Ok(None) => return None,
            Ok(Some(got)) => return Some(M::decode(&buffer[..got.len]).unwrap()),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
        assert!(begun.elapsed() < DEADLINE, "no message");
    }
}

/// Sends a request with no body and reads up to the end of the page.
fn ask(connection: &mut UnixStream, method: &str, target: &str) -> String {
    let request = format!("{method} {target} HTTP/1.1\r\nHost: a.test\r\n\r\n");
    connection.write_all(request.as_bytes()).unwrap();
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    while !answer.ends_with(b"</html>\n") {
        match connection.read(&mut buffer).unwrap() {
            0 => break,
            count => answer.extend_from_slice(&buffer[..count]),
        }
    }
    String::from_utf8(answer).unwrap()
}

/// Writes the package list to where a service may read it.
fn list(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("packages-{}-{name}.json", std::process::id()));
    std::fs::write(&path, serde_json::to_vec(&packages::sample().all).unwrap()).unwrap();
    path
}

#[test]
fn services_answer_until_they_are_told_to_retire() {
    for (program, target, expected) in [
        (env!("CARGO_BIN_EXE_search"), "/search?q=bash", "/package/bash"),
        (env!("CARGO_BIN_EXE_package"), "/package/bash", "Needed by"),
    ] {
        let index = list(target.split(['/', '?']).nth(1).unwrap());
        let service = Service::ready(program, &["--index", index.to_str().unwrap()]);
        let mut connection = service.relay();
        for _ in 0..3 {
            let page = ask(&mut connection, "GET", target);
            assert!(page.contains(expected), "{page}");
        }
        drop(connection);
        let (status, words) = service.end();
        assert!(status.success(), "{status} {words}");
        std::fs::remove_file(index).unwrap();
    }
}

#[test]
fn a_service_that_cannot_initialise_says_why() {
    let service = Service::start(env!("CARGO_BIN_EXE_search"), &["--index", "/nonexistent"]);
    let (status, words) = service.end();
    assert_eq!(status.code(), Some(1));
    assert!(words.contains("error: /nonexistent: "), "{words}");
}

#[test]
fn crash_crashes_with_and_without_an_answer() {
    let service = Service::ready(env!("CARGO_BIN_EXE_crash"), &[]);
    let mut connection = service.relay();
    let page = ask(&mut connection, "GET", "/crash");
    assert!(
        page.contains(&format!("id=pid>{}\n", service.process.id())),
        "{page}"
    );
    assert!(ask(&mut connection, "POST", "/crash").contains("about to crash"));
    assert_eq!(connection.read(&mut [0]).unwrap_or(0), 0);
    assert_eq!(service.end().0.signal(), Some(6));

    let service = Service::ready(env!("CARGO_BIN_EXE_crash"), &[]);
    let mut connection = service.relay();
    let request = b"GET /crash/now HTTP/1.1\r\nHost: a.test\r\n\r\n";
    connection.write_all(request).unwrap();
    assert_eq!(connection.read(&mut [0]).unwrap_or(0), 0);
    assert_eq!(service.end().0.signal(), Some(6));
}
