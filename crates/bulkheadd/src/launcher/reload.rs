//! Another configuration in the place of the one that runs: `bulkhead reload`.
//!
//! Runs in: the launcher, as root. Sees: the configuration file, as at the start. Never: ends a process before those that
//! take its place have come up; touches a process for which nothing has changed.
//!
//! First the processes of new and changed sites are started, beside those that serve. When all have come up, gates are
//! sent the new listeners and routes, each gate in one transaction, and the processes of sites that have gone retire: what
//! they have begun they finish, and their idle connections go back to gates. If one does not come up, all that were
//! started end, and nothing has changed.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::time::Instant;

use config::Config;
use wire::{LauncherToAdmin, LauncherToGate, LauncherToSite, NO_PARTITION, Outcome, Role, Text};

use crate::launcher::Launcher;
use supervisor::Supervisor;
use supervisor::change::Running;
use supervisor::error::Error;
use supervisor::examine::{Depth, Examiner};
use supervisor::life::Life;
use supervisor::setup::change::{Change, Reload, Told, change, leave_place, merge, needs_restart};
use supervisor::setup::process_table::{ProcessTable, signs};
use supervisor::setup::stapler;
use supervisor::spawn::context::duplicate;
use supervisor::spawn::listeners::listen_on;
use supervisor::spawn::process_spec::ProcessSpec;

/// The slots of workers of sites that serve.
fn live_sites(supervisor: &Supervisor) -> impl Iterator<Item = usize> {
    let slots = supervisor.specs().iter().enumerate();
    let slots = slots.filter(|(slot, _)| supervisor.slot(*slot).life == Life::Serving);
    slots.filter(|(_, spec)| spec.role == Role::Site).map(|(slot, _)| slot)
}

/// What the worker of a site is told, as a process of this life sees the others.
fn told_site(supervisor: &Supervisor, slot: usize, life: Life) -> Told {
    Told::site(supervisor.context(), supervisor.spec(slot), &supervisor.specs_for(life))
}

impl Launcher {
    /// Reads the configuration again and begins to change what has changed.
    pub(super) fn begin_reload(&mut self, admin: u64, ticket: u32) {
        if self.reload.is_some() || self.supervisor.is_relaunching() || self.supervisor.is_stopping() {
            let reason = "something is being started; try again when that is done";
            return self.supervisor.answer_to(admin, ticket, Outcome::Busy, reason);
        }
        let (config, listeners) = match self.read_config() {
            Ok(read) => read,
            Err(reason) => return self.refuse_reload(admin, ticket, &reason),
        };
        let begun = Instant::now();
        let (left, failures, gates, gone, updated) = (0, vec![], Change::Update, vec![], vec![]);
        let (before, committed) = (None, false);
        let reload = Reload { admin, ticket, begun, left, failures, before, committed, gates, gone, updated };
        self.reload = Some(reload);
        // Until all are started, none of them ends the change.
        self.expect(1);
        let result = self.begin_change(config, listeners);
        self.on_progress(result);
    }

    fn refuse_reload(&mut self, admin: u64, ticket: u32, reason: &str) {
        self.supervisor.warn(format!("reload: {reason}"));
        self.supervisor.answer_to(admin, ticket, Outcome::Failed, reason);
    }

    /// The configuration as it is in the file now, and its listening sockets.
    fn read_config(&mut self) -> Result<(Config, Vec<Vec<OwnedFd>>), String> {
        let examiner = Examiner::new(Depth::Start);
        let config =
            Config::load_with(&self.config_path, &examiner).map_err(|mistakes| mistakes.to_string())?;
        let old = &self.supervisor.context().config;
        let keys = needs_restart(old, &config);
        if !keys.is_empty() {
            return Err(format!("{} cannot change while the server runs; restart it", keys.join(", ")));
        }
        let gates = self.supervisor.specs().iter().filter(|spec| spec.role == Role::Gate).count();
        let known = |address| old.listeners.iter().position(|listener| listener.address == address);
        let sockets = config.listeners.iter().map(|listener| match known(listener.address) {
            Some(at) => self.supervisor.listeners()[at].iter().map(duplicate).collect(),
            None => listen_on(listener.address, gates),
        });
        let sockets = sockets.collect::<Result<_, Error>>().map_err(|error| error.to_string())?;
        Ok((config, sockets))
    }

    /// Starts what is new.
    fn begin_change(&mut self, mut config: Config, listeners: Vec<Vec<OwnedFd>>) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        let supervisor = &mut self.supervisor;
        let told: Vec<(usize, Told)> =
            live_sites(supervisor).map(|slot| (slot, told_site(supervisor, slot, Life::Serving))).collect();
        let told_gates = Told::gate(supervisor.context());
        let old = &supervisor.context().config;
        let tls_differs = old.tls != config.tls;
        let first = old.sites.len();
        let order = config.sites.iter().map(|site| site.name.clone()).collect();
        let merged = merge(&old.sites, &config.sites)?;
        config.sites = merged.sites;
        let before = supervisor.replace_config(Running { config, listeners, order });
        let Some(reload) = &mut self.reload else { return Ok(()) };
        reload.before = Some(before);
        reload.gates = change(&told_gates, &Told::gate(supervisor.context()));
        let mut gone = merged.gone;
        gone.iter().for_each(|&site| supervisor.leave_site(site));
        self.add_sites(first)?;
        // A site that is as it was may have to know of other routes, or of other limits.
        let supervisor = &mut self.supervisor;
        let second = supervisor.context().config.sites.len();
        let mut updated = Vec::new();
        for (slot, told) in told {
            let site = supervisor.spec(slot).site;
            if gone.contains(&site) {
                continue;
            }
            match change(&told, &told_site(supervisor, slot, Life::Pending)) {
                Change::None => {}
                Change::Update => updated.push(slot),
                Change::Replace => {
                    gone.push(site);
                    supervisor.leave_site(site);
                    supervisor.change_sites(|sites| sites.push(sites[usize::from(site)].clone()));
                }
            }
        }
        self.add_sites(second)?;
        let sites = &self.supervisor.context().config.sites;
        let has_tls = |site: usize| sites[site].tls.is_some();
        let certificates =
            tls_differs || (first..sites.len()).any(has_tls) || gone.iter().any(|&site| has_tls(site.into()));
        if let Some(reload) = &mut self.reload {
            (reload.gone, reload.updated) = (gone, updated);
        }
        self.components.log_rotation.adopt_config(&mut self.supervisor).map_err(text)?;
        self.adopt_sites().map_err(text)?;
        if certificates {
            self.replace_roles(&[Role::Signer, Role::Stapler]);
        }
        let slots = 0..self.supervisor.specs().len();
        let pending = slots.filter(|&slot| self.supervisor.slot(slot).life == Life::Pending);
        pending.collect::<Vec<_>>().into_iter().for_each(|slot| self.launch(slot));
        Ok(())
    }

    /// Adds the processes of the sites from this number on, and those of roles that they need and that there are none of.
    fn add_sites(&mut self, from: usize) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        let supervisor = &mut self.supervisor;
        let config = &supervisor.context().config;
        let numbers = supervisor.specs().iter().map(|spec| spec.partition);
        let next =
            numbers.filter(|&number| number != NO_PARTITION).max().map_or(0, |last| usize::from(last) + 1);
        let mut table = ProcessTable::new(config, self.identities.as_mut(), next);
        let is_there = |slot| supervisor.slot(slot).life != Life::Removed;
        let there = (0..).zip(supervisor.specs()).filter(|(slot, _)| is_there(*slot));
        let roles: HashSet<Role> = there.map(|(_, spec)| spec.role).collect();
        let has = |role| roles.contains(&role);
        if signs(config) && !has(Role::Signer) {
            table.add_role(Role::Signer, 0).map_err(text)?;
        }
        if stapler::is_wanted(config) && !has(Role::Stapler) {
            table.add_role(Role::Stapler, 0).map_err(text)?;
        }
        for site in from..config.sites.len() {
            let partition = table.next_partition();
            table.add_site(site, partition).map_err(text)?;
        }
        // What would be beyond is not given out.
        if table.next_partition() > usize::from(NO_PARTITION) {
            return Err("no number is left for a partition; restart the server".into());
        }
        let specs = table.specs;
        if let Some(identities) = &mut self.identities {
            identities.save().map_err(text)?;
        }
        supervisor.add_slots(specs);
        Ok(())
    }

    /// Has the components know the sites that there are now.
    fn adopt_sites(&mut self) -> Result<(), Error> {
        let config = &self.supervisor.context().config;
        self.components.certificates.files.adopt(config);
        self.components.ticket_keys.adopt(config)
    }

    /// Starts successors for the processes of roles.
    fn replace_roles(&mut self, roles: &[Role]) {
        let slots = (0..self.supervisor.specs().len()).filter(|&slot| {
            roles.contains(&self.supervisor.spec(slot).role)
                && self.supervisor.slot(slot).life == Life::Serving
        });
        slots.collect::<Vec<_>>().into_iter().for_each(|slot| self.launch(slot));
    }

    /// Starts a process for a slot, which the change waits for.
    fn launch(&mut self, slot: usize) {
        let Some(ticket) = self.reload.as_ref().map(|reload| reload.ticket) else { return };
        self.expect(1);
        if let Err(reason) = self.supervisor.relaunch(slot, ticket) {
            self.on_progress(Err(format!("{}: {reason}", self.supervisor.spec(slot).title())));
        }
        self.configure_new();
    }

    fn expect(&mut self, processes: usize) {
        self.reload.iter_mut().for_each(|reload| reload.left += processes);
    }

    /// A process that a command waits for has come up, or failed to.
    pub(super) fn came_up(&mut self, ticket: u32, result: Result<(), String>) {
        match &self.reload {
            Some(reload) if reload.ticket == ticket => self.on_progress(result),
            _ => self.components.admin_commands.relaunched(&mut self.supervisor, ticket, result),
        }
    }

    /// A part of the change is done, or has failed.
    fn on_progress(&mut self, result: Result<(), String>) {
        let Some(reload) = &mut self.reload else { return };
        reload.left = reload.left.saturating_sub(1);
        reload.failures.extend(result.err());
        if reload.left > 0 {
            return;
        }
        let failed = !reload.failures.is_empty();
        match reload.before.take() {
            Some(before) if failed => self.roll_back(before),
            Some(closed) => {
                self.commit();
                drop(closed);
                // Gates and workers have yet to say that they use what they were sent.
                if self.reload.as_ref().is_some_and(|reload| reload.left > 0) {
                    return;
                }
            }
            None => {}
        }
        self.end_reload();
    }

    fn end_reload(&mut self) {
        let Some(reload) = self.reload.take() else { return };
        if reload.failures.is_empty() {
            self.supervisor.info(format!("reloaded in {:?}", reload.begun.elapsed()));
            self.components.registry.on_reload(&mut self.supervisor);
            return self.supervisor.answer_to(reload.admin, reload.ticket, Outcome::Done, "");
        }
        let reason = reload.failures.join("; ");
        let reason = if reload.committed { format!("reloaded, but {reason}") } else { reason };
        self.refuse_reload(reload.admin, reload.ticket, &reason);
    }

    /// Makes an end of what was started; what was there serves on.
    fn roll_back(&mut self, mut before: Running) {
        // Their numbers are not given out again.
        let mut tried = self.supervisor.context().config.sites[before.config.sites.len()..].to_vec();
        tried.iter_mut().for_each(leave_place);
        before.config.sites.extend(tried);
        self.supervisor.replace_config(before);
        for slot in self.supervisor.end_change(false) {
            self.supervisor.empty_slot(slot);
        }
        self.after_change();
    }

    /// Has what was started take the place of what was there.
    fn commit(&mut self) {
        let Some(Reload { gone, updated, gates: change, committed, .. }) = &mut self.reload else { return };
        *committed = true;
        let (gone, updated, change) = (std::mem::take(gone), std::mem::take(updated), *change);
        let removed = self.supervisor.end_change(true);
        self.supervisor.change_sites(|sites| {
            gone.iter().for_each(|&site| leave_place(&mut sites[usize::from(site)]));
        });
        self.move_bans(&removed);
        for gate in self.supervisor.active(Role::Gate, None) {
            match self.update_gate(gate, &removed) {
                Err(error) => {
                    self.supervisor.warn(format!("a gate goes on with what it had: {error}"));
                }
                Ok(()) => self.expect_commit(gate, change),
            }
        }
        // After the gates: what a worker hands back must not come to it again.
        updated.into_iter().for_each(|slot| self.update_site(slot));
        removed.iter().for_each(|&slot| self.supervisor.empty_slot(slot));
        self.after_change();
        self.log_warnings();
        if change == Change::Replace {
            self.replace_roles(&[Role::Gate]);
        }
    }

    /// Has the change wait until a process says that it uses what it was sent, unless the process is replaced anyway.
    fn expect_commit(&mut self, serial: u64, change: Change) {
        let ticket = self.reload.as_ref().map(|reload| reload.ticket).filter(|_| change == Change::Update);
        if self.supervisor.expect_commit(serial, ticket) {
            self.expect(1);
        }
    }

    /// Sends a gate the listeners and routes that there are now.
    fn update_gate(&mut self, gate: u64, removed: &[usize]) -> Result<(), Error> {
        let supervisor = &mut self.supervisor;
        let sockets = supervisor.sockets_of(supervisor.spec_of(gate).index)?;
        let tables = supervisor.context().gate_tables(sockets, &supervisor.specs_for(Life::Serving));
        supervisor.send(gate, &LauncherToGate::Update {}, None);
        for (message, socket) in tables {
            supervisor.send(gate, &message, socket);
        }
        for &slot in removed {
            let partition = supervisor.spec(slot).partition;
            if matches!(supervisor.spec(slot).role, Role::Site | Role::Service) {
                supervisor.send(gate, &LauncherToGate::RemovePartition { partition }, None);
            }
        }
        Ok(())
    }

    /// Sends the workers of a site whose each path is now.
    fn update_site(&mut self, slot: usize) {
        let supervisor = &mut self.supervisor;
        let specs = supervisor.specs_for(Life::Serving);
        let mut messages = supervisor.context().site_routes(supervisor.spec(slot), &specs);
        messages.retain(|message| matches!(message, LauncherToSite::Route { .. }));
        messages.insert(0, LauncherToSite::Update {});
        messages.push(LauncherToSite::Commit {});
        for worker in supervisor.active(Role::Site, Some(slot)) {
            messages.iter().for_each(|message| self.supervisor.send(worker, message, None));
            self.expect_commit(worker, Change::Update);
        }
    }

    /// The bans of a site hold for its successor.
    fn move_bans(&mut self, removed: &[usize]) {
        for &slot in removed {
            let old = self.supervisor.spec(slot);
            let specs = self.supervisor.specs_for(Life::Serving);
            let same = |spec: &&&ProcessSpec| (spec.role, &spec.name) == (old.role, &old.name);
            let (old, new) = (old.partition, specs.iter().find(same).map(|spec| spec.partition));
            self.components.bans.move_to(&mut self.supervisor, old, new);
        }
    }

    /// Has the components, and the administrator, know what there is now.
    fn after_change(&mut self) {
        if let Err(error) = self.adopt_sites() {
            self.supervisor.warn(error);
        }
        let commands = &mut self.components.admin_commands;
        let known = commands.targets().map(|(target, _)| target).collect::<Vec<_>>();
        let slots = self.supervisor.specs().iter().enumerate();
        commands.adopt(slots.filter(|(slot, _)| self.supervisor.slot(*slot).life == Life::Serving));
        let new = commands.targets().filter(|(target, _)| !known.contains(target));
        let new = new.map(|(target, name)| LauncherToAdmin::Target { target, name: Text::new(name) });
        for message in new.collect::<Vec<_>>() {
            for admin in self.supervisor.active(Role::Admin, None) {
                self.supervisor.send(admin, &message, None);
            }
        }
    }
}
