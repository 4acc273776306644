//! What is found out of a program before it is started, by a process beside the launcher's loop: its copy, how it is started,
//! its libraries, or what is wrong with it.
//!
//! Runs in: the launcher, as root, and a copy of it that ends when it has answered. Sees: the answer, in memory that both
//! share, which the copy has written; the copy reads what the inspector and loaders print. Never: waits in the launcher for
//! a program, whose size and whose libraries its owner chooses.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use jail::Identity;
use sys::file_version::FileVersion;
use sys::process::{Child, Exit};
use wire::Role;

use crate::error::{Error, during};
use crate::spawn::context::SpawnContext;
use crate::spawn::failures::Failure;
use crate::spawn::inspect;
use crate::spawn::libraries::answers::Known;
use crate::spawn::libraries::known_loader;
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::program::{self, Inspected, Start};

/// LIMIT: bytes of an answer: 256 libraries with long names.
const ANSWER_BYTES_MAX: u64 = 256 << 10;

/// An examination that is under way.
#[derive(Debug)]
pub struct Examination {
    /// The process that examines.
    pub child: Child,
    answer: File,
    /// Where a copy of the program is put, if one is made.
    copy: Option<OwnedFd>,
    path: PathBuf,
    identity: Option<Identity>,
}

/// A fact of an answer; what follows in it is told by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fact {
    Version = 1,
    Static,
    Dynamic,
    Go,
    Script,
    Libraries,
    Library,
    Program,
    Missing,
    MissingWhy,
    Copied,
    Loose,
    Inspected,
}

const FACTS: [Fact; 13] = [
    Fact::Version,
    Fact::Static,
    Fact::Dynamic,
    Fact::Go,
    Fact::Script,
    Fact::Libraries,
    Fact::Library,
    Fact::Program,
    Fact::Missing,
    Fact::MissingWhy,
    Fact::Copied,
    Fact::Loose,
    Fact::Inspected,
];

/// Facts as bytes: the number of each, the length of its value, the value.
#[derive(Debug, Default)]
struct Answer(Vec<u8>);

impl Answer {
    fn say(&mut self, fact: Fact, value: &[u8]) {
        self.0.push(fact as u8);
        self.0.extend((value.len() as u32).to_ne_bytes());
        self.0.extend(value);
    }

    fn numbers(&mut self, fact: Fact, numbers: &[u64]) {
        self.say(fact, &numbers.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<u8>>());
    }

    /// The facts of an answer, as far as they are whole.
    fn facts(mut bytes: &[u8]) -> Vec<(Fact, &[u8])> {
        let mut facts = Vec::new();
        while let Some((&[number, a, b, c, d], rest)) = bytes.split_first_chunk::<5>() {
            let length = u32::from_ne_bytes([a, b, c, d]) as usize;
            let fact = FACTS.into_iter().find(|fact| *fact as u8 == number);
            let Some((fact, (value, rest))) = fact.zip(rest.split_at_checked(length)) else { break };
            facts.push((fact, value));
            bytes = rest;
        }
        facts
    }
}

fn numbers(value: &[u8]) -> Option<[u64; 5]> {
    let (numbers, rest) = value.as_chunks::<8>();
    let numbers: Vec<u64> = numbers.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect();
    numbers.try_into().ok().filter(|_| rest.is_empty())
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

fn path_of(value: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    std::ffi::OsStr::from_bytes(value).into()
}

impl SpawnContext {
    /// Where the program of the operator's is that a spec executes.
    fn operators(&self, spec: &ProcessSpec) -> Option<(config::ProgramKind, PathBuf)> {
        if let Some((_, path)) = self.worker(spec) {
            return Some((config::ProgramKind::Own, path.clone()));
        }
        let (_, service) = self.service(spec).filter(|(_, service)| !service.remote)?;
        Some((config::ProgramKind::of_service(&service.libraries), service.program.clone()))
    }

    /// Whether the program of a spec is examined by a helper before the loop starts it: in a rootless run there is no root
    /// whom a program could hurt, so the loop itself looks at it.
    pub fn has_helper(&self, spec: &ProcessSpec) -> bool {
        self.empty_root.is_some() && matches!(spec.role, Role::Service | Role::Site)
    }

    /// Whether a process of a spec can be started without finding anything out of its program.
    pub fn is_known(&self, spec: &ProcessSpec) -> bool {
        let Some((kind, path)) = self.operators(spec).filter(|_| self.has_helper(spec)) else {
            return true;
        };
        self.only_known.set(true);
        let is_known =
            self.operator_program(kind, &path, spec.identity).map(|file| self.is_inspected(&path, &file));
        self.only_known.set(false);
        // What is refused is refused at once.
        is_known.unwrap_or_else(|error| !matches!(error, Error::NotExamined { .. }))
    }

    fn is_inspected(&self, path: &Path, file: &OwnedFd) -> bool {
        let Ok(stat) = rustix::fs::fstat(file) else { return true };
        let version = FileVersion::from(&stat);
        if self.failures.known(path, version, Instant::now()).is_some() {
            return true;
        }
        let inspected = self.inspected.borrow();
        match inspected.get(path).filter(|(known, _)| *known == version) {
            Some((_, Inspected { start: Start::Dynamic { loader, .. }, .. })) => {
                // Updates of the machine change its loader, and a program is told of that only when it starts again.
                let is_current = |(loader, _): (&str, _)| {
                    let inspected = inspected.get(Path::new(loader)).map(|(known, _)| *known);
                    inspected.is_some() && inspected == program::version(Path::new(loader))
                };
                self.answers.0.borrow().get(path).is_some_and(|known| known.holds(Some(version)))
                    && known_loader(loader).is_some_and(is_current)
            }
            Some(_) => true,
            None => false,
        }
    }

    /// Has a process find out what there is to know of the program of a spec.
    pub fn examine_beside(&mut self, spec: &ProcessSpec) -> Result<Examination, Error> {
        let (_, path) =
            self.operators(spec).ok_or_else(|| Error::program("", "is none of the operator's"))?;
        let memory = rustix::fs::memfd_create("answer", rustix::fs::MemfdFlags::CLOEXEC);
        let answer = File::from(memory.map_err(during("make a file in memory"))?);
        let copy = match spec.identity {
            Some(identity) => Some(self.empty_copy(identity)?),
            None => None,
        };
        let child = {
            let (answer, copy) = (&answer, copy.as_ref());
            let kept = [&self.null, &self.directory].into_iter().chain(&self.empty_root).chain(copy);
            let kept = kept.map(|kept| kept.as_raw_fd()).chain([answer.as_raw_fd()]);
            let highest = kept.chain(self.template.iter().map(|template| template.number())).max();
            let work = || self.examine_here(spec, answer, copy).map_err(|error| ("examination", error));
            sys::process::begin_work(highest.unwrap_or_default(), work).map_err(Error::Start)?
        };
        Ok(Examination { child, answer, copy, path, identity: spec.identity })
    }

    /// The work of the process beside the loop.
    fn examine_here(
        &mut self,
        spec: &ProcessSpec,
        mut answer: &File,
        copy: Option<&OwnedFd>,
    ) -> io::Result<()> {
        // Those that are started here end with this process.
        self.launcher = jail::Launcher::this()?;
        self.copy_into = copy.map(OwnedFd::try_clone).transpose()?;
        let Some((kind, path)) = self.operators(spec) else { return Ok(()) };
        // What was known of it is of another version.
        self.inspected.borrow_mut().remove(&path);
        self.answers.0.borrow_mut().remove(&path);
        self.failures.forget(&path);
        let found = match self.service(spec) {
            Some((_, service)) => {
                let file = self.operator_program(kind, &path, spec.identity);
                file.and_then(|file| self.needed(service, spec, &file).map(drop))
            }
            None => self.worker_program(&path, spec).map(drop),
        };
        let mut said = Answer::default();
        self.say_inspected(&mut said, &path);
        if let Some((version, failure)) = self.failures.latest(&path) {
            said.numbers(Fact::Version, &version.numbers());
            say_failure(&mut said, &failure);
        } else if let (Ok(()), Some(known)) = (&found, self.answers.0.borrow().get(&path)) {
            said.say(Fact::Libraries, &[]);
            known
                .files
                .iter()
                .for_each(|(file, _)| said.say(Fact::Library, file.as_os_str().as_encoded_bytes()));
        }
        let key = spec.identity.map(|identity| (path.clone(), identity.id()));
        if let Some((source, _)) = key.and_then(|key| self.operator_programs.copies.borrow_mut().remove(&key))
        {
            said.numbers(Fact::Copied, &source.numbers());
        }
        answer.write_all(&said.0)
    }

    /// Says what the inspector has found out of a program and, before that, of its loader.
    fn say_inspected(&self, said: &mut Answer, path: &Path) {
        let known = self.inspected.borrow();
        let Some((_, program)) = known.get(path) else { return };
        let loader = match &program.start {
            Start::Dynamic { loader, .. } => Some(Path::new(loader)),
            _ => None,
        };
        for path in loader.into_iter().chain([path]) {
            let Some((version, inspected)) = known.get(path) else { continue };
            said.say(Fact::Inspected, path.as_os_str().as_encoded_bytes());
            said.numbers(Fact::Version, &version.numbers());
            inspected.loose.iter().for_each(|why| said.say(Fact::Loose, why.as_bytes()));
            say_start(said, &inspected.start);
        }
    }

    /// Takes over what an examination has found out.
    pub fn adopt(&self, examination: Examination, exit: Option<Exit>) {
        let Examination { answer, copy, path, identity, child: _ } = examination;
        let mut bytes = Vec::new();
        let mut from_start = Cursor { file: &answer, at: 0 };
        let read = from_start.by_ref().take(ANSWER_BYTES_MAX).read_to_end(&mut bytes);
        if exit != Some(Exit::Clean) || read.is_err() {
            return;
        }
        let (mut version, mut inspected, mut loose, mut missing) = (None, path.clone(), None, None);
        let mut libraries: Option<Vec<PathBuf>> = None;
        let mut failure = None;
        for (fact, value) in Answer::facts(&bytes) {
            let start = start_of(fact, value);
            if let Some((start, version)) = start.zip(version) {
                let found = Inspected { start, loose: loose.take() };
                self.inspected.borrow_mut().insert(inspected.clone(), (version, found));
            }
            match fact {
                Fact::Inspected => inspected = path_of(value),
                Fact::Static | Fact::Dynamic | Fact::Go | Fact::Script => {}
                Fact::Version => version = numbers(value).map(FileVersion::of_numbers),
                Fact::Loose => loose = inspect::loose_of(value),
                Fact::Libraries => libraries = Some(Vec::new()),
                Fact::Library => libraries.iter_mut().for_each(|all| all.push(path_of(value))),
                Fact::Program => failure = Some(Failure::Program(text(value))),
                Fact::Missing => missing = Some(text(value)),
                Fact::MissingWhy => {
                    failure = missing.take().map(|library| Failure::Library(library, text(value)));
                }
                Fact::Copied => {
                    let source = numbers(value).map(FileVersion::of_numbers);
                    let key = identity.map(|identity| (path.clone(), identity.id()));
                    if let (Some(key), Some(source), Some(copy)) = (key, source, &copy)
                        && let Ok(copy) = copy.try_clone()
                    {
                        self.operator_programs.copies.borrow_mut().insert(key, (source, copy));
                    }
                }
            }
        }
        let Some(version) = version else { return };
        if let Some(failure) = failure {
            self.failures.remember(&path, version, failure, Instant::now());
        } else if let Some(files) = libraries {
            self.answers.0.borrow_mut().insert(path, Known::of(Some(version), files));
        }
    }
}

fn say_start(said: &mut Answer, start: &Start) {
    match start {
        Start::Static => said.say(Fact::Static, &[]),
        Start::Dynamic { loader, is_go: false } => said.say(Fact::Dynamic, loader.as_bytes()),
        Start::Dynamic { loader, is_go: true } => said.say(Fact::Go, loader.as_bytes()),
        Start::Script(interpreter) => said.say(Fact::Script, interpreter.as_os_str().as_encoded_bytes()),
    }
}

/// How a program is started, if a fact says that.
fn start_of(fact: Fact, value: &[u8]) -> Option<Start> {
    match fact {
        Fact::Static => Some(Start::Static),
        Fact::Dynamic | Fact::Go => Some(Start::Dynamic { loader: text(value), is_go: fact == Fact::Go }),
        Fact::Script => Some(Start::Script(path_of(value))),
        _ => None,
    }
}

fn say_failure(said: &mut Answer, failure: &Failure) {
    match failure {
        Failure::Program(problem) => said.say(Fact::Program, problem.as_bytes()),
        Failure::Library(library, problem) => {
            said.say(Fact::Missing, library.as_bytes());
            said.say(Fact::MissingWhy, problem.as_bytes());
        }
    }
}

/// A file from its beginning, wherever another process has left off that shares its place in it.
struct Cursor<'f> {
    file: &'f File,
    at: u64,
}

impl io::Read for Cursor<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read_at(buffer, self.at)?;
        self.at += length as u64;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_far_as_it_is_whole() {
        let mut said = Answer::default();
        said.numbers(Fact::Version, &[1, 2, 1, 4, 5]);
        say_start(&mut said, &Start::Dynamic { loader: "/lib/ld.so".into(), is_go: true });
        say_failure(&mut said, &Failure::Library("x.so".into(), "is missing".into()));
        let facts = Answer::facts(&said.0);
        let kinds: Vec<Fact> = facts.iter().map(|(fact, _)| *fact).collect();
        assert_eq!(kinds, [Fact::Version, Fact::Go, Fact::Missing, Fact::MissingWhy]);
        assert_eq!(numbers(facts[0].1), Some([1, 2, 1, 4, 5]));
        for length in 0..said.0.len() {
            assert!(Answer::facts(&said.0[..length]).len() < 4, "{length}");
        }
        assert!(Answer::facts(&[77, 0, 0, 0, 0]).is_empty());
        assert!(Answer::facts(&[1, 255, 255, 255, 255, 0]).is_empty());
        let version = program::version(Path::new("/proc/self/exe")).unwrap();
        assert_eq!(FileVersion::of_numbers(version.numbers()), version);
    }
}
