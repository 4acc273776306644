//! A changed configuration is staged beside the one that runs: each step, and its way back.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: leaves anything of a change that does not
//! come to hold, but for what others may know: numbers rest for a while before they are used again, and a uid that a
//! process may have had stays its owner's.

use wire::stapler::LauncherToStapler;
use wire::tls::LauncherToSigner;
use wire::{Act, Role};

use crate::launcher::Launcher;
use crate::staged::{Staged, Step};
use supervisor::error::{Error, range_text};
use supervisor::life::Life;
use supervisor::numbers::{NumberSet, leave_place};
use supervisor::setup::process_table::ProcessTable;
use supervisor::slots::{Changed, Running};
use supervisor::spawn::process_spec::ProcessSpec;
use supervisor::spawn::uid_range::{self, UidRange};
use supervisor::spawn::uid_share::OutOfRange;
use supervisor::spawn::uids::Uids;

/// Which sites and roles a changed configuration adds, takes away and replaces.
#[derive(Clone, Copy, Debug)]
pub(super) struct StagedChange<'c> {
    /// Sites, by number.
    pub(super) added: &'c [u16],
    pub(super) gone: &'c [u16],
    /// What becomes of the signer and of the stapler.
    pub(super) roles: &'c [(Role, Act)],
    /// Whether the filters are others.
    pub(super) replaces_chain: bool,
}

impl Launcher {
    /// Makes all that a change needs before its processes are started. `staged` has what was made, also if that fails.
    pub(super) fn stage(
        &mut self,
        staged: &mut Staged,
        new: Running,
        change: StagedChange<'_>,
    ) -> Result<(), Error> {
        self.stage_range(staged, &new)?;
        staged.made(Step::Slots);
        self.supervisor.leave_sites(change.gone);
        staged.made(Step::Config(Box::new(self.supervisor.replace_config(new))));
        self.stage_slots(staged, change)?;
        staged.made(Step::Logs);
        self.components.log_rotation.stage(&mut self.supervisor, change.added)?;
        self.adopt_sites()
    }

    /// Reserves the range of uids that a configuration has, if that is another one, beside the one that there is.
    fn stage_range(&mut self, staged: &mut Staged, new: &Running) -> Result<(), Error> {
        let (Some(before), Some(table)) = (&self.uid_range, &mut self.identities) else { return Ok(()) };
        let (server, state) = (&new.config.server, &self.supervisor.directories().state);
        let written = server.user_range_given.then_some(&server.user_range);
        let range = uid_range::wanted(written, &server.user_range, state)?;
        if range == before.range {
            return Ok(());
        }
        if let Err(OutOfRange { owner, uid, .. }) = table.may_become(&range) {
            let problem =
                format!("{owner} has uid {uid}, which user_range {} lacks; reload again", range_text(&range));
            return Err(Error::identity(state.join("uids"), problem));
        }
        let reserved = before.beside(&range, &new.config.dir)?;
        table.set_range(range);
        staged.made(self.uid_range.replace(reserved).map_or(Step::Uids(Vec::new()), Step::Range));
        Ok(())
    }

    fn put_back_range(&mut self, before: UidRange) {
        self.identities.iter_mut().for_each(|table| table.set_range(before.range.clone()));
        self.uid_range = Some(before);
    }

    /// Adds the processes of sites that come, of filters, and of roles that there were none of.
    fn stage_slots(&mut self, staged: &mut Staged, change: StagedChange<'_>) -> Result<(), Error> {
        let generation = self.supervisor.next_generation();
        let specs = self.new_specs(generation, change);
        staged.made(Step::Uids(self.identities.as_mut().map(Uids::take_given).unwrap_or_default()));
        let specs = specs?;
        self.identities.as_mut().map_or(Ok(()), Uids::save)?;
        let supervisor = &mut self.supervisor;
        for &(role, _) in change.roles.iter().filter(|(_, act)| *act == Act::Stop) {
            supervisor.leave_role(role);
        }
        if change.replaces_chain {
            supervisor.leave_role(Role::Filter);
            supervisor.set_filters(generation);
        }
        let added = supervisor.add_slots(specs);
        supervisor.let_rest(added);
        Ok(())
    }

    fn new_specs(&mut self, generation: u32, change: StagedChange<'_>) -> Result<Vec<ProcessSpec>, Error> {
        let config = &self.supervisor.context().config;
        let mut table = ProcessTable::new(config, self.identities.as_mut(), self.supervisor.partitions());
        table.generation = generation;
        for &(role, _) in change.roles.iter().filter(|(_, act)| *act == Act::Start) {
            table.add_role(role, 0)?;
        }
        for &site in change.added {
            let partition = table.next_partition();
            table.add_site(usize::from(site), partition)?;
        }
        for filter in (0..config.conditioning.filters.len()).filter(|_| change.replaces_chain) {
            table.add_role(Role::Filter, filter)?;
        }
        Ok(table.specs)
    }

    /// Starts everything that was staged, and successors.
    pub(super) fn launch_all(&mut self, id: u32, change: StagedChange<'_>, replaces_gates: bool) {
        let replaced =
            |role| change.roles.contains(&(role, Act::Replace)) || role == Role::Gate && replaces_gates;
        let slots = 0..self.supervisor.specs().len();
        // Before the sites, which are to have their certificates at once.
        let serves = |slot: &usize| self.supervisor.slot(*slot).life == Life::Serving;
        let successors =
            slots.clone().filter(serves).filter(|&slot| replaced(self.supervisor.spec(slot).role));
        let pending = |slot: &usize| {
            self.supervisor.slot(*slot).life == Life::Pending
                && !self.supervisor.slot(*slot).rests
                && self.supervisor.spec(*slot).role != Role::Filter
        };
        let all: Vec<usize> = successors.chain(slots.filter(pending)).collect();
        self.tell_certificates(id, change);
        self.launch_in_turn(id, all);
        if change.replaces_chain {
            self.stage_chain(id, Life::Pending);
        }
    }

    /// Has the components know the sites that there are now.
    pub(super) fn adopt_sites(&mut self) -> Result<(), Error> {
        let config = &self.supervisor.context().config;
        self.components.certificates.files.adopt(config);
        self.components.ticket_keys.adopt(config)
    }

    /// Makes an end of all that was staged; what was there serves on. `tried` are the sites that were to come.
    pub(super) fn undo_staged(&mut self, mut staged: Staged, tried: &[u16]) {
        while let Some(step) = staged.take_last() {
            match step {
                Step::Logs => self.components.log_rotation.unstage(),
                Step::Uids(names) => self.take_back_uids(&names),
                Step::Range(before) => self.put_back_range(before),
                Step::Config(before) => self.put_back(*before, tried),
                Step::Slots => {
                    for slot in self.supervisor.end_change(false).removed {
                        self.supervisor.empty_slot(slot);
                    }
                }
            }
        }
        self.supervisor.context().forget_programs();
        self.after_change(&Changed::default());
        self.note_uids();
    }

    /// Until their processes have ended, the sites that were tried keep their numbers.
    fn put_back(&mut self, mut before: Running, tried: &[u16]) {
        for &number in tried {
            let mut tried = self.supervisor.context().config.sites[usize::from(number)].clone();
            leave_place(&mut tried);
            before.config.sites.put(number.into(), tried);
        }
        self.supervisor.replace_config(before);
        self.forget_certificates(tried);
        self.components.log_rotation.take_places(&mut self.supervisor, tried);
    }

    /// Tells the signer and the stapler of the sites that come, whose certificates the change waits for.
    fn tell_certificates(&mut self, id: u32, change: StagedChange<'_>) {
        let added: NumberSet = change.added.iter().copied().collect();
        let (supervisor, files) = (&mut self.supervisor, &mut self.components.certificates.files);
        let mut unusable = Vec::new();
        for &(role, _) in change.roles.iter().filter(|(_, act)| *act == Act::Update) {
            for serial in supervisor.active(role, None) {
                if role == Role::Stapler {
                    let messages = supervisor.context().stapler_certificates(|site| added.contains(site));
                    messages.iter().for_each(|message| supervisor.send(serial, message, None));
                    continue;
                }
                unusable.extend(files.tell_signer(supervisor, serial, change.added));
                let confirm = LauncherToSigner::Confirm { ticket: id };
                if supervisor.expect_confirmation(serial, id, &confirm) {
                    self.transactions.await_process(id, serial);
                }
            }
        }
        self.fail_of_certificates(id, unusable.iter());
    }

    /// Has the signer and the stapler forget sites that have gone, or have not come.
    pub(super) fn forget_certificates(&mut self, sites: &[u16]) {
        let supervisor = &mut self.supervisor;
        for &site in sites {
            for signer in supervisor.active(Role::Signer, None) {
                supervisor.send(signer, &LauncherToSigner::Forget { site }, None);
            }
            for stapler in supervisor.active(Role::Stapler, None) {
                supervisor.send(stapler, &LauncherToStapler::Forget { site }, None);
            }
        }
    }

    fn take_back_uids(&mut self, names: &[String]) {
        let taken = self.identities.as_mut().map_or(Ok(()), |uids| uids.take_back(names));
        if let Err(error) = taken {
            self.supervisor.warn(format!("uids of what was refused stay given out: {error}"));
        }
    }
}
