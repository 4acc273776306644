//! `bulkhead upgrade`, and SIGUSR2: other programs in the place of those that run.
//!
//! Runs in: the launcher, as root. Sees: the path of a program that the administrator has left in the run directory,
//! and what the program says of the record. Never: takes the path from the admin role, which may be compromised; has
//! two processes where one is needed longer than a relaunch does.
//!
//! First the new program is rehearsed, in a child, while this launcher serves. Then the program takes the place of this
//! one, in the same process: children stay children. The new launcher replaces all processes, by relaunches: what
//! cannot be replaced goes on.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use wire::{LauncherToAdmin, Outcome, Role, Text};

use crate::components::rehearsal::{self, Rehearsal};
use crate::entry::{Entry, VERSION};
use crate::launcher::Launcher;
use crate::transactions::Asker;
use crate::upgrades::{Failures, Ordered, Replacing, Step};
use supervisor::error::{Error, during};
use supervisor::life::Life;
use supervisor::spawn::program;
use supervisor::upgrade::{Predecessor, UnderWay, WANTED};

/// LIMIT: how long an order waits until nothing else is under way; and beyond `drain_timeout`, until processes have
/// finished.
const QUIET_WAIT: Duration = Duration::from_secs(5);
/// LIMIT: processes that are named when an upgrade ends half; `status` has all.
const KEPT_MAX: usize = 8;
/// What to do about an upgrade that has ended half.
const HALF_REMEDY: &str = "`bulkhead status` says which processes are of which version; `bulkhead upgrade` again replaces them, when what kept their \
     successors from coming up is put right";

impl Launcher {
    /// Begins to put the program that is wanted in the place of this one.
    pub(super) fn begin_upgrade(&mut self, order: Option<(u64, u32)>, dry_run: bool) {
        if self.upgrade.is_under_way() {
            return self.answer_upgrade(order, Outcome::Busy, "an upgrade is under way");
        }
        match self.wanted_program() {
            Ok((program, path)) => {
                let until = Instant::now() + QUIET_WAIT;
                let (step, is_patient) = (Step::Waiting, false);
                let ordered = Ordered { order, dry_run, program, path, until, is_patient, step };
                self.upgrade.ordered = Some(ordered);
                self.warn_of_lack(true);
                self.go_on_upgrading();
            }
            Err(error) => self.refuse_upgrade(order, &error.to_string()),
        }
    }

    /// The program that the administrator wants, or else the one that is where this one's was.
    fn wanted_program(&self) -> Result<(OwnedFd, PathBuf), Error> {
        let link = self.supervisor.directories().run.join(WANTED);
        let path = match std::fs::read_link(&link) {
            Ok(path) => {
                let _ = std::fs::remove_file(&link);
                path
            }
            Err(_) => program::own_path()?,
        };
        program::launcher_program(&path)
    }

    /// Says that nothing has changed, and why.
    pub(super) fn refuse_upgrade(&mut self, order: Option<(u64, u32)>, reason: &str) {
        self.supervisor.warn(format!("upgrade: {reason}; nothing has changed"));
        self.answer_upgrade(order, Outcome::Failed, reason);
    }

    fn answer_upgrade(&mut self, order: Option<(u64, u32)>, outcome: Outcome, reason: &str) {
        if let Some((admin, ticket)) = order {
            self.supervisor.answer_to(admin, ticket, outcome, reason);
        }
    }

    /// Takes the next step of an upgrade, if nothing has to be waited for.
    pub(super) fn go_on_upgrading(&mut self) {
        self.take_rehearsal();
        if let Some(ordered) = self.upgrade.ordered.take_if(|ordered| ordered.step != Step::Rehearsing) {
            match self.what_is_under_way() {
                None if ordered.step == Step::Waiting => self.rehearse(ordered),
                None => self.give_way(&ordered),
                Some(what) => self.wait_for(ordered, what),
            }
        }
        self.replace_more();
    }

    /// Has an order wait for what is under way, unless it has waited for long enough.
    fn wait_for(&mut self, mut ordered: Ordered, what: UnderWay) {
        if what == UnderWay::Draining && !ordered.is_patient {
            let drain_ms = self.supervisor.context().config.limits.drain_timeout_ms;
            ordered.is_patient = true;
            ordered.until += Duration::from_millis(drain_ms.into());
            self.supervisor.info(format!("upgrade: waits, as {what}"));
        }
        if Instant::now() >= ordered.until {
            let reason = format!("{what}; try again when that is done");
            return self.answer_upgrade(ordered.order, Outcome::Busy, &reason);
        }
        self.upgrade.ordered = Some(ordered);
    }

    /// Why this launcher cannot give way now, if so.
    fn what_is_under_way(&mut self) -> Option<UnderWay> {
        use UnderWay::Work;
        let is_quiet = self.components.all().iter().all(|component| component.is_quiet());
        match self.supervisor.what_is_under_way() {
            None if !self.transactions.is_empty() => Some(Work("something is being started")),
            None if !is_quiet => Some(Work("another order is being carried out")),
            None if self.supervisor.end_examinations() => Some(Work("a program is being examined")),
            found => found,
        }
    }

    /// Has the program show, in a child, that it can take over what there is.
    fn rehearse(&mut self, mut ordered: Ordered) {
        match self.start_rehearsal(&ordered) {
            Ok(rehearsal) => {
                self.components.rehearsal = rehearsal;
                ordered.step = Step::Rehearsing;
                self.upgrade.ordered = Some(ordered);
            }
            Err(error) => self.refuse_upgrade(ordered.order, &error.to_string()),
        }
    }

    fn start_rehearsal(&mut self, ordered: &Ordered) -> Result<Rehearsal, Error> {
        let record = self.record(ordered.order);
        let memory = record.sealed()?;
        let entry = Entry::Rehearse { record: memory.as_raw_fd() };
        let mut left = record.descriptors();
        left.push(memory.as_fd());
        let (child, printed) = rehearsal::start(&entry.program(copy(&ordered.program)?), &left)?;
        let serial = match self.supervisor.watch_helper(&child) {
            Ok(serial) => serial,
            Err(error) => {
                child.end();
                return Err(error);
            }
        };
        Ok(Rehearsal::begin(child, serial, printed))
    }

    fn take_rehearsal(&mut self) {
        let Some(result) = self.components.rehearsal.take_result() else { return };
        let Some(mut ordered) = self.upgrade.ordered.take() else { return };
        match result {
            Err(reason) => {
                let reason = format!("{} cannot take over: {reason}", ordered.path.display());
                self.refuse_upgrade(ordered.order, &reason);
            }
            Ok(version) if ordered.dry_run => {
                self.send_upgraded(ordered.order, Role::Launcher, (VERSION, &version), (0, 1));
                self.answer_upgrade(ordered.order, Outcome::Done, "");
            }
            Ok(_) => {
                (ordered.step, ordered.until) = (Step::Rehearsed, Instant::now() + QUIET_WAIT);
                ordered.is_patient = false;
                self.upgrade.ordered = Some(ordered);
            }
        }
    }

    /// Puts the program in the place of this one. Returns if that has failed.
    fn give_way(&mut self, ordered: &Ordered) {
        self.supervisor.info(format!("upgrade: {} takes over", ordered.path.display()));
        let error = match self.execute(ordered) {
            Ok(error) => error.to_string(),
            Err(error) => error.to_string(),
        };
        self.refuse_upgrade(ordered.order, &format!("{}: {error}", ordered.path.display()));
    }

    fn execute(&self, ordered: &Ordered) -> Result<std::io::Error, Error> {
        let mut record = self.record(ordered.order);
        let program = record.leave_copy(program::own()?) as i32;
        let memory = record.sealed()?;
        let entry = Entry::TakeOver { record: memory.as_raw_fd(), program };
        let mut left = record.descriptors();
        left.push(memory.as_fd());
        Ok(sys::passed::become_program(&entry.program(copy(&ordered.program)?), &left))
    }

    /// Has all processes of the launcher before get successors.
    pub(super) fn begin_to_replace(&mut self, predecessor: Predecessor) {
        self.supervisor.info(format!("upgraded the launcher from {} to {VERSION}", predecessor.version));
        let commands = &self.components.admin_commands.targets;
        let names = commands.names().filter_map(|name| {
            let slot = *commands.slots_of(name).first()?;
            Some((self.supervisor.spec(slot).role, name.to_owned()))
        });
        let mut left: Vec<(Role, String)> = names.collect();
        left.sort_by_key(|(role, _)| Role::REPLACEMENT_ORDER.iter().position(|one| one == role));
        let (begun, under_way, failures) = (Instant::now(), Vec::new(), Failures::default());
        let left = left.into();
        self.supervisor.is_upgrading = true;
        self.upgrade.replacing = Some(Replacing { predecessor, begun, left, under_way, failures });
        self.go_on_upgrading();
    }

    /// Starts more successors, those of one role before those of the next.
    fn replace_more(&mut self) {
        while let Some(replacing) = &mut self.upgrade.replacing {
            if self.supervisor.is_stopping() || self.transactions.has_reload() || self.transactions.is_full()
            {
                return;
            }
            let next = replacing.left.front();
            let slot = next
                .and_then(|(_, name)| self.components.admin_commands.targets.slots_of(name).first().copied());
            if slot.is_some_and(|slot| self.supervisor.is_room_coming(slot, Instant::now())) {
                return;
            }
            match replacing.next() {
                Some((role, name)) => self.replace(role, name),
                None if replacing.left.is_empty() && replacing.under_way.is_empty() => {
                    return self.end_upgrade();
                }
                None => return,
            }
        }
    }

    /// The slots of a name whose processes are of the launcher before.
    fn old_slots(&self, name: &str) -> Vec<usize> {
        let Some(replacing) = &self.upgrade.replacing else { return Vec::new() };
        let slots = self.components.admin_commands.targets.slots_of(name).into_iter();
        let is_old = |slot: &usize| {
            let state = self.supervisor.slot(*slot);
            let is_old = state.current.is_some_and(|serial| serial <= replacing.predecessor.serial);
            is_old && state.next.is_none() && !self.transactions.is_planned(*slot)
        };
        slots.filter(is_old).collect()
    }

    fn replace(&mut self, role: Role, name: String) {
        let slots = self.old_slots(&name);
        if slots.is_empty() {
            return;
        }
        let id = self.transactions.open(Asker::Upgrade);
        self.transactions.get(id).into_iter().for_each(|transaction| transaction.name = name.clone());
        if let Some(replacing) = &mut self.upgrade.replacing {
            replacing.under_way.push((role, name));
        }
        match role {
            Role::Filter => self.stage_chain(id, Life::Serving),
            _ => self.launch_in_turn(id, slots),
        }
        self.release(id);
    }

    /// Takes notice that a name has got its successors, or has not.
    pub(super) fn replaced(&mut self, name: &str, failure: &str) {
        let Some(replacing) = &mut self.upgrade.replacing else { return };
        replacing.under_way.retain(|(_, other)| other != name);
        if !failure.is_empty() && replacing.failures.add(failure) {
            self.supervisor.warn(format!("upgrade: {failure}; the process of before goes on"));
        }
        if replacing.left.is_empty() && replacing.under_way.is_empty() {
            self.end_upgrade();
        }
    }

    /// Says what was replaced.
    fn end_upgrade(&mut self) {
        let Some(Replacing { predecessor, begun, failures, .. }) = self.upgrade.replacing.take() else {
            return;
        };
        self.supervisor.is_upgrading = false;
        if let Some((admin, ticket)) = predecessor.order {
            let left_out = self.components.certificates.files.left_out(&self.supervisor);
            self.send_left_out(Asker::Admin { admin, ticket }, &left_out);
        }
        for (role, counts) in self.counts() {
            self.send_upgraded(predecessor.order, role, (&predecessor.version, VERSION), counts);
        }
        match self.kept() {
            None => {
                let (from, took) = (&predecessor.version, begun.elapsed());
                self.supervisor.info(format!("upgraded from {from} to {VERSION} in {took:?}"));
                self.answer_upgrade(predecessor.order, Outcome::Done, "");
            }
            Some(kept) => {
                let why = if failures.is_empty() { String::new() } else { format!(": {failures}") };
                let reason = format!(
                    "the launcher is of version {VERSION} now, but some processes of {} go on, as their successors did not \
                     come up ({kept}){why}",
                    predecessor.version
                );
                self.supervisor.warn(format!("upgrade: ended half: {reason}; {HALF_REMEDY}"));
                self.answer_upgrade(predecessor.order, Outcome::Partly, &reason);
            }
        }
        self.know_files();
    }

    /// How many processes of each role were replaced, and how many of launchers before go on.
    fn counts(&self) -> BTreeMap<Role, (u32, u32)> {
        let mut counts: BTreeMap<Role, (u32, u32)> = BTreeMap::from([(Role::Launcher, (1, 0))]);
        for (slot, spec) in self.supervisor.specs().iter().enumerate() {
            let state = self.supervisor.slot(slot);
            if (state.next.or(state.current)).is_some() && state.life == Life::Serving {
                counts.entry(spec.role).or_default().0 += 1;
            }
        }
        for (slot, _) in self.supervisor.slots_before() {
            let (replaced, kept) = counts.entry(self.supervisor.spec(slot).role).or_default();
            (*replaced, *kept) = (replaced.saturating_sub(1), *kept + 1);
        }
        counts
    }

    /// Which processes of launchers before go on, in a few words; `None` if none does.
    fn kept(&self) -> Option<String> {
        let kept: Vec<String> =
            self.supervisor.slots_before().map(|(slot, _)| self.supervisor.spec(slot).title()).collect();
        let more = kept.len().saturating_sub(KEPT_MAX);
        let named = kept.iter().take(KEPT_MAX).cloned().collect::<Vec<_>>().join(", ");
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!kept.is_empty()).then(|| named + &more)
    }

    fn send_upgraded(
        &mut self,
        order: Option<(u64, u32)>,
        role: Role,
        (from, to): (&str, &str),
        (replaced, kept): (u32, u32),
    ) {
        let Some((admin, ticket)) = order else { return };
        let (from, to) = (Text::new(from), Text::new(to));
        self.supervisor.send(
            admin,
            &LauncherToAdmin::Upgraded { ticket, role, from, to, replaced, kept },
            None,
        );
    }
}

fn copy(program: &OwnedFd) -> Result<OwnedFd, Error> {
    program.try_clone().map_err(during("duplicate a descriptor"))
}
