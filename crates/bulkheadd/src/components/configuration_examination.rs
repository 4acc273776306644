//! What a changed configuration names is examined beside the loop, before the configuration is used: first what the
//! kernel answers for, and if that is not all, everything once more by a copy that waits for others' file systems, for
//! a shorter time. If that is too short, the configuration is used without: whoever answers for a file system must not
//! keep others' changes waiting.
//!
//! The copy says when it has found everything, and is not waited for until it has gone: of 10,000 sites, the kernel
//! takes milliseconds to take its memory apart.
//!
//! Runs in: the launcher, as root; a copy of it examines. Sees: what the copy has found, in memory that both share.
//! Never: waits for the copy, or for longer than [`TIME`].

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;
use std::time::{Duration, Instant};

use config::{ANSWER_TIME, Diagnostics, Examine};
use sys::process::{Child, Exit};
use wire::examination::{RemoteFiles, SUBJECTS_MAX};

use crate::components::Component;
use crate::transactions::{Asker, Wanted};
use supervisor::Supervisor;
use supervisor::error::{Error, during};
use supervisor::examine::{Loaded, Recorded, Recording};
use supervisor::leaving::Leaving;
use supervisor::opened_files::OpenedFiles;

/// LIMIT: how long what a configuration names may be examined: what reads certificates and users has 20 s for each 128
/// files.
const TIME: Duration = Duration::from_secs(60);

/// By which a copy says that it has found everything.
const WORD: &[u8] = b".";

/// The files of sites that may be others than those that were read last; `None` if it can be any.
pub(crate) type Differing = Option<BTreeSet<OsString>>;

/// What a configuration is examined for.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    /// It is to take the place of the one that runs.
    Reload { asker: Asker, wanted: Wanted, attempt: u32 },
    /// All of its files are to be known.
    Know,
}

/// The examination of a configuration that is under way.
#[derive(Debug, Default)]
pub(crate) struct ConfigurationExamination {
    running: Option<Running>,
    /// Copies that were killed, until they have gone.
    leaving: Leaving<()>,
    /// Copies that have done their work, until they have gone.
    done: Leaving<()>,
    /// What has come of one, until the launcher takes notice.
    result: Option<Examined>,
}

/// What has come of an examination.
#[derive(Debug)]
pub(crate) struct Examined {
    pub(crate) purpose: Purpose,
    /// What was found; `None` if that took too long.
    pub(crate) found: Option<Recorded>,
    /// Whether a copy is to look that waits for others' file systems.
    pub(crate) is_to_be_waited_for: bool,
}

#[derive(Debug)]
struct Running {
    purpose: Purpose,
    child: Child,
    serial: u64,
    findings: File,
    /// Where the copy says that it has found everything.
    word: PipeReader,
    deadline: Instant,
    /// What a copy that does not wait has found before, if this one does.
    first: Option<Recorded>,
}

impl ConfigurationExamination {
    /// Begins one: a copy of this process has `load` load the configuration, once `look` has said which files have
    /// changed. The copy waits for others' file systems, if it is known what one has found that does not.
    pub(crate) fn begin(
        &mut self,
        supervisor: &mut Supervisor,
        purpose: Purpose,
        first: Option<Recorded>,
        examine: &dyn Examine,
        look: impl FnOnce() -> Differing,
        load: impl FnOnce(&dyn Examine, Differing) -> Result<Loaded, Diagnostics>,
    ) -> Result<(), Error> {
        let memory = rustix::fs::memfd_create("findings", rustix::fs::MemfdFlags::CLOEXEC);
        let findings = File::from(memory.map_err(during("make a file in memory"))?);
        let (word, end) = word().map_err(during("make a pipe"))?;
        let work = |changed| {
            config::open_here();
            let others = Rc::new(OpenedFiles::default());
            if first.is_none() {
                config::open_beside(others.clone());
            }
            let recording = Recording::of(examine);
            let (loaded, mistakes) = match load(&recording, changed) {
                Ok(loaded) => (loaded, None),
                Err(mistakes) => (Loaded::default(), first.is_some().then(|| mistakes.to_string())),
            };
            let files = match (&first, others.take_looked().is_empty()) {
                (Some(_), _) => RemoteFiles::Examined,
                (None, true) => RemoteFiles::Unnamed,
                (None, false) => RemoteFiles::LeftOut,
            };
            let said = recording.to_bytes(files, mistakes.as_deref(), &loaded);
            (&findings)
                .write_all(&said)
                .and_then(|()| (&end).write_all(WORD))
                .map_err(|error| ("examination", error))
        };
        let kept = [findings.as_raw_fd(), end.as_raw_fd()];
        let child = supervisor.background().begin_after(&kept, look, work)?;
        drop(end);
        let watched = supervisor.watch_copy(&child);
        let watched = watched.and_then(|serial| supervisor.watch_word(serial, &word).map(|()| serial));
        let serial = match watched {
            Ok(serial) => serial,
            Err(error) => {
                child.end();
                return Err(error);
            }
        };
        let deadline = Instant::now() + if first.is_some() { ANSWER_TIME } else { TIME };
        self.running = Some(Running { purpose, child, serial, findings, word, deadline, first });
        Ok(())
    }

    /// Whether one is under way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.running.is_some() || self.result.is_some()
    }

    /// What has come of one, once.
    pub(crate) fn take_result(&mut self) -> Option<Examined> {
        self.result.take()
    }

    /// Notes what has come of one. Where that did not wait, one that does is next, unless another waits still that was
    /// killed.
    fn ended(&mut self, purpose: Purpose, first: Option<Recorded>, found: Option<Recorded>) {
        let may_wait = first.is_none() && self.leaving.each().next().is_none();
        let is_to_be_waited_for = may_wait && found.as_ref().is_some_and(Recorded::leaves_out);
        self.result = Some(Examined { purpose, found: found.or(first), is_to_be_waited_for });
    }
}

impl Component for ConfigurationExamination {
    fn deadline(&self) -> Option<Instant> {
        self.running.as_ref().map(|running| running.deadline)
    }

    fn on_time(&mut self, supervisor: &mut Supervisor, now: Instant) {
        let is_over = |running: &mut Running| running.deadline <= now || supervisor.is_stopping();
        if let Some(Running { purpose, child, serial, word, first, .. }) = self.running.take_if(is_over) {
            supervisor.forget_word(&word);
            // It may wait for a file system that does not answer.
            self.leaving.kill(serial, (), child);
            self.ended(purpose, first, None);
        }
    }

    fn on_helper_exit(&mut self, supervisor: &mut Supervisor, serial: u64) -> bool {
        if self.leaving.reap(serial) || self.done.reap(serial) {
            return true;
        }
        let Some(running) = self.running.take_if(|running| running.serial == serial) else { return false };
        let exit = running.child.try_wait();
        let is_whole = running.has_said() || matches!(exit, Ok(Some(Exit::Clean)));
        if !is_whole && matches!(exit, Ok(None)) {
            self.running = Some(running);
            return true;
        }
        let Running { purpose, child, findings, word, first, .. } = running;
        supervisor.forget_word(&word);
        if matches!(exit, Ok(None)) {
            self.done.let_go(serial, (), child);
        }
        self.ended(purpose, first, said(&findings).filter(|_| is_whole));
        true
    }

    fn is_quiet(&self) -> bool {
        let now = Instant::now();
        !self.is_under_way() && !self.leaving.is_waited_for(now) && !self.done.is_waited_for(now)
    }
}

impl Running {
    /// Whether the copy has found everything.
    fn has_said(&self) -> bool {
        matches!((&self.word).read(&mut [0; WORD.len()]), Ok(1))
    }
}

/// A pipe of whose end that reads nobody ever waits.
fn word() -> std::io::Result<(PipeReader, PipeWriter)> {
    let (word, end) = std::io::pipe()?;
    rustix::io::ioctl_fionbio(&word, true)?;
    Ok((word, end))
}

fn said(findings: &File) -> Option<Recorded> {
    let length = findings.metadata().ok()?.len().min(SUBJECTS_MAX as u64 + 1);
    let mut bytes = vec![0; length as usize];
    // Wherever the copy has left off, which shares its place in the file.
    findings.read_exact_at(&mut bytes, 0).ok()?;
    Recorded::of_bytes(&bytes)
}
