//! Has core files copied, each by a process in a jail of its own, while everything else goes on.
//!
//! Runs in: the launcher, as root. Sees: exits. Never: waits for a copy, or reads one.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use jail::policy::Policy;
use jail::{Access, Limits, Root};
use sys::process::{Child, Exit, Program};

use crate::error::Error;
use crate::spawn::context::{SpawnContext, duplicate, text};
use crate::spawn::core_copy::NOTHING;
use crate::spawn::core_dumps;
use crate::spawn::process_spec::ProcessSpec;
use crate::spawn::program;
use crate::supervisor::process::Process;
use crate::supervisor::{Launcher, watch};

/// LIMIT: how long a copy may take.
const COPY_MAX: Duration = Duration::from_secs(600);
/// LIMIT: the same, while the launcher stops.
const LAST_COPY_MAX: Duration = Duration::from_secs(5);
/// LIMIT: descriptors of what copies; it has four.
const DESCRIPTORS: u64 = 8;

/// A copy that is being made.
#[derive(Debug)]
pub(crate) struct CoreCopy {
    child: Child,
    slot: usize,
    deadline: Instant,
}

impl Launcher {
    /// Has the core file kept of a service that has died, if it left one.
    pub(crate) fn keep_core(&mut self, process: &mut Process, exit: Exit) {
        let slot = process.slot;
        let Some(folder) = process.core_folder.take().filter(|folder| !core_dumps::is_empty(folder)) else {
            return;
        };
        if !matches!(exit, Exit::Signal(_)) {
            return;
        }
        let title = self.specs[slot].title();
        if self.core_copies.values().any(|copy| copy.slot == slot) {
            return self
                .log
                .warning(format!("{title}: its core file is lost: the one before is still copied"));
        }
        if let Err(error) = self.start_keeper(slot, &folder) {
            let _ = self.context.core_dumps.give_up(&self.specs[slot].name);
            self.log.warning(format!("{title}: its core file is lost: {error}"));
        }
    }

    fn start_keeper(&mut self, slot: usize, folder: &OwnedFd) -> Result<(), Error> {
        let child = self.context.keep_core(&self.specs[slot], folder)?;
        self.serial += 1;
        watch(&self.epoll, child.pidfd(), self.serial * 2 + 1)?;
        let deadline = Instant::now() + COPY_MAX;
        self.core_copies.insert(self.serial, CoreCopy { child, slot, deadline });
        Ok(())
    }

    /// Whether `serial` is a copy's; it is let go of if it has ended.
    pub(crate) fn keeper_ended(&mut self, serial: u64) -> bool {
        let Some(copy) = self.core_copies.get(&serial) else {
            return false;
        };
        let exit = copy.child.try_wait();
        if !matches!(exit, Ok(None)) {
            let slot = copy.slot;
            self.core_copies.remove(&serial);
            self.kept(slot, exit.ok().flatten());
        }
        true
    }

    fn kept(&mut self, slot: usize, exit: Option<Exit>) {
        let (title, name) = (self.specs[slot].title(), &self.specs[slot].name);
        let lost = match exit {
            Some(Exit::Clean) => match self.context.core_dumps.finish(name) {
                Ok(path) => {
                    return self.log.info(format!("{title} left a core file in {}", path.display()));
                }
                Err(error) => error.to_string(),
            },
            Some(Exit::Status(status)) if status == i32::from(NOTHING) => String::new(),
            Some(Exit::Status(status)) => std::io::Error::from_raw_os_error(status).to_string(),
            Some(exit) => format!("what copied it ended with {exit}"),
            None => "nobody knows how its copy ended".to_owned(),
        };
        let removed = self.context.core_dumps.give_up(name);
        if !lost.is_empty() {
            self.log.warning(format!("{title}: its core file is lost: {lost}"));
        }
        if let Err(error) = removed {
            self.log.warning(format!("{title}: a part of its core file is left: {error}"));
        }
    }

    /// Ends copies that take too long.
    pub(crate) fn keepers_on_time(&mut self, now: Instant) {
        let latest = if self.stopping.is_some() { now + LAST_COPY_MAX } else { now + COPY_MAX };
        for copy in self.core_copies.values_mut() {
            if copy.deadline <= now {
                copy.child.kill();
            }
            // Of one that was ended, the exit is what is waited for.
            copy.deadline = if copy.deadline <= now { latest } else { copy.deadline.min(latest) };
        }
    }

    /// When a copy is to be looked at.
    pub(crate) fn keeper_deadline(&self) -> Option<Instant> {
        self.core_copies.values().map(|copy| copy.deadline).min()
    }
}

impl SpawnContext {
    /// Starts a copy of the core file in `folder`, under the uid of the service that could not keep it from itself.
    fn keep_core(&self, spec: &ProcessSpec, folder: &OwnedFd) -> Result<Child, Error> {
        let core_max = self.service(spec).and_then(|(_, service)| service.core_max).unwrap_or(0);
        let folder = core_dumps::opened(folder)?;
        let copy = OwnedFd::from(self.core_dumps.begin(&spec.name)?);
        let arguments = vec![text("bulkhead: keep-core")?, text("keep-core")?, text(&core_max.to_string())?];
        let program = Program { file: program::own()?, arguments, environment: Vec::new() };
        self.start_as_keeper(spec, folder, copy, &program)
    }

    /// Starts `program` in the jail of the process that copies core files: `program` reads `folder` and writes `copy`.
    pub fn start_as_keeper(
        &self,
        spec: &ProcessSpec,
        folder: OwnedFd,
        copy: OwnedFd,
        program: &Program,
    ) -> Result<Child, Error> {
        let paths = vec![(duplicate(&program.file)?, Access::Execute), (duplicate(&folder)?, Access::Read)];
        let limits = Limits { descriptors: DESCRIPTORS, core_bytes: 0, ..self.limits_of(spec, None) };
        let descriptors = vec![(folder, 0), (copy, 1), (duplicate(&self.null)?, 2)];
        let mut jail = self.helper_jail(spec.identity, Policy::Keeper, limits, descriptors, paths)?;
        if let Some(staging) = self.staging() {
            let (binds, temporary_bytes, start_in) = (Vec::new(), None, "/".into());
            jail.root = Some(Root { staging: duplicate(staging)?, binds, temporary_bytes, start_in });
        }
        sys::process::start(program, jail.pids(), || jail::enter(&jail)).map_err(Error::Start)
    }
}
