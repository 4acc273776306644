//! Files that copies of the launcher open beside its loop, as their file systems may not answer: what was asked for,
//! what is under way, and who waits for it.
//!
//! Runs in: the launcher, as root. Sees: nothing of the files. Never: begins to open one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use config::Kind;

use crate::leaving::Leaving;
use crate::opened_files::FileKey;
use crate::spawn::opening::{FILES_MAX, Opening};
use crate::spawn::remote_paths::Mount;

/// LIMIT: copies that open files at a time, each for another mount.
const RUNNING_MAX: usize = 16;
/// LIMIT: copies that wait for one mount and cannot be ended, when somebody has it asked again and again.
const LEAVING_MAX: usize = 4;
/// LIMIT: for how long a file system that has not answered is not asked again.
pub(crate) const SILENCE: Duration = Duration::from_secs(60);

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Openings {
    pub(crate) asked: BTreeMap<Mount, BTreeMap<FileKey, Kind>>,
    pub(crate) running: BTreeMap<Mount, Running>,
    /// Copies that were killed and wait for a file system all the same, by their serial numbers, until they have gone.
    pub(crate) leaving: Leaving<Mount>,
    /// Mounts that have not answered, and when they are asked again.
    pub(crate) silent: BTreeMap<Mount, Instant>,
    /// The slots whose processes are started when their files are open, and since when they wait.
    pub(crate) slots: BTreeMap<usize, Waiting>,
    /// Whether somebody has had what had not answered asked again: a copy that still waits keeps no other from asking.
    is_forgiven: bool,
    /// Whether something has come that is read again when it has changed.
    pub(crate) has_come: bool,
}

#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) serial: u64,
    pub(crate) opening: Opening,
    pub(crate) deadline: Instant,
}

#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) since: Instant,
    /// Whether a file system that the slot needs does not answer.
    pub(crate) is_silent: bool,
}

impl Openings {
    /// When there is something to do next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.running.values().map(|running| running.deadline).min()
    }

    /// A process of a slot is started, or the slot is nobody's any more.
    pub(crate) fn forget(&mut self, slot: usize) {
        self.slots.remove(&slot);
    }

    /// Somebody asks for a process of a slot: file systems that have not answered are asked again.
    pub(crate) fn forgive(&mut self, slot: usize) {
        self.silent.clear();
        self.is_forgiven = true;
        self.slots.remove(&slot);
    }

    /// The slots that wait for a file system that does not answer.
    pub(crate) fn silent(&self) -> impl Iterator<Item = usize> {
        self.slots.iter().filter(|(_, waiting)| waiting.is_silent).map(|(slot, _)| *slot)
    }

    /// Notes that a mount has not answered.
    pub(crate) fn is_late(&mut self, mount: Mount, now: Instant) {
        self.is_forgiven = false;
        self.silent.insert(mount, now + SILENCE);
    }

    /// Whether a mount is asked no more, for now.
    pub(crate) fn is_given_up(&self, mount: Mount) -> bool {
        let most = if self.is_forgiven { LEAVING_MAX } else { 1 };
        self.silent.contains_key(&mount) || self.leaving.each().filter(|of| **of == mount).count() >= most
    }

    /// A mount that can be asked now, with what is asked of it.
    pub(crate) fn next(&mut self) -> Option<(Mount, Vec<(FileKey, Kind)>)> {
        if self.running.len() >= RUNNING_MAX {
            return None;
        }
        let mount = *self.asked.keys().find(|mount| !self.running.contains_key(mount))?;
        let mut files = self.asked.remove(&mount)?;
        let rest = files.keys().nth(FILES_MAX).cloned().map(|first| files.split_off(&first));
        self.asked.extend(rest.map(|rest| (mount, rest)));
        Some((mount, files.into_iter().collect()))
    }
}
