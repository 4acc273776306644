//! The probe outside of any jail, where attempts succeed: the proof that they can.
//!
//! As root with nothing in the way, all but a few must; as an ordinary user, the document is only looked at.

#![allow(clippy::unwrap_used, reason = "a test that cannot start its programs should panic")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// The targets of the hints, as on a machine beside a jail.
struct World {
    folder: PathBuf,
    sibling: Child,
    _sockets: (UnixListener, UnixListener),
    listener: TcpListener,
}

const SECRET: &str = "canary of the outside test";

impl World {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("probe-outside-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("secret"), "x").unwrap();
        fs::write(folder.join("setuid"), "x").unwrap();
        fs::set_permissions(folder.join("setuid"), fs::Permissions::from_mode(0o4755)).unwrap();
        let sibling = Command::new("sleep").arg("60").stdin(Stdio::piped()).spawn().unwrap();
        let by_path = UnixListener::bind(folder.join("socket")).unwrap();
        let name = SocketAddr::from_abstract_name(format!("probe-outside-{name}")).unwrap();
        let by_name = UnixListener::bind_addr(&name).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self { folder, sibling, _sockets: (by_path, by_name), listener }
    }

    fn hints(&self, name: &str) -> Value {
        let secret = self.folder.join("secret");
        json!({
            "pids": [self.sibling.id()],
            "paths": [secret],
            "write_paths": [secret],
            "unix": [self.folder.join("socket")],
            "abstract": [format!("probe-outside-{name}")],
            "tcp": [self.listener.local_addr().unwrap().port()],
            "canaries": [SECRET.bytes().map(|byte| format!("{byte:02x}")).collect::<String>()],
            // Its standard output, a pipe.
            "fds": [1],
        })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.sibling.kill();
        let _ = self.sibling.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn run(what: &str, hints: &Value, stdin: Stdio) -> Value {
    // A regular file, as a log would be.
    let mut log = File::from(rustix::fs::memfd_create("log", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    let output = Command::new(env!("CARGO_BIN_EXE_bulkhead-probe"))
        .args([what, &hints.to_string()])
        .env("SECRET", SECRET)
        .stdin(stdin)
        .stderr(log.try_clone().unwrap())
        .output()
        .unwrap();
    let mut log_text = String::new();
    log.seek(SeekFrom::Start(0)).unwrap();
    log.read_to_string(&mut log_text).unwrap();
    assert!(output.status.success(), "{output:?}: {log_text}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn results(document: &Value) -> BTreeMap<&str, &str> {
    let entries = document["attempts"].as_array().unwrap();
    entries.iter().map(|entry| (entry["id"].as_str().unwrap(), entry["result"].as_str().unwrap())).collect()
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// Attempts that depend on the kernel or on how root was started, besides the entries with `refused_anyway`; and on a
/// server that obeys, which tests/isolation/test_mutation.py has.
const DEPENDS: [&str; 10] = [
    "oom-score",
    "give-orders",
    "fds-listening",
    "client-connection",
    "signal-mask",
    "signal-dispositions",
    "terminal",
    "kill-group",
    "caps-inheritable",
    "caps-ambient",
];

#[test]
fn nearly_everything_succeeds_outside_of_a_jail() {
    let world = World::new("all");
    let directory = File::open(&world.folder).unwrap();
    let document = run("attempts", &world.hints("all"), directory.into());
    for entry in document["attempts"].as_array().unwrap() {
        for key in ["id", "group", "name", "result", "closed_by", "expected", "as_expected", "detail"] {
            assert!(!entry[key].is_null(), "{key} of {entry}");
        }
    }
    if !is_root() {
        return;
    }
    let failed: Vec<String> = document["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["result"] != "succeeded" && entry["refused_anyway"].is_null())
        .filter(|entry| !DEPENDS.contains(&entry["id"].as_str().unwrap()))
        .map(ToString::to_string)
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(document["summary"]["succeeded"].as_u64().unwrap() > 190, "{}", document["summary"]);
}

#[test]
fn sockets_that_are_inherited_are_found() {
    let hints = json!({"fds": [], "only": ["fds-listening", "client-connection", "fds-more"]});
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let found = run("attempts", &hints, Stdio::from(OwnedFd::from(listener.try_clone().unwrap())));
    assert_eq!(results(&found)["fds-listening"], "succeeded", "{found}");
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None);
    let listens = json!({"fds": [], "only": ["listen-inherited"]});
    let found = run("attempts", &listens, Stdio::from(socket.unwrap()));
    assert_eq!(results(&found)["listen-inherited"], "succeeded", "{found}");
    let client = std::net::TcpStream::connect(address).unwrap();
    let found = run("attempts", &hints, Stdio::from(OwnedFd::from(client)));
    assert_eq!(results(&found)["client-connection"], "succeeded", "{found}");
    assert_eq!(results(&found)["fds-more"], "succeeded");
}

/// The state that `setpriv` and `env` can give.
#[test]
fn state_that_is_inherited_is_found() {
    if !is_root() {
        return;
    }
    let only = r#"{"only":["caps-inheritable","caps-ambient","signal-mask","signal-dispositions"]}"#;
    let output = Command::new("setpriv")
        .args(["--inh-caps", "+net_raw", "--ambient-caps", "+net_raw"])
        .args(["env", "--ignore-signal=HUP", "--block-signal=USR1"])
        .arg(env!("CARGO_BIN_EXE_bulkhead-probe"))
        .args(["attempts", only])
        .output()
        .unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["summary"]["succeeded"], 4, "{document}");
}

/// Whose session is led from outside of its PID namespace, as in a container that was entered, has leader 0.
#[test]
fn a_session_led_from_outside_is_found() {
    if !is_root() {
        return;
    }
    let output = Command::new("unshare")
        .args([
            "--pid",
            "--fork",
            env!("CARGO_BIN_EXE_bulkhead-probe"),
            "attempts",
            r#"{"only":["session"]}"#,
        ])
        .output()
        .unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(results(&document)["session"], "succeeded", "{document}");
    let detail = document["attempts"][0]["detail"].as_str().unwrap();
    assert_eq!(detail, "its leader is outside of this PID namespace");
}

/// Without children, all that is made is made in the probe itself, which must live to tell.
#[test]
fn it_survives_without_children() {
    let world = World::new("inline");
    let mut hints = world.hints("inline");
    hints["inline"] = true.into();
    let document = run("attempts", &hints, Stdio::null());
    let results = results(&document);
    assert_eq!((results["int80"], results["umask"]), ("not applicable", "succeeded"));
    assert_eq!(document["children"], false);
}

#[test]
fn the_score_is_bad_outside_of_a_jail() {
    let document = run("score", &json!({"kind": "service"}), Stdio::null());
    assert_eq!(document["checks"].as_array().unwrap().len(), 81);
    assert_eq!(document["kind"], "service");
    assert!(!is_root() || document["exposure"].as_f64().unwrap() > 8.0, "{document}");
}

#[test]
fn mistakes_in_the_arguments_are_told() {
    for arguments in [vec![], vec!["attempts", "{"], vec!["attempts", r#"{"x":1}"#], vec!["else"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_bulkhead-probe")).args(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("error: "), "{arguments:?}");
    }
}
