//! What can keep the launcher, or one of its children, from starting: whose fault it is and what to do.
//!
//! Runs in: the launcher. Sees no untrusted bytes. Never: loses the place where something failed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A failure on the operator's or the system's side.
#[derive(Debug)]
pub enum Error {
    /// A system call on a path failed.
    Path {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A system call on no path failed.
    System {
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A directory that must be ours alone is not.
    NotOwn {
        /// On what.
        path: PathBuf,
        /// Whose uid.
        uid: u32,
        /// Its mode.
        mode: u32,
    },
    /// The empty root has something in it.
    NotEmpty {
        /// On what.
        path: PathBuf,
    },
    /// Another launcher has the run directory.
    Running {
        /// On what.
        path: PathBuf,
    },
    /// An address cannot be listened on.
    Listen {
        /// Where.
        address: std::net::SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The uid table cannot be read, or has run out of numbers.
    Identity {
        /// On what.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// Another server of this machine has uids of this range.
    UidRange {
        /// Which range.
        range: std::ops::RangeInclusive<u32>,
        /// Which server.
        other: String,
    },
    /// Something that is not ours runs under a uid of this range.
    UidInUse {
        /// Which range.
        range: std::ops::RangeInclusive<u32>,
        /// Whose uid.
        uid: u32,
        /// The process.
        pid: u32,
    },
    /// A process in a control group of an earlier start does not end.
    GroupInUse {
        /// The process.
        pid: u32,
    },
    /// A program cannot be run safely.
    Program {
        /// On what.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A program needs a library that it cannot be given; what is wrong with that follows "which".
    Library {
        /// The program.
        program: PathBuf,
        /// The library.
        library: String,
        /// What is wrong.
        problem: String,
    },
    /// A limit of the configuration needs a control group that cannot be made.
    NotHeld {
        /// Which controllers.
        controllers: String,
    },
    /// A child could not be started.
    Start(sys::process::StartError),
}

/// Makes the error of an `action` on `path`.
pub fn at<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Error + 'a {
    move |source| Error::Path { action, path: path.into(), source }
}

/// Makes the error of an `action`.
pub fn during(action: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System { action, source }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path { action, path, source } => write!(f, "cannot {action} {}: {source}", path.display()),
            Self::System { action, source } => write!(f, "cannot {action}: {source}"),
            Self::NotOwn { path, uid, mode } => write!(
                f,
                "{} must be a directory that only its owner, the user who starts bulkhead, can write; it belongs \
                 to uid {uid} and has mode {mode:04o}",
                path.display()
            ),
            Self::NotEmpty { path } => {
                write!(
                    f,
                    "{} is the root of our own processes and must be empty; remove what is in it",
                    path.display()
                )
            }
            Self::Running { path } => write!(
                f,
                "another bulkhead runs with this run_dir ({} is locked); stop it with `bulkhead stop`, or give \
                 this one a run_dir of its own",
                path.display()
            ),
            Self::Listen { address, source } => write!(f, "cannot listen on {address}: {source}"),
            Self::Identity { path, problem } => write!(f, "{}: {problem}", path.display()),
            Self::UidRange { range, other } => write!(
                f,
                "`user_range` {}-{} overlaps {other}: processes of the one could signal and trace those of the \
                 other, and read its files; give one of the two another `user_range`, or stop the other one",
                range.start(),
                range.end()
            ),
            Self::UidInUse { range, uid, pid: 0 } => write!(
                f,
                "uid {uid} of `user_range` {}-{} is in use by processes that end before they can be stopped; end all of \
                 that uid, or choose another `user_range`",
                range.start(),
                range.end()
            ),
            Self::UidInUse { range, uid, pid } => write!(
                f,
                "uid {uid} of `user_range` {}-{} is in use by process {pid}, which is none of this server's and could \
                 signal and trace its processes; end it, or choose another `user_range`",
                range.start(),
                range.end()
            ),
            Self::GroupInUse { pid } => write!(
                f,
                "process {pid}, which an earlier start of this server has left, does not end, or shares a control group \
                 with this start; end it, or start the server from another control group"
            ),
            Self::Program { path, problem } => write!(f, "program {}: {problem}", path.display()),
            Self::Library { program, library, problem } => {
                write!(f, "program {} needs {library}, which {problem}", program.display())
            }
            Self::NotHeld { controllers } => write!(
                f,
                "its limits need control groups ({controllers}) that cannot be made here; remove `cpu_percent` and \
                 `memory_high`, delegate control groups to bulkhead, or write `isolation = \"degraded\"`"
            ),
            Self::Start(error) => write!(
                f,
                "cannot start it: {error}; where the machine cannot apply a layer of the jail, `isolation = \
                 \"degraded\"` in [server] starts it without"
            ),
        }
    }
}

impl std::error::Error for Error {}
