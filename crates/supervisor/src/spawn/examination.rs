//! What is found out of a program before it is started, by a process beside the launcher's loop: its copy, how it is
//! started, its libraries, or what is wrong with it.
//!
//! Runs in: the launcher, as root, and a copy of it that ends when it has answered. Sees: findings, in memory that both
//! share, which the copy has written; the copy reads what the inspector and loaders print. Never: waits in the launcher
//! for a program, whose size and whose libraries its owner chooses.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use config::{ProgramKind, Service};
use sys::file_version::FileVersion;
use sys::process::{Child, Exit};
use wire::Role;
use wire::examination::FINDINGS_MAX;

use crate::error::{Error, during};
use crate::spawn::context::SpawnContext;
use crate::spawn::failures::Failure;
use crate::spawn::findings::Findings;
use crate::spawn::libraries::answers::Known;
use crate::spawn::libraries::known_loader;
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::program::{self, Inspected, Start};

/// An examination that is under way.
#[derive(Debug)]
pub struct Examination {
    /// The process that examines.
    pub child: Child,
    findings: File,
    /// Where a copy of the program is put, if one is made.
    copy: Option<OwnedFd>,
    path: PathBuf,
}

impl Examination {
    /// The program.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl SpawnContext {
    /// Where the program of the operator's is that a spec executes.
    fn operators(&self, spec: &ProcessSpec) -> Option<(ProgramKind, PathBuf)> {
        if let Some((_, path)) = self.worker(spec) {
            return Some((ProgramKind::Own, path.clone()));
        }
        let service = self.guest(spec).filter(|service| !service.remote)?;
        Some((program_kind(spec, service), service.program.clone()))
    }

    /// The path of the operator's program that a spec executes, if it does.
    pub fn program_of(&self, spec: &ProcessSpec) -> Option<PathBuf> {
        self.operators(spec).map(|(_, path)| path)
    }

    /// Whether what is to be known of the program of a spec is found out beside the loop: in a rootless run there is no
    /// root whom a program could hurt, so the loop itself looks at it.
    pub fn is_examined_beside(&self, spec: &ProcessSpec) -> bool {
        !self.may_find_out() && self.operators(spec).is_some()
    }

    /// Whether this process may find out itself what it does not know of a program.
    pub(super) fn may_find_out(&self) -> bool {
        self.empty_root.is_none() || !self.examines_beside.get()
    }

    /// Whether a process of a spec can be started without finding anything out of its program.
    pub fn is_known(&self, spec: &ProcessSpec) -> bool {
        let Some((kind, path)) = self.operators(spec) else { return true };
        let is_known = self
            .operator_program(kind, &path, spec.identity)
            .map(|file| self.is_inspected(spec, &path, &file));
        // What is refused is refused at once.
        is_known.unwrap_or_else(|error| !matches!(self.explain(spec, error), Error::NotExamined { .. }))
    }

    /// Forgets what was wrong with the program of a spec: whoever has it started anew may have installed what was
    /// missing.
    pub fn forgive(&self, spec: &ProcessSpec) {
        self.refusals.forget(&*spec.title());
        self.operators(spec).into_iter().for_each(|(_, path)| self.failures.forget(&*path));
    }

    /// Why a program is not started of which not all is known: what its examination has said, if it has said anything.
    pub(super) fn explain(&self, spec: &ProcessSpec, error: Error) -> Error {
        let Error::NotExamined { path } = &error else { return error };
        let version = self.operators(spec).and_then(|(_, program)| program::version(&program));
        match version.and_then(|version| self.refusals.known(&*spec.title(), version, Instant::now())) {
            Some(Failure::Program(reason)) => Error::Refused { reason },
            Some(other) => other.of(path),
            None => error,
        }
    }

    fn is_inspected(&self, spec: &ProcessSpec, path: &Path, file: &OwnedFd) -> bool {
        let Ok(stat) = rustix::fs::fstat(file) else { return true };
        let version = FileVersion::from(&stat);
        let (title, now) = (spec.title(), Instant::now());
        if self.failures.known(path, version, now).is_some()
            || self.refusals.known(&*title, version, now).is_some()
        {
            return true;
        }
        let jit = self.guest(spec).is_some_and(|service| service.jit);
        let inspected = self.inspected.borrow();
        match inspected.get(path).filter(|(known, _)| *known == version) {
            Some((_, Inspected { loose: Some(_), .. })) if !jit => true,
            Some((_, Inspected { start: Start::Dynamic { loader, .. }, .. })) => {
                // Updates of the machine change its loader, and a program is told of that only when it starts again.
                let Some((loader, _)) = known_loader(loader) else { return true };
                let (loader, now) = (Path::new(loader), program::version(Path::new(loader)));
                let is_unfit = |now| self.failures.known(loader, now, Instant::now()).is_some();
                let is_current = now.is_some() && inspected.get(loader).map(|(known, _)| *known) == now;
                let holds = |known: &Known| known.holds(Some(version));
                now.is_some_and(is_unfit)
                    || is_current && self.answers.0.borrow().get(path).is_some_and(holds)
            }
            Some(_) => true,
            None => false,
        }
    }

    /// Has a process find out what there is to know of the program of a spec.
    pub fn begin_examination(&mut self, spec: &ProcessSpec) -> Result<Examination, Error> {
        let (_, path) =
            self.operators(spec).ok_or_else(|| Error::program("", "is none of the operator's"))?;
        let memory = rustix::fs::memfd_create("findings", rustix::fs::MemfdFlags::CLOEXEC);
        let findings = File::from(memory.map_err(during("make a file in memory"))?);
        let copy = match spec.identity {
            Some(identity) => Some(self.empty_copy(identity)?),
            None => None,
        };
        let background = self.background.clone();
        let child = {
            let (findings, copy) = (&findings, copy.as_ref());
            let kept = [&self.null, &self.directory].into_iter().chain(&self.empty_root).chain(copy);
            let kept = kept.map(|kept| kept.as_raw_fd()).chain([findings.as_raw_fd()]);
            let kept: Vec<_> = kept.chain(self.template.iter().map(|template| template.number())).collect();
            let work = || self.examine_here(spec, findings, copy).map_err(|error| ("examination", error));
            background.begin(&kept, work)?
        };
        Ok(Examination { child, findings, copy, path })
    }

    /// The work of the process beside the loop.
    fn examine_here(
        &mut self,
        spec: &ProcessSpec,
        mut findings: &File,
        copy: Option<&OwnedFd>,
    ) -> io::Result<()> {
        config::open_here();
        // Those that are started here end with this process.
        self.launcher = jail::Launcher::this()?;
        self.copy_into = copy.map(OwnedFd::try_clone).transpose()?;
        self.examines_beside.set(false);
        let Some((kind, path)) = self.operators(spec) else { return Ok(()) };
        // What was known of it is of another version.
        self.inspected.borrow_mut().remove(&path);
        self.answers.0.borrow_mut().remove(&path);
        self.forgive(spec);
        let found = match self.guest(spec) {
            Some(service) => {
                let file = self.operator_program(kind, &path, spec.identity);
                file.and_then(|file| self.needed(service, spec, &file).map(drop))
            }
            None => self.worker_program(&path, spec).map(drop),
        };
        findings.write_all(&self.findings(spec, &path, found.err()).to_bytes())
    }

    /// What is known now of the program at `path`, which would be started, or not.
    fn findings(&self, spec: &ProcessSpec, path: &Path, refusal: Option<Error>) -> Findings {
        let inspected = self.inspected.borrow();
        let loader = inspected.get(path).and_then(|(_, program)| match &program.start {
            Start::Dynamic { loader, .. } => Some(Path::new(loader)),
            _ => None,
        });
        let files = || loader.into_iter().chain([path]);
        let of_inspector = files().filter_map(|path| Some((path, inspected.get(path)?)));
        let failures = files().filter_map(|path| Some((path, self.failures.latest(path)?)));
        let answers = self.answers.0.borrow();
        let libraries = answers.get(path).filter(|_| refusal.is_none()).and_then(|known| {
            Some((known.program?, known.files.iter().map(|(file, _)| file.clone()).collect()))
        });
        let key = spec.identity.map(|identity| (path.to_owned(), identity.id()));
        let copies = self.operator_programs.copies.borrow();
        Findings {
            inspected: of_inspector
                .map(|(path, (version, of))| (path.into(), *version, of.clone()))
                .collect(),
            failures: failures.map(|(path, (version, failure))| (path.into(), version, failure)).collect(),
            libraries,
            copied: key.and_then(|key| copies.get(&key)).map(|(source, _)| *source),
            refusal: refusal.map(|error| error.to_string()),
        }
    }

    /// Takes over what an examination has found out.
    pub fn adopt(&self, spec: &ProcessSpec, examination: Examination, exit: Option<Exit>) {
        let Examination { findings, copy, path, child: _ } = examination;
        let mut said = vec![0; FINDINGS_MAX + 1];
        // Wherever the other process has left off, which shares its place in the file.
        let Ok(length) = findings.read_at(&mut said, 0) else { return };
        let Some(found) = Findings::of_bytes(&said[..length]).filter(|_| exit == Some(Exit::Clean)) else {
            return;
        };
        for (path, version, inspected) in found.inspected {
            self.inspected.borrow_mut().insert(path, (version, inspected));
        }
        for (path, version, failure) in found.failures {
            self.failures.remember(&path, version, failure, Instant::now());
        }
        if let Some((version, files)) = found.libraries {
            self.answers.0.borrow_mut().insert(path.clone(), Known::of(Some(version), files));
        }
        let key = spec.identity.map(|identity| (path.clone(), identity.id()));
        if let (Some(key), Some(source), Some(copy)) = (key, found.copied, copy) {
            self.operator_programs.copies.borrow_mut().insert(key, (source, copy));
        }
        // What follows from the rest is said when the program is to be started.
        if let Some(reason) = found.refusal.filter(|_| !self.is_known(spec))
            && let Some(version) = program::version(&path)
        {
            self.refusals.remember(&*spec.title(), version, Failure::Program(reason), Instant::now());
        }
    }
}

/// For what the program of a service or a filter is.
pub(super) fn program_kind(spec: &ProcessSpec, service: &Service) -> ProgramKind {
    match spec.role {
        Role::Filter => ProgramKind::Filter,
        _ => ProgramKind::of_service(&service.libraries),
    }
}

#[cfg(test)]
impl Examination {
    /// One that finds nothing out and does not end.
    pub(crate) fn of_sleeper(path: PathBuf) -> Self {
        let work = || {
            loop {
                std::thread::park();
            }
        };
        let child = sys::process::begin_work(&[], work).unwrap();
        let findings = std::fs::File::open("/dev/null").unwrap();
        Self { child, findings, copy: None, path }
    }
}
