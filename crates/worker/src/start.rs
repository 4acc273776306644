//! The first lines of every process: take what was inherited, make the runtime, run until the end.
//!
//! Runs in: every process but the launcher, as its first act inside its jail. Sees no untrusted bytes. Never:
//! goes on without its channel to the launcher.

use std::os::fd::OwnedFd;
use std::process::ExitCode;

use rustix::process::DumpableBehavior;
use sys::inherit::Inherited;
use tokio::runtime::LocalOptions;

use crate::channel::ChannelError;

/// The channels with which a process starts.
#[derive(Debug)]
pub struct ProcessStart {
    /// The channel from and to the launcher.
    pub control: OwnedFd,
    /// Where this process speaks to the launcher, if not there.
    pub say: Option<OwnedFd>,
    /// The channel to the logger; the logger itself has none.
    pub log: Option<OwnedFd>,
}

/// The faults that end a process of ours before its time.
#[derive(Debug)]
pub enum ProcessFault {
    /// The kernel refused.
    Io(std::io::Error),
    /// The launcher said what makes no sense.
    Launcher(String),
    /// The operator wants what this program cannot do.
    Operator(String),
}

impl std::fmt::Display for ProcessFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the system refused: {error}"),
            Self::Launcher(what) => write!(f, "from the launcher: {what}"),
            Self::Operator(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for ProcessFault {}

impl From<std::io::Error> for ProcessFault {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ChannelError> for ProcessFault {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::Io(error) => Self::Io(error),
            ChannelError::Malformed(error) => Self::Launcher(error.to_string()),
        }
    }
}

/// Decides whether the kernel lets others of the same uid trace this process, and writes a core file when it dies.
///
/// # Errors
/// The kernel refuses.
pub fn allow_dump(allow: bool) -> std::io::Result<()> {
    let behaviour = if allow { DumpableBehavior::Dumpable } else { DumpableBehavior::NotDumpable };
    Ok(rustix::process::set_dumpable_behavior(behaviour)?)
}

/// Runs `main` on a runtime of this one thread, where it may spawn local tasks, with what this process inherited.
///
/// Runs `main`; an error of it goes to standard error, that is, to the error log, with exit status 1.
pub fn run<E: std::fmt::Display>(main: impl AsyncFnOnce(ProcessStart) -> Result<(), E>) -> ExitCode {
    let inherited = match Inherited::take() {
        Ok(inherited) => inherited,
        Err(error) => {
            eprintln!("error: {error}; this program is started by `bulkhead run CONFIG`");
            return ExitCode::from(2);
        }
    };
    // Nothing secret is in memory yet; from here on nobody looks into it.
    if let Err(error) = allow_dump(false) {
        eprintln!("error: this process could not be shut to others: {error}");
        return ExitCode::FAILURE;
    }
    let start = ProcessStart { control: inherited.control, say: inherited.say, log: inherited.log };
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = match builder.enable_io().enable_time().build_local(LocalOptions::default()) {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the event loop could not be made: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(main(start)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
