//! Changes that are carried out as one: all that has to be started is started beside what runs, and takes its place
//! when all of it has come up; or else it ends, and nothing has changed.
//!
//! Runs in: the launcher, as root. Sees: exits and readiness of processes. Never: ends a process before those that take
//! its place have come up.
//!
//! A relaunch, a file that was written again and a changed configuration are all transactions. Of changed
//! configurations there is one at a time, and no relaunch goes on meanwhile.

use std::collections::HashSet;
use std::time::Instant;

use wire::{Outcome, Role};

use crate::components::admin_commands::GONE;
use crate::components::file_reload::{Culprit, Lacking, Unusable};
use crate::launcher::{Launcher, processor_count};
use crate::transactions::{Asker, Stage, Transaction, Wanted};
use supervisor::admission::Claim;
use supervisor::change::Change;
use supervisor::examinations::News;
use supervisor::life::Life;
use supervisor::process::Untold;

impl Launcher {
    /// Everything of a transaction has been started.
    pub(super) fn release(&mut self, id: u32) {
        self.transactions.get(id).into_iter().for_each(|transaction| transaction.is_held = false);
        self.advance(id);
    }

    /// Starts successors for every process of a name; they take over when all are ready.
    pub(super) fn begin_relaunch(&mut self, (admin, ticket): (u64, u32), target: u32, lacking: Lacking) {
        let refuse = |launcher: &mut Self, outcome, reason: &str| {
            launcher.supervisor.answer_to(admin, ticket, outcome, reason);
        };
        let Some((name, slots)) = self.components.admin_commands.targets.target(target) else {
            return self.supervisor.protocol_violation(admin);
        };
        let (name, slots) = (name.to_owned(), slots.to_vec());
        let supervisor = &self.supervisor;
        let is_filter = slots.iter().any(|&slot| supervisor.spec(slot).role == Role::Filter);
        let is_being_replaced =
            |&slot: &usize| supervisor.slot(slot).next.is_some() || self.transactions.is_planned(slot);
        let is_under_way = slots.iter().any(is_being_replaced) || is_filter && supervisor.has_staged_chain();
        if slots.is_empty() {
            return refuse(self, Outcome::Failed, GONE);
        }
        if self.transactions.has_reload() {
            return refuse(self, Outcome::Busy, "the configuration is being reloaded");
        }
        if is_under_way || self.transactions.is_full() {
            return refuse(self, Outcome::Busy, "it is being relaunched already");
        }
        if self.supervisor.relaunched(&slots).is_empty() {
            return refuse(self, Outcome::Failed, "it has no process now, as there is no work for so many");
        }
        self.carry_out(Asker::Admin { admin, ticket }, &[Change::Relaunch(name)], lacking);
    }

    /// Carries out changes that are none of the configuration's.
    pub(super) fn carry_out(&mut self, asker: Asker, changes: &[Change], lacking: Lacking) {
        let id = self.transactions.open(asker);
        self.transactions.get(id).into_iter().for_each(|transaction| transaction.lacking = lacking);
        for change in changes {
            match change {
                Change::Relaunch(name) => self.start_successors(id, name),
                Change::File(file) => self.components.certificates.files.reread(&mut self.supervisor, file),
                _ => self.transactions.fail(id, format!("{change} changes by a reload alone")),
            }
        }
        self.release(id);
    }

    fn start_successors(&mut self, id: u32, name: &str) {
        let slots = self.components.admin_commands.targets.slots_of(name);
        if slots.iter().any(|&slot| self.supervisor.spec(slot).role == Role::Filter) {
            return self.stage_chain(id, Life::Serving);
        }
        let slots = self.supervisor.relaunched(&slots);
        self.launch_in_turn(id, slots);
    }

    /// Starts the first process of each name for a transaction, and has the others wait until all of these have come
    /// up: a program that does not start costs one process, and no more are on their way at a time than there are
    /// processors.
    pub(super) fn launch_in_turn(&mut self, id: u32, slots: Vec<usize>) {
        let mut names = HashSet::new();
        let is_first = |slot: &usize| {
            let spec = self.supervisor.spec(*slot);
            names.insert((spec.role, spec.name.clone()))
        };
        let (first, others): (Vec<usize>, Vec<usize>) = slots.into_iter().partition(is_first);
        self.transactions.get(id).into_iter().for_each(|transaction| transaction.later.extend(&others));
        first.into_iter().for_each(|slot| self.launch(id, slot));
    }

    /// Starts more processes for a transaction, if those that were started have come up.
    fn launch_more(&mut self, id: u32) {
        if self.supervisor.is_stopping() {
            return;
        }
        let slots = self.transactions.next_slots(id, processor_count());
        if slots.is_empty() {
            return;
        }
        let set_held = |launcher: &mut Self, is_held| {
            launcher.transactions.get(id).into_iter().for_each(|transaction| transaction.is_held = is_held);
        };
        set_held(self, true);
        slots.into_iter().for_each(|slot| self.launch(id, slot));
        set_held(self, false);
    }

    /// Starts a chain of filters for a transaction, when all of their programs have been examined.
    pub(super) fn stage_chain(&mut self, id: u32, of: Life) {
        let filters = self.supervisor.filters_with(&[of]);
        filters.iter().for_each(|&filter| self.supervisor.forgive(filter));
        let examined = self.supervisor.filters_examined_first(&filters, Instant::now());
        if let Some(transaction) = self.transactions.get(id) {
            transaction.chain_of = of;
            transaction.examined.extend(&examined);
        }
        if examined.is_empty() {
            self.stage_examined_chain(id, of);
        }
    }

    fn stage_examined_chain(&mut self, id: u32, of: Life) {
        match self.supervisor.stage_chain(of, id) {
            Ok(started) => {
                let transaction = self.transactions.get(id).into_iter();
                transaction.for_each(|of| (of.has_chain, of.awaits_chain) = (started, started));
            }
            Err(error) => self.transactions.fail(id, format!("filter: {error}")),
        }
        self.configure_new();
    }

    /// Starts a process for a slot, which the transaction waits for, when its program has been examined.
    pub(super) fn launch(&mut self, id: u32, slot: usize) {
        self.supervisor.forgive(slot);
        if !self.supervisor.is_examined_first(slot, Instant::now()) {
            return self.launch_examined(id, slot);
        }
        if let Some(transaction) = self.transactions.get(id) {
            transaction.examined.insert(slot);
        }
    }

    /// Goes on with the slots whose programs have been examined, or can be now.
    pub(super) fn launch_after_examinations(&mut self, now: Instant) {
        while let Some((slot, news)) = self.supervisor.next_examined(now) {
            for id in self.transactions.awaiting_examination(slot) {
                if news != News::Room || !self.supervisor.is_examined_first(slot, now) {
                    self.launch_after_examination(id, slot);
                }
            }
        }
    }

    fn launch_after_examination(&mut self, id: u32, slot: usize) {
        let Some(transaction) = self.transactions.get(id) else { return };
        transaction.examined.remove(&slot);
        let (is_chain_known, of) = (transaction.examined.is_empty(), transaction.chain_of);
        let is_filter = self.supervisor.spec(slot).role == Role::Filter;
        match is_filter {
            _ if self.supervisor.is_stopping() => self.transactions.fail(id, "the server stops".into()),
            true if is_chain_known => self.stage_chain_in_turn(id, of),
            true => {}
            false => self.launch_examined(id, slot),
        }
        self.advance(id);
    }

    /// Starts a chain of filters whose programs have been examined, unless others have one of these meanwhile.
    fn stage_chain_in_turn(&mut self, id: u32, of: Life) {
        let filters = self.supervisor.filters_with(&[of]).into_iter();
        let waiting: Vec<usize> = filters.filter(|&slot| self.supervisor.waits_for_program(slot)).collect();
        match self.transactions.get(id).filter(|_| !waiting.is_empty()) {
            Some(transaction) => transaction.examined.extend(waiting),
            None => self.stage_examined_chain(id, of),
        }
    }

    fn launch_examined(&mut self, id: u32, slot: usize) {
        let has_failed =
            self.transactions.get(id).is_some_and(|transaction| !transaction.failures.is_empty());
        let claim = match self.supervisor.slot(slot).current {
            Some(_) => Claim::Successor,
            None => Claim::New,
        };
        if has_failed && self.supervisor.lack_of_room(slot, claim, Instant::now()).is_some() {
            // It would be undone, and one sentence says why.
            return;
        }
        match self.supervisor.relaunch(slot, id) {
            Ok(serial) => {
                self.transactions.await_process(id, serial);
                let replaces = self.supervisor.slot(slot).life != Life::Pending;
                if let Some(transaction) = self.transactions.get(id).filter(|_| replaces) {
                    transaction.successors.push((slot, serial));
                }
            }
            Err(reason) => {
                let reason = format!("{}: {reason}", self.supervisor.spec(slot).title());
                self.fail_of(id, slot, reason);
            }
        }
        self.configure_new();
    }

    /// A process of a transaction has come up, has said that it uses what it was sent, or has failed to.
    pub(super) fn came_up(&mut self, serial: u64, id: u32, result: Result<(), String>) {
        let slot = self.supervisor.process(serial).map(|process| process.slot);
        self.ended_for(id, (serial, slot), result);
    }

    /// The same of a process that may be gone, and was in this slot.
    pub(super) fn ended_for(
        &mut self,
        id: u32,
        (serial, slot): (u64, Option<usize>),
        result: Result<(), String>,
    ) {
        let Some(transaction) = self.transactions.get(id) else { return };
        transaction.waiting.remove(&serial);
        match (result, slot) {
            (Ok(()), _) => {}
            (Err(reason), Some(slot)) => self.fail_of(id, slot, reason),
            (Err(reason), None) => self.transactions.fail(id, reason),
        }
        self.advance(id);
    }

    /// Notes why a transaction cannot hold; or only the change of the file of the site that a slot is of.
    fn fail_of(&mut self, id: u32, slot: usize, reason: String) {
        let site = self.supervisor.spec(slot).site;
        self.fail_of_files(id, [(site, reason)]);
    }

    /// Notes why a transaction cannot hold; or only the changes of the files of these sites, each by its number.
    fn fail_of_files(&mut self, id: u32, reasons: impl IntoIterator<Item = (u16, String)>) {
        let is_reload =
            self.transactions.get(id).is_some_and(|of| of.stage == Stage::Starting && of.is_reload);
        for (site, reason) in reasons {
            match self.file_of_number(site).filter(|_| is_reload) {
                Some(file) => self.transactions.refuse(id, file, reason),
                None => self.transactions.fail(id, reason),
            }
        }
    }

    /// The same of certificates that a signer cannot use, unless it goes on without them.
    pub(super) fn fail_of_certificates<'u>(&mut self, id: u32, unusable: impl Iterator<Item = &'u Unusable>) {
        let lacking = self.transactions.lacking(Some(id));
        let fails = |one: &&Unusable| lacking == Lacking::Refused || one.fault == Culprit::Program;
        let reasons: Vec<_> = unusable.filter(fails).map(|one| (one.site, one.what.clone())).collect();
        self.fail_of_files(id, reasons);
    }

    /// Takes notice of what has become of a chain of filters.
    pub(super) fn look_at_chain(&mut self) {
        let Some((id, result)) = self.supervisor.take_chain_result() else { return };
        let Some(transaction) = self.transactions.get(id) else { return };
        transaction.awaits_chain = false;
        transaction.failures.extend(result.err());
        self.advance(id);
    }

    /// Takes the next step of a transaction, if nothing has to be waited for.
    fn advance(&mut self, id: u32) {
        self.launch_more(id);
        let stopping = self.supervisor.is_stopping();
        let Some(transaction) = self.transactions.get(id) else { return };
        // A filter that has ended is one that nobody waits for any more.
        let awaits_chain = transaction.awaits_chain && transaction.failures.is_empty();
        let awaits_examination = !transaction.examined.is_empty() && transaction.failures.is_empty();
        if transaction.is_held || awaits_chain || awaits_examination || !transaction.waiting.is_empty() {
            return;
        }
        match transaction.stage {
            Stage::Starting
                if stopping || !transaction.failures.is_empty() || !transaction.refused.is_empty() =>
            {
                self.undo(id);
                self.end(id);
            }
            Stage::Starting => {
                transaction.stage = Stage::Committed;
                match (transaction.reload.is_some(), transaction.has_chain) {
                    (true, _) => self.commit(id),
                    (false, true) => self.supervisor.use_staged_chain(),
                    (false, false) => {}
                }
                // Processes may have yet to say that they use what they were sent.
                self.advance(id);
            }
            Stage::Committed => self.end(id),
        }
    }

    /// Makes an end of what was started; what was there serves on.
    fn undo(&mut self, id: u32) {
        let Some(transaction) = self.transactions.get(id) else { return };
        let (successors, reload) = (std::mem::take(&mut transaction.successors), transaction.reload.take());
        if transaction.has_chain {
            self.supervisor.discard_staged_chain();
        }
        if let Some(reload) = reload {
            self.undo_staged(reload.staged, &reload.added);
        }
        for (slot, serial) in successors {
            self.supervisor.abandon(serial);
            // The successor had replaced the channels, even if it has ended by itself.
            let role = self.supervisor.spec(slot).role;
            let stays = self.supervisor.slot(slot).current.filter(|_| role.facts().has_peers);
            if let Some(stays) = stays
                && let Err(error) = self.supervisor.connect(stays)
            {
                self.supervisor.warn(error);
            }
        }
    }

    /// Says how a transaction has ended, and has successors take over.
    fn end(&mut self, id: u32) {
        let Some(transaction) = self.transactions.open.remove(&id) else { return };
        self.supervisor.end_ticket(id);
        let Transaction {
            asker,
            name,
            begun,
            stage,
            failures,
            refused,
            successors,
            reload,
            is_reload,
            wanted,
            ..
        } = transaction;
        let is_of_files = failures.is_empty() && !refused.is_empty();
        if wanted.as_ref().is_some_and(Wanted::is_of_all) {
            self.components.certificates.files.look_soon();
        }
        let reason = failures.into_iter().chain(refused.values().cloned()).collect::<Vec<_>>().join("; ");
        if stage == Stage::Committed && !is_reload {
            self.say_left_out(asker, &successors);
        }
        match (reload, wanted) {
            (Some(reload), _) => self.end_reload(asker, begun, &reload, &reason),
            (None, Some(wanted)) if is_of_files => return self.try_without(asker, wanted, refused, &reason),
            _ if is_reload => self.refuse_reload(asker, &reason),
            _ if matches!(asker, Asker::Upgrade) => self.replaced(&name, &reason),
            _ => self.report(asker, &reason),
        }
        // After the answer: the admin process that passes it on may be one that goes.
        if stage == Stage::Committed {
            for (slot, serial) in successors {
                let is_there = self.supervisor.take_over(serial);
                if let Some(before) = self.supervisor.slot(slot).current.filter(|_| !is_there && is_reload) {
                    self.supervisor.cut_off(before, &Untold::Unmade("its successor has ended".into()));
                }
            }
        }
        if std::mem::take(&mut self.transactions.is_reload_wanted) {
            self.begin_reload(Asker::Log, Wanted::all());
        }
    }

    /// Says that all is done, or why nothing is.
    pub(super) fn report(&mut self, asker: Asker, failure: &str) {
        let outcome = if failure.is_empty() { Outcome::Done } else { Outcome::Failed };
        match asker {
            Asker::Admin { admin, ticket } => self.supervisor.answer_to(admin, ticket, outcome, failure),
            Asker::Log | Asker::Upgrade if failure.is_empty() => {}
            Asker::Log | Asker::Upgrade => self.supervisor.warn(failure),
        }
    }
}
