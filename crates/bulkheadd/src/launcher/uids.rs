//! How much of the range of uids is left, and uids that the operator gives back.
//!
//! Runs in: the launcher, as root. Sees: a file that the owner of the state folder alone can write. Never: looks for
//! files of a uid, which takes as long as tenants like: the command has done so; takes a uid back that something has.

use wire::Outcome;

use crate::launcher::Launcher;
use supervisor::spawn::living;
use supervisor::spawn::uid_share::Share;
use supervisor::spawn::uids_back::{self, Back};

impl Launcher {
    /// Notes how much of the range is given out, and says so if that is much: at each hundredth once.
    pub(super) fn note_uids(&mut self) {
        let Some(table) = &self.identities else { return };
        let mut share = table.share();
        share.left = table.left_beside(&self.had_uids()) as u32;
        let before = self.supervisor.uids.replace(share).filter(Share::is_scarce);
        if share.is_scarce() && before.is_none_or(|before| before.percent() < share.percent()) {
            self.supervisor.warn(share);
        }
    }

    /// The uids of everything that the configuration has, each once, in order: there may be thousands.
    fn had_uids(&self) -> Vec<u32> {
        let specs = self.supervisor.specs().iter().enumerate();
        let there = specs.filter(|(slot, _)| !self.supervisor.slot(*slot).life.is_over());
        let mut uids: Vec<u32> = there.filter_map(|(_, spec)| Some(spec.identity?.id())).collect();
        uids.sort_unstable();
        uids.dedup();
        uids
    }

    /// Takes uids back that the operator has written down: all of them, or none.
    pub(super) fn take_uids_back(&mut self, admin: u64, ticket: u32) {
        let busy = "something is being started, and may be given a uid; try again when that is done";
        if !self.transactions.is_empty() || self.components.configuration_examination.is_under_way() {
            return self.supervisor.answer_to(admin, ticket, Outcome::Busy, busy);
        }
        match self.try_to_take_back() {
            Ok(all) => {
                for Back { uid, owner } in &all {
                    self.supervisor
                        .info(format!("uid {uid} of {owner} is given back: the next owner may get it"));
                }
                self.note_uids();
                self.supervisor.answer_to(admin, ticket, Outcome::Done, "");
            }
            Err(reason) => {
                self.supervisor.warn(format!("no uid is given back: {reason}"));
                self.supervisor.answer_to(admin, ticket, Outcome::Failed, &reason);
            }
        }
    }

    fn try_to_take_back(&mut self) -> Result<Vec<Back>, String> {
        let state = &self.supervisor.directories().state;
        let all = uids_back::take(state).map_err(|error| error.to_string())?;
        let table = self.identities.as_ref().ok_or("this server was not started as root: it has no uids")?;
        let had = self.had_uids();
        for Back { uid, owner } in &all {
            if !table.all().any(|(name, given)| name == owner && given == *uid) {
                return Err(format!("{owner} does not have uid {uid}"));
            }
            if had.binary_search(uid).is_ok() {
                return Err(format!("{owner} is in the configuration that runs, and has uid {uid}"));
            }
            if living::is_used(*uid) {
                return Err(format!(
                    "a process runs under uid {uid} of {owner}; try again when it has ended"
                ));
            }
        }
        let owners: Vec<String> = all.iter().map(|back| back.owner.clone()).collect();
        let table = self.identities.as_mut().ok_or("there is no table of uids")?;
        table.take_back(&owners).map_err(|error| error.to_string())?;
        Ok(all)
    }
}
