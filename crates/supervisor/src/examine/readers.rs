//! The processes that read the files which a configuration names, several at a time, and each a batch of files.
//!
//! Runs in: the launcher, as root, which waits here, and the commands `check` and `run`. Sees: a few short lines.
//! Never: reads a file itself; leaves a process behind.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use config::{Finding, Isolation, Opener, Setting};
use jail::policy::Policy;
use jail::{Access, Jail, Limits, Reach};
use sys::process::{Child, Exit, Program};

use super::Examiner;
use super::answers::{ANSWER_BYTES_MAX, Answer, parse};
use super::finding::{error, warning};
use super::identities::Identities;
use crate::error::{Error, during};
use crate::spawn::compiled_filters::CompiledFilters;
use crate::spawn::context::{duplicate, text};
use crate::spawn::helper;
use crate::spawn::program;

/// LIMIT: files that one process reads; each is a descriptor of it, and two of this process, fewer than `free_number`
/// leaves.
const FILES_MAX: usize = 128;
/// LIMIT: processes that read at a time, on a machine with as many processors.
const READERS_MAX: usize = 8;
/// LIMIT: how long one process may take. It takes milliseconds, on a machine with time to spare.
const TIME: Duration = Duration::from_secs(20);
/// LIMIT: one process of one thread.
const PROCESSES: u64 = 1;
/// LIMIT: private memory: the longest list, read, and what a parser makes of it.
const MEMORY_BYTES: u64 = 256 << 20;

/// The files of the subject of this number, which are to be read together.
pub(super) struct Question<'s> {
    pub(super) subject: usize,
    pub(super) line: String,
    pub(super) paths: Vec<&'s Path>,
}

/// What has come of questions: the answers, each with the number of its subject, and why others have none.
#[derive(Default)]
pub(super) struct Answered {
    pub(super) answers: Vec<(usize, Answer)>,
    pub(super) findings: Vec<(usize, Finding)>,
}

/// A process that reads the files of these subjects.
struct Reading {
    subjects: Vec<usize>,
    child: Child,
    printed: File,
}

/// All of them.
pub(super) struct Readers<'r> {
    examiner: &'r Examiner<'r>,
    setting: &'r Setting<'r>,
    identities: &'r Identities<'r>,
    opener: Opener,
    filters: CompiledFilters,
    /// The layers of the jail that are left out, and those that cannot be made here.
    without: Vec<&'static str>,
    /// The first one was begun first.
    reading: VecDeque<Reading>,
    /// How many there are at a time.
    at_once: usize,
    answered: Answered,
}

impl<'r> Readers<'r> {
    pub(super) fn of(
        examiner: &'r Examiner<'r>,
        setting: &'r Setting<'r>,
        identities: &'r Identities<'r>,
    ) -> Self {
        let mut without: Vec<&'static str> = jail::LAYERS.iter().map(|layer| layer.name).collect();
        without.retain(|name| setting.danger_without.iter().any(|left_out| left_out == name));
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            examiner,
            setting,
            identities,
            opener: Opener::of(setting.dir),
            filters: CompiledFilters::default(),
            without,
            reading: VecDeque::new(),
            at_once: processors.min(READERS_MAX),
            answered: Answered::default(),
        }
    }

    /// Has the files of these questions read, by processes that read no other files.
    pub(super) fn ask(&mut self, questions: Vec<Question<'_>>) {
        batches(questions).into_iter().for_each(|batch| self.begin(batch));
    }

    /// What has come of all questions.
    pub(super) fn finish(mut self) -> Answered {
        while !self.reading.is_empty() {
            self.take_first();
        }
        self.answered
    }

    /// Begins a process. Files are open only meanwhile, so that their number has no limit beyond that of one batch.
    fn begin(&mut self, questions: Vec<Question<'_>>) {
        let (mut files, mut lines, mut subjects) = (Vec::new(), String::new(), Vec::new());
        for Question { subject, line, paths } in questions {
            let opened = paths.iter().map(|path| Ok(OwnedFd::from(self.opener.file(path)?)));
            match opened.collect::<io::Result<Vec<_>>>() {
                Ok(opened) => {
                    files.extend(opened);
                    lines = lines + &line + "\n";
                    subjects.push(subject);
                }
                Err(fault) => self.answered.findings.push((subject, self.examiner.unread(&fault))),
            }
        }
        if subjects.is_empty() {
            return;
        }
        if self.reading.len() >= self.at_once {
            self.take_first();
        }
        match self.start(&lines, &files) {
            Ok((child, printed)) => self.reading.push_back(Reading { subjects, child, printed }),
            Err(fault) => self.fail(&subjects, &fault),
        }
    }

    /// Waits for the process that was begun first.
    fn take_first(&mut self) {
        let Some(Reading { subjects, child, printed }) = self.reading.pop_front() else { return };
        match receive(&child, printed, subjects.len()) {
            Ok(answers) => self.answered.answers.extend(subjects.into_iter().zip(answers)),
            Err(fault) => self.fail(&subjects, &fault),
        }
    }

    fn fail(&mut self, subjects: &[usize], fault: &Error) {
        let first = subjects.first().map(|first| (*first, not_examined(subjects.len(), fault)));
        self.answered.findings.extend(first);
    }

    /// Starts a process that reads these files; where it prints.
    fn start(&mut self, lines: &str, files: &[OwnedFd]) -> Result<(Child, File), Error> {
        let file = reader()?;
        let first = helper::free_number()?;
        let arguments = vec![text("bulkhead: signer check")?, text("check")?, text(&first.to_string())?];
        let program = Program { file, arguments, environment: Vec::new() };
        let degrades = !self.examiner.is_root || self.setting.isolation == Isolation::Degraded;
        loop {
            let (printed, printing) = io::pipe().map_err(during("make a pipe"))?;
            let jail = self.jail(&program, lines, (first, files), printing.into())?;
            match sys::process::start(&program, jail.pids(), || jail::enter(&jail)) {
                // With the jail, the writing end goes that would keep the pipe from ending.
                Ok(child) => return Ok((child, File::from(OwnedFd::from(printed)))),
                Err(failure) => {
                    let layer =
                        jail::LAYERS.iter().find(|layer| layer.name == failure.step && !layer.mandatory);
                    match layer.filter(|_| degrades) {
                        Some(layer) => self.without.push(layer.name),
                        None => return Err(Error::Start(failure)),
                    }
                }
            }
        }
    }

    /// The jail of who reads: the signer's, with files in the place of channels.
    fn jail(
        &self,
        program: &Program,
        lines: &str,
        (first, files): (i32, &[OwnedFd]),
        printing: OwnedFd,
    ) -> Result<Jail, Error> {
        let null =
            File::options().read(true).write(true).open("/dev/null").map_err(during("open /dev/null"))?;
        let mut descriptors = vec![(questions_file(lines)?, 0), (printing, 1), (null.into(), 2)];
        for (file, number) in files.iter().zip(first..) {
            descriptors.push((duplicate(file)?, number));
        }
        let identity = self.identities.signer(self.examiner.is_root)?;
        jail_of_reader(identity, program, descriptors, self.without.clone(), &self.filters)
    }
}

/// The answers of a process to so many questions.
fn receive(child: &Child, printed: File, questions: usize) -> Result<Vec<Answer>, Error> {
    let bytes_max = questions * ANSWER_BYTES_MAX;
    let answer = helper::listen_for(child, printed, bytes_max, TIME).map_err(during("examine files"))?;
    let clean = answer.exit == Some(Exit::Clean);
    parse(&answer.printed, questions).filter(|_| clean).ok_or_else(|| Error::System {
        action: "examine files",
        source: io::Error::other("the program `signer` gives no answer that makes sense"),
    })
}

/// The program that reads files.
fn reader() -> Result<OwnedFd, Error> {
    program::role_program(&program::roles_folder()?, "signer")
}

/// The jail of who reads, with these descriptors: the signer's, without its channels and without any reach.
///
/// # Errors
/// The kernel refused.
pub fn jail_of_check(
    identity: Option<jail::Identity>,
    program: &Program,
    descriptors: Vec<(OwnedFd, i32)>,
    without: Vec<&'static str>,
) -> Result<Jail, Error> {
    jail_of_reader(identity, program, descriptors, without, &CompiledFilters::default())
}

fn jail_of_reader(
    identity: Option<jail::Identity>,
    program: &Program,
    descriptors: Vec<(OwnedFd, i32)>,
    mut without: Vec<&'static str>,
    filters: &CompiledFilters,
) -> Result<Jail, Error> {
    let limits = Limits {
        descriptors: descriptors.len() as u64 + 8,
        core_bytes: 0,
        processes: PROCESSES,
        memory_bytes: Some(MEMORY_BYTES),
        file_bytes: None,
        cpu_seconds: None,
    };
    let launcher = jail::Launcher::this().map_err(during("open this process's own pidfd"))?;
    let filter = filters.get(Policy::Signer)?;
    // Its list of system calls has none that opens a file.
    without.push("root");
    Ok(Jail {
        identity,
        descriptors,
        reach: Reach { paths: vec![(duplicate(&program.file)?, Access::Execute)], ..Reach::default() },
        without,
        ..Jail::new(launcher, limits, filter)
    })
}

/// The questions, to be read from the beginning.
fn questions_file(lines: &str) -> Result<OwnedFd, Error> {
    let memory = rustix::fs::memfd_create("questions", rustix::fs::MemfdFlags::CLOEXEC);
    let mut file = File::from(memory.map_err(during("make a file in memory"))?);
    let write = file.write_all(lines.as_bytes()).and_then(|()| io::Seek::rewind(&mut file));
    write.map_err(during("write a file in memory"))?;
    Ok(file.into())
}

/// Parts of which none has too many files for one process.
fn batches(questions: Vec<Question<'_>>) -> Vec<Vec<Question<'_>>> {
    let mut batches: Vec<Vec<Question<'_>>> = Vec::new();
    let mut files = FILES_MAX;
    for question in questions {
        files += question.paths.len();
        if files > FILES_MAX {
            files = question.paths.len();
            batches.push(Vec::new());
        }
        if let Some(last) = batches.last_mut() {
            last.push(question);
        }
    }
    batches
}

/// A mistake, as a key may not fit; without the program that reads them, there is nothing that can be said of any file.
fn not_examined(count: usize, fault: &Error) -> Finding {
    let others = if count > 1 { format!("and {} other files ", count - 1) } else { String::new() };
    let message = format!("{others}cannot be examined: {fault}");
    match reader() {
        Ok(_) => {
            error(message, "see what keeps a process of the program `signer` from starting or reading them")
        }
        Err(_) => warning(message, "have the program `signer` beside this one, or in libexec/bulkhead"),
    }
}
