//! What a changed configuration names is examined beside the loop, before the configuration is used.
//!
//! Runs in: the launcher, as root; a copy of it examines. Sees: what the copy has found, in memory that both share. Never: waits
//! for the copy, or for longer than [`TIME`].

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use config::Examine;
use sys::process::{Child, Exit};
use wire::examination::SUBJECTS_MAX;

use crate::components::Component;
use crate::transactions::{Asker, Look, Mode};
use supervisor::Supervisor;
use supervisor::error::{Error, during};
use supervisor::examine::{Recorded, Recording};
use supervisor::leaving::Leaving;

/// LIMIT: how long what a configuration names may be examined: what reads certificates and users has 20 s for each 128 files.
const TIME: Duration = Duration::from_secs(60);

/// What a configuration is examined for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// It is to take the place of the one that runs.
    Reload { asker: Asker, mode: Mode, look: Look, attempt: u32 },
    /// All of its files are to be known.
    Know,
}

/// The examination of a configuration that is under way.
#[derive(Debug, Default)]
pub(crate) struct ConfigurationExamination {
    running: Option<Running>,
    /// Copies that were killed, until they have gone.
    leaving: Leaving<()>,
    /// What has come of one, until the launcher takes notice.
    result: Option<(Purpose, Option<Recorded>)>,
}

#[derive(Debug)]
struct Running {
    purpose: Purpose,
    child: Child,
    serial: u64,
    findings: File,
    deadline: Instant,
}

impl ConfigurationExamination {
    /// Begins one: a copy of this process has `load` load the configuration.
    pub(crate) fn begin(
        &mut self,
        supervisor: &mut Supervisor,
        purpose: Purpose,
        examine: &dyn Examine,
        load: impl FnOnce(&dyn Examine),
    ) -> Result<(), Error> {
        let memory = rustix::fs::memfd_create("findings", rustix::fs::MemfdFlags::CLOEXEC);
        let findings = File::from(memory.map_err(during("make a file in memory"))?);
        let work = || {
            config::open_here();
            let recording = Recording::of(examine);
            load(&recording);
            (&findings).write_all(&recording.to_bytes()).map_err(|error| ("examination", error))
        };
        let child = sys::process::begin_work(&[findings.as_raw_fd()], work).map_err(Error::Start)?;
        let serial = match supervisor.watch_helper(&child) {
            Ok(serial) => serial,
            Err(error) => {
                child.end();
                return Err(error);
            }
        };
        let deadline = Instant::now() + TIME;
        self.running = Some(Running { purpose, child, serial, findings, deadline });
        Ok(())
    }

    /// Whether one is under way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.running.is_some() || self.result.is_some()
    }

    /// What has come of one, once: what was found, unless that took too long.
    pub(crate) fn take_result(&mut self) -> Option<(Purpose, Option<Recorded>)> {
        self.result.take()
    }
}

impl Component for ConfigurationExamination {
    fn deadline(&self) -> Option<Instant> {
        self.running.as_ref().map(|running| running.deadline)
    }

    fn on_time(&mut self, supervisor: &mut Supervisor, now: Instant) {
        let is_over = |running: &mut Running| running.deadline <= now || supervisor.is_stopping();
        if let Some(Running { purpose, child, serial, .. }) = self.running.take_if(is_over) {
            // It may wait for a file system that does not answer.
            self.leaving.kill(serial, (), child);
            self.result = Some((purpose, None));
        }
    }

    fn on_helper_exit(&mut self, _: &mut Supervisor, serial: u64) -> bool {
        if self.leaving.reap(serial) {
            return true;
        }
        let Some(running) = self.running.take_if(|running| running.serial == serial) else { return false };
        match running.child.try_wait() {
            Ok(None) => self.running = Some(running),
            exit => {
                let is_whole = matches!(exit, Ok(Some(Exit::Clean)));
                self.result = Some((running.purpose, said(&running.findings).filter(|_| is_whole)));
            }
        }
        true
    }

    fn is_quiet(&self) -> bool {
        !self.is_under_way() && !self.leaving.is_waited_for(Instant::now())
    }
}

fn said(findings: &File) -> Option<Recorded> {
    let length = findings.metadata().ok()?.len().min(SUBJECTS_MAX as u64 + 1);
    let mut bytes = vec![0; length as usize];
    // Wherever the copy has left off, which shares its place in the file.
    findings.read_exact_at(&mut bytes, 0).ok()?;
    Recorded::of_bytes(&bytes)
}
