//! Starting a probe in a jail, and looking at it from outside.
//!
//! Runs in: the jail's test, as the launcher would be.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use jail::{Jail, Limits};
use rustix::fs::{Mode, OFlags};
use sys::process::{Child, Exit, Program, StartError};

use crate::probe;

/// The errand of a process that launches a probe and waits to be killed.
pub const LAUNCHER: &str = "launcher";

/// Every number up to this one is taken in the launcher, so that what a jail places is not in its own way.
pub const NUMBER_MAX: RawFd = 9;

/// What `prepare` of a start answers.
pub type Prepared = Result<(), (&'static str, io::Error)>;

/// A probe in its jail, which has told what it found.
#[derive(Debug)]
pub struct Probe {
    /// The process.
    pub child: Child,
    /// What it told.
    pub told: BTreeMap<String, String>,
    dismiss: PipeWriter,
}

/// Does what the launcher does before it starts a child.
pub fn prepare_to_launch() {
    jail::note_launcher();
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

/// A jail without identity, root and directory, and with limits that are in nobody's way.
pub fn jail() -> Jail {
    Jail {
        identity: None,
        root: None,
        directory: None,
        descriptors: vec![],
        limits: Limits { descriptors: 64, processes: 64, memory_bytes: None },
    }
}

/// This program, to be executed on `errand`.
pub fn program(errand: &str) -> Program {
    Program {
        file: open("/proc/self/exe"),
        arguments: vec![CString::new(errand).expect("no null byte")],
        environment: vec![],
    }
}

/// Starts a probe in `jail` with descriptors 0 to 2 besides those listed, and hears what it tells.
pub fn start(errand: &str, jail: Jail) -> Result<Probe, StartError> {
    start_after(errand, jail, || Ok(()))
}

/// As [`start`]; `before` is run in the child before its jail is built.
///
/// Where the start fails, this has made sure that the program did not run: it told nothing.
pub fn start_after(
    errand: &str,
    mut jail: Jail,
    before: impl FnOnce() -> Prepared,
) -> Result<Probe, StartError> {
    let (input, dismiss) = io::pipe().expect("a pipe");
    let (hear, output) = io::pipe().expect("a pipe");
    let errors = io::stderr().as_fd().try_clone_to_owned().expect("a duplicate");
    jail.descriptors.extend([(input.into(), 0), (output.into(), 1), (errors, 2)]);
    let started = sys::process::start(&program(errand), || before().and_then(|()| jail::enter(&jail)));
    drop(jail);
    let told = listen(hear);
    match started {
        Ok(child) => Ok(Probe {
            child,
            told: told.unwrap_or_else(|told| panic!("the probe ended after telling {told:?}")),
            dismiss,
        }),
        Err(error) => {
            assert_eq!(told, Err(BTreeMap::new()), "the program ran although {error}");
            Err(error)
        }
    }
}

/// What a probe tells up to its dot, or, as an error, up to its end.
fn listen(hear: PipeReader) -> Result<BTreeMap<String, String>, BTreeMap<String, String>> {
    let mut told = BTreeMap::new();
    for line in BufReader::new(hear).lines() {
        match line.expect("a line").split_once(' ') {
            Some((name, value)) => told.insert(name.into(), value.into()),
            None => return Ok(told),
        };
    }
    Err(told)
}

impl Probe {
    /// What the probe told under `name`.
    pub fn told(&self, name: &str) -> &str {
        self.told.get(name).map_or("(nothing)", String::as_str)
    }

    /// The value of a line of `/proc/PID/status`.
    pub fn status(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.proc("status")).expect("status");
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let value = lines.into_iter().find(|(found, _)| *found == name).map(|(_, value)| value);
        let words: Vec<&str> = value.unwrap_or_else(|| panic!("no {name}")).split_whitespace().collect();
        words.join(" ")
    }

    /// The soft and the hard limit in a line of `/proc/PID/limits`.
    pub fn limit(&self, name: &str) -> (String, String) {
        let text = std::fs::read_to_string(self.proc("limits")).expect("limits");
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the limit");
        let mut words = line.split_whitespace().map(String::from);
        (words.next().unwrap_or_default(), words.next().unwrap_or_default())
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
    let identity = jail::Identity::new(crate::root::UID);
    let Ok(probe) = start(probe::STAY, Jail { identity, ..jail() }) else {
        return ExitCode::FAILURE;
    };
    println!("pid {}\n.", probe.child.pid);
    let _ = io::stdin().lock().read_line(&mut String::new());
    ExitCode::FAILURE
}

/// Starts a launcher of its own process and hears the pid of the probe that it started.
pub fn start_launcher() -> (Child, rustix::process::Pid, PipeWriter) {
    let (input, keep) = io::pipe().expect("a pipe");
    let (hear, output) = io::pipe().expect("a pipe");
    let place = || sys::process::place(&input, 0).and_then(|()| sys::process::place(&output, 1));
    let launcher = sys::process::start(&program(LAUNCHER), || place().map_err(|error| ("place", error)));
    let launcher = launcher.expect("the launcher starts");
    drop((input, output));
    let told = listen(hear).expect("the launcher tells");
    let pid = told["pid"].parse().ok().and_then(rustix::process::Pid::from_raw);
    (launcher, pid.expect("a pid"), keep)
}
