//! How much of the range of uids is left.
//!
//! Runs in: the launcher, as root. Sees: the table of uids. Never: changes it.

use std::collections::HashSet;

use crate::launcher::Launcher;
use supervisor::spawn::uid_share::Share;

impl Launcher {
    /// Notes how much of the range is given out, and says so if that is much: at each hundredth once.
    pub(super) fn note_uids(&mut self) {
        let Some(table) = &self.identities else { return };
        let mut share = table.share();
        let (range, had) = (share.first..=share.last, self.had_uids());
        let left = table.all().filter(|(_, uid)| range.contains(uid) && !had.contains(uid));
        share.left = left.count() as u32;
        let before = self.supervisor.uids.replace(share).filter(Share::is_scarce);
        if share.is_scarce() && before.is_none_or(|before| before.percent() < share.percent()) {
            self.supervisor.warn(share);
        }
    }

    /// The uids of everything that the configuration has.
    fn had_uids(&self) -> HashSet<u32> {
        let specs = self.supervisor.specs().iter().enumerate();
        let there = specs.filter(|(slot, _)| !self.supervisor.slot(*slot).life.is_over());
        there.filter_map(|(_, spec)| Some(spec.identity?.id())).collect()
    }
}
