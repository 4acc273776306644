//! Probing a jail from inside: the program `bulkhead-probe`, started in the exact jail of a slot.
//!
//! Runs in: the launcher, as root. Sees: that the probe ended. Never: reads what the probe says; the admin role gets
//! the other end of its standard output.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sys::notify::Listener;
use sys::process::Child;
use wire::{LauncherToAdmin, LauncherToBroker, Outcome, ProbeKind, Role};

use crate::components::Component;
use crate::components::admin_socket;
use supervisor::Supervisor;
use supervisor::error::{Error, during};
use supervisor::spawn::Jailed;
use supervisor::spawn::cgroup::Group;
use supervisor::spawn::process_spec::ProcessSpec;

/// LIMIT: every attempt is bounded, and all of them take a few seconds.
const PROBE_MAX: Duration = Duration::from_secs(60);

/// LIMIT: probes at once; one that has reported may not be seen to have ended yet.
const PROBES_MAX: usize = 4;

/// A probe under way.
#[derive(Debug)]
struct Probe {
    child: Child,
    /// In whose jail.
    slot: usize,
    /// Where its calls arrive that a broker answers.
    calls: Option<Listener>,
    /// Removed when the probe has ended.
    _group: Group,
    deadline: Instant,
}

/// Those under way, by the number by which their end is reported.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    probes: BTreeMap<u64, Probe>,
}

impl Component for Probes {
    fn holds(&self, slot: usize) -> bool {
        self.probes.values().any(|probe| probe.slot == slot)
    }

    fn deadline(&self) -> Option<Instant> {
        self.probes.values().map(|probe| probe.deadline).min()
    }

    /// Ends probes that take too long.
    fn on_time(&mut self, supervisor: &mut Supervisor, now: Instant) {
        let stopping = supervisor.is_stopping();
        let late = self.probes.values_mut().filter(|probe| stopping || probe.deadline <= now);
        for probe in late {
            probe.child.kill();
            // Its exit is what is waited for now.
            probe.deadline = now + PROBE_MAX;
        }
    }

    fn on_helper_exit(&mut self, _supervisor: &mut Supervisor, serial: u64) -> bool {
        let Some(probe) = self.probes.get(&serial) else {
            return false;
        };
        if matches!(probe.child.try_wait(), Ok(Some(_)) | Err(_)) {
            self.probes.remove(&serial);
        }
        true
    }

    fn is_idle(&self) -> bool {
        self.probes.is_empty()
    }
}

impl Probes {
    /// Starts a probe and gives the admin role its output.
    pub(crate) fn begin_probe(
        &mut self,
        supervisor: &mut Supervisor,
        admin: u64,
        ticket: u32,
        slot: usize,
        kind: ProbeKind,
    ) {
        let started = if self.probes.len() >= PROBES_MAX {
            Err((Outcome::Busy, format!("{PROBES_MAX} probes are under way")))
        } else {
            self.start_probe(supervisor, slot, kind).map_err(|error| (Outcome::Failed, error.to_string()))
        };
        match started {
            Ok(output) => supervisor.send(admin, &LauncherToAdmin::ProbeOutput { ticket }, Some(output)),
            Err((outcome, reason)) => supervisor.answer(ticket, outcome, &reason),
        }
    }

    /// Gives a new broker the calls of the probes in the jail of its service.
    pub(crate) fn hand_calls_to(&self, supervisor: &mut Supervisor, broker: u64) -> Result<(), Error> {
        let partition = supervisor.spec_of(broker).partition;
        for probe in self.probes.values() {
            let spec = supervisor.spec(probe.slot);
            if let Some(calls) = &probe.calls
                && (spec.role, spec.partition) == (Role::Service, partition)
            {
                let listener = calls.again().map_err(during("duplicate a descriptor"))?;
                let leader = probe.child.pid;
                supervisor.send(broker, &LauncherToBroker::Listener { leader }, Some(listener));
            }
        }
        Ok(())
    }

    fn start_probe(
        &mut self,
        supervisor: &mut Supervisor,
        slot: usize,
        kind: ProbeKind,
    ) -> Result<OwnedFd, Error> {
        let hints = hints(supervisor, slot);
        let (Jailed { child, group, calls, .. }, output) =
            supervisor.context().probe(supervisor.spec(slot), kind, &hints)?;
        if let Some(calls) = &calls {
            supervisor.hand_calls(slot, child.pid, calls)?;
        }
        let serial = supervisor.watch_helper(&child)?;
        let deadline = Instant::now() + PROBE_MAX;
        self.probes.insert(serial, Probe { child, slot, calls, _group: group, deadline });
        Ok(output)
    }
}

/// What the probe is to go for: everything of the server's that is not of its own partition.
fn hints(supervisor: &Supervisor, slot: usize) -> String {
    let own = supervisor.spec(slot);
    let pids = supervisor.processes().values().filter(|process| process.slot != slot).map(|p| p.child.pid);
    let pids: Vec<String> =
        std::iter::once(std::process::id()).chain(pids).map(|pid| pid.to_string()).collect();
    let ports =
        supervisor.context().config.listeners.iter().map(|listener| listener.address.port().to_string());
    let kind = if own.role.is_operators() { "service" } else { "role" };
    let mut text = format!("{{\"kind\":\"{kind}\",\"pids\":[{}]", pids.join(","));
    let _ = write!(text, ",\"tcp\":[{}]", ports.collect::<Vec<_>>().join(","));
    let (socket, secret) = admin_socket::paths(&supervisor.directories().run);
    let foreign = [foreign_files(supervisor, own), vec![secret]].concat();
    for (name, paths) in [("paths", &foreign), ("write_paths", &foreign), ("unix", &vec![socket])] {
        let paths: Vec<String> = paths.iter().map(|path| quoted(path)).collect();
        let _ = write!(text, ",\"{name}\":[{}]", paths.join(","));
    }
    text + "}"
}

/// The folders that the site of `own` opens.
fn own_folders<'c>(config: &'c config::Config, own: &ProcessSpec) -> impl Iterator<Item = &'c PathBuf> {
    config.sites.get(usize::from(own.site)).into_iter().flat_map(|site| site.folders())
}

fn foreign_files(supervisor: &Supervisor, own: &ProcessSpec) -> Vec<PathBuf> {
    let config = &supervisor.context().config;
    let mut files = vec![
        supervisor.directories().state.join("uids"),
        config.server.log_dir.join("error.log"),
        supervisor.directories().run.join("bulkheadd.pid"),
        "/etc/shadow".into(),
        "/etc/passwd".into(),
    ];
    for (index, site) in config.sites.iter().enumerate() {
        files.push(config.server.log_dir.join(format!("{}.access.log", site.name)));
        if index != usize::from(own.site) || own.role != Role::Site {
            files.extend(
                site.folder()
                    .into_iter()
                    // What the operator lets both read is nothing that one of them must not have.
                    .filter(|root| {
                        own.role != Role::Site || !own_folders(config, own).any(|own| root.starts_with(own))
                    })
                    .map(|root| root.join(site.index.first().map_or("", String::as_str))),
            );
        }
        for (number, service) in site.services.iter().enumerate() {
            // The door of a remote one is a program of ours, which is no secret.
            let is_own = own.role == Role::Service && (index, number) == (usize::from(own.site), own.index);
            if !is_own && !service.remote {
                files.push(service.program.clone());
            }
        }
    }
    let filters = config.conditioning.filters.iter().enumerate();
    let others = filters.filter(|(index, _)| own.role != Role::Filter || *index != own.index);
    // One outside of the configuration's folder is a program of the machine's, which is no secret.
    let others = others.filter(|(_, filter)| filter.program.starts_with(&config.dir));
    files.extend(others.map(|(_, filter)| filter.program.clone()));
    files
}

/// A path as a string of JSON.
fn quoted(path: &Path) -> String {
    let mut out = String::from("\"");
    for character in path.to_string_lossy().chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted() {
        assert_eq!(quoted(Path::new("/a \"b\"\\c\n")), r#""/a \"b\"\\c\u000a""#);
    }
}
