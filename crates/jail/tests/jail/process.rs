//! Starting a probe in a jail, and looking at it from outside.
//!
//! Runs in: the jail's test, as the launcher would be.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use jail::policy::{Grants, Policy};
use jail::{Access, Filter, Jail, Launcher, Limits, Reach};
use rustix::fs::{Mode, OFlags};
use sys::process::{Child, Exit, Pids, Program, StartError};

use crate::probe;

/// The errand of a process that launches a probe and waits to be killed.
pub const LAUNCHER: &str = "launcher";

/// Every number up to this one is taken in the launcher, so that what a jail places is not in its own way.
pub const NUMBER_MAX: RawFd = 9;

/// The key that [`hold_a_key`] puts into the session.
pub const KEY: &CStr = c"jail-test";

/// What `prepare` of a start answers.
pub type Prepared = Result<(), (&'static str, io::Error)>;

/// A probe in its jail, which has told what it found.
#[derive(Debug)]
pub struct Probe {
    /// The process.
    pub child: Child,
    /// What it told.
    pub fact: BTreeMap<String, String>,
    /// Its first attempt.
    first: String,
    dismiss: PipeWriter,
}

/// Does what the launcher does before it starts a child.
pub fn prepare_to_launch() {
    loop {
        let null = OwnedFd::from(File::open("/dev/null").expect("/dev/null opens"));
        if null.as_raw_fd() > NUMBER_MAX {
            return;
        }
        std::mem::forget(null);
    }
}

/// Opens a path only to name it, as the launcher opens programs and directories.
pub fn open(path: &str) -> OwnedFd {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("the path opens")
}

/// A jail without identity, root and directory, with limits that are in nobody's way, and the filter of a service.
pub fn jail() -> Jail {
    let limits = Limits {
        descriptors: 64,
        processes: 64,
        memory_bytes: None,
        file_bytes: None,
        core_bytes: 0,
        cpu_seconds: None,
    };
    let reach = Reach { paths: vec![(open("/proc/self/exe"), Access::Execute)], ..Reach::default() };
    Jail {
        reach,
        ..Jail::new(Launcher::this().expect("a pidfd"), limits, filter(Policy::Service(Grants::NONE)))
    }
}

/// A compiled policy.
pub fn filter(policy: Policy) -> Filter {
    Filter::of(policy).expect("the policy compiles")
}

/// This program, to be executed on `errand`.
pub fn program(errand: &str, tries: &[String]) -> Program {
    let arguments = std::iter::once(errand).chain(tries.iter().map(String::as_str));
    Program {
        file: open("/proc/self/exe"),
        arguments: arguments.map(|argument| CString::new(argument).expect("no null byte")).collect(),
        environment: vec![],
    }
}

/// Puts a key into a new session keyring, for `prepare`.
pub fn hold_a_key() -> Prepared {
    const JOIN_SESSION: i32 = 1;
    const OWN_SESSION: i32 = -3;
    // SAFETY: a null name, which is allowed; C strings; and a pointer to one byte with its length.
    let held = unsafe {
        let (kind, name, secret) = (c"user".as_ptr(), KEY.as_ptr(), c"s".as_ptr());
        libc::syscall(libc::SYS_keyctl, JOIN_SESSION, 0) >= 0
            && libc::syscall(libc::SYS_add_key, kind, name, secret, 1, OWN_SESSION) >= 0
    };
    if held { Ok(()) } else { Err(("hold a key", io::Error::last_os_error())) }
}

/// The attempts, as they are handed over.
pub fn all(tries: &[&str]) -> Vec<String> {
    tries.iter().map(|what| (*what).to_owned()).collect()
}

/// Starts a probe in `jail` with descriptors 0 to 2 besides those listed, and hears what it tells.
pub fn start(tries: &[&str], jail: Jail) -> Result<Probe, StartError> {
    start_on(probe::TELL, &all(tries), jail, || Ok(()))
}

/// As [`start`], on an errand and with attempts made for the occasion; `before` is run in the child before its jail
/// is built.
///
/// Where the start fails, this has made sure that the program did not run: it told nothing.
pub fn start_on(
    errand: &str,
    tries: &[String],
    mut jail: Jail,
    before: impl FnOnce() -> Prepared,
) -> Result<Probe, StartError> {
    let (input, dismiss) = io::pipe().expect("a pipe");
    let (reader, output) = io::pipe().expect("a pipe");
    let errors = io::stderr().as_fd().try_clone_to_owned().expect("a duplicate");
    jail.descriptors.extend([(input.into(), 0), (output.into(), 1), (errors, 2)]);
    let place = || jail.descriptors.iter().try_for_each(|(open, number)| sys::process::place(open, *number));
    let prepare = || {
        before()?;
        if jail.without.contains(&"descriptors") {
            place().map_err(|error| ("place", error))?;
        }
        jail::enter(&jail)
    };
    let started = sys::process::start(&program(errand, tries), jail.pids(), prepare);
    drop(jail);
    let fact = listen(reader);
    match started {
        Ok(child) => Ok(Probe {
            child,
            fact: fact.unwrap_or_else(|fact| panic!("the probe ended after telling {fact:?}")),
            first: tries.first().cloned().unwrap_or_default(),
            dismiss,
        }),
        Err(error) => {
            assert_eq!(fact, Err(BTreeMap::new()), "the program ran although {error}");
            Err(error)
        }
    }
}

/// What a probe tells up to its dot, or, as an error, up to its end.
fn listen(reader: PipeReader) -> Result<BTreeMap<String, String>, BTreeMap<String, String>> {
    let mut fact = BTreeMap::new();
    for line in BufReader::new(reader).lines() {
        match line.expect("a line").split_once('\t') {
            Some((name, value)) => fact.insert(name.into(), value.into()),
            None => return Ok(fact),
        };
    }
    Err(fact)
}

impl Probe {
    /// What the probe told under `name`.
    pub fn fact(&self, name: &str) -> &str {
        self.fact.get(name).map_or("(nothing)", String::as_str)
    }

    /// The value of a line of `/proc/PID/status`.
    pub fn status(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.proc("status")).expect("status");
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let value = lines.into_iter().find(|(found, _)| *found == name).map(|(_, value)| value);
        let words: Vec<&str> = value.unwrap_or_else(|| panic!("no {name}")).split_whitespace().collect();
        words.join(" ")
    }

    /// What became of its first attempt.
    pub fn found(&self) -> String {
        self.fact(&self.first).into()
    }

    /// The soft and the hard limit in a line of `/proc/PID/limits`.
    pub fn limit(&self, name: &str) -> (String, String) {
        let text = std::fs::read_to_string(self.proc("limits")).expect("limits");
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the limit");
        let mut words = line.split_whitespace().map(String::from);
        (words.next().unwrap_or_default(), words.next().unwrap_or_default())
    }

    /// How likely it is to be killed when memory runs out.
    pub fn oom_score(&self) -> i32 {
        let text = std::fs::read_to_string(self.proc("oom_score_adj")).expect("oom_score_adj");
        text.trim().parse().expect("a number")
    }

    /// Process group, session and terminal, from `/proc/PID/stat`.
    pub fn session(&self) -> [i64; 3] {
        let text = std::fs::read_to_string(self.proc("stat")).expect("stat");
        let (_, after_name) = text.rsplit_once(')').expect("a name in brackets");
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        [2, 3, 4].map(|at| fields[at].parse().expect("a number"))
    }

    /// The open descriptors and what is behind them.
    pub fn descriptors(&self) -> BTreeMap<RawFd, String> {
        let entries = std::fs::read_dir(self.proc("fd")).expect("fd");
        let number =
            |name: &std::ffi::OsStr| name.to_str().and_then(|name| name.parse().ok()).expect("a number");
        let behind = |path| std::fs::read_link(path).expect("a link").display().to_string();
        entries.flatten().map(|entry| (number(&entry.file_name()), behind(entry.path()))).collect()
    }

    /// Where a link of `/proc/PID` leads.
    pub fn link(&self, name: &str) -> PathBuf {
        std::fs::read_link(self.proc(name)).expect("a link")
    }

    fn proc(&self, name: &str) -> PathBuf {
        format!("/proc/{}/{name}", self.child.pid).into()
    }

    /// Lets the probe go and waits for its end.
    pub fn dismiss(mut self) -> Exit {
        let _ = self.dismiss.write_all(b"\n");
        ended(&self.child)
    }
}

impl Drop for Probe {
    /// A test that failed leaves no process behind.
    fn drop(&mut self) {
        self.child.kill();
        while matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Waits for the end of a child.
pub fn ended(child: &Child) -> Exit {
    let late = Instant::now() + Duration::from_secs(10);
    while Instant::now() < late {
        if let Some(exit) = child.try_wait().expect("a child of ours") {
            return exit;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill();
    panic!("the child did not end by itself");
}

/// Starts a probe that stays, tells its pid, and waits to be killed.
pub fn be_launcher() -> ExitCode {
    prepare_to_launch();
    let identity = jail::Identity::new(crate::root::uid());
    let Ok(probe) = start_on(probe::STAY, &[], Jail { identity, ..jail() }, || Ok(())) else {
        return ExitCode::FAILURE;
    };
    println!("pid\t{}\n.", probe.child.pid);
    let _ = io::stdin().lock().read_line(&mut String::new());
    ExitCode::FAILURE
}

/// Starts a launcher of its own process and hears the pid of the probe that it started.
pub fn start_launcher() -> (Child, rustix::process::Pid, PipeWriter) {
    let (input, keep) = io::pipe().expect("a pipe");
    let (reader, output) = io::pipe().expect("a pipe");
    let place = || sys::process::place(&input, 0).and_then(|()| sys::process::place(&output, 1));
    let launcher = sys::process::start(&program(LAUNCHER, &[]), Pids::Shared, || {
        place().map_err(|error| ("place", error))
    });
    let launcher = launcher.expect("the launcher starts");
    drop((input, output));
    let fact = listen(reader).expect("the launcher tells");
    let pid = fact["pid"].parse().ok().and_then(rustix::process::Pid::from_raw);
    (launcher, pid.expect("a pid"), keep)
}
