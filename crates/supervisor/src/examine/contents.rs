//! Has the program `signer` read files, in the signer's jail, and says what is wrong with them.
//!
//! Runs in: the launcher, as root, which waits here, and the commands `check` and `run`. Sees: a few short lines. Never: reads a
//! file itself: certificates and lists come from authorities, keys are read by a library in C, and both would be read as
//! root. Files with keys and others are read by two processes, so that no mistake in a file of users leads to a key.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use config::{Content, Finding, Isolation, Opener, Setting, Severity, Subject};
use jail::policy::Policy;
use jail::{Access, Jail, Limits, Reach};
use sys::process::{Exit, Program};
use wire::tls::{Holding, Verdict};

use super::Examiner;
use super::answers::{ANSWER_BYTES_MAX, Answer, parse};
use super::finding::{Depth, error, warning};
use super::hosts::unnamed_hosts;
use super::identities::Identities;
use crate::error::{Error, during};
use crate::spawn::compiled_filters::CompiledFilters;
use crate::spawn::context::{duplicate, text};
use crate::spawn::helper;
use crate::spawn::program;

/// LIMIT: files that one process reads; each is a descriptor of it, and two of this process, fewer than `free_number` leaves.
const FILES_MAX: usize = 128;
/// LIMIT: how long one process may take. It takes milliseconds, on a machine with time to spare.
const TIME: Duration = Duration::from_secs(20);
/// LIMIT: one process of one thread.
const PROCESSES: u64 = 1;
/// LIMIT: private memory: the longest list, read, and what a parser makes of it.
const MEMORY_BYTES: u64 = 256 << 20;

/// The files of the subject of this number, which are to be read together.
struct Question<'s> {
    subject: usize,
    line: String,
    paths: Vec<&'s Path>,
}

impl Examiner<'_> {
    /// What is wrong in files with certificates, keys, authorities, lists and users.
    pub(super) fn of_contents(
        &self,
        setting: &Setting<'_>,
        identities: &Identities<'_>,
        subjects: &[Subject<'_>],
    ) -> Vec<(usize, Finding)> {
        let mut found = Vec::new();
        let (mut secret, mut others) = (Vec::new(), Vec::new());
        for (number, subject) in subjects.iter().enumerate() {
            let Some((line, paths)) = question(subject) else { continue };
            let is_certificate = matches!(subject.content, Content::Certificate { .. });
            let kind = if is_certificate { &mut secret } else { &mut others };
            kind.push(Question { subject: number, line, paths });
        }
        let mut certificates = Vec::new();
        for questions in [secret, others].into_iter().flat_map(batches) {
            certificates.extend(self.answers((setting, identities), questions, &mut found));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        for (number, answer) in &certificates {
            let Some(subject) = subjects.get(*number) else { continue };
            let mut findings = findings(subject, answer, now);
            // What clients have against a certificate, the launcher says by itself when its signer has read it.
            findings.retain(|one| {
                let of_certificate = matches!(answer, Answer::Certificate { .. });
                self.depth == Depth::Check || one.severity == Severity::Error || !of_certificate
            });
            found.extend(findings.into_iter().map(|finding| (*number, finding)));
        }
        found.extend(unnamed_hosts(subjects, &certificates));
        found
    }

    /// Somebody else may be able to read what this user cannot.
    pub(super) fn unread(&self, fault: &io::Error) -> Finding {
        let (what, help) = (
            format!("cannot be read by this user, so what is in it is not checked: {fault}"),
            "check as the user who starts bulkhead",
        );
        match self.depth {
            Depth::Check if !self.is_root => warning(what, help),
            _ => error(format!("cannot be read: {fault}"), "let the user who starts bulkhead read it"),
        }
    }

    /// The answers to these questions, of which each has the number of its subject. Files are open only meanwhile, so that
    /// their number has no limit beyond that of one batch.
    fn answers(
        &self,
        (setting, identities): (&Setting<'_>, &Identities<'_>),
        questions: Vec<Question<'_>>,
        found: &mut Vec<(usize, Finding)>,
    ) -> Vec<(usize, Answer)> {
        let opener = Opener::of(setting.dir);
        let (mut files, mut asked) = (Vec::new(), Vec::new());
        for question in questions {
            let opened = question.paths.iter().map(|path| Ok(OwnedFd::from(opener.file(path)?)));
            match opened.collect::<io::Result<Vec<_>>>() {
                Ok(opened) => {
                    files.extend(opened);
                    asked.push(question);
                }
                Err(fault) => found.push((question.subject, self.unread(&fault))),
            }
        }
        let numbers = asked.iter().map(|question| question.subject);
        let Some(first) = numbers.clone().next() else { return Vec::new() };
        match self.ask(setting, identities, &asked, &files) {
            Ok(answers) => numbers.zip(answers).collect(),
            Err(fault) => {
                found.push((first, not_examined(numbers.len(), &fault)));
                Vec::new()
            }
        }
    }

    /// Has these files read.
    fn ask(
        &self,
        setting: &Setting<'_>,
        identities: &Identities<'_>,
        questions: &[Question<'_>],
        files: &[OwnedFd],
    ) -> Result<Vec<Answer>, Error> {
        let file = reader()?;
        let first = helper::free_number()?;
        let arguments = vec![text("bulkhead: signer check")?, text("check")?, text(&first.to_string())?];
        let program = Program { file, arguments, environment: Vec::new() };
        let lines: String = questions.iter().map(|question| format!("{}\n", question.line)).collect();
        let mut without: Vec<&'static str> = jail::LAYERS.iter().map(|layer| layer.name).collect();
        without.retain(|name| setting.danger_without.iter().any(|left_out| left_out == name));
        let degrades = !self.is_root || setting.isolation == Isolation::Degraded;
        loop {
            let (printed, printing) = io::pipe().map_err(during("make a pipe"))?;
            let jail = self.jail(identities, &program, &lines, (first, files), printing.into(), &without)?;
            let child = match sys::process::start(&program, jail.pids(), || jail::enter(&jail)) {
                Ok(child) => child,
                Err(failure) => {
                    let layer =
                        jail::LAYERS.iter().find(|layer| layer.name == failure.step && !layer.mandatory);
                    match layer.filter(|_| degrades) {
                        Some(layer) => without.push(layer.name),
                        None => return Err(Error::Start(failure)),
                    }
                    continue;
                }
            };
            // The writing end in it would keep the pipe from ending.
            drop(jail);
            let bytes_max = questions.len() * ANSWER_BYTES_MAX;
            let printed = File::from(OwnedFd::from(printed));
            let answer =
                helper::listen_for(&child, printed, bytes_max, TIME).map_err(during("examine files"))?;
            let clean = answer.exit == Some(Exit::Clean);
            return parse(&answer.printed, questions.len()).filter(|_| clean).ok_or_else(|| Error::System {
                action: "examine files",
                source: io::Error::other("the program `signer` gives no answer that makes sense"),
            });
        }
    }

    /// The jail of who reads: the signer's, with files in the place of channels.
    fn jail(
        &self,
        identities: &Identities<'_>,
        program: &Program,
        lines: &str,
        (first, files): (i32, &[OwnedFd]),
        printing: OwnedFd,
        without: &[&'static str],
    ) -> Result<Jail, Error> {
        let null =
            File::options().read(true).write(true).open("/dev/null").map_err(during("open /dev/null"))?;
        let mut descriptors = vec![(questions_file(lines)?, 0), (printing, 1), (null.into(), 2)];
        for (file, number) in files.iter().zip(first..) {
            descriptors.push((duplicate(file)?, number));
        }
        let without = without.to_vec();
        jail_of_check(identities.signer(self.is_root)?, program, descriptors, without)
    }
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
    mut without: Vec<&'static str>,
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
    let filter = CompiledFilters::default().get(Policy::Signer)?;
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

/// What is asked of a subject, and its files.
fn question<'s>(subject: &Subject<'s>) -> Option<(String, Vec<&'s Path>)> {
    let line = match &subject.content {
        Content::Certificate { key, hosts, .. } => {
            let files = if key.is_some() { 2 } else { 1 };
            let line = std::iter::once(format!("certificate {files}"))
                .chain(hosts.iter().map(|host| (*host).to_owned()));
            let line = line.collect::<Vec<_>>().join(" ");
            return Some((line, std::iter::once(subject.path).chain(*key).collect()));
        }
        Content::Authorities => "authorities",
        Content::RevocationLists => "lists",
        Content::Users => "users",
        _ => return None,
    };
    Some((line.to_owned(), vec![subject.path]))
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

/// What is to be said of the certificates above a site's own, and of those that have nothing to do with it.
fn of_chain(out_of_date: u16, left_out: u16) -> impl Iterator<Item = Finding> {
    let old = (out_of_date > 0).then(|| {
        let message = format!("has {} of authorities out of date, sent last", certificates(out_of_date));
        warning(
            message,
            "take the chain from the authority again, and put it behind the site's own certificate",
        )
    });
    let others = (left_out > 0).then(|| {
        let message = format!("has {} outside of its chain, not sent", certificates(left_out));
        warning(message, "take them out, or put the certificates between into the file")
    });
    old.into_iter().chain(others)
}

fn certificates(count: u16) -> String {
    if count == 1 { "1 certificate".to_owned() } else { format!("{count} certificates") }
}

fn findings(subject: &Subject<'_>, answer: &Answer, now: u64) -> Vec<Finding> {
    match answer {
        Answer::Good => Vec::new(),
        Answer::Odd(what) => {
            vec![warning(format!(": {what}"), "nobody can log in until there is one: `htpasswd -B`")]
        }
        Answer::Bad(what) => {
            let path = subject.path.display();
            let help = match &subject.content {
                Content::Users => format!("write such lines with `htpasswd -B {path} NAME`"),
                Content::Authorities => "put the certificates of the authorities into it, as PEM".to_owned(),
                _ => "have the authority write the whole list anew".to_owned(),
            };
            vec![error(format!("cannot be used: {what}"), help)]
        }
        Answer::Certificate { verdict: Verdict::Good, validity, named, out_of_date, left_out, .. } => {
            let (not_before, not_after) = validity;
            let holding = Holding {
                not_before: *not_before,
                not_after: *not_after,
                named: !named.is_empty(),
                ..Holding::NOTHING
            };
            let objections = holding.objections(now);
            let objections = objections.map(|one| warning(one.words(), one.remedy()));
            objections.chain(of_chain(*out_of_date, *left_out)).collect()
        }
        Answer::Certificate { verdict, .. } => {
            let key = match &subject.content {
                Content::Certificate { key: Some(key), .. } => format!(" (`key` is {})", key.display()),
                _ => String::new(),
            };
            vec![error(format!("{}{key}", verdict.words()), verdict.remedy())]
        }
    }
}
