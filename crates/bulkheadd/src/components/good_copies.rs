//! Copies of files of sites as they were good last, for the next start: made beside the loop, each time something else
//! runs.
//!
//! Runs in: the launcher, as root; a copy of it writes. Sees: the texts that run. Never: waits for the disk; has what
//! stands in for a file that was left out take the place of what was good last.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::time::Instant;

use config::Source;
use sys::process::{Child, Exit};

use crate::components::Component;
use supervisor::Supervisor;
use supervisor::good_copies::{self, Gone};

/// See the file's head.
#[derive(Debug, Default)]
pub(crate) struct GoodCopies {
    /// What is to be copied, unless it is.
    wanted: Option<Wanted>,
    running: Option<Running>,
    /// What the copies are of, if that is known.
    kept: Option<Wanted>,
    /// Whether the log says already that there are none.
    has_failed: bool,
}

#[derive(Clone, Debug)]
struct Wanted {
    source: Source,
    /// Names of files that were left out.
    left_out: BTreeSet<OsString>,
}

impl Wanted {
    /// All that there is to be a copy of.
    fn names(&self) -> BTreeSet<&OsStr> {
        self.source.names().chain(self.left_out.iter().map(OsString::as_os_str)).collect()
    }

    /// Files with a copy in `kept` of which there is to be none any more.
    fn gone_since<'k>(&'k self, kept: &'k Self) -> Vec<&'k OsStr> {
        let of_source = self.source.gone_since(&kept.source).into_iter();
        let of_source = of_source.filter(|name| !self.left_out.contains(*name));
        let known = kept.left_out.difference(&self.left_out).map(OsString::as_os_str);
        // All names are asked for where a file is left out no more, and not after each change of one of thousands.
        let names = OnceCell::new();
        let is_gone = |name: &&OsStr| !names.get_or_init(|| self.names()).contains(*name);
        of_source.chain(known.filter(is_gone)).collect()
    }

    /// Texts that are others than in `kept`: without that, all of them.
    fn new_since(&self, kept: Option<&Self>) -> Vec<(&OsStr, &str)> {
        let new = self.source.differing(kept.map(|kept| &kept.source)).into_iter();
        new.filter(|(name, _)| !self.left_out.contains(*name)).collect()
    }
}

#[derive(Debug)]
struct Running {
    child: Child,
    serial: u64,
    copied: Wanted,
}

impl GoodCopies {
    /// Has copies made of what runs now, but of files that were left out.
    pub(crate) fn follow(&mut self, source: &Source, left_out: BTreeSet<OsString>) {
        self.wanted = Some(Wanted { source: source.clone(), left_out });
    }

    fn begin(&mut self, supervisor: &mut Supervisor, wanted: Wanted) {
        let kept = self.kept.take();
        let is_kept =
            |kept: &Wanted| wanted.gone_since(kept).is_empty() && wanted.new_since(Some(kept)).is_empty();
        if kept.as_ref().is_some_and(is_kept) {
            self.kept = Some(wanted);
            return;
        }
        let copies = good_copies::GoodCopies::of(&supervisor.directories().state);
        let work = || {
            let gone = match &kept {
                Some(kept) => Gone::These(wanted.gone_since(kept)),
                None => Gone::AllBut(wanted.names()),
            };
            copies.keep(wanted.new_since(kept.as_ref()).into_iter(), &gone)
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
            Ok((child, serial)) => self.running = Some(Running { child, serial, copied: wanted }),
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
            Ok(Some(Exit::Clean)) => (self.kept, self.has_failed) = (Some(running.copied), false),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(files: &[(&str, &str)], left_out: &[&str]) -> Wanted {
        let files = files.iter().map(|(name, text)| (format!("/sites/{name}").into(), (*text).to_owned()));
        let main = ("/b.toml".into(), String::new());
        let source = Source::new(std::iter::once(main).chain(files)).unwrap();
        Wanted { source, left_out: left_out.iter().map(OsString::from).collect() }
    }

    #[test]
    fn what_is_left_out_keeps_its_copy_until_it_goes() {
        let names = |names: Vec<&OsStr>| names.join(OsStr::new(" ")).into_string().unwrap();
        let before = wanted(&[("a", "1"), ("b", "2"), ("c", "3")], &[]);
        // `a` has a mistake, and something stands in for it; `b` has one and nothing does; `c` has gone.
        let now = wanted(&[("a", "stands in"), ("d", "4")], &["a", "b"]);
        assert_eq!(names(now.gone_since(&before)), "c");
        assert_eq!(now.new_since(Some(&before)), [(OsStr::new("d"), "4")]);
        assert_eq!(now.names().len(), 3);
        // Both are left out no more: one is well again, and one has gone.
        let then = wanted(&[("a", "5"), ("d", "4")], &[]);
        assert_eq!(names(then.gone_since(&now)), "b");
        assert_eq!(then.new_since(Some(&now)), [(OsStr::new("a"), "5")]);
        assert_eq!(then.new_since(None).len(), 2);
    }
}
