//! What the launcher undoes when it ends: control groups and the reaper. A successor holds them only when nothing can
//! fail any more, or it would undo them for the launcher that is put back.
//!
//! Runs in: the launcher, as root. Sees: the record of the launcher before. Never: makes or removes a group.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;

use sys::process::Child;
use wire::Text;
use wire::successor::LauncherToSuccessor;

use crate::Supervisor;
use crate::error::Error;
use crate::spawn::background::Background;
use crate::spawn::cgroup::{Cgroups, Group};
use crate::spawn::reaper::Reaper;
use crate::upgrade::{Handed, Record};

/// What is held from the moment on in which the launcher before is not put back any more. To drop this has no effect.
#[derive(Debug)]
pub struct Held {
    hierarchies: Vec<(PathBuf, String, bool)>,
    groups: BTreeMap<u64, Vec<PathBuf>>,
    reaper: Option<(OwnedFd, Child)>,
}

impl Held {
    pub(super) fn of(handed: &Handed) -> Result<Self, Error> {
        let mut held = Self { hierarchies: Vec::new(), groups: BTreeMap::new(), reaper: None };
        for item in handed.items() {
            match item {
                LauncherToSuccessor::Hierarchy { top, controllers, unified } => {
                    held.hierarchies.push((top.as_str().into(), controllers.as_str().to_owned(), *unified));
                }
                LauncherToSuccessor::Group { serial, path } => {
                    held.groups.entry(*serial).or_default().push(path.as_str().into());
                }
                LauncherToSuccessor::Reaper { pid, pidfd, channel } => {
                    held.reaper = Some((handed.copy(*channel)?, Child::known(*pid, handed.copy(*pidfd)?)));
                }
                _ => {}
            }
        }
        Ok(held)
    }
}

impl Supervisor {
    pub(super) fn hand_over_held(&self, record: &mut Record<'_>) {
        for (top, controllers, unified) in self.context.cgroups.hierarchies() {
            let (top, controllers) = (Text::new(top.to_string_lossy()), Text::new(controllers));
            record.add(LauncherToSuccessor::Hierarchy { top, controllers, unified });
        }
        for layer in self.context.without.borrow().iter() {
            record.add(LauncherToSuccessor::Without { layer: Text::new(*layer) });
        }
        if let Some((pid, pidfd, channel)) =
            self.context.reaper.left(|descriptor| record.leave_again(&descriptor))
        {
            record.add(LauncherToSuccessor::Reaper { pid, pidfd, channel });
        }
    }

    /// Holds what the launcher before has held.
    pub fn hold(&mut self, held: Held) {
        self.context.cgroups = Cgroups::known(held.hierarchies);
        self.context.background = Rc::new(Background::of(&self.context.cgroups));
        if let Some((channel, child)) = held.reaper {
            self.context.reaper = Reaper::known(channel, child);
        }
        let mut groups = held.groups;
        for (serial, process) in &mut self.processes {
            process.group = Some(Group::known(groups.remove(serial).unwrap_or_default()));
        }
        self.watch_reaper();
    }
}
