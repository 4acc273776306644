//! Processes: pidfds, the launcher's ends of their channels, and what each owes.
//!
//! Runs in: the launcher, as root. Sees: the record of the launcher before. Never: signals a process.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use sys::control::ControlEnd;
use sys::notify::Listener;
use sys::process::Child;
use wire::successor::{LauncherToSuccessor, Progress};
use wire::{Bytes, Text};

use crate::Supervisor;
use crate::error::{Error, during};
use crate::foreign::Foreign;
use crate::life::Life;
use crate::outbox::Passed;
use crate::process::{Process, Stage};
use crate::spawn::stderr::Stderr;
use crate::upgrade::{Handed, Record};

fn hand_over<'a>(record: &mut Record<'a>, serial: u64, process: &'a Process) {
    let progress = match (process.stage, process.has_served) {
        (Stage::Starting, _) => Progress::Starting,
        (Stage::Serving, _) => Progress::Serving,
        (Stage::Retiring, false) => Progress::RetiringUnserved,
        (Stage::Retiring, true) => Progress::Retiring,
    };
    let item = LauncherToSuccessor::Process {
        serial,
        slot: process.slot as u32,
        pid: process.child.pid,
        pidfd: record.leave(process.child.descriptor()),
        control: record.leave_if(process.control().map(ControlEnd::socket)),
        log: record.leave_if(process.log.as_ref()),
        stderr_reading: record.leave_if(process.stderr.as_ref().map(|of| &of.reading)),
        stderr_writing: record.leave_if(process.stderr.as_ref().map(|of| &of.writing)),
        calls: record.leave_if(process.calls.as_ref()),
        core_folder: record.leave_if(process.core_folder.as_ref()),
        progress,
        age_ms: record.age(process.since),
        deadline_ms: record.left(process.deadline),
    };
    record.add(item);
    record.add(LauncherToSuccessor::ProcessState {
        serial,
        owes_report: process.owes_report,
        owes_shed: process.owes_shed,
        owes_staples: process.owes_staples,
        owes_commits: process.owes_commits,
        protocol_violations: process.protocol_violations,
        relays_to: process.relays_to.iter().map(|&slot| slot as u64).take(wire::NUMBERS_MAX).collect(),
    });
    if let Some(pipe) = process.control().and_then(ControlEnd::pipe) {
        let descriptor = record.leave(pipe);
        record.add(LauncherToSuccessor::Heard { serial, descriptor });
    }
    if let Some(version) = &process.before {
        record.add(LauncherToSuccessor::OfVersion { serial, version: Text::new(&**version) });
    }
    if process.takes_retire {
        record.add(LauncherToSuccessor::TakesRetire { serial });
    }
    if let Some(memory) = &process.memory {
        let descriptor = record.leave(memory);
        record.add(LauncherToSuccessor::Memory { serial, descriptor });
    }
    for path in process.group.iter().flat_map(|group| group.paths()) {
        record.add(LauncherToSuccessor::Group { serial, path: Text::new(path.to_string_lossy()) });
    }
    for waiting in process.outbox.waiting() {
        let descriptor = record.leave_if(waiting.descriptor.as_ref());
        let (message, counts) = (Bytes(waiting.bytes.clone()), waiting.counts);
        record.add(LauncherToSuccessor::Waiting { serial, message, descriptor, counts });
    }
}

/// All processes, but for their control groups.
fn resume(handed: &Handed) -> Result<BTreeMap<u64, Process>, Error> {
    let mut processes = BTreeMap::new();
    let mut pipes = BTreeMap::new();
    for item in handed.items() {
        if let LauncherToSuccessor::Heard { serial, descriptor } = item {
            pipes.insert(*serial, handed.copy(*descriptor)?);
        }
    }
    for item in handed.items() {
        match item {
            LauncherToSuccessor::Process { serial, .. } => {
                let pipe = pipes.remove(serial);
                processes.extend(process(handed, item, pipe)?.map(|process| (*serial, process)));
            }
            LauncherToSuccessor::ProcessState {
                serial,
                owes_report,
                owes_shed,
                owes_staples,
                owes_commits,
                protocol_violations,
                relays_to,
            } => {
                let process = known(&mut processes, *serial)?;
                process.owes_report = *owes_report;
                process.owes_shed = *owes_shed;
                process.owes_staples = *owes_staples;
                process.owes_commits = *owes_commits;
                process.protocol_violations = *protocol_violations;
                process.relays_to = relays_to.iter().map(|&slot| slot as usize).collect();
            }
            LauncherToSuccessor::OfVersion { serial, version } => {
                known(&mut processes, *serial)?.before = Some(version.as_str().into());
            }
            LauncherToSuccessor::TakesRetire { serial } => {
                known(&mut processes, *serial)?.takes_retire = true
            }
            LauncherToSuccessor::Memory { serial, descriptor } => {
                known(&mut processes, *serial)?.memory = Some(handed.copy(*descriptor)?);
            }
            LauncherToSuccessor::Waiting { serial, message, descriptor, counts } => {
                let descriptor = handed.copy_if(*descriptor)?.map(Passed::from);
                known(&mut processes, *serial)?.outbox.push(message.0.clone(), descriptor, !counts);
            }
            _ => {}
        }
    }
    Ok(processes)
}

fn known(processes: &mut BTreeMap<u64, Process>, serial: u64) -> Result<&mut Process, Error> {
    processes.get_mut(&serial).ok_or_else(|| Error::record("it names a process that it lacks"))
}

fn process(
    handed: &Handed,
    item: &LauncherToSuccessor,
    pipe: Option<OwnedFd>,
) -> Result<Option<Process>, Error> {
    let LauncherToSuccessor::Process {
        serial: _,
        slot,
        pid,
        pidfd,
        control,
        log,
        stderr_reading,
        stderr_writing,
        calls,
        core_folder,
        progress,
        age_ms,
        deadline_ms,
    } = item
    else {
        return Ok(None);
    };
    let child = Child::known(*pid, handed.copy(*pidfd)?);
    let control = handed.copy_if(*control)?.map(|socket| ControlEnd::known(socket, pipe)).transpose();
    let control = control.map_err(during("take over a channel"))?;
    let stderr = handed.copy_if(*stderr_reading)?.zip(handed.copy_if(*stderr_writing)?);
    let process = Process {
        stage: match progress {
            Progress::Starting => Stage::Starting,
            Progress::Serving => Stage::Serving,
            Progress::Retiring | Progress::RetiringUnserved => Stage::Retiring,
        },
        has_served: *progress == Progress::Retiring,
        is_configured: true,
        deadline: handed.after(*deadline_ms),
        log: handed.copy_if(*log)?.map(Foreign::from),
        stderr: stderr.map(|(reading, writing)| Stderr { reading, writing }),
        calls: handed.copy_if(*calls)?.map(Listener::new),
        core_folder: handed.copy_if(*core_folder)?,
        ..Process::new(*slot as usize, child, control, handed.before(*age_ms))
    };
    Ok(Some(process))
}

impl Supervisor {
    pub(super) fn hand_over_processes<'a>(&'a self, record: &mut Record<'a>) {
        self.processes.iter().for_each(|(&serial, process)| hand_over(record, serial, process));
    }

    /// Notes that all processes are of a launcher before, of this version, unless they are of one before that.
    pub fn inherit(&mut self, version: &str) {
        let version: Rc<str> = version.into();
        self.processes.values_mut().for_each(|process| {
            process.before.get_or_insert_with(|| version.clone());
        });
    }

    /// The slots whose processes are of a launcher before, and have no successor.
    pub fn slots_before(&self) -> impl Iterator<Item = (usize, &Process)> {
        let slots = self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.life == Life::Serving && slot.next.is_none());
        let processes = slots.filter_map(|(at, slot)| Some((at, self.processes.get(&slot.current?)?)));
        processes.filter(|(_, process)| process.before.is_some())
    }

    /// Looks after the processes of the launcher before.
    pub(super) fn resume_processes(&mut self, handed: &Handed) -> Result<(), Error> {
        for (serial, process) in resume(handed)? {
            let spec = self.specs.get(process.slot);
            let spec = spec.ok_or_else(|| Error::record("a process has a slot that it lacks"))?;
            self.index.insert(spec, serial);
            self.watch_process(serial, process.control.as_ref(), &process.child)?;
            self.unsent.insert(serial);
            self.timed.extend(process.deadline.map(|at| (at, serial)));
            self.processes.insert(serial, process);
        }
        let lost = |serial: &u64| !self.processes.contains_key(serial);
        if self.slots.iter().filter_map(|slot| slot.current).any(|serial| lost(&serial)) {
            return Err(Error::record("a slot has a process that it lacks"));
        }
        Ok(())
    }
}
