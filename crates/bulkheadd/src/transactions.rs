//! Changes that are under way, each all or nothing: what was started for it, and what it waits for.
//!
//! Runs in: the launcher. Sees: no input. Never: does anything by itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::time::Instant;

use config::{Judged, LeftOut, Source, Tolerance};

use crate::components::file_reload::Lacking;
use crate::staged::Staged;
use supervisor::change::Change;
use supervisor::change::prepare::Effect;
use supervisor::examine::Refused;
use supervisor::life::Life;
use supervisor::slots::Running;

/// LIMIT: transactions at a time.
const OPEN_MAX: usize = 64;
/// Who wants to know how it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asker {
    /// An admin process, for the client who has this ticket.
    Admin { admin: u64, ticket: u32 },
    /// Whoever reads the log.
    Log,
    /// The upgrade that is under way, for one name.
    Upgrade,
}

/// How far a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Processes are being started. A failure undoes all of it.
    Starting,
    /// It holds; some processes have yet to say that they use what they were sent.
    Committed,
}

/// Changes that are being carried out.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub(crate) asker: Asker,
    /// What gets successors, if this is part of an upgrade.
    pub(crate) name: String,
    pub(crate) begun: Instant,
    pub(crate) stage: Stage,
    /// Whether more is to be started before anything can end it.
    pub(crate) is_held: bool,
    /// Processes that have yet to come up, or to say that they use what they were sent.
    pub(crate) waiting: BTreeSet<u64>,
    /// Slots whose processes are started when the first of their names have come up.
    pub(crate) later: VecDeque<usize>,
    /// Slots whose programs are examined before their processes are started.
    pub(crate) examined: BTreeSet<usize>,
    /// Of which filters a chain is made, when all of their programs have been examined.
    pub(crate) chain_of: Life,
    /// Whether a chain of filters is part of it, and whether that has yet to come up.
    pub(crate) has_chain: bool,
    pub(crate) awaits_chain: bool,
    pub(crate) failures: Vec<String>,
    /// Files of sites of which a process has not come up, each with the reason.
    pub(crate) refused: Refused,
    /// Processes that are to take the place of others, each with its slot.
    pub(crate) successors: Vec<(usize, u64)>,
    /// Whether a signer that it starts goes on without certificates that it cannot use.
    pub(crate) lacking: Lacking,
    pub(crate) is_reload: bool,
    /// How it was ordered, if it is a reload.
    pub(crate) wanted: Option<Wanted>,
    /// What becomes of the configuration, if that changes; nothing, if that was undone.
    pub(crate) reload: Option<Reload>,
}

/// The transactions that are open, by number. Processes that are part of one have its number as their ticket.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    pub(crate) open: BTreeMap<u32, Transaction>,
    last: u32,
    /// Whether a signal has asked for a reload that could not begin yet.
    pub(crate) is_reload_wanted: bool,
    /// Whether a configuration is being examined that is to take the place of the one that runs.
    pub(crate) is_reload_examined: bool,
}

impl Transaction {
    fn new(asker: Asker) -> Self {
        let lacking = match asker {
            // One file would keep the programs of before in use, for everybody.
            Asker::Upgrade => Lacking::LeftOut,
            Asker::Admin { .. } | Asker::Log => Lacking::Refused,
        };
        Self {
            asker,
            lacking,
            name: String::new(),
            begun: Instant::now(),
            stage: Stage::Starting,
            is_held: true,
            waiting: BTreeSet::new(),
            later: VecDeque::new(),
            examined: BTreeSet::new(),
            chain_of: Life::Serving,
            has_chain: false,
            awaits_chain: false,
            failures: Vec::new(),
            refused: Refused::new(),
            successors: Vec::new(),
            is_reload: false,
            wanted: None,
            reload: None,
        }
    }
}

impl Transactions {
    /// Opens a transaction, which nothing ends as long as it is held; its number.
    pub(crate) fn open(&mut self, asker: Asker) -> u32 {
        self.last = self.last.wrapping_add(1);
        self.open.insert(self.last, Transaction::new(asker));
        self.last
    }

    /// Whether the configuration is being changed.
    pub(crate) fn has_reload(&self) -> bool {
        self.is_reload_examined || self.open.values().any(|transaction| transaction.is_reload)
    }

    /// The configuration that holds, while another one is being put in its place.
    pub(crate) fn before(&self) -> Option<&Running> {
        self.open.values().find_map(|transaction| transaction.reload.as_ref()?.staged.before())
    }

    /// Whether a publisher that is started goes on with the version that holds: it does if nobody has asked for the
    /// process, and in an upgrade. A relaunch and a reload are orders to have what the folder has.
    pub(crate) fn keeps_templates(&self, ticket: Option<u32>) -> bool {
        let is_upgrade = |id| self.open.get(&id).is_some_and(|of| matches!(of.asker, Asker::Upgrade));
        ticket.is_none_or(is_upgrade)
    }

    /// The fate of a signer that cannot use a certificate; one that nobody has ordered has to serve all others.
    pub(crate) fn lacking(&self, ticket: Option<u32>) -> Lacking {
        ticket.and_then(|id| self.open.get(&id)).map_or(Lacking::LeftOut, |of| of.lacking)
    }

    /// Whether a process of this slot has yet to be started for one that is open.
    pub(crate) fn is_planned(&self, slot: usize) -> bool {
        let plans = |of: &Transaction| of.later.contains(&slot) || of.examined.contains(&slot);
        self.open.values().any(plans)
    }

    /// The transactions for which the program of a slot is examined.
    pub(crate) fn awaiting_examination(&self, slot: usize) -> Vec<u32> {
        self.open.iter().filter(|(_, of)| of.examined.contains(&slot)).map(|(id, _)| *id).collect()
    }

    /// Whether no more can be opened.
    pub(crate) fn is_full(&self) -> bool {
        self.open.len() >= OPEN_MAX
    }

    /// Whether none is open, or about to be.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty() && !self.is_reload_examined
    }

    /// The transaction of this number.
    pub(crate) fn get(&mut self, id: u32) -> Option<&mut Transaction> {
        self.open.get_mut(&id)
    }

    /// The slots that a transaction starts next, `most` at a time: when all that it has started before have come up.
    pub(crate) fn next_slots(&mut self, id: u32, most: usize) -> Vec<usize> {
        let can_start = |of: &&mut Transaction| {
            let may_hold = of.stage == Stage::Starting && of.failures.is_empty();
            may_hold && !of.is_held && of.waiting.is_empty() && of.examined.is_empty()
        };
        let Some(transaction) = self.open.get_mut(&id).filter(can_start) else { return Vec::new() };
        let count = transaction.later.len().min(most);
        transaction.later.drain(..count).collect()
    }

    /// Makes a transaction one of a changed configuration.
    pub(crate) fn set_reload(&mut self, id: u32, wanted: Wanted, reload: Reload) {
        if let Some(transaction) = self.open.get_mut(&id) {
            (transaction.is_reload, transaction.reload) = (true, Some(reload));
            transaction.wanted = Some(wanted);
        }
    }

    /// Notes why a transaction cannot hold.
    pub(crate) fn fail(&mut self, id: u32, reason: String) {
        if let Some(transaction) = self.open.get_mut(&id) {
            transaction.failures.push(reason);
        }
    }

    /// Notes why the change of a file of sites cannot hold; others are started all the same, so that all such files are
    /// known.
    pub(crate) fn refuse(&mut self, id: u32, file: OsString, reason: String) {
        if let Some(transaction) = self.open.get_mut(&id) {
            transaction.refused.entry(file).or_insert(reason);
        }
    }

    /// Has a transaction wait for a process.
    pub(crate) fn await_process(&mut self, id: u32, serial: u64) {
        if let Some(transaction) = self.open.get_mut(&id) {
            transaction.waiting.insert(serial);
        }
    }
}

/// Where a reload looks for what has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// At every file.
    All,
    /// At the files of sites of which the kernel has said that something has happened to them, if it says so.
    Seen,
}

/// A reload that is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) mode: Mode,
    pub(crate) look: Look,
    /// What a file of sites that is wrong means for others.
    pub(crate) tolerance: Tolerance,
    /// The one file that is taken in.
    pub(crate) only: Option<OsString>,
    /// A file that must be good; whoever asks has just written it.
    pub(crate) must: Option<OsString>,
    /// Files of which processes have not come up.
    pub(crate) refused: Refused,
    /// How often it has been tried.
    pub(crate) passes: u32,
}

impl Wanted {
    /// One of these files, as it is ordered.
    pub(crate) fn new(mode: Mode, look: Look) -> Self {
        let (tolerance, refused) = (Tolerance::EachFile, Refused::new());
        Self { mode, look, tolerance, only: None, must: None, refused, passes: 1 }
    }

    /// Leaves files out for something that is not in them, or that was found in them already.
    pub(crate) fn leave_out(&mut self, refused: &Refused) {
        for (name, reason) in refused {
            self.refused.entry(name.clone()).or_insert_with(|| reason.clone());
        }
    }

    /// The configuration, unless the file is left out that must be good.
    pub(crate) fn accepts(&self, judged: Judged) -> Result<Judged, String> {
        let is_it = |left: &&LeftOut| left.file.file_name() == self.must.as_deref();
        match judged.left_out.iter().find(is_it).filter(|_| self.must.is_some()) {
            Some(left) => Err(left.reason.clone()),
            None => Ok(judged),
        }
    }

    /// Whether whoever has ordered it may have changed anything that the configuration names.
    pub(crate) fn is_of_all(&self) -> bool {
        self.look == Look::All && self.only.is_none()
    }

    /// What `bulkhead reload` and SIGHUP mean.
    pub(crate) fn all() -> Self {
        Self::new(Mode::CarryOut, Look::All)
    }
}

/// Whether a reload is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It is.
    CarryOut,
    /// It is only said what would be done.
    DryRun,
}

/// A changed configuration that is being put in the place of the one before.
#[derive(Debug)]
pub(crate) struct Reload {
    pub(crate) changes: Vec<Change>,
    pub(crate) effects: Vec<Effect>,
    /// The texts of the configuration that is to run.
    pub(crate) source: Source,
    /// The one file that was taken in; and the files that were left out.
    pub(crate) only: Option<OsString>,
    /// The same.
    pub(crate) left_out: Vec<LeftOut>,
    /// What was made for it, which is undone if one process does not come up.
    pub(crate) staged: Staged,
    /// Sites that come, by number.
    pub(crate) added: Vec<u16>,
    /// Sites that go, by number.
    pub(crate) gone: Vec<u16>,
    /// The slots of workers that stay, and learn whose other paths are.
    pub(crate) updated: Vec<usize>,
    /// The hosts of which gates are told anew; without it, all.
    pub(crate) hosts: Option<BTreeSet<String>>,
    pub(crate) replaces_gates: bool,
    pub(crate) replaces_chain: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_under_way_than_the_limit() {
        let mut transactions = Transactions::default();
        assert!(transactions.is_empty() && !transactions.is_full());
        let numbers: BTreeSet<u32> = (0..OPEN_MAX).map(|_| transactions.open(Asker::Log)).collect();
        assert_eq!((numbers.len(), transactions.is_full()), (OPEN_MAX, true));
        transactions.open.remove(&1);
        assert!(!transactions.is_full() && !transactions.has_reload());
    }

    #[test]
    fn the_next_start_when_those_before_have_come_up_and_never_after_a_failure() {
        const NONE: Vec<usize> = Vec::new();
        let mut transactions = Transactions::default();
        let id = transactions.open(Asker::Log);
        transactions.get(id).unwrap().later.extend(3..8);
        assert_eq!(transactions.next_slots(id, 2), NONE, "it is held");
        transactions.get(id).unwrap().is_held = false;
        transactions.await_process(id, 77);
        assert_eq!(transactions.next_slots(id, 2), NONE, "the first has not come up");
        transactions.get(id).unwrap().waiting.clear();
        assert_eq!(transactions.next_slots(id, 2), [3, 4]);
        assert!(transactions.is_planned(5) && !transactions.is_planned(4));
        assert_eq!(transactions.next_slots(id, 2), [5, 6]);
        transactions.fail(id, "it did not come up".into());
        assert_eq!(transactions.next_slots(id, 2), NONE);
    }
}
