//! What is wrong with the files and folders that a configuration names, before anything runs with them.
//!
//! Runs in: the launcher, as root, at its start and at each reload; and the commands `check` and `run`, as whoever
//! types them. Sees: kinds, owners and modes of what the operator named. Never: changes anything, or reads a file; a
//! program in a jail does ([`readers`]).
//!
//! One place decides for all three: what `check` refuses, `run` refuses, and a reload changes nothing. A warning says
//! what is served all the same.

mod answers;
mod contents;
mod finding;
mod folders;
mod hosts;
mod identities;
mod known;
mod libraries;
mod readers;
mod recorded;
mod statements;
mod user_range;

pub use self::finding::Depth;
pub use self::known::{KnownCertificate, KnownCertificates};
pub use self::readers::jail_of_check;
pub use self::recorded::{Loaded, Recorded, Recording, Refused};

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use config::{Content, Examine, Finding, Opener, ProgramKind, Setting, Severity, Subject};

use self::finding::{error, warning};
use self::identities::Identities;
use crate::directories;
use crate::error::Error;
use crate::site_names::Names;
use crate::site_names::holders::{Claim, Holders};
use crate::spawn::operator_program;
use crate::spawn::uids::Uids;

/// Examines what a configuration names.
#[derive(Debug)]
pub struct Examiner<'u> {
    depth: Depth,
    is_root: bool,
    /// The uids of the server that runs.
    running: Option<&'u Uids>,
    /// Whose the names of its sites are.
    holders: Option<&'u Holders>,
    /// Certificates that need not be read.
    known: KnownCertificates<'u>,
}

impl Examiner<'static> {
    /// One that finds out so much, for the user of this process.
    pub fn new(depth: Depth) -> Self {
        let is_root = rustix::process::geteuid().is_root();
        Self { depth, is_root, running: None, holders: None, known: KnownCertificates::default() }
    }
}

impl<'u> Examiner<'u> {
    /// The same for a server that runs, whose tables need not be read once more.
    pub fn of_running(depth: Depth, running: Option<&'u Uids>, holders: &'u Holders) -> Self {
        Self { running, holders: Some(holders), ..Examiner::new(depth) }
    }

    /// The same, that has none of these certificates read.
    pub fn knowing(self, known: KnownCertificates<'u>) -> Self {
        Self { known, ..self }
    }

    /// Whether somebody checks what another user runs.
    fn is_not_ours(&self, setting: &Setting<'_>) -> bool {
        let own = rustix::process::geteuid().as_raw();
        let state = setting.state_dir.and_then(|state| state.metadata().ok());
        self.depth == Depth::Check && !self.is_root && state.is_some_and(|found| found.uid() != own)
    }

    fn of_subject(
        &self,
        setting: &Setting<'_>,
        (identities, names): (&Identities<'_>, &Names<'_>),
        subject: &Subject<'_>,
    ) -> Vec<Finding> {
        let path = subject.path;
        match &subject.content {
            Content::Own => own_folder(path).into_iter().collect(),
            Content::Uids { range, is_written } => {
                let (table, written) = (identities.table(), is_written.then_some(range));
                let asked = user_range::Asked { written, default: range, state: path };
                table.map_or_else(Vec::new, |table| user_range::findings(table, &asked, self.depth))
            }
            Content::Named { site, user, root } => {
                let own = identities.known(&format!("site/{site}")).filter(|_| user.is_none());
                let claim = Claim::new(*user, *root);
                let refusal = names.refusal(site, &claim, own.map(|own| own.id()));
                refusal.into_iter().map(|refusal| error(refusal.problem, refusal.remedy)).collect()
            }
            Content::Program { kind } => program_file(path, setting.dir, *kind, self.is_root),
            Content::Socket => socket(path).into_iter().collect(),
            Content::Published { site, user, routed, send_hidden } => {
                let identity = identities.identity(&format!("site/{site}"), *user);
                let reader = folders::Reader::of(identity, format!("the worker of site \"{site}\""));
                let published = folders::Published { routed, send_hidden };
                folders::published(path, &reader, &published, self.depth)
            }
            Content::Linked { site, user } => {
                let identity = identities.identity(&format!("site/{site}"), *user);
                let reader = folders::Reader::of(identity, format!("the worker of site \"{site}\""));
                reader.folder(path).into_iter().collect()
            }
            Content::Statements { services, engine } if self.depth == Depth::Check => {
                statements::mistakes(path, &Opener::of(setting.dir), *engine, services)
                    .unwrap_or_else(|fault| vec![self.unread(&fault)])
            }
            Content::Libraries { service } => {
                // Without root, all code is the user's.
                let opener = Opener::of(setting.dir);
                let fault = if self.is_root { libraries::examine(path, &opener, self.depth) } else { None };
                fault.or_else(|| unreadable(identities, service, path)).into_iter().collect()
            }
            Content::Read { service } => unreadable(identities, service, path).into_iter().collect(),
            Content::Templates { site } => {
                let identity = identities.identity(&format!("publisher/{site}"), None);
                let reader = folders::Reader::of(identity, format!("the publisher of site \"{site}\""));
                reader.folder(path).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Examine for Examiner<'_> {
    fn examine(&self, setting: &Setting<'_>, subjects: &[Subject<'_>]) -> Vec<(usize, Finding)> {
        let identities = match Identities::of(setting, self.is_root, self.running) {
            Ok(identities) => identities,
            // Of the first subject, as of all: nothing starts with such a table.
            Err(fault) => {
                return vec![(0, error(format!("cannot be examined: {fault}"), "correct the table of uids"))];
            }
        };
        let names = match setting
            .state_dir
            .map_or_else(|| Ok(Names::default()), |state| Names::load(state, self.holders))
        {
            Ok(names) => names,
            Err(fault) => {
                return vec![(0, error(format!("cannot be examined: {fault}"), "correct that file"))];
            }
        };
        let mut found = Vec::new();
        for (number, subject) in subjects.iter().enumerate() {
            let findings = self.of_subject(setting, (&identities, &names), subject);
            found.extend(findings.into_iter().map(|one| (number, one)));
        }
        if self.is_not_ours(setting) {
            // What this user may not do says nothing of the user who may.
            found.iter_mut().for_each(|(_, finding)| finding.severity = Severity::Warning);
        }
        found.extend(self.of_contents(setting, &identities, subjects));
        found
    }
}

/// What keeps a service from a folder.
fn unreadable(identities: &Identities<'_>, service: &str, path: &Path) -> Option<Finding> {
    let identity = identities.identity(&format!("service/{service}"), None);
    folders::Reader::of(identity, format!("the service \"{service}\"")).folder(path)
}

/// A folder of the server's own is made if it is missing, and belongs to nobody else.
fn own_folder(path: &Path) -> Option<Finding> {
    let shown = path.display();
    match directories::examine(path) {
        Ok(()) => None,
        Err(Error::NotOwn { .. }) if path.is_symlink() => Some(error(
            "is a symbolic link, where a folder of bulkhead's own is needed",
            "name the folder itself",
        )),
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
fn program_file(path: &Path, directory: &Path, kind: ProgramKind, is_root: bool) -> Vec<Finding> {
    match operator_program::fitness(path, directory, kind, is_root) {
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
