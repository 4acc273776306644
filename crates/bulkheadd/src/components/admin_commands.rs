//! What the administrator may ask for: status, relaunch, stop. Numbers only; names stay in the admin role.
//!
//! Runs in: the launcher. Sees: fixed-size messages of the admin role, which may be compromised: it can then do
//! what an administrator can, and no more. Never: a string from it.

use std::time::Instant;

use config::LeftOut;
use wire::{Counters, LauncherToAdmin, Outcome, Text};

use crate::components::Component;
use crate::components::fan_out::FanOut;
use crate::components::status_page::StatusSelection;
use crate::components::targets::Targets;
use supervisor::Supervisor;
use supervisor::restart::Ended;
use supervisor::spawn::process_spec::ProcessSpec;
use supervisor::spawn::uid_share::Share;
use supervisor::upgrade::Handed;

/// The answer about a target that there is no more.
pub(crate) const GONE: &str = "the configuration has no such name any more";

/// The commands under way.
#[derive(Debug)]
pub struct AdminCommands {
    /// What can be named in an order.
    pub targets: Targets,
    /// The status, which waits for the counters of all processes that it is about.
    status: FanOut<(u64, u32, StatusSelection)>,
    /// The files of sites that were left out of what runs.
    pub(crate) left_out: Vec<LeftOut>,
    /// The certificates that the signer does not have, as of the last order for the status.
    pub(crate) certificates_left_out: Vec<LeftOut>,
}

impl AdminCommands {
    /// Makes the table of what can be named.
    pub fn new(specs: &[ProcessSpec]) -> Self {
        Self::with(Targets::new(specs.iter().enumerate()))
    }

    /// The table of the launcher before.
    pub(crate) fn resume(handed: &Handed, supervisor: &Supervisor) -> Self {
        Self::with(Targets::resume(handed, supervisor))
    }

    fn with(targets: Targets) -> Self {
        Self { targets, status: FanOut::default(), left_out: Vec::new(), certificates_left_out: Vec::new() }
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
    /// Asks the processes that are to be seen for their counters.
    pub(crate) fn begin_status(
        &mut self,
        supervisor: &mut Supervisor,
        (admin, ticket): (u64, u32),
        selection: StatusSelection,
    ) {
        if self.status.is_full() {
            return;
        }
        for serial in selection.page(supervisor).serials() {
            supervisor.ask_for_report(serial);
        }
        self.status.join((admin, ticket, selection));
        self.finish_status_if_complete(supervisor);
    }

    /// The same of the site with this number, and of all that has a uid of one of its processes or the launcher's.
    pub(crate) fn begin_status_alike(
        &mut self,
        supervisor: &mut Supervisor,
        (admin, ticket): (u64, u32),
        site: u32,
    ) {
        let site = match self.targets.target(site) {
            Some((_, [])) => return supervisor.answer_to(admin, ticket, Outcome::Failed, GONE),
            Some((name, _)) => Some(name.to_owned()),
            None => return supervisor.protocol_violation(admin),
        };
        let selection = StatusSelection { site, with_alike: true, ..StatusSelection::default() };
        self.begin_status(supervisor, (admin, ticket), selection);
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

    /// Says which files of sites, and which certificates, were left out.
    fn send_left_out(&self, supervisor: &mut Supervisor, (admin, ticket): (u64, u32)) {
        for left in self.left_out.iter().chain(&self.certificates_left_out) {
            supervisor.send(admin, &left_out_line(ticket, left), None);
        }
    }

    fn finish_status_if_complete(&mut self, supervisor: &mut Supervisor) {
        if self.status.is_open() && !supervisor.processes().values().any(|process| process.owes_report) {
            self.finish_status(supervisor);
        }
    }

    fn finish_status(&mut self, supervisor: &mut Supervisor) {
        for (admin, ticket, selection) in self.status.end() {
            let page = selection.page(supervisor);
            for line in page.lines(supervisor, ticket) {
                supervisor.send(admin, &line, None);
            }
            if let Some(next) = page.next {
                supervisor.send(admin, &LauncherToAdmin::StatusNext { ticket, next }, None);
            }
            if let Some(share) = supervisor.uids {
                let (is_scarce, Share { first, last, taken, left }) = (share.is_scarce(), share);
                let line = LauncherToAdmin::UidShare { ticket, first, last, taken, left, is_scarce };
                supervisor.send(admin, &line, None);
            }
            let (processes, is_upgrading) =
                (supervisor.slots_before().count() as u32, supervisor.is_upgrading);
            supervisor.send(admin, &LauncherToAdmin::Before { ticket, processes, is_upgrading }, None);
            self.send_left_out(supervisor, (admin, ticket));
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
}

/// What is said of a file that was left out.
pub(crate) fn left_out_line(ticket: u32, left: &LeftOut) -> LauncherToAdmin {
    let LeftOut { file, stand_in, sites, hosts, is_whole, reason } = left;
    LauncherToAdmin::LeftOut {
        ticket,
        file: Text::new(file.display().to_string()),
        stand_in: *stand_in,
        sites: Text::new(sites.join(", ")),
        hosts: Text::new(hosts.join(", ")),
        is_whole: *is_whole,
        reason: Text::new(reason.as_str()),
    }
}
