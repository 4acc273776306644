//! What can keep the launcher, or one of its children, from starting: whose fault it is and what to do.
//!
//! Runs in: the launcher. Sees no untrusted bytes. Never: loses the place where something failed.

use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use thiserror::Error as ThisError;

use crate::limits::{self, Lack};

/// A failure on the operator's or the system's side.
#[derive(Debug, ThisError)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum Error {
    /// A system call on a path failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Path { action: &'static str, path: PathBuf, source: io::Error },
    /// A system call on no path failed.
    #[error("cannot {action}: {source}{}", remedy_of_system(source))]
    System { action: &'static str, source: io::Error },
    /// A directory that must be ours alone is not.
    #[error(
        "{} must be a directory that only its owner, the user who starts bulkhead, can write; it belongs to uid {uid} and has \
         mode {mode:04o}",
        path.display()
    )]
    NotOwn { path: PathBuf, uid: u32, mode: u32 },
    /// A data proxy has no source in the configuration that runs.
    #[error("{name} is the proxy of no data source")]
    NoDataSource { name: String },
    /// A publisher whose site has no templates: the table of processes is wrong.
    #[error("{name}: the configuration has no such templates")]
    NoTemplates { name: String },
    /// The folder of a database, or of a service's files, is somebody else's.
    #[error(
        "{} belongs to uid {found}, and the process that writes there has uid {wanted}; if the table of uids was lost, run \
         `chown -R {wanted}:{wanted} {}`",
        path.display(),
        path.display()
    )]
    NotTheWriters { path: PathBuf, found: u32, wanted: u32 },
    /// The empty root has something in it.
    #[error("{} is the root of our own processes and must be empty; remove what is in it", path.display())]
    NotEmpty { path: PathBuf },
    /// Another launcher has the run directory.
    #[error(
        "another bulkhead runs with this run_dir ({} is locked); stop it with `bulkhead stop`, or give this one a run_dir of its \
         own",
        path.display()
    )]
    Running { path: PathBuf },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}{}", remedy_of_listening(source))]
    Listen { address: std::net::SocketAddr, source: io::Error },
    /// A socket that this process was started with cannot be used; what is wrong with it follows its name.
    #[error("the passed socket `{name}` {problem}")]
    Passed { name: String, problem: String },
    /// A variable of the environment has a value that it cannot have.
    #[error(
        "the environment has {name}=`{value}`, which must be {rule}; start bulkhead from a service manager that sets it so, or \
         without it"
    )]
    Environment { name: &'static str, value: String, rule: &'static str },
    /// The uid table cannot be read, or has run out of numbers.
    #[error("{}: {problem}", path.display())]
    Identity { path: PathBuf, problem: String },
    /// Another server of this machine has uids of this range.
    #[error(
        "`user_range` {} overlaps {other}: processes of the one could signal and trace those of the other, and read its \
         files; give one of the two another `user_range`, or stop the other one",
        range_text(range)
    )]
    UidRange { range: RangeInclusive<u32>, other: String },
    /// Something that is not ours runs under a uid of this range.
    #[error("uid {uid} of `user_range` {} is in use by {}", range_text(range), users(*pid))]
    UidInUse {
        range: RangeInclusive<u32>,
        uid: u32,
        /// The process; nought if it ends before it can be stopped.
        pid: u32,
    },
    /// A process in a control group of an earlier start does not end.
    #[error(
        "process {pid}, which an earlier start of this server has left, does not end, or shares a control group with this \
         start; end it, or start the server from another control group"
    )]
    GroupInUse { pid: u32 },
    /// A program cannot be run safely.
    #[error("program {}: {problem}", path.display())]
    Program { path: PathBuf, problem: String },
    /// A program has changed since it was examined.
    #[error("program {} was not examined in time, or has changed since", path.display())]
    NotExamined { path: PathBuf },
    /// An examination has said why a program is not started.
    #[error("{reason}")]
    Refused { reason: String },
    /// A program needs a library that it cannot be given; what is wrong with that follows "which".
    #[error("program {} needs {library}, which {problem}", program.display())]
    Library { program: PathBuf, library: String, problem: String },
    /// A limit of the configuration needs a control group that cannot be made.
    #[error(
        "its limits need control groups ({controllers}) that cannot be made here; remove `cpu_percent` and `memory_high`, \
         delegate control groups to bulkhead, or write `isolation = \"degraded\"`"
    )]
    NotHeld { controllers: String },
    /// A launcher cannot take the place of the one before.
    #[error("the record of the launcher before cannot be used: {problem}")]
    Record { problem: String },
    /// A launcher refuses what the one before runs.
    #[error("this version refuses the configuration that runs:\n{diagnostics}")]
    Configuration { diagnostics: config::Diagnostics },
    /// A child could not be started.
    #[error("cannot start it: {0}; {remedy}", remedy = remedy_of_start(&_0.source))]
    Start(sys::process::StartError),
}

/// What an operator can do about a call that failed for a limit of descriptors: that a channel is full says nothing of
/// limits.
fn remedy_of_system(source: &io::Error) -> String {
    let is_full = source.kind() == io::ErrorKind::WouldBlock;
    limits::remedy(source).filter(|_| !is_full).map_or_else(String::new, |remedy| format!("; {remedy}"))
}

/// What an operator can do about a process that could not be started.
fn remedy_of_start(source: &io::Error) -> String {
    limits::remedy(source).unwrap_or_else(|| {
        "where the machine cannot apply a layer of the jail, `isolation = \"degraded\"` in [server] starts it without".into()
    })
}

/// The steps of a start that are the launcher's own: what fails in another is kept from the child, by limits of the
/// child's.
const OWN_STEPS: [&str; 3] = ["pipe", "clone", "pid namespace"];

impl Error {
    /// What there was not enough of, if that alone has kept a process from being started.
    pub fn lack(&self) -> Option<Lack> {
        match self {
            Self::Path { source, .. } | Self::System { source, .. } => Lack::of(source, false),
            Self::Start(failure) if OWN_STEPS.contains(&&*failure.step) => Lack::of(&failure.source, true),
            _ => None,
        }
    }

    /// What is wrong with the program at `path`.
    pub fn program(path: impl Into<PathBuf>, problem: impl Into<String>) -> Self {
        Self::Program { path: path.into(), problem: problem.into() }
    }

    /// What is wrong with the record of the launcher before.
    pub fn record(problem: impl Into<String>) -> Self {
        Self::Record { problem: problem.into() }
    }

    /// What is wrong with what `path` says of uids.
    pub fn identity(path: impl Into<PathBuf>, problem: impl Into<String>) -> Self {
        Self::Identity { path: path.into(), problem: problem.into() }
    }
}

/// A range as `user_range` has it.
pub fn range_text(range: &RangeInclusive<u32>) -> String {
    format!("{}-{}", range.start(), range.end())
}

/// Makes the error of an `action` on `path`.
pub fn at<'a, E: Into<io::Error>>(action: &'static str, path: &'a Path) -> impl FnOnce(E) -> Error + 'a {
    move |source| Error::Path { action, path: path.into(), source: source.into() }
}

/// Makes the error of an `action`.
pub fn during<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Error {
    move |source| Error::System { action, source: source.into() }
}

fn users(pid: u32) -> String {
    match pid {
        0 => "processes that end before they can be stopped; end all of that uid, or choose another `user_range`".into(),
        pid => format!(
            "process {pid}, which is none of this server's and could signal and trace its processes; end it, or choose \
             another `user_range`"
        ),
    }
}

/// What an operator can do about an address that cannot be listened on.
fn remedy_of_listening(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; `ss -ltnp` names the program that has the port: end it, or choose another `address`"
        }
        io::ErrorKind::PermissionDenied => {
            "; a port below 1024 needs root: start as root, have systemd pass the socket, or choose another `address`"
        }
        io::ErrorKind::AddrNotAvailable => "; `ip addr` lists the addresses of this machine",
        _ => "",
    }
}
