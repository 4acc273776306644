//! Files that are opened beside the loop before a process is started, or looked at again: when that begins, and what
//! follows.
//!
//! Runs in: the launcher, as root. Sees: ends of the processes that open. Never: waits for one, or has a file system
//! asked again soon that has not answered.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use config::{ANSWER_TIME, Kind};
use sys::process::Child;
use wire::Role;

use crate::Supervisor;
use crate::examinations::News;
use crate::opened_files::{FileKey, NotOpened};
use crate::openings::{Running, SILENCE, Waiting};
use crate::spawn::remote_paths::Mount;

impl Supervisor {
    /// Whether files have to be opened beside the loop before a process of a slot is started. It is started when they
    /// are.
    pub(crate) fn is_opened_first(&mut self, slot: usize, now: Instant) -> bool {
        if self.specs[slot].role == Role::Signer {
            return self.are_certificates_opened_first(slot, now);
        }
        let paths = self.context.remote_paths(&self.specs[slot]);
        if paths.is_empty() {
            self.openings.forget(slot);
            return false;
        }
        let first = Waiting { since: now, is_silent: false };
        let since = self.openings.slots.entry(slot).or_insert(first).since;
        let files: Vec<FileKey> = paths.iter().map(|(_, file, _)| file.clone()).collect();
        let missing =
            paths.into_iter().filter(|(_, file, _)| self.context.opened.answer_since(file, since).is_none());
        let missing: Vec<_> = missing.collect();
        self.ask_for_files(missing, now);
        // What is known not to answer has been answered for.
        let answers: Vec<_> =
            files.iter().map(|file| self.context.opened.answer_since(file, since)).collect();
        if answers.contains(&None) {
            return true;
        }
        let is_silent = answers.contains(&Some(true));
        if is_silent {
            self.wait_for_silent(slot, now);
        }
        is_silent
    }

    /// Whether a signer that takes the place of another has to wait for certificates: that one serves meanwhile. The
    /// first one gets each when it has come: it serves all sites, and waits for none.
    fn are_certificates_opened_first(&mut self, slot: usize, now: Instant) -> bool {
        if self.slots[slot].current.is_none() {
            return false;
        }
        let paths = self.context.remote_paths(&self.specs[slot]);
        let missing = paths.into_iter().filter(|(_, file, _)| !self.context.opened.is_known(file));
        let missing: Vec<_> = missing.collect();
        let files: Vec<FileKey> = missing.iter().map(|(_, file, _)| file.clone()).collect();
        self.ask_for_files(missing, now);
        let waits = files.iter().any(|file| !self.context.opened.is_known(file));
        if waits {
            self.openings.slots.insert(slot, Waiting { since: now, is_silent: false });
        }
        waits
    }

    /// Has a slot wait until a file system is asked again that it needs and that does not answer.
    fn wait_for_silent(&mut self, slot: usize, now: Instant) {
        let waiting = Waiting { since: now + Duration::from_nanos(1), is_silent: true };
        let before = self.openings.slots.insert(slot, waiting);
        self.examinations.tell(slot, News::Silent);
        if !before.is_some_and(|before| before.is_silent) {
            self.tell_of_silence(slot);
            self.announce();
        }
    }

    fn tell_of_silence(&mut self, slot: usize) {
        let title = self.specs[slot].title();
        self.log.warning(format!(
            "{title} is not started: files that it needs are on a file system of another machine or of a program (NFS, FUSE) that \
             does not answer; it is tried again in {SILENCE:?}"
        ));
    }

    /// Has files opened anew that are read again when they have changed, and keeps them; others are let go.
    pub fn open_again(&mut self, files: BTreeSet<FileKey>, now: Instant) {
        let remote = self.context.remote_among(files.iter().map(|file| (file.clone(), Kind::File)));
        self.context.opened.keep(files);
        self.ask_for_files(remote, now);
    }

    /// Whether all has come that was asked for, once: there may be thousands of files, which come in many parts.
    pub fn take_opened(&mut self) -> bool {
        let is_all = self.openings.asked.is_empty() && self.openings.running.is_empty();
        is_all && std::mem::take(&mut self.openings.has_come)
    }

    fn ask_for_files(&mut self, files: Vec<(Mount, FileKey, Kind)>, now: Instant) {
        self.openings.silent.retain(|_, until| *until > now);
        let mut silent = Vec::new();
        for (mount, file, kind) in files {
            match self.openings.is_given_up(mount) {
                true => silent.push((file, Err(NotOpened::Silent))),
                false => drop(self.openings.asked.entry(mount).or_default().insert(file, kind)),
            }
        }
        if !silent.is_empty() {
            self.context.opened.put(silent, now);
        }
        self.begin_openings(now);
    }

    /// Has copies of this process open what was asked for.
    fn begin_openings(&mut self, now: Instant) {
        while let Some((mount, files)) = self.openings.next() {
            let begun = self.context.begin_opening(files.clone());
            let begun = begun.and_then(|opening| Ok((self.watch_copy(&opening.child)?, opening)));
            match begun {
                Ok((serial, opening)) => {
                    let running = Running { serial, opening, deadline: now + ANSWER_TIME };
                    self.openings.running.insert(mount, running);
                }
                Err(error) => {
                    let fault = NotOpened::Fault(format!("cannot be opened: {error}"), "try again".into());
                    let files = files.into_iter().map(|(file, _)| (file, Err(fault.clone())));
                    self.context.opened.put(files, now);
                    self.tell_of_opened();
                }
            }
        }
    }

    /// Takes notice of the end of a copy that opens files, if `serial` is one.
    pub(crate) fn on_opened(&mut self, serial: u64, now: Instant) -> bool {
        if self.openings.leaving.reap(serial) {
            return true;
        }
        let found = self.openings.running.iter().find(|(_, running)| running.serial == serial);
        let Some((&mount, running)) = found else { return false };
        if !matches!(running.opening.child.try_wait(), Ok(None)) {
            self.end_opening(mount, now);
        }
        true
    }

    /// Ends copies that have waited for too long, and begins others.
    pub(crate) fn openings_on_time(&mut self, now: Instant) {
        let late = self.openings.running.iter().filter(|(_, running)| running.deadline <= now);
        for mount in late.map(|(mount, _)| *mount).collect::<Vec<_>>() {
            self.openings.is_late(mount, now);
            let others = self.openings.asked.remove(&mount).into_iter().flatten();
            self.context.opened.put(others.map(|(file, _)| (file, Err(NotOpened::Silent))), now);
            if let Some((serial, child)) = self.end_opening(mount, now) {
                self.openings.leaving.kill(serial, mount, child);
            }
        }
    }

    fn end_opening(&mut self, mount: Mount, now: Instant) -> Option<(u64, Child)> {
        let Running { serial, opening, .. } = self.openings.running.remove(&mount)?;
        let (child, answers) = opening.take();
        self.context.opened.put(answers, now);
        self.tell_of_opened();
        self.begin_openings(now);
        Some((serial, child))
    }

    /// Those who wait look whether all is there.
    fn tell_of_opened(&mut self) {
        self.openings.has_come = true;
        self.openings.slots.keys().for_each(|slot| self.examinations.tell(*slot, News::Room));
    }

    /// Ends all, as a successor of this process knows nothing of them; whether they are over.
    pub(crate) fn end_openings(&mut self, now: Instant) -> bool {
        self.openings.asked.clear();
        for (mount, Running { serial, opening, .. }) in std::mem::take(&mut self.openings.running) {
            let (child, _) = opening.take();
            self.openings.leaving.kill(serial, mount, child);
        }
        !self.openings.leaving.is_waited_for(now)
    }
}
