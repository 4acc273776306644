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

fn ask(run_dir: &Path, command: &Value, wait: Duration) -> Result<Value, Fault> {
    let path = run_dir.join("admin.sock");
    // Read first: who connects and then says nothing makes room for others.
    let secret = secret(&run_dir.join("admin.secret"));
    let mut stream = connect(&path).map_err(|error| unreachable(&path, &error))?;
    let text = exchange(&mut stream, &secret?, command, wait).map_err(Fault::io(path.display()))?;
    serde_json::from_slice(&text)
        .map_err(|_| Fault::Failed(format!("{}: the answer is cut off or not JSON", path.display())))
}

/// A connection to the admin role.
///
/// SECURITY: the kernel lets nothing but bytes through, where it has the option for that. A socket that lingers would hold this
/// process, which closes it without having asked for it.
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

    #[test]
    fn text_of_others_cannot_drive_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jä\n"), "a\\u{1b}[2Jä\\n");
    }
}
