//! Copies of files of sites as they were good last, for the next start: made beside the loop, each time something else runs.
//!
//! Runs in: the launcher, as root; a copy of it writes. Sees: the texts that run. Never: waits for the disk; has what stands in for a
//! file that was left out take the place of what was good last.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::Instant;

use config::Source;
use sys::process::{Child, Exit};

use crate::components::Component;
use supervisor::Supervisor;
use supervisor::good_copies;

/// See the file's head.
#[derive(Debug, Default)]
pub(crate) struct GoodCopies {
    /// What is to be copied, unless it is.
    wanted: Option<Wanted>,
    running: Option<Running>,
    /// What the copies are of, if that is known.
    kept: Option<Source>,
    /// Whether the log says already that there are none.
    has_failed: bool,
}

#[derive(Clone, Debug)]
struct Wanted {
    source: Source,
    /// Names of files that were left out.
    left_out: BTreeSet<OsString>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    serial: u64,
    source: Source,
}

impl GoodCopies {
    /// Has copies made of what runs now, but of files that were left out.
    pub(crate) fn follow(&mut self, source: &Source, left_out: BTreeSet<OsString>) {
        self.wanted = Some(Wanted { source: source.clone(), left_out });
    }

    fn begin(&mut self, supervisor: &mut Supervisor, Wanted { source, left_out }: Wanted) {
        let kept = self.kept.take();
        let is_there =
            |kept: &Source| source.gone_since(kept).into_iter().all(|name| left_out.contains(name));
        if kept.as_ref().is_some_and(|kept| is_there(kept) && source.differing(Some(kept)).is_empty()) {
            self.kept = kept;
            return;
        }
        let copies = good_copies::GoodCopies::of(&supervisor.directories().state);
        let work = || {
            let names = source.names().map(OsString::from).chain(left_out.clone()).collect();
            let new = source.differing(kept.as_ref()).into_iter();
            copies.keep(new.filter(|(name, _)| !left_out.contains(*name)), &names)
        };
        let begun = supervisor.background().begin(&[], work);
        let watched = begun.and_then(|child| match supervisor.watch_copy(&child) {
            Ok(serial) => Ok((child, serial)),
            Err(error) => {
                child.end();
                Err(error)
            }
        });
        match watched {
            Ok((child, serial)) => self.running = Some(Running { child, serial, source }),
            Err(error) => self.failed(supervisor, &error.to_string()),
        }
    }

    fn failed(&mut self, supervisor: &mut Supervisor, why: &str) {
        if !std::mem::replace(&mut self.has_failed, true) {
            let folder = good_copies::GoodCopies::of(&supervisor.directories().state);
            supervisor.warn(format!(
                "files of sites are not copied to {}: {why}; a start at which one of them has a mistake answers 503 for its hosts",
                folder.folder().display()
            ));
        }
    }
}

impl Component for GoodCopies {
    fn on_time(&mut self, supervisor: &mut Supervisor, _: Instant) {
        if self.running.is_none()
            && !supervisor.is_stopping()
            && supervisor.is_announced()
            && let Some(wanted) = self.wanted.take()
        {
            self.begin(supervisor, wanted);
        }
    }

    fn on_helper_exit(&mut self, supervisor: &mut Supervisor, serial: u64) -> bool {
        let Some(running) = self.running.take_if(|running| running.serial == serial) else { return false };
        match running.child.try_wait() {
            Ok(None) => self.running = Some(running),
            Ok(Some(Exit::Clean)) => (self.kept, self.has_failed) = (Some(running.source), false),
            _ => self.failed(supervisor, "see whether there is room, and whose the folder is"),
        }
        true
    }

    fn is_idle(&self) -> bool {
        self.running.is_none()
    }

    fn is_quiet(&self) -> bool {
        self.running.is_none()
    }
}
