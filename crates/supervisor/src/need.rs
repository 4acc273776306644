//! What a configuration needs of processes and descriptors, beside what the launcher may have.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration, and the kernel's figures. Never: keeps anything from starting.

use wire::Role;

use crate::Supervisor;
use crate::limits::{self, RAISE_DESCRIPTORS, RAISE_PROCESSES};
use crate::spawn::jails::DATA_PROXY_BEGINS;

/// Processes for what works for the launcher for a moment, beside the launcher, the reaper and the closer.
const PROCESSES_BESIDE: u64 = 16;
/// Descriptors of the launcher for a process: its control channel, its log, both ends of its standard error, and its pidfd.
const DESCRIPTORS_EACH: u64 = 5;
/// Descriptors of the launcher for itself, and for what it opens for a moment.
const DESCRIPTORS_BESIDE: u64 = 320;

impl Supervisor {
    /// Which limits are too low for all that is always to run, in one sentence; in an upgrade, all of it may be there twice.
    pub fn lack(&self, is_upgrade: bool) -> Option<String> {
        let times = if is_upgrade { 2 } else { 1 };
        let is_counted = |slot: &usize| !self.slots[*slot].life.is_over() && !self.is_on_demand(*slot);
        let roles = (0..self.specs.len()).filter(is_counted).map(|slot| self.specs[slot].role);
        let threads = |role| if role == Role::DataProxy { DATA_PROXY_BEGINS } else { 1 };
        let (count, threads) = roles.fold((0, 0), |(count, all), role| (count + 1, all + threads(role)));
        let sockets = self.listeners.iter().map(Vec::len).sum::<usize>() as u64;
        let processes = threads * times + PROCESSES_BESIDE;
        let descriptors = count * DESCRIPTORS_EACH * times + sockets + DESCRIPTORS_BESIDE;
        let what = if is_upgrade { "an upgrade" } else { "the configuration" };
        let lacks = [lack_of_processes(processes), lack_of_descriptors(descriptors)];
        let lacks: Vec<String> = lacks.into_iter().flatten().collect();
        (!lacks.is_empty()).then(|| format!("{what} may need {}", lacks.join("; and ")))
    }
}

fn lack_of_processes(needed: u64) -> Option<String> {
    let (most, _, group) = limits::of_groups().into_iter().min().filter(|(most, ..)| *most < needed)?;
    let group = group.display();
    Some(format!(
        "{needed} processes and threads, and the control group {group} may have {most}: {RAISE_PROCESSES}"
    ))
}

fn lack_of_descriptors(needed: u64) -> Option<String> {
    let most = limits::descriptors().filter(|most| *most < needed)?;
    Some(format!("{needed} descriptors of the launcher, which may have {most}: {RAISE_DESCRIPTORS}"))
}
