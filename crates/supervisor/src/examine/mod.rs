//! What is wrong with the files and folders that a configuration names, before anything runs with them.
//!
//! Runs in: the launcher, as root, at its start and at each reload; and the commands `check` and `run`, as whoever types
//! them. Sees: kinds, owners and modes of what the operator named. Never: changes anything, or reads a file; a program in
//! a jail does ([`contents`]).
//!
//! One place decides for all three: what `check` refuses, `run` refuses, and a reload changes nothing. A warning says what
//! is served all the same.

mod answers;
mod contents;
mod folders;
mod hosts;

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use config::{Content, Examine, Finding, Ground, Severity, Subject};
use jail::Identity;

use crate::directories;
use crate::error::Error;
use crate::spawn::program;
use crate::spawn::uids::Uids;

/// How much is to be found out, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// What keeps something from being served, for who is going to start it.
    Start,
    /// That, and what is perhaps not meant; perhaps for another user, who can read more.
    Check,
}

/// Examines what a configuration names.
#[derive(Debug)]
pub struct Examiner {
    depth: Depth,
    is_root: bool,
}

impl Examiner {
    /// One that finds out so much, for the user of this process.
    pub fn new(depth: Depth) -> Self {
        Self { depth, is_root: rustix::process::geteuid().is_root() }
    }

    /// Who a partition is; `None` without root, where all are the user.
    fn identity(&self, ground: &Ground<'_>, of: &str, user: Option<&str>) -> Option<Identity> {
        if !self.is_root {
            return None;
        }
        let (state, range) = (ground.state_dir?, ground.user_range.clone()?);
        // What is given out here is not written down: a start gives out the same.
        let mut table = Uids::load(state, range).ok()?;
        match user {
            Some(user) => table.account(user, of).ok(),
            None => table.identity(of).ok(),
        }
    }

    /// Whether somebody checks what another user runs.
    fn is_not_ours(&self, ground: &Ground<'_>) -> bool {
        let own = rustix::process::geteuid().as_raw();
        let state = ground.state_dir.and_then(|state| state.metadata().ok());
        self.depth == Depth::Check && !self.is_root && state.is_some_and(|found| found.uid() != own)
    }

    fn of_subject(&self, ground: &Ground<'_>, subject: &Subject<'_>) -> Vec<Finding> {
        let path = subject.path;
        match &subject.content {
            Content::Own => own_folder(path).into_iter().collect(),
            Content::Program { filter } => program_file(path, ground.dir, *filter, self.is_root),
            Content::Socket => socket(path).into_iter().collect(),
            Content::Published { site, user, routed, send_hidden } => {
                let identity = self.identity(ground, &format!("site/{site}"), *user);
                let reader = folders::Reader::of(identity, format!("the worker of site \"{site}\""));
                let published = folders::Published { routed, send_hidden };
                folders::published(path, &reader, &published, self.depth)
            }
            Content::Read { service } => {
                let identity = self.identity(ground, &format!("service/{service}"), None);
                let reader = folders::Reader::of(identity, format!("the service \"{service}\""));
                reader.folder(path).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Examine for Examiner {
    fn examine(&self, ground: &Ground<'_>, subjects: &[Subject<'_>]) -> Vec<(usize, Finding)> {
        let mut found = Vec::new();
        for (number, subject) in subjects.iter().enumerate() {
            found.extend(self.of_subject(ground, subject).into_iter().map(|one| (number, one)));
        }
        if self.is_not_ours(ground) {
            // What this user may not do says nothing of the user who may.
            found.iter_mut().for_each(|(_, finding)| finding.severity = Severity::Warning);
        }
        found.extend(self.of_contents(ground, subjects));
        found
    }
}

/// Something that keeps the configuration from running.
fn error(message: impl Into<String>, help: impl Into<String>) -> Finding {
    Finding { severity: Severity::Error, message: message.into(), help: help.into() }
}

/// Something that runs, and is perhaps not meant.
fn warning(message: impl Into<String>, help: impl Into<String>) -> Finding {
    Finding { severity: Severity::Warning, message: message.into(), help: help.into() }
}

/// A folder of the server's own is made if it is missing, and belongs to nobody else.
fn own_folder(path: &Path) -> Option<Finding> {
    let shown = path.display();
    match directories::examine(path) {
        Ok(()) => None,
        Err(Error::NotOwn { uid, mode, .. }) if path.is_dir() => {
            let own = rustix::process::geteuid().as_raw();
            let mut remedies = Vec::new();
            if uid != own {
                remedies.push(format!("chown {own} {shown}"));
            }
            if mode & 0o022 != 0 {
                remedies.push(format!("chmod go-w {shown}"));
            }
            Some(error(
                format!(
                    "belongs to uid {uid} and has mode {mode:04o}; nobody but who starts bulkhead may write there"
                ),
                format!("run `{}`, or name another folder", remedies.join(" && ")),
            ))
        }
        Err(Error::NotOwn { .. }) => {
            Some(error("is not a folder", "name a folder that is bulkhead's own, or one that is to be made"))
        }
        Err(other) => Some(error(
            format!("cannot be made: {other}"),
            format!("run `mkdir -p {}`, or name another folder", path.parent().unwrap_or(path).display()),
        )),
    }
}

/// A program that will not be started.
fn program_file(path: &Path, directory: &Path, filter: bool, is_root: bool) -> Vec<Finding> {
    match program::fitness(path, directory, filter, is_root) {
        Ok(()) => Vec::new(),
        Err(fault) => vec![error(fault.problem, fault.remedy)],
    }
}

/// The server behind a socket may start later; until then clients get 502.
fn socket(path: &Path) -> Option<Finding> {
    use std::os::unix::fs::FileTypeExt as _;
    match std::fs::metadata(path) {
        Ok(found) if found.file_type().is_socket() => None,
        Ok(_) => Some(error("is not a socket", "name the socket at which the server listens")),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => None,
        Err(_) => {
            let folder = path.parent().filter(|folder| !folder.is_dir());
            let (what, help) = match folder {
                Some(folder) => (
                    format!("is in {}, which does not exist", folder.display()),
                    "start the server that makes it before this one: without the folder, its connector cannot start",
                ),
                None => (
                    "is not there".to_owned(),
                    "start the server that listens there, or correct the path; until then clients get 502",
                ),
            };
            Some(warning(what, help))
        }
    }
}
