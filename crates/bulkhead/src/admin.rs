//! Orders to a running server, over its administration socket.
//!
//! Runs in: the `bulkhead` command, as root or the server's owner. Sees: answers of the admin role, which may be
//! compromised. Never: waits without end, or takes an answer of any length.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sys::seqpacket::refuse_descriptors;

use crate::fault::Fault;
use crate::table::print;

/// How long an order may take; above the 60 s after which the admin role gives up.
const WAIT: Duration = Duration::from_secs(70);

/// The longest answer, in bytes.
///
/// LIMIT: about 60,000 processes.
const ANSWER_MAX: u64 = 32 << 20;

/// What is said of an order that may have been taken.
pub const UNANSWERED: &str = "the connection was closed before an answer";

/// LIMIT: how often an order is given to admin processes that end, and after which pause: one that ends still takes
/// connections for some milliseconds, until it has noticed.
const ASKED_MAX: u32 = 10;
const AGAIN_PAUSE: Duration = Duration::from_millis(30);

/// Gives an order and takes the answer, whose `ok` is true.
pub fn give(run_dir: &Path, command: &Value) -> Result<Value, Fault> {
    give_for(run_dir, command, WAIT)
}

/// The same for an order that may take so long.
pub fn give_for(run_dir: &Path, command: &Value, wait: Duration) -> Result<Value, Fault> {
    let answer = ask(run_dir, command, wait)?;
    if answer["ok"] == true {
        return Ok(answer);
    }
    let error = answer["error"].as_str().unwrap_or("the server gave no reason");
    // The mistakes of a configuration are a line each.
    let error = error.lines().map(printable).collect::<Vec<_>>().join("\n");
    Err(match () {
        () if answer["usage"] == true => Fault::Usage(error),
        () if answer["busy"] == true => Fault::Busy(error),
        () => Fault::Failed(error),
    })
}

/// Gives an order whose answer is a list called `key`, and prints that: as JSON, or as `render` has it.
pub fn list<T: DeserializeOwned>(
    run_dir: &Path,
    command: &str,
    key: &str,
    json: bool,
    render: impl FnOnce(&[T]) -> String,
) -> Result<ExitCode, Fault> {
    let found = give(run_dir, &json!({ "command": command }))?[key].take();
    if json {
        print(&format!("{:#}", json!({ key: found })))?;
        return Ok(ExitCode::SUCCESS);
    }
    let found: Vec<T> = serde_json::from_value(found)
        .map_err(|error| Fault::Failed(format!("the answer is not a list of {key}: {error}")))?;
    print(&render(&found))?;
    Ok(ExitCode::SUCCESS)
}

/// Asks, and asks again if the admin process is ending (after `relaunch admin` or `upgrade`) and its successor can
/// answer: where the order was not begun, or changes nothing.
fn ask(run_dir: &Path, command: &Value, wait: Duration) -> Result<Value, Fault> {
    let mut attempt = 1;
    loop {
        let fault = match ask_once(run_dir, command, wait)? {
            OrderOutcome::Answered(answer) => return Ok(answer),
            OrderOutcome::Unanswered if !is_question(command) => return Err(unanswered(run_dir)),
            OrderOutcome::Unanswered => unanswered(run_dir),
            OrderOutcome::NotBegun => Fault::Failed(
                "the server has not begun with the order, as its admin process is ending; nothing was done: give it again".into(),
            ),
        };
        if attempt == ASKED_MAX {
            return Err(fault);
        }
        attempt += 1;
        std::thread::sleep(AGAIN_PAUSE);
    }
}

fn unanswered(run_dir: &Path) -> Fault {
    let path = run_dir.join("admin.sock");
    Fault::Failed(format!(
        "{}: {UNANSWERED}; the order may be carried out: `bulkhead status` says what runs",
        path.display()
    ))
}

/// Whether an order changes nothing.
fn is_question(command: &Value) -> bool {
    let name = command["command"].as_str();
    name.is_some_and(|name| ["status", "bans", "certificates", "conditioning"].contains(&name))
}

/// What became of an order.
enum OrderOutcome {
    Answered(Value),
    /// Nobody has read the whole of it, or nobody has begun with it.
    NotBegun,
    /// It may have been read, and there is no answer.
    Unanswered,
}

fn ask_once(run_dir: &Path, command: &Value, wait: Duration) -> Result<OrderOutcome, Fault> {
    let path = run_dir.join("admin.sock");
    // Read first: who connects and then says nothing makes room for others.
    let secret = secret(&run_dir.join("admin.secret"));
    let mut stream = connect(&path).map_err(|error| unreachable(&path, &error))?;
    let text = match exchange(&mut stream, &secret?, command, wait) {
        // Linux resets a connection whose other end is closed with bytes in it that were not read, and only then.
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => {
            return Ok(OrderOutcome::NotBegun);
        }
        text => text.map_err(Fault::io(path.display()))?,
    };
    if text.is_empty() {
        return Ok(OrderOutcome::Unanswered);
    }
    let answer: Value = serde_json::from_slice(&text)
        .map_err(|_| Fault::Failed(format!("{}: the answer is cut off or not JSON", path.display())))?;
    Ok(if answer["again"] == true { OrderOutcome::NotBegun } else { OrderOutcome::Answered(answer) })
}

/// A connection to the admin role.
///
/// SECURITY: the kernel lets nothing but bytes through, where it has the option for that. A socket that lingers would
/// hold this process, which closes it without having asked for it.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Before there is anybody to send one.
    refuse_descriptors(&socket)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

fn exchange(stream: &mut UnixStream, secret: &str, command: &Value, wait: Duration) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(wait))?;
    stream.set_write_timeout(Some(wait))?;
    // One that has answered and gone without reading all (it refuses the secret) is to be heard nevertheless; the
    // kernel then reports a reset after the answer.
    let sent = stream.write_all(format!("{secret}\n{command}\n").as_bytes());
    let mut text = Vec::new();
    let read = stream.take(ANSWER_MAX).read_to_end(&mut text);
    if text.is_empty() {
        sent?;
        read?;
    }
    Ok(text)
}

/// What an order begins with; whoever can read it may give orders.
fn secret(path: &Path) -> Result<String, Fault> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let path = path.display();
        Fault::Failed(format!(
            "no permission to give orders: cannot read {path}: {error}; root and the server's owner can"
        ))
    })?;
    Ok(text.trim_end().to_owned())
}

fn unreachable(path: &Path, error: &io::Error) -> Fault {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            Fault::Unreachable(format!("no server is running: nobody answers at {path}"))
        }
        io::ErrorKind::PermissionDenied => Fault::Failed(format!(
            "{path}: permission denied; only root and the server's owner may give orders"
        )),
        _ => Fault::Failed(format!("{path}: {error}")),
    }
}

/// Text of a less trusted process, fit for a terminal.
pub fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let escaped = if c.is_control() { Some(c.escape_default()) } else { None };
            let plain = if c.is_control() { None } else { Some(c) };
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_there_is_said_with_the_path() {
        let error = give(Path::new("/nonexistent"), &Value::Null).unwrap_err().to_string();
        assert_eq!(error, "no server is running: nobody answers at /nonexistent/admin.sock");
    }

    /// Gives an order to a server that treats one connection after the other like this, and how many connections there
    /// were.
    fn given(command: &Value, treatments: &[fn(UnixStream)]) -> (Result<Value, Fault>, usize) {
        let run_dir = tempfile::tempdir().unwrap();
        std::fs::write(run_dir.path().join("admin.secret"), "secret\n").unwrap();
        let listener = std::os::unix::net::UnixListener::bind(run_dir.path().join("admin.sock")).unwrap();
        let count = std::sync::atomic::AtomicUsize::new(0);
        let answer = std::thread::scope(|scope| {
            scope.spawn(|| {
                for treat in treatments {
                    let (stream, _) = listener.accept().unwrap();
                    count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    treat(stream);
                }
            });
            let answer = give(run_dir.path(), command);
            // Whoever waits for a connection that does not come has one.
            for _ in count.load(std::sync::atomic::Ordering::Relaxed)..treatments.len() {
                drop(UnixStream::connect(run_dir.path().join("admin.sock")).unwrap());
            }
            answer
        });
        (answer, count.into_inner())
    }

    /// Ends with the order before it.
    fn does_not_read(mut stream: UnixStream) {
        stream.read_exact(&mut [0]).unwrap();
    }

    fn reads(stream: UnixStream) {
        read_lines(&stream);
    }

    fn read_lines(stream: &UnixStream) {
        use std::io::BufRead as _;
        let lines = std::io::BufReader::new(stream).lines().take(2);
        assert_eq!(lines.map(Result::unwrap).count(), 2);
    }

    fn says_that_it_has_not_begun(mut stream: UnixStream) {
        read_lines(&stream);
        stream.write_all(b"{\"ok\":false,\"again\":true,\"error\":\"x\"}\n").unwrap();
    }

    fn answers(mut stream: UnixStream) {
        read_lines(&stream);
        stream.write_all(b"{\"ok\":true}\n").unwrap();
    }

    #[test]
    fn an_order_is_given_again_where_it_was_not_begun_or_changes_nothing() {
        let (order, question) = (json!({ "command": "reload" }), json!({ "command": "status" }));
        for treat in [does_not_read, says_that_it_has_not_begun] {
            assert!(given(&order, &[treat, treat, answers]).0.is_ok());
            let (refused, count) = given(&order, &[treat; ASKED_MAX as usize]);
            assert!(refused.unwrap_err().to_string().contains("nothing was done"));
            assert_eq!(count, ASKED_MAX as usize);
        }
        assert!(given(&question, &[reads, answers]).0.is_ok());
        let (unknown, count) = given(&order, &[reads]);
        let unknown = unknown.unwrap_err().to_string();
        assert!(unknown.contains(UNANSWERED) && unknown.contains("the order may be carried out"));
        assert_eq!(count, 1);
    }

    #[test]
    fn text_of_others_cannot_drive_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jä\n"), "a\\u{1b}[2Jä\\n");
    }
}
