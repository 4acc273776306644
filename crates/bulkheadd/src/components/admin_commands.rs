//! What the administrator may ask for: status, relaunch, stop. Numbers only; names stay in the admin role.
//!
//! Runs in: the launcher. Sees: fixed-size messages of the admin role, which may be compromised: it can then do
//! what an administrator can, and no more. Never: a string from it.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use wire::successor::LauncherToSuccessor;
use wire::{Counters, LauncherToAdmin, Role, Text};

use crate::components::Component;
use crate::components::fan_out::FanOut;
use supervisor::Supervisor;
use supervisor::life::Life;
use supervisor::process::Process;
use supervisor::restart::Ended;
use supervisor::spawn::process_spec::{ProcessSpec, WORKER_OF};
use supervisor::upgrade::{Handed, Record};

/// The answer about a target that there is no more.
pub(crate) const GONE: &str = "the configuration has no such name any more";

/// The commands under way.
#[derive(Debug)]
pub struct AdminCommands {
    /// What can be relaunched: a name, and the specs that it stands for.
    targets: Vec<(String, Vec<usize>)>,
    /// Where each name is among them.
    numbers: HashMap<String, usize>,
    /// The status, which waits for the counters of all processes.
    status: FanOut,
}

impl AdminCommands {
    /// Makes the table of what can be relaunched.
    pub fn new(specs: &[ProcessSpec]) -> Self {
        let mut new = Self { targets: Vec::new(), numbers: HashMap::new(), status: FanOut::default() };
        new.adopt(specs.iter().enumerate());
        new
    }

    /// Writes down the numbers of all names.
    pub(crate) fn hand_over(&self, record: &mut Record<'_>) {
        for (name, _) in &self.targets {
            record.add(LauncherToSuccessor::Target { name: Text::new(name.as_str()) });
        }
    }

    /// The table of the launcher before, in which the names have the same numbers.
    pub(crate) fn resume(handed: &Handed, supervisor: &Supervisor) -> Self {
        let mut known = Self::new(&[]);
        for item in handed.items() {
            if let LauncherToSuccessor::Target { name } = item {
                known.numbers.insert(name.as_str().to_owned(), known.targets.len());
                known.targets.push((name.as_str().to_owned(), Vec::new()));
            }
        }
        let slots = supervisor.specs().iter().enumerate();
        known.adopt(slots.filter(|(slot, _)| supervisor.slot(*slot).life == Life::Serving));
        known
    }

    /// Has targets stand for these slots. The number of a name stays what it is.
    pub(crate) fn adopt<'a>(&mut self, specs: impl Iterator<Item = (usize, &'a ProcessSpec)>) {
        self.targets.iter_mut().for_each(|(_, slots)| slots.clear());
        for (name, slot) in names_of(&specs.collect::<Vec<_>>()) {
            let number = self.number_of(name);
            self.targets[number].1.push(slot);
        }
    }

    /// Has targets stand for these slots no more, and for others from here on. The numbers and names of those that stood for
    /// none before.
    pub(crate) fn change(
        &mut self,
        removed: &[(usize, &ProcessSpec)],
        added: &[(usize, &ProcessSpec)],
    ) -> Vec<(u16, &str)> {
        let (mut new, mut known) = (Vec::new(), HashSet::new());
        for (slot, spec) in removed {
            for number in
                [&spec.name, &spec.numbered_name()].into_iter().filter_map(|name| self.numbers.get(name))
            {
                self.targets[*number].1.retain(|known| known != slot);
                known.insert(*number);
            }
        }
        for (name, slot) in names_of(added) {
            let number = self.number_of(name);
            let slots = &mut self.targets[number].1;
            if slots.is_empty() && known.insert(number) {
                new.push(number);
            }
            let at = slots.partition_point(|&other| other < slot);
            slots.insert(at, slot);
        }
        new.into_iter().map(|number| (number as u16, self.targets[number].0.as_str())).collect()
    }

    /// The number of a name, a new one if it has none.
    fn number_of(&mut self, name: String) -> usize {
        *self.numbers.entry(name).or_insert_with_key(|name| {
            self.targets.push((name.clone(), Vec::new()));
            self.targets.len() - 1
        })
    }

    /// What can be relaunched, by the numbers that stand for it.
    pub fn targets(&self) -> impl Iterator<Item = (u16, &str)> {
        let there = (0u16..).zip(&self.targets).filter(|(_, (_, slots))| !slots.is_empty());
        there.map(|(number, (name, _))| (number, name.as_str()))
    }

    /// The names that stand for all of their slots.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.targets().map(|(_, name)| name).filter(|name| !name.contains(WORKER_OF))
    }

    /// The name and the slots of a target; no slots, if it has gone with a change of the configuration.
    pub fn target(&self, target: u16) -> Option<(String, Vec<usize>)> {
        self.targets.get(usize::from(target)).cloned()
    }

    /// The slots that a name stands for.
    pub fn slots_of(&self, name: &str) -> Vec<usize> {
        self.numbers.get(name).map_or_else(Vec::new, |&number| self.targets[number].1.clone())
    }

    /// The slots of a target; none, if it has gone with a change of the configuration.
    pub fn slots(&self, target: u16) -> Option<&[usize]> {
        self.targets.get(usize::from(target)).map(|(_, slots)| &slots[..])
    }
}

impl Component for AdminCommands {
    fn deadline(&self) -> Option<Instant> {
        self.status.deadline()
    }

    fn on_time(&mut self, supervisor: &mut Supervisor, now: Instant) {
        if self.status.is_due(now) {
            self.finish_status(supervisor);
        }
    }

    fn is_quiet(&self) -> bool {
        !self.status.is_open()
    }

    fn on_exit(&mut self, supervisor: &mut Supervisor, ended: &mut Ended) {
        self.report_from(supervisor, ended.serial);
    }
}

impl AdminCommands {
    /// Asks every process for its counters.
    pub(crate) fn begin_status(&mut self, supervisor: &mut Supervisor, admin: u64, ticket: u32) {
        if !self.status.join(admin, ticket) {
            return;
        }
        let serving: Vec<u64> = supervisor.processes().keys().copied().collect();
        for serial in serving {
            supervisor.ask_for_report(serial);
        }
        self.finish_status_if_complete(supervisor);
    }

    /// Takes a process's counters.
    pub(crate) fn on_counters(&mut self, supervisor: &mut Supervisor, serial: u64, counters: Counters) {
        match supervisor.process_mut(serial) {
            Some(process) if process.owes_report => process.counters = counters,
            // The first answer had come.
            Some(process) if process.was_reminded => {
                process.was_reminded = false;
                return;
            }
            // Nobody asked.
            _ => return supervisor.protocol_violation(serial),
        }
        self.report_from(supervisor, serial);
    }

    /// A process has answered, or is gone.
    fn report_from(&mut self, supervisor: &mut Supervisor, serial: u64) {
        if let Some(process) = supervisor.process_mut(serial) {
            process.owes_report = false;
        }
        self.finish_status_if_complete(supervisor);
    }

    fn finish_status_if_complete(&mut self, supervisor: &mut Supervisor) {
        if self.status.is_open() && !supervisor.processes().values().any(|process| process.owes_report) {
            self.finish_status(supervisor);
        }
    }

    fn finish_status(&mut self, supervisor: &mut Supervisor) {
        for (admin, ticket) in self.status.end() {
            let lines = self.status_lines(supervisor, ticket);
            for line in &lines {
                supervisor.send(admin, line, None);
            }
            let missing = Text::new(supervisor.missing().join(", "));
            let [(longest_step_us, longest_step), (longest_lately_us, longest_lately)] = supervisor.steps_us;
            let (longest_step, longest_lately) = (Text::new(longest_step), Text::new(longest_lately));
            let end = LauncherToAdmin::StatusEnd {
                ticket,
                missing,
                longest_step_us,
                longest_step,
                longest_lately_us,
                longest_lately,
            };
            supervisor.send(admin, &end, None);
        }
    }

    /// One line for the launcher, one for each process, and one for each slot that nobody fills.
    fn status_lines(&self, supervisor: &Supervisor, ticket: u32) -> Vec<LauncherToAdmin> {
        let none = Counters::default();
        let mut lines = vec![LauncherToAdmin::Process {
            ticket,
            role: Role::Launcher,
            name: Text::new(""),
            pid: std::process::id(),
            uid: rustix::process::getuid().as_raw(),
            state: Text::new("serving"),
            restarts: 0,
            age_ms: supervisor.age().as_millis() as u64,
            counters: none.clone(),
            last_exit: Text::new(""),
            jit: false,
            oom_kills: supervisor.oom_kills(),
        }];
        let mut of_slot: HashMap<usize, Vec<&Process>> = HashMap::new();
        for process in supervisor.processes().values() {
            of_slot.entry(process.slot).or_default().push(process);
        }
        for (index, spec) in supervisor.specs().iter().enumerate() {
            let slot = supervisor.slot(index);
            let mut line = |pid, state: &str, age_ms, counters| {
                lines.push(LauncherToAdmin::Process {
                    ticket,
                    role: spec.role,
                    name: Text::new(spec.label()),
                    pid,
                    uid: spec.identity.map_or(rustix::process::getuid().as_raw(), jail::Identity::id),
                    state: Text::new(state),
                    restarts: slot.restarts,
                    age_ms,
                    counters,
                    last_exit: Text::new(slot.last_exit.as_str()),
                    jit: supervisor.context().guest(spec).is_some_and(|service| service.jit),
                    oom_kills: slot.oom_kills,
                });
            };
            let processes = of_slot.remove(&index).unwrap_or_default();
            for process in &processes {
                let age_ms = process.since.elapsed().as_millis() as u64;
                line(process.child.pid, process.stage.word(), age_ms, process.counters.clone());
            }
            if processes.is_empty() && !slot.life.is_over() && !supervisor.is_vacant(index) {
                let state = match (slot.broken.is_some(), slot.rests) {
                    (true, _) => "broken",
                    (false, true) => "resting",
                    (false, false) => "waiting",
                };
                line(0, state, 0, none.clone());
            }
        }
        lines
    }
}

/// The names that stand for slots: one for all slots of a name, and where a partition has several workers, one for each of them.
fn names_of(specs: &[(usize, &ProcessSpec)]) -> Vec<(String, usize)> {
    let beside = specs.iter().filter(|(_, spec)| !spec.is_first());
    let several: HashSet<(Role, &str)> = beside.map(|(_, spec)| (spec.role, &*spec.name)).collect();
    let mut names = Vec::new();
    for &(slot, spec) in specs {
        names.push((spec.name.clone(), slot));
        if several.contains(&(spec.role, &*spec.name)) {
            names.push((spec.numbered_name(), slot));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(role: Role, name: &str, worker: u16) -> ProcessSpec {
        let (partition, site, index, generation) = (0, 0, 0, 0);
        ProcessSpec { role, name: name.into(), partition, site, index, worker, generation, identity: None }
    }

    #[test]
    fn each_of_several_workers_has_a_name_beside_that_of_all() {
        let (site, service) =
            (spec(Role::Site, "main", 0), |worker| spec(Role::Service, "main/search", worker));
        let mut commands =
            AdminCommands::new(&[spec(Role::Gate, "gate", 0), spec(Role::Gate, "gate", 0), site.clone()]);
        assert_eq!(commands.names().collect::<Vec<_>>(), ["gate", "main"]);
        assert_eq!((commands.slots_of("gate"), commands.slots_of("gate#2")), (vec![0, 1], vec![]));
        let services = [service(0), service(1)];
        commands.adopt([&site, &services[0], &services[1]].into_iter().enumerate());
        let slots = |name| commands.slots_of(name);
        assert_eq!(slots("main/search"), [1, 2]);
        assert_eq!(
            (slots("main/search#1"), slots("main/search#2"), slots("main#1")),
            (vec![1], vec![2], vec![])
        );
        assert_eq!(commands.names().collect::<Vec<_>>(), ["main", "main/search"]);
        assert_eq!(commands.targets().count(), 4);
    }
}
