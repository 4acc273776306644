//! Surveys: what gates and sites have shed, and which address ranges are heavy in them, for the administrator.
//!
//! Runs in: the launcher. Sees: fixed-size messages of gates and sites, which may be compromised. Never: keeps more of
//! them than its limits, or waits for one that does not answer.

use std::collections::BTreeMap;
use std::time::Instant;

use wire::{LauncherToAdmin, LauncherToGate, LauncherToSite, Role, Shed, Text};

use crate::gathering::Gathering;
use crate::launcher::Launcher;
use crate::process::Stage;

/// LIMIT: ranges of one process; it names the heaviest, and a page shows no more.
const HEAVY_MAX: usize = 64;

/// The survey under way.
#[derive(Debug, Default)]
pub struct Survey {
    gathering: Gathering,
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

impl Survey {
    /// By when something is to be done here.
    pub fn deadline(&self) -> Option<Instant> {
        self.gathering.deadline()
    }

    fn is_complete(&self) -> bool {
        self.answers.values().all(|answer| answer.shed.is_some())
    }
}

impl Launcher {
    /// Asks every gate and every site.
    pub(crate) fn begin_survey(&mut self, admin: u64, ticket: u32) {
        if !self.survey.gathering.join(admin, ticket) {
            return;
        }
        for serial in self.processes.keys().copied().collect::<Vec<_>>() {
            self.ask_what_was_shed(serial);
        }
        self.finish_survey_if_complete();
    }

    fn ask_what_was_shed(&mut self, serial: u64) {
        let Some(process) = self.processes.get_mut(&serial) else {
            return;
        };
        let role = self.posts[process.post].role;
        if process.stage != Stage::Serving || !matches!(role, Role::Gate | Role::Site) {
            return;
        }
        self.survey.answers.insert(serial, Answer::default());
        // One that has not answered the last time is not asked again, or questions would pile up.
        if !std::mem::replace(&mut process.owes_shed, true) {
            match role {
                Role::Gate => self.tell(serial, &LauncherToGate::ReportShed {}, None),
                _ => self.tell(serial, &LauncherToSite::ReportShed {}, None),
            }
        }
    }

    /// Takes a range that a process names.
    pub(crate) fn on_heavy(&mut self, serial: u64, range: Range) {
        if !self.processes.get(&serial).is_some_and(|process| process.owes_shed) {
            // Nobody asked.
            return self.nonsense(serial);
        }
        match self.survey.answers.get_mut(&serial) {
            Some(answer) if answer.heavy.len() < HEAVY_MAX => answer.heavy.push(range),
            Some(_) => self.nonsense(serial),
            // Too late for the survey that it was asked for.
            None => {}
        }
    }

    /// Takes what a process has shed, which ends its answer.
    pub(crate) fn on_shed(&mut self, serial: u64, shed: Shed) {
        match self.processes.get_mut(&serial) {
            Some(process) if process.owes_shed => process.owes_shed = false,
            _ => return self.nonsense(serial),
        }
        if let Some(answer) = self.survey.answers.get_mut(&serial) {
            answer.shed = Some(shed);
        }
        self.finish_survey_if_complete();
    }

    /// A process is gone: its answer does not come any more.
    pub(crate) fn survey_without(&mut self, serial: u64) {
        self.survey.answers.remove(&serial);
        self.finish_survey_if_complete();
    }

    fn finish_survey_if_complete(&mut self) {
        if self.survey.gathering.is_open() && self.survey.is_complete() {
            self.finish_survey();
        }
    }

    /// Does what is due.
    pub(crate) fn survey_on_time(&mut self, now: Instant) {
        if self.survey.gathering.is_due(now) {
            self.finish_survey();
        }
    }

    /// Tells everybody who waits what was said; a process that has not answered is not in it.
    fn finish_survey(&mut self) {
        let Survey { mut gathering, answers } = std::mem::take(&mut self.survey);
        let mut answers: Vec<(usize, Answer)> = answers
            .into_iter()
            .filter_map(|(serial, answer)| Some((self.processes.get(&serial)?.post, answer)))
            .collect();
        // Gates first, as requests come.
        answers.sort_by_key(|(post, _)| (self.posts[*post].role, *post));
        for (admin, ticket) in gathering.end() {
            for (post, answer) in &answers {
                self.tell_answer(admin, ticket, *post, answer);
            }
            self.tell(admin, &LauncherToAdmin::ConditioningEnd { ticket }, None);
        }
    }

    fn tell_answer(&mut self, admin: u64, ticket: u32, post: usize, answer: &Answer) {
        let Some(shed) = answer.shed.clone() else {
            return;
        };
        let (role, name) = (self.posts[post].role, Text::new(self.posts[post].title()));
        for &Range { address_high, address_low, bits, held, waiting } in &answer.heavy {
            let name = name.clone();
            let line =
                LauncherToAdmin::TopRange { ticket, name, address_high, address_low, bits, held, waiting };
            self.tell(admin, &line, None);
        }
        self.tell(admin, &LauncherToAdmin::Shed { ticket, role, name, shed }, None);
    }
}
