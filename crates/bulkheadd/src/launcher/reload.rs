//! Another configuration in the place of the one that runs: `bulkhead reload`, and SIGHUP.
//!
//! Runs in: the launcher, as root. Sees: the configuration file, as at the start. Never: ends a process before those
//! that take its place have come up; touches a process for which nothing has changed.
//!
//! First the processes of new and changed sites are started, beside those that serve. When all have come up, gates are
//! sent the new listeners, routes and filters, each gate in one transaction, and the processes of sites that have gone
//! retire: what they have begun they finish, and their idle connections go back to gates. If one does not come up, all
//! that were started end, and nothing has changed.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::time::Instant;

use config::{Config, Judged, LeftOut, Source};
use wire::{LauncherToAdmin, LauncherToGate, LauncherToLogger, LauncherToSite, Outcome, Role, Text};

use crate::components::configuration_examination::{Examined, Purpose};
use crate::components::service_manager::Reloaded;
use crate::launcher::Launcher;
use crate::launcher::staging::StagedChange;
use crate::staged::Staged;
use crate::transactions::{Asker, Mode, Reload, Wanted};
use supervisor::Supervisor;
use supervisor::change::Change;
use supervisor::change::prepare::{Effect, Prepared, prepare};
use supervisor::error::Error;
use supervisor::examine::Recorded;
use supervisor::life::Life;
use supervisor::process::Untold;
use supervisor::setup::route_table::RouteTable;
use supervisor::slots::{Changed, Running, sockets_of};
use supervisor::spawn::context::duplicate;
use supervisor::spawn::process_spec::ProcessSpec;

/// LIMIT: how often a configuration is examined that is written to again meanwhile, as by several who add sites.
const ATTEMPTS: u32 = 3;
/// What is said of a reload that has not waited for others' file systems.
const NOT_EXAMINED: &str = "reload: files on file systems of other machines or of programs (NFS, FUSE) are not examined, as one of \
                            these has not answered in time; what is started needs them all the same";
/// LIMIT: changes of one reload that are lines of the log.
const LOGGED_MAX: usize = 20;

impl Launcher {
    /// Reads the configuration again, and begins to change what has changed.
    pub(super) fn begin_reload(&mut self, asker: Asker, wanted: Wanted) {
        if self.supervisor.is_stopping() {
            return self.refuse_reload(asker, "the server stops");
        }
        if !self.transactions.is_empty() || self.components.configuration_examination.is_under_way() {
            return match asker {
                Asker::Admin { admin, ticket } => {
                    let reason = "something is being started; try again when that is done";
                    self.supervisor.answer_to(admin, ticket, Outcome::Busy, reason);
                }
                Asker::Log | Asker::Upgrade => self.transactions.is_reload_wanted = true,
            };
        }
        if wanted.mode == Mode::CarryOut {
            self.components.service_manager.reload_begins();
        }
        self.free_numbers();
        self.components.certificates.files.put_off();
        self.begin_examination(asker, wanted, 1, None);
    }

    /// `first` is what was found by a copy that does not wait for others' file systems, if one is to do that now.
    pub(super) fn begin_examination(
        &mut self,
        asker: Asker,
        wanted: Wanted,
        attempt: u32,
        first: Option<Recorded>,
    ) {
        match self.examine_configuration(Purpose::Reload { asker, wanted: wanted.clone(), attempt }, first) {
            Ok(true) => self.transactions.is_reload_examined = true,
            Ok(false) => self.go_on_reloading(asker, wanted, None),
            Err(error) => self.refuse_reload(asker, &error.to_string()),
        }
    }

    /// Goes on with a configuration that was examined.
    pub(super) fn use_examined_configuration(&mut self) {
        let examined = self.components.configuration_examination.take_result();
        let Some(Examined { purpose, found, is_to_be_waited_for }) = examined else { return };
        match purpose {
            Purpose::Know => found.into_iter().for_each(|found| self.know_left_out(Some(&found))),
            Purpose::Reload { asker, wanted, attempt } => {
                self.transactions.is_reload_examined = false;
                match found {
                    _ if self.supervisor.is_stopping() => self.refuse_reload(asker, "the server stops"),
                    Some(found) if is_to_be_waited_for => {
                        self.begin_examination(asker, wanted, attempt, Some(found));
                    }
                    Some(found) => self.go_on_reloading(asker, wanted, Some((&found, attempt))),
                    None => self.refuse_reload(
                        asker,
                        "the files and folders that it names could not be examined in time; see which of them does not answer",
                    ),
                }
            }
        }
        // One that was ordered meanwhile; a transaction that has begun sees to it when it ends.
        if self.transactions.is_empty() && std::mem::take(&mut self.transactions.is_reload_wanted) {
            self.begin_reload(Asker::Log, Wanted::all());
        }
    }

    /// Begins to change what has changed. `found` is what is wrong with what the configuration names, if that is known.
    fn go_on_reloading(&mut self, asker: Asker, wanted: Wanted, found: Option<(&Recorded, u32)>) {
        if let Some(mistakes) = found.and_then(|(found, _)| found.mistakes()) {
            return self.refuse_reload(asker, mistakes);
        }
        if found.is_some_and(|(found, _)| found.leaves_out()) {
            self.supervisor.warn(NOT_EXAMINED);
        }
        let read = self.read_configuration(&wanted, found.map(|(found, _)| found));
        if let Some((_, attempt)) = found.filter(|(found, attempt)| found.is_short() && *attempt < ATTEMPTS) {
            return self.begin_examination(asker, wanted, attempt + 1, None);
        }
        let judged = read.map_err(|mistakes| mistakes.to_string());
        let judged = judged.and_then(|judged| wanted.accepts(judged));
        let prepared = judged.and_then(|Judged { config, source, left_out, .. }| {
            Ok((prepare(&self.supervisor, config)?, source, left_out))
        });
        let (prepared, source, left_out) = match prepared {
            Ok(prepared) => prepared,
            Err(reason) => return self.refuse_reload(asker, &reason),
        };
        if wanted.mode == Mode::DryRun {
            self.send_plan(asker, &prepared.changes, &prepared.effects);
            self.send_left_out(asker, &left_out);
            return self.report(asker, "");
        }
        match self.sockets(&prepared.config) {
            Ok(sockets) => self.carry_out_reload((asker, wanted), prepared, (source, left_out), sockets),
            Err(error) => self.refuse_reload(asker, &error.to_string()),
        }
    }

    pub(super) fn refuse_reload(&mut self, asker: Asker, reason: &str) {
        self.supervisor.warn(format!("reload: {reason}; nothing has changed"));
        self.components.service_manager.reload_ends(&self.supervisor, Reloaded::Nothing);
        if let Asker::Admin { admin, ticket } = asker {
            self.supervisor.answer_to(admin, ticket, Outcome::Failed, reason);
        }
    }

    /// Says what a reload does, or would do.
    fn send_plan(&mut self, asker: Asker, changes: &[Change], effects: &[Effect]) {
        let Asker::Admin { admin, ticket } = asker else { return };
        for change in changes {
            let (what, keys) = (Text::new(change.to_string()), Text::new(change.keys().join(", ")));
            let line = LauncherToAdmin::Changed { ticket, verb: change.verb(), what, keys };
            self.supervisor.send(admin, &line, None);
        }
        for Effect { act, process, why } in effects {
            let (process, why) = (Text::new(process.as_str()), Text::new(why.as_str()));
            let line = LauncherToAdmin::Affected { ticket, act: *act, process, why };
            self.supervisor.send(admin, &line, None);
        }
    }

    /// The listening sockets of a configuration: those that there are, and new ones.
    fn sockets(&self, config: &Config) -> Result<Vec<Vec<OwnedFd>>, Error> {
        let old = &self.supervisor.context().config.listeners;
        let gates = self.supervisor.specs().iter().filter(|spec| spec.role == Role::Gate).count();
        let known = |address| old.iter().position(|listener| listener.address == address);
        let sockets = config.listeners.iter().map(|listener| match known(listener.address) {
            Some(at) => self.supervisor.listeners()[at].iter().map(duplicate).collect(),
            None => self.supervisor.passed().listen_on(listener.address, gates),
        });
        sockets.collect()
    }

    /// Starts everything that a changed configuration needs.
    fn carry_out_reload(
        &mut self,
        (asker, wanted): (Asker, Wanted),
        prepared: Prepared,
        (source, left_out): (Source, Vec<LeftOut>),
        listeners: Vec<Vec<OwnedFd>>,
    ) {
        let id = self.transactions.open(asker);
        let Prepared {
            changes,
            effects,
            config,
            order,
            added,
            gone,
            updated,
            replaces_gates,
            certificate_roles,
            replaces_chain,
            hosts,
        } = prepared;
        let change = StagedChange { added: &added, gone: &gone, roles: &certificate_roles, replaces_chain };
        let mut staged = Staged::default();
        let made = self.stage(&mut staged, Running { config, listeners, order }, change);
        if made.is_ok() {
            staged.launches();
        }
        let hosts = hosts.filter(|_| !replaces_chain);
        let reload = Reload {
            changes,
            effects,
            source,
            only: wanted.only.clone(),
            left_out,
            staged,
            added: added.clone(),
            gone: gone.clone(),
            updated,
            hosts,
            replaces_gates,
            replaces_chain,
        };
        self.transactions.set_reload(id, wanted, reload);
        match made {
            Ok(()) => {
                self.warn_of_lack(false);
                self.launch_all(id, change, replaces_gates);
            }
            Err(error) => self.transactions.fail(id, error.to_string()),
        }
        self.release(id);
    }

    /// Has numbers used again that nobody knows any more.
    fn free_numbers(&mut self) {
        let Self { supervisor, components, .. } = self;
        let components = components.all();
        supervisor.free_numbers(|slot| components.iter().any(|component| component.holds(slot)));
    }

    /// Has what was started take the place of what was there.
    pub(super) fn commit(&mut self, id: u32) {
        let Some(reload) = self.transactions.get(id).and_then(|transaction| transaction.reload.as_mut())
        else {
            return;
        };
        let closed = reload.staged.hold();
        self.source = reload.source.clone();
        let (gone, updated) = (std::mem::take(&mut reload.gone), std::mem::take(&mut reload.updated));
        let (hosts, come) = (reload.hosts.take(), reload.added.clone());
        let (replaces_gates, replaces_chain) = (reload.replaces_gates, reload.replaces_chain);
        self.keep_holders(&come, &gone);
        let changed = self.supervisor.end_change(true);
        let removed = &changed.removed[..];
        if replaces_chain {
            self.supervisor.adopt_staged_chain();
        }
        self.supervisor.leave_places(&gone);
        self.forget_certificates(&gone);
        self.components.log_rotation.adopt_staged(&mut self.supervisor);
        for logger in self.supervisor.active(Role::Logger, None) {
            let confirm = LauncherToLogger::Confirm { ticket: id };
            if self.supervisor.expect_confirmation(logger, id, &confirm) {
                self.transactions.await_process(id, logger);
            }
        }
        self.move_bans(removed);
        // Those that retire, too: the sites to which they would pass on what they have may have gone.
        for gate in self.supervisor.hearing(Role::Gate) {
            let stays = !replaces_gates || self.supervisor.is_successor(gate);
            match self.update_gate(gate, removed, hosts.as_ref(), replaces_chain) {
                Err(error) => {
                    self.supervisor.cut_off(gate, &Untold::Unmade(error.to_string()));
                    self.transactions.fail(id, format!("a gate has to be started again: {error}"));
                }
                Ok(()) => self.expect_commit(id, gate, stays),
            }
        }
        // After the gates: what a worker hands back must not come to it again.
        self.update_sites(id, &updated);
        self.supervisor.empty_slots(removed);
        // Sockets of listeners that have gone, now that gates are told.
        drop(closed);
        self.after_change(&changed);
        self.log_warnings();
        self.note_uids();
    }

    /// Has the transaction wait until a process says that it uses what it was sent, unless the process goes anyway.
    fn expect_commit(&mut self, id: u32, serial: u64, stays: bool) {
        if self.supervisor.expect_commit(serial, stays.then_some(id)) {
            self.transactions.await_process(id, serial);
        }
    }

    /// Says how a reload has ended that holds.
    pub(super) fn end_reload(&mut self, asker: Asker, begun: Instant, reload: &Reload, failure: &str) {
        for change in reload.changes.iter().take(LOGGED_MAX) {
            let keys = change.keys().join(", ");
            let keys = if keys.is_empty() { keys } else { format!(": {keys}") };
            self.supervisor.info(format!("reload: {change} {}{keys}", change.verb().word()));
        }
        self.take_left_out(reload.left_out.clone(), reload.only.as_deref());
        self.log_left_out("reload", reload.only.as_deref());
        let reloaded = match self.components.admin_commands.left_out.len() {
            0 => Reloaded::All,
            count => Reloaded::Without(count),
        };
        self.components.service_manager.reload_ends(&self.supervisor, reloaded);
        let more = reload.changes.len().saturating_sub(LOGGED_MAX);
        if more > 0 {
            self.supervisor.info(format!("reload: {more} more changes"));
        }
        if !failure.is_empty() {
            let failure = format!("reloaded, but {failure}");
            self.supervisor.warn(&failure);
            return self.report(asker, &failure);
        }
        self.supervisor.info(format!("reloaded in {:?}", begun.elapsed()));
        self.components.registry.on_reload(&mut self.supervisor);
        self.send_plan(asker, &reload.changes, &reload.effects);
        self.send_left_out(asker, &reload.left_out);
        self.report(asker, "");
    }

    /// Sends a gate the listeners and routes that there are now, or only those of `hosts`; and the filters if they are
    /// others.
    fn update_gate(
        &mut self,
        gate: u64,
        removed: &[usize],
        hosts: Option<&BTreeSet<String>>,
        replaces_chain: bool,
    ) -> Result<(), Error> {
        let supervisor = &mut self.supervisor;
        if let Some(hosts) = hosts {
            let specs = supervisor.specs_of_hosts(hosts, Life::Serving);
            for message in supervisor.context().messages().gate_changes(hosts, &specs) {
                supervisor.send(gate, &message, None);
            }
        } else {
            let specs = supervisor.specs_for(Life::Serving);
            let sockets = sockets_of(supervisor.listeners(), supervisor.spec_of(gate).index)?;
            let tables = supervisor.context().messages().gate_tables(sockets, &specs);
            let chain = if replaces_chain { supervisor.chain_update()? } else { Vec::new() };
            supervisor.send(gate, &LauncherToGate::Update {}, None);
            for (message, descriptor) in chain.into_iter().chain(tables) {
                supervisor.send(gate, &message, descriptor);
            }
        }
        for &slot in removed {
            let spec = supervisor.spec(slot);
            let partition = spec.partition;
            if spec.is_first() && spec.role.is_worker() {
                supervisor.send(gate, &LauncherToGate::RemovePartition { partition }, None);
            }
        }
        Ok(())
    }

    /// Sends the workers of sites whose each path is now.
    fn update_sites(&mut self, id: u32, slots: &[usize]) {
        for &slot in slots {
            let supervisor = &mut self.supervisor;
            let specs = supervisor.specs_beside(slot);
            let table = RouteTable::new(&supervisor.context().config, &specs);
            let mut messages = supervisor.context().messages().site_routes(supervisor.spec(slot), &table);
            messages.retain(|message| matches!(message, LauncherToSite::Route { .. }));
            messages.insert(0, LauncherToSite::Update {});
            messages.push(LauncherToSite::Commit {});
            for worker in supervisor.active(Role::Site, Some(slot)) {
                messages.iter().for_each(|message| self.supervisor.send(worker, message, None));
                self.expect_commit(id, worker, true);
            }
        }
    }

    /// The bans of a site hold for its successor.
    fn move_bans(&mut self, removed: &[usize]) {
        let specs = removed.iter().map(|&slot| self.supervisor.spec(slot));
        let is_partition = |spec: &&ProcessSpec| spec.role.is_worker();
        let mut answering = specs.filter(|spec| spec.is_first() && is_partition(spec)).peekable();
        if answering.peek().is_none() {
            return;
        }
        let serving: HashMap<(Role, &str), u16> = serving_specs(&self.supervisor)
            .map(|(_, spec)| ((spec.role, &*spec.name), spec.partition))
            .collect();
        let successors = answering.map(|old| (old.partition, serving.get(&(old.role, &*old.name)).copied()));
        for (old, new) in successors.collect::<Vec<_>>() {
            self.components.bans.move_to(&mut self.supervisor, old, new);
        }
    }

    /// Has the components, and the administrator, know what there is now.
    pub(super) fn after_change(&mut self, changed: &Changed) {
        if let Err(error) = self.adopt_sites() {
            self.supervisor.warn(error);
        }
        let specs = self.supervisor.specs();
        let of = |slots: &[usize]| slots.iter().map(|&slot| (slot, &specs[slot])).collect::<Vec<_>>();
        let (removed, added) = (of(&changed.removed), of(&changed.added));
        let renamed = self.components.admin_commands.targets.change(&removed, &added);
        let gone = renamed.gone.into_iter().map(|target| LauncherToAdmin::Forget { target });
        let new = renamed.new.into_iter();
        let new = new.map(|(target, name)| LauncherToAdmin::Target { target, name: Text::new(name) });
        for message in gone.chain(new).collect::<Vec<_>>() {
            for admin in self.supervisor.active(Role::Admin, None) {
                self.supervisor.send(admin, &message, None);
            }
        }
    }
}

fn serving_specs(supervisor: &Supervisor) -> impl Iterator<Item = (usize, &ProcessSpec)> {
    let slots = supervisor.specs().iter().enumerate();
    slots.filter(|(slot, _)| supervisor.slot(*slot).life == Life::Serving)
}
