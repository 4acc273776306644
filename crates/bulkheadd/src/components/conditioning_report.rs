//! Surveys: what gates and sites have shed, and which address ranges are heavy in them, for the administrator.
//!
//! Runs in: the launcher. Sees: fixed-size messages of gates and sites, which may be compromised. Never: keeps more of
//! them than its limits, or waits for one that does not answer.

use std::collections::BTreeMap;
use std::time::Instant;

use wire::{LauncherToAdmin, LauncherToGate, LauncherToSite, Role, Shed, Text};

use crate::components::Component;
use crate::components::fan_out::FanOut;
use supervisor::Supervisor;
use supervisor::process::Stage;
use supervisor::restart::Ended;

/// LIMIT: ranges of one process; it names the heaviest, and a page shows no more.
const HEAVY_MAX: usize = 64;

/// The survey under way.
#[derive(Debug, Default)]
pub struct ConditioningReport {
    fan_out: FanOut,
    /// By the serial number of the process that is asked.
    answers: BTreeMap<u64, Answer>,
}

/// What a process has said so far.
#[derive(Debug, Default)]
struct Answer {
    heavy: Vec<Range>,
    shed: Option<Shed>,
}

/// An address range that a process holds much of; the fields are those of the message.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub address_high: u64,
    pub address_low: u64,
    pub bits: u8,
    pub held: u32,
    pub waiting: u32,
}

impl Answer {
    /// Takes one more range; false if there are too many.
    fn add(&mut self, range: Range) -> bool {
        let fits = self.heavy.len() < HEAVY_MAX;
        if fits {
            self.heavy.push(range);
        }
        fits
    }
}

impl ConditioningReport {
    fn is_complete(&self) -> bool {
        self.answers.values().all(|answer| answer.shed.is_some())
    }
}

impl Component for ConditioningReport {
    fn deadline(&self) -> Option<Instant> {
        self.fan_out.deadline()
    }

    fn on_time(&mut self, supervisor: &mut Supervisor, now: Instant) {
        if self.fan_out.is_due(now) {
            self.finish_survey(supervisor);
        }
    }

    fn is_quiet(&self) -> bool {
        !self.fan_out.is_open()
    }

    fn on_exit(&mut self, supervisor: &mut Supervisor, ended: &mut Ended) {
        self.answers.remove(&ended.serial);
        self.finish_survey_if_complete(supervisor);
    }
}

impl ConditioningReport {
    /// Asks every gate and every site.
    pub(crate) fn begin_survey(&mut self, supervisor: &mut Supervisor, admin: u64, ticket: u32) {
        if !self.fan_out.join((admin, ticket)) {
            return;
        }
        for serial in supervisor.processes().keys().copied().collect::<Vec<_>>() {
            self.ask_what_was_shed(supervisor, serial);
        }
        self.finish_survey_if_complete(supervisor);
    }

    fn ask_what_was_shed(&mut self, supervisor: &mut Supervisor, serial: u64) {
        let role = supervisor.spec_of(serial).role;
        let Some(process) = supervisor.process_mut(serial) else {
            return;
        };
        if process.stage != Stage::Serving || !matches!(role, Role::Gate | Role::Site) {
            return;
        }
        self.answers.insert(serial, Answer::default());
        // One that has not answered the last time is not asked again, or questions would pile up.
        if !std::mem::replace(&mut process.owes_shed, true) {
            match role {
                Role::Gate => supervisor.send(serial, &LauncherToGate::ReportShed {}, None),
                _ => supervisor.send(serial, &LauncherToSite::ReportShed {}, None),
            }
        }
    }

    /// Takes a range that a process names.
    pub(crate) fn on_heavy(&mut self, supervisor: &mut Supervisor, serial: u64, range: Range) {
        if !supervisor.process(serial).is_some_and(|process| process.owes_shed) {
            // Nobody asked.
            return supervisor.protocol_violation(serial);
        }
        // An answer may be too late for the survey that it was asked for; then there is none.
        if self.answers.get_mut(&serial).is_some_and(|answer| !answer.add(range)) {
            supervisor.protocol_violation(serial);
        }
    }

    /// Takes what a process has shed, which ends its answer.
    pub(crate) fn on_shed(&mut self, supervisor: &mut Supervisor, serial: u64, shed: Shed) {
        match supervisor.process_mut(serial) {
            Some(process) if process.owes_shed => process.owes_shed = false,
            _ => return supervisor.protocol_violation(serial),
        }
        if let Some(answer) = self.answers.get_mut(&serial) {
            answer.shed = Some(shed);
        }
        self.finish_survey_if_complete(supervisor);
    }

    fn finish_survey_if_complete(&mut self, supervisor: &mut Supervisor) {
        if self.fan_out.is_open() && self.is_complete() {
            self.finish_survey(supervisor);
        }
    }

    /// Tells everybody who waits what was said; a process that has not answered is not in it.
    fn finish_survey(&mut self, supervisor: &mut Supervisor) {
        let ConditioningReport { mut fan_out, answers } = std::mem::take(self);
        let mut answers: Vec<(usize, Answer)> = answers
            .into_iter()
            .filter_map(|(serial, answer)| Some((supervisor.process(serial)?.slot, answer)))
            .collect();
        // Gates first, as requests come.
        answers.sort_by_key(|(slot, _)| (supervisor.spec(*slot).role, *slot));
        for (admin, ticket) in fan_out.end() {
            for (slot, answer) in &answers {
                self.send_answer(supervisor, admin, ticket, *slot, answer);
            }
            supervisor.send(admin, &LauncherToAdmin::ConditioningEnd { ticket }, None);
        }
    }

    fn send_answer(
        &mut self,
        supervisor: &mut Supervisor,
        admin: u64,
        ticket: u32,
        slot: usize,
        answer: &Answer,
    ) {
        let Some(shed) = answer.shed.clone() else {
            return;
        };
        let (role, name) = (supervisor.spec(slot).role, Text::new(supervisor.spec(slot).title()));
        for &Range { address_high, address_low, bits, held, waiting } in &answer.heavy {
            let name = name.clone();
            let line =
                LauncherToAdmin::TopRange { ticket, name, address_high, address_low, bits, held, waiting };
            supervisor.send(admin, &line, None);
        }
        supervisor.send(admin, &LauncherToAdmin::Shed { ticket, role, name, shed }, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_names_so_many_ranges_and_no_more() {
        let mut answer = Answer::default();
        let range = |number| Range { address_high: 0, address_low: number, bits: 128, held: 1, waiting: 0 };
        assert_eq!((0..1000).filter(|&number| answer.add(range(number))).count(), HEAVY_MAX);
        assert_eq!(answer.heavy.len(), HEAVY_MAX);
    }
}
