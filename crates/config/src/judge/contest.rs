//! Two files that want the same: which of them has it.
//!
//! Runs in: the launcher (root), and the `bulkhead` command. Input: mistakes with two places. Must never: give a file
//! that has changed what another one has that has not.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::state::{Judge, SearchStage, readable, text_of};
use crate::diagnostic::{Blame, Diagnostic};

/// A file that is left out.
pub(super) struct Loser {
    pub(super) file: String,
    pub(super) reason: Diagnostic,
    /// The mistake as it was found, perhaps at another place.
    pub(super) found: Diagnostic,
}

impl Loser {
    /// The file in which a mistake was found.
    pub(super) fn of(blame: Blame) -> Self {
        Self { file: blame.file, reason: blame.diagnostic.clone(), found: blame.diagnostic }
    }
}

/// Who has the better right to something, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Precedence {
    Main,
    /// It had that before.
    Had,
    Wants,
    /// It stands in for a file that is not good: whatever is good goes before it.
    Copy,
    Closed,
}

impl Judge<'_> {
    /// Which files do not get what they want. A file that is going is in nobody's way.
    pub(super) fn losers(&self, contests: Vec<Blame>) -> Vec<Loser> {
        let (mut gone, mut losers) = (BTreeSet::new(), Vec::new());
        for blame in contests {
            let Some(rival) = &blame.conflict else { continue };
            let (file, other) = (&blame.file, &rival.file);
            if gone.contains(file) || gone.contains(other) {
                continue;
            }
            // Of two with the same right, the one that was read first has it.
            let loser = match self.right(file, &rival.what) < self.right(other, &rival.what) {
                true => Loser { file: other.clone(), reason: blame.of_rival(rival), found: blame.diagnostic },
                false => Loser::of(blame),
            };
            gone.insert(loser.file.clone());
            losers.push(loser);
        }
        losers
    }

    fn right(&self, file: &str, what: &str) -> Precedence {
        let Some(name) = self.name_of(file) else { return Precedence::Main };
        if let Some(left) = self.left.get(&name) {
            return match left.stage {
                SearchStage::Before if self.running.contains_key(&name) => Precedence::Had,
                SearchStage::Before => Precedence::Copy,
                SearchStage::Waiting | SearchStage::Closed(_) | SearchStage::Nothing => Precedence::Closed,
            };
        }
        let found = self.found.borrow();
        let now = found.as_ref().and_then(|found| found.get(&name)).map(|file| text_of(&file.content));
        let before = self.before(&name);
        let had = before
            .as_ref()
            .is_some_and(|before| Some(before) == now.as_ref() || self.had(&name, before, what));
        if had { Precedence::Had } else { Precedence::Wants }
    }

    /// What a file was.
    pub(super) fn before(&self, name: &OsStr) -> Option<Rc<str>> {
        match self.running.get(name) {
            Some((_, text)) => Some(text.as_str().into()),
            None => self.kept(name),
        }
    }

    /// Whether a file had a host, a name or an account before it was changed.
    fn had(&self, name: &OsStr, before: &str, what: &str) -> bool {
        let folder = self.folder.get().map_or(Path::new("/"), PathBuf::as_path);
        let (sites, _) = readable(folder, name, before);
        sites.iter().any(|site| {
            site.name.as_deref() == Some(what)
                || site.worker.user.as_ref().is_some_and(|user| user.value == what)
                || site.hosts.iter().any(|host| host.value == what)
        })
    }
}
