//! A service for the tests: tells what its process is and has, and does what a test asks for.
//!
//! Runs in: its own process under its own uid, inside its jail; it is no part of the demo, and must not be put on
//! a server. Sees: requests of tests. Never: asks for a privilege.
//!
//! Most comes from system calls, since a jail may have no `/proc`; then `fds` is null, and the test has to look
//! at the process's `/proc/PID/fd` from outside.

use std::process::ExitCode;
use std::time::Duration;

use bulkhead_service::{ClientCertificate, Context, Error, Request, Response, Service, StatusCode};
use rustix::fs::Mode;
use rustix::process::{Resource, getegid, getgid, getgroups, getrlimit, getuid, umask};
use rustix::thread::{capabilities, no_new_privs, secure_computing_mode};
use serde_json::{Value, json};

const MIB: usize = 1 << 20;
/// The smallest page there is; touching one byte of each makes memory real.
const MEMORY_PAGE: usize = 4096;

struct Probe {
    arguments: Vec<String>,
    dies: bool,
}

impl Service for Probe {
    async fn init(cx: &Context) -> Result<Self, Error> {
        let given = |name: &str| cx.arguments().iter().any(|argument| argument == name);
        if given("--fail-init") {
            return Err("init fails, as told by --fail-init".into());
        }
        if given("--hang-init") {
            std::future::pending::<()>().await;
        }
        Ok(Self { arguments: cx.arguments().to_vec(), dies: given("--die-after-ready") })
    }

    async fn process(&self, request: Request) -> Response {
        if self.dies {
            std::process::abort();
        }
        match request.path() {
            "/probe" => Response::json(&self.report()),
            "/probe/echo" => echo(request).await,
            "/probe/sleep" => sleep(number(&request, "ms")).await,
            "/probe/block" => block(number(&request, "ms")),
            "/probe/exit" => std::process::exit(i32::try_from(number(&request, "code")).unwrap_or(1)),
            "/probe/long" => Response::text("x".repeat(number(&request, "kib") as usize * 1024)),
            "/probe/print" => print(number(&request, "kib")),
            "/probe/fill" => fill(number(&request, "files"), number(&request, "mib")),
            "/probe/plant" => plant(&request.param("kind").unwrap_or_default()),
            "/probe/abort" => std::process::abort(),
            "/probe/keep" => keep(number(&request, "mib")),
            "/probe/hang" => hang(),
            "/probe/spin" => spin(),
            "/probe/allocate" => allocate(number(&request, "mib")),
            _ => Response::status_page(StatusCode::NOT_FOUND),
        }
    }
}

impl Probe {
    fn report(&self) -> Value {
        let groups = getgroups().map(|groups| groups.iter().map(|group| group.as_raw()).collect::<Vec<_>>());
        let cwd = std::env::current_dir().map(|folder| folder.to_string_lossy().into_owned());
        json!({
            "pid": std::process::id(),
            "uid": getuid().as_raw(),
            "gid": getgid().as_raw(),
            "egid": getegid().as_raw(),
            "groups": groups.ok(),
            "fds": descriptors(),
            "cwd": cwd.ok(),
            "args": self.arguments,
            "env": environment(),
            "no_new_privs": no_new_privs().ok(),
            "cap_eff": capabilities(None).ok().map(|sets| format!("{:016x}", sets.effective.bits())),
            "seccomp": secure_computing_mode().ok().map(|mode| mode as u32),
            "umask": format!("{:04o}", mask().bits()),
            "rlimits": {
                "nofile": limits(Resource::Nofile),
                "core": limits(Resource::Core),
                "data": limits(Resource::Data),
            },
        })
    }
}

/// The open descriptors, also the one that reads the folder; null without `/proc`.
fn descriptors() -> Option<Vec<Value>> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?;
    let mut found: Vec<(u32, String)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let link = std::fs::read_link(entry.path()).ok()?;
            Some((entry.file_name().to_str()?.parse().ok()?, link.to_string_lossy().into_owned()))
        })
        .collect();
    found.sort_unstable();
    Some(found.into_iter().map(|(fd, link)| json!({"fd": fd, "link": link})).collect())
}

fn environment() -> serde_json::Map<String, Value> {
    std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into()))
        .collect()
}

/// The mask for new files; it can only be read by setting it, which is harmless with one thread.
fn mask() -> Mode {
    let mask = umask(Mode::from_raw_mode(0o077));
    umask(mask);
    mask
}

/// A limit; null stands for none.
fn limits(resource: Resource) -> Value {
    let limit = getrlimit(resource);
    json!({"soft": limit.current, "hard": limit.maximum})
}

/// The number in a parameter, or nought.
fn number(request: &Request, name: &str) -> u64 {
    request.param_as(name).unwrap_or(0)
}

async fn sleep(ms: u64) -> Response {
    tokio::time::sleep(Duration::from_millis(ms)).await;
    Response::text(format!("slept {ms} ms\n"))
}

/// As `sleep`, and lets nobody else do anything meanwhile.
fn block(ms: u64) -> Response {
    std::thread::sleep(Duration::from_millis(ms));
    Response::text(format!("blocked {ms} ms\n"))
}

/// Takes so much memory for good.
fn keep(mib: u64) -> Response {
    let bytes = usize::try_from(mib).unwrap_or(usize::MAX).saturating_mul(MIB);
    let kept = Vec::leak(vec![1_u8; bytes]);
    Response::text(format!("keeps {} bytes\n", kept.len()))
}

/// Does nothing more, and lets nobody else.
fn hang() -> Response {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

/// The same, and takes a processor for it.
fn spin() -> Response {
    loop {
        std::hint::spin_loop();
    }
}

/// Prints so much on standard error, in lines of 1 KiB.
fn print(kib: u64) -> Response {
    let line = "x".repeat(1023);
    (0..kib).for_each(|_| eprintln!("{line}"));
    Response::text(format!("printed {kib} KiB\n"))
}

/// Makes files in the folder where it is, and writes into one of them, as far as it may.
fn fill(files: u64, mib: u64) -> Response {
    let problem = |error: std::io::Error| error.raw_os_error();
    let made = |at: &u64| std::fs::write(format!("file{at}"), "").is_err();
    let made = (0..files).find(made).unwrap_or(files);
    let mut written: u64 = 0;
    let file = std::fs::File::create("file0").and_then(|mut file| {
        let piece = vec![1; MIB];
        while written < mib << 20 {
            written += std::io::Write::write(&mut file, &piece)? as u64;
        }
        Ok(())
    });
    Response::json(&json!({"files": made, "bytes": written, "error": file.err().and_then(problem)}))
}

/// Puts something else where a core file would be written.
fn plant(kind: &str) -> Response {
    let done = match kind {
        "link" => std::os::unix::fs::symlink("/etc/passwd", "core"),
        "folder" => std::fs::create_dir("core"),
        "pipe" => rustix::fs::mknodat(rustix::fs::CWD, "core", rustix::fs::FileType::Fifo, Mode::RUSR, 0)
            .map_err(Into::into),
        "unreadable" => std::fs::write("core", "x").and_then(|()| {
            std::fs::set_permissions("core", std::os::unix::fs::PermissionsExt::from_mode(0o000))
        }),
        "many" => (0..64).try_for_each(|at| std::fs::write(format!("core.{at}"), "x")),
        _ => Ok(()),
    };
    Response::text(format!("{done:?}\n"))
}

/// Takes memory and touches all of it, as far as the process may.
fn allocate(mib: u64) -> Response {
    let mut memory: Vec<u8> = Vec::new();
    let bytes = usize::try_from(mib).unwrap_or(usize::MAX).saturating_mul(MIB);
    if memory.try_reserve_exact(bytes).is_err() {
        return Response::text(format!("no {mib} MiB to be had\n"))
            .with_status(StatusCode::INSUFFICIENT_STORAGE);
    }
    memory.resize(bytes, 1);
    let touched = memory.iter().step_by(MEMORY_PAGE).map(|&byte| usize::from(byte)).sum::<usize>();
    Response::text(format!("touched {touched} pages of {mib} MiB\n"))
}

/// What a client's certificate says.
fn certificate(shown: &ClientCertificate) -> Value {
    let until = shown.not_after().duration_since(std::time::UNIX_EPOCH).ok();
    json!({
        "subject": shown.subject(),
        "issuer": shown.issuer(),
        "serial": shown.serial(),
        "fingerprint": shown.fingerprint(),
        "not_after": until.map(|since| since.as_secs()),
    })
}

/// What arrived, as JSON.
async fn echo(mut request: Request) -> Response {
    let headers: Vec<Value> = request
        .headers()
        .iter()
        .map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]))
        .collect();
    let mut report = json!({
        "method": request.method().as_str(),
        "path": request.path(),
        "query": request.uri().query(),
        "client": request.client().to_string(),
        "certificate": request.client_certificate().map(|shown| certificate(&shown)),
        "headers": headers,
    });
    match request.bytes().await {
        Ok(body) => {
            report["body_length"] = body.len().into();
            Response::json(&report)
        }
        Err(error) => error.into(),
    }
}

fn main() -> ExitCode {
    bulkhead_service::main::<Probe>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(target: &str) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let probe = Probe::init(&Context::for_test(&["--x"])).await.unwrap();
            let response = probe.process(Request::get(target)).await;
            response.into_text().await.unwrap()
        })
    }

    #[test]
    fn the_report_tells_of_this_process() {
        let report: Value = serde_json::from_str(&ask("/probe")).unwrap();
        assert_eq!(report["pid"], std::process::id());
        assert_eq!(report["args"], json!(["--x"]));
        assert_eq!(report["cap_eff"].as_str().unwrap().len(), 16);
        assert!(report["fds"].as_array().unwrap().iter().any(|entry| entry["fd"] == 0), "{report}");
    }

    #[test]
    fn it_does_as_told() {
        assert_eq!(ask("/probe/sleep?ms=1"), "slept 1 ms\n");
        assert_eq!(ask("/probe/print?kib=1"), "printed 1 KiB\n");
        assert_eq!(ask("/probe/allocate?mib=2"), "touched 512 pages of 2 MiB\n");
        let echo: Value = serde_json::from_str(&ask("/probe/echo?a=b")).unwrap();
        assert_eq!((&echo["query"], &echo["body_length"]), (&json!("a=b"), &json!(0)));
    }
}
