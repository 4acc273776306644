//! The guarded command: started as its user would start it, but for a library or an answered system call.
//!
//! Runs in: the guard, and in its child between fork and exec. Sees: the user's words and environment. Never: gives the
//! command more rights than its user has, or fewer, but where the kernel asks for it (see `notify`).

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::process::{Resource, Rlimit, Signal};
use sys::notify::{CallKind, Listener};
use sys::process::Child;

use crate::options::By;
use crate::program_kind;
use supervisor::error::{Error, during};
use supervisor::spawn::context::SpawnContext;
use supervisor::spawn::process_spec::ProcessSpec;

/// Where the command finds its control channel, if it may have so many descriptors: far from those that it opens.
const CONTROL_AT: RawFd = 1000;
/// Where the library looks for the number.
const CONTROL_VARIABLE: &str = "BULKHEAD_GUARD";
/// Set where the guard listens itself, so that the server's own address stays free.
const LISTEN_VARIABLE: &str = "BULKHEAD_GUARD_LISTEN";
/// Set to `0` where kept-alive connections stay with the server.
const PERSIST_VARIABLE: &str = "BULKHEAD_GUARD_PERSIST";
/// Set where filters have read the heads of requests.
const FILTERS_VARIABLE: &str = "BULKHEAD_GUARD_FILTERS";

/// A command that runs.
#[derive(Debug)]
pub struct RunningCommand {
    /// Its first process.
    pub child: Child,
    /// The messages of its processes about their sockets.
    pub control: OwnedFd,
    /// Where its calls arrive, if they are answered.
    pub listener: Option<Listener>,
}

/// How to start it.
#[derive(Debug)]
pub struct CommandOrder {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// The way that was asked for.
    pub by: By,
    /// Whether the guard listens itself.
    pub listens: bool,
    /// Whether kept-alive connections return.
    pub persists: bool,
    /// Whether there are filters.
    pub filtered: bool,
    /// The command's limit of descriptors, from before the guard raised its own.
    pub descriptors: Rlimit,
}

impl CommandOrder {
    /// Starts the command; what looks into its program runs as `spec` does.
    pub fn start(&self, context: &SpawnContext, spec: &ProcessSpec) -> Result<RunningCommand, Error> {
        let path = program_kind::find(&self.words[0])?;
        let by = program_kind::way(context, spec, &path, self.by)?;
        if by == By::Notify && self.filtered {
            let problem =
                "loads no library, and so cannot be given what a filter has read; leave `--filter` out";
            return Err(Error::program(path, problem));
        }
        let (control, its_control) =
            sys::seqpacket::pair_that_takes(true, false).map_err(during("make a channel"))?;
        // Its library waits for room, rather than to lose a message.
        rustix::io::ioctl_fionbio(&its_control, false).map_err(during("set up a channel"))?;
        let at = self.descriptors.current.map_or(CONTROL_AT, |limit| CONTROL_AT.min(limit as RawFd - 1));
        let environment = self.environment(by, at, &context.roles_folder)?;
        let arguments = self.words.iter().map(|word| c_string(word.as_bytes())).collect::<Result<_, _>>()?;
        let arguments: Vec<CString> = arguments;
        let path = c_string(path.as_os_str().as_bytes())?;
        let (calls, its_calls) =
            sys::seqpacket::pair_that_takes(true, false).map_err(during("make a channel"))?;
        let prepare = || self.prepare(by, &its_control, at, &its_calls);
        let child = sys::process::start_command(&path, &arguments, &environment, prepare)
            .map_err(|failure| Error::program(&self.words[0], format!("cannot be started: {failure}")))?;
        let listener = match by {
            By::Notify => Listener::take_over(&calls).map_err(during("get a descriptor"))?,
            _ => None,
        };
        Ok(RunningCommand { child, control, listener })
    }

    /// In the child: what it inherits, its limits, and its filter last, as of then calls are answered.
    fn prepare(
        &self,
        by: By,
        control: &OwnedFd,
        at: RawFd,
        calls: &OwnedFd,
    ) -> Result<(), (&'static str, io::Error)> {
        sys::process::place(control, at).map_err(|error| ("control channel", error))?;
        let descriptors = self.descriptors;
        rustix::process::setrlimit(Resource::Nofile, descriptors).map_err(|e| ("rlimits", e.into()))?;
        // Without the guard, nothing would be accepted any more.
        rustix::process::set_parent_process_death_signal(Some(Signal::TERM))
            .map_err(|error| ("parent death", error.into()))?;
        match by {
            By::Notify => answer_calls(calls),
            // No library would see the bytes that it read by a ring, nor keep back those that filters have not had.
            _ if self.filtered => no_new_privileges().and_then(|()| sys::notify::refuse_rings()),
            _ => Ok(()),
        }
        .map_err(|error| ("seccomp", error))?;
        Ok(())
    }

    fn environment(&self, by: By, at: RawFd, folder: &Path) -> Result<Vec<CString>, Error> {
        let mut variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let mut set = |name: &str, value: OsString| {
            variables.retain(|(known, _)| known != name);
            variables.push((name.into(), value));
        };
        if by == By::Preload {
            let mut preload = program_kind::library(folder)?.into_os_string();
            if let Some(more) = std::env::var_os("LD_PRELOAD").filter(|more| !more.is_empty()) {
                preload.push(":");
                preload.push(more);
            }
            set("LD_PRELOAD", preload);
            set(CONTROL_VARIABLE, at.to_string().into());
            if self.listens {
                set(LISTEN_VARIABLE, "1".into());
            }
            if !self.persists {
                set(PERSIST_VARIABLE, "0".into());
            }
            if self.filtered {
                set(FILTERS_VARIABLE, "1".into());
            }
        }
        let variable = |(mut name, value): (OsString, OsString)| {
            name.push("=");
            name.push(value);
            c_string(&name.into_vec())
        };
        variables.into_iter().map(variable).collect()
    }
}

/// Installs the filter in this process, and hands what answers it to the guard.
fn answer_calls(calls: &OwnedFd) -> io::Result<()> {
    no_new_privileges()?;
    sys::notify::install(&CallKind::OF_SERVERS, |listener| sys::notify::hand_over(calls, listener))
}

/// But for root. The kernel asks for it: a program must not gain rights whose calls somebody else answers or refuses.
fn no_new_privileges() -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        rustix::thread::set_no_new_privs(true)?;
    }
    Ok(())
}

fn c_string(bytes: &[u8]) -> Result<CString, Error> {
    CString::new(bytes).map_err(during("pass an argument"))
}
