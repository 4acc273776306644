//! Has core files copied, each by a process in a jail of its own, while everything else goes on.
//!
//! Runs in: the launcher, as root. Sees: exits. Never: waits for a copy, or reads one.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use jail::policy::Policy;
use jail::{Access, Jail, Limits, Network, Ports, Reach, Root};
use rustix::fs::{Mode, OFlags};
use sys::process::{Child, Exit, Program};

use crate::cores;
use crate::error::{Error, during};
use crate::keep_core::NOTHING;
use crate::launch::{Ground, duplicate, text};
use crate::launcher::{Launcher, watch};
use crate::process::Process;
use crate::roster::Post;

/// LIMIT: how long a copy may take.
const COPY_MAX: Duration = Duration::from_secs(600);
/// LIMIT: the same, while the launcher stops.
const LAST_COPY_MAX: Duration = Duration::from_secs(5);
/// LIMIT: descriptors of what copies; it has four.
const DESCRIPTORS: u64 = 8;

/// A copy that is being made.
#[derive(Debug)]
pub(crate) struct Keeper {
    child: Child,
    post: usize,
    deadline: Instant,
}

impl Launcher {
    /// Has the core file kept of a service that has died, if it left one.
    pub(crate) fn keep_core(&mut self, process: &mut Process, exit: Exit) {
        let post = process.post;
        let Some(folder) = process.cores.take().filter(|folder| !cores::is_empty(folder)) else {
            return;
        };
        if !matches!(exit, Exit::Signal(_)) {
            return;
        }
        let title = self.posts[post].title();
        if self.keepers.values().any(|keeper| keeper.post == post) {
            return self
                .journal
                .warning(format!("{title}: its core file is lost: the one before is still copied"));
        }
        if let Err(error) = self.start_keeper(post, &folder) {
            let _ = self.ground.cores.give_up(&self.posts[post].name);
            self.journal.warning(format!("{title}: its core file is lost: {error}"));
        }
    }

    fn start_keeper(&mut self, post: usize, folder: &OwnedFd) -> Result<(), Error> {
        let child = self.ground.keep_core(&self.posts[post], folder)?;
        self.serial += 1;
        watch(&self.epoll, child.pidfd(), self.serial * 2 + 1)?;
        let deadline = Instant::now() + COPY_MAX;
        self.keepers.insert(self.serial, Keeper { child, post, deadline });
        Ok(())
    }

    /// Whether `serial` is a copy's; it is let go of if it has ended.
    pub(crate) fn keeper_ended(&mut self, serial: u64) -> bool {
        let Some(keeper) = self.keepers.get(&serial) else {
            return false;
        };
        let exit = keeper.child.try_wait();
        if !matches!(exit, Ok(None)) {
            let post = keeper.post;
            self.keepers.remove(&serial);
            self.kept(post, exit.ok().flatten());
        }
        true
    }

    fn kept(&mut self, post: usize, exit: Option<Exit>) {
        let (title, name) = (self.posts[post].title(), &self.posts[post].name);
        let lost = match exit {
            Some(Exit::Clean) => match self.ground.cores.finish(name) {
                Ok(path) => {
                    return self.journal.info(format!("{title} left a core file in {}", path.display()));
                }
                Err(error) => error.to_string(),
            },
            Some(Exit::Status(status)) if status == i32::from(NOTHING) => String::new(),
            Some(Exit::Status(status)) => std::io::Error::from_raw_os_error(status).to_string(),
            Some(exit) => format!("what copied it ended with {exit}"),
            None => "nobody knows how its copy ended".to_owned(),
        };
        let removed = self.ground.cores.give_up(name);
        if !lost.is_empty() {
            self.journal.warning(format!("{title}: its core file is lost: {lost}"));
        }
        if let Err(error) = removed {
            self.journal.warning(format!("{title}: a part of its core file is left: {error}"));
        }
    }

    /// Ends copies that take too long.
    pub(crate) fn keepers_on_time(&mut self, now: Instant) {
        let latest = if self.stopping.is_some() { now + LAST_COPY_MAX } else { now + COPY_MAX };
        for keeper in self.keepers.values_mut() {
            if keeper.deadline <= now {
                keeper.child.kill();
            }
            // Of one that was ended, the exit is what is waited for.
            keeper.deadline = if keeper.deadline <= now { latest } else { keeper.deadline.min(latest) };
        }
    }

    /// When a copy is to be looked at.
    pub(crate) fn keeper_deadline(&self) -> Option<Instant> {
        self.keepers.values().map(|keeper| keeper.deadline).min()
    }
}

impl Ground {
    /// Starts a copy of the core file in `folder`, under the uid of the service that could not keep it from itself.
    fn keep_core(&self, post: &Post, folder: &OwnedFd) -> Result<Child, Error> {
        let core_max = self.service(post).and_then(|(_, service)| service.core_max).unwrap_or(0);
        let folder = cores::opened(folder)?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file = rustix::fs::open("/proc/self/exe", flags, Mode::empty());
        let file = file.map_err(|error| during("open the launcher's own program")(error.into()))?;
        let paths = vec![(duplicate(&file)?, Access::Execute), (duplicate(&folder)?, Access::Read)];
        let copy = OwnedFd::from(self.cores.begin(&post.name)?);
        let arguments = vec![text("bulkhead: keep-core")?, text("keep-core")?, text(&core_max.to_string())?];
        let without = self.without.borrow().clone();
        let staging = self.empty_root.as_ref().filter(|_| !without.contains(&"root"));
        let root = staging.map(|staging| {
            let (binds, temporary_bytes, start_in) = (Vec::new(), None, "/".into());
            Ok::<_, Error>(Root { staging: duplicate(staging)?, binds, temporary_bytes, start_in })
        });
        let jail = Jail {
            launcher: self.launcher.again().map_err(during("duplicate a descriptor"))?,
            identity: post.identity,
            root: root.transpose()?,
            directory: None,
            descriptors: vec![(folder, 0), (copy, 1), (duplicate(&self.null)?, 2)],
            limits: Limits { descriptors: DESCRIPTORS, core_bytes: 0, ..self.limits_of(post, None) },
            cgroups: Vec::new(),
            network: Network::None,
            reach: Reach { paths, ports: Ports::default() },
            filter: self.filters.get(Policy::Keeper)?,
            calls: None,
            label: None,
            without,
        };
        let program = Program { file, arguments, environment: Vec::new() };
        sys::process::start(&program, jail.pids(), || jail::enter(&jail)).map_err(Error::Start)
    }
}
