//! Which component a message of a child is for.
//!
//! Runs in: the launcher, as root. Sees: messages of children, which may be compromised: enumerations and integers.
//! Never: takes a string from one, or lets its nonsense cost another.

use wire::{AdminToLauncher, ChildToLauncher, Message, Outcome, ProbeKind, Role};

use crate::components::admin_commands::GONE;
use crate::components::conditioning_report::Range;
use crate::components::file_reload::Lacking;
use crate::components::status_page::StatusSelection;
use crate::components::{republishing, sending};
use crate::launcher::Launcher;
use crate::transactions::{Asker, Look, Mode, Wanted};
use supervisor::events::Received;

/// How many messages of one child are taken before the others get their turn.
const MESSAGES_PER_TURN: usize = 64;
/// LIMIT: bytes of the longest message of a child, what it has shed, and then some.
const MESSAGE_BYTES: usize = 160;

impl Launcher {
    /// Takes what a child has to say.
    pub(super) fn on_channel(&mut self, serial: u64) {
        for _ in 0..MESSAGES_PER_TURN {
            let mut buffer = [0; MESSAGE_BYTES];
            match self.supervisor.receive(serial, &mut buffer) {
                Received::Message(length) => self.on_bytes(serial, &buffer[..length]),
                Received::Violation => {}
                Received::Nothing => return,
            }
            self.configure_new();
        }
    }

    fn on_bytes(&mut self, serial: u64, bytes: &[u8]) {
        let understood = match self.supervisor.spec_of(serial).role {
            Role::Admin => AdminToLauncher::decode(bytes).map(|command| {
                self.know_left_out_certificates(&command);
                self.handle_command(serial, command)
            }),
            _ => ChildToLauncher::decode(bytes).map(|message| self.handle(serial, message)),
        };
        if understood.is_err() {
            self.supervisor.protocol_violation(serial);
        }
    }

    fn on_ready(&mut self, serial: u64) {
        if let Some(ticket) = self.supervisor.on_ready(serial) {
            self.came_up(serial, ticket, Ok(()));
        }
    }

    fn handle(&mut self, serial: u64, message: ChildToLauncher) {
        let (supervisor, to) = (&mut self.supervisor, &mut self.components);
        match message {
            ChildToLauncher::Ready {} => self.on_ready(serial),
            ChildToLauncher::Counters { counters } => {
                supervisor.on_spare_counters(serial, &counters);
                to.health.on_counters(supervisor, serial, &counters);
                to.admin_commands.on_counters(supervisor, serial, counters);
            }
            ChildToLauncher::Used { partition } => to.health.on_used(supervisor, serial, partition),
            ChildToLauncher::TopRange { address_high, address_low, bits, held, waiting } => {
                let range = Range { address_high, address_low, bits, held, waiting };
                to.conditioning_report.on_heavy(supervisor, serial, range);
            }
            ChildToLauncher::Shed { shed } => to.conditioning_report.on_shed(supervisor, serial, shed),
            ChildToLauncher::Confirmed { ticket } if supervisor.on_confirmed(serial, ticket) => {
                self.came_up(serial, ticket, Ok(()));
            }
            ChildToLauncher::Confirmed { ticket } => to.log_rotation.on_confirmed(supervisor, serial, ticket),
            ChildToLauncher::LogWanted { site } => to.log_rotation.on_wanted(supervisor, serial, site),
            ChildToLauncher::Certificate { site, number, verdict, holding } => {
                let ticket = supervisor.process(serial).and_then(|process| process.ticket);
                let (signer, place) = ((serial, self.transactions.lacking(ticket)), (site, number));
                let worse = to.certificates.files.on_certificate(supervisor, signer, place, verdict, holding);
                ticket.into_iter().for_each(|id| self.fail_of_certificates(id, worse.iter()));
            }
            ChildToLauncher::Staple { site, number, staple } => {
                to.certificates.on_staple(supervisor, serial, (site, number), staple);
            }
            ChildToLauncher::StaplesEnd {} => to.certificates.on_staples_end(supervisor, serial),
            ChildToLauncher::Committed {} => {
                if let Some(ticket) = supervisor.on_committed(serial) {
                    self.came_up(serial, ticket, Ok(()));
                }
            }
            ChildToLauncher::Wanted { partition } => supervisor.on_wanted(serial, partition),
            ChildToLauncher::Idle {} => supervisor.on_idle(serial),
            ChildToLauncher::TakesRetire {} => supervisor.on_takes_retire(serial),
            ChildToLauncher::ChainCut { chain } => supervisor.on_chain_cut(serial, chain),
            ChildToLauncher::Tampered { address_high, address_low } => {
                to.bans.on_tampered(supervisor, serial, address_high, address_low);
            }
        }
    }

    /// Has the status say which certificates the signer does not have.
    fn know_left_out_certificates(&mut self, command: &AdminToLauncher) {
        use AdminToLauncher::{Status, StatusAlike, StatusOf};
        if matches!(command, Status { .. } | StatusOf { .. } | StatusAlike { .. }) {
            let left_out = self.components.certificates.files.left_out(&self.supervisor);
            self.components.admin_commands.certificates_left_out = left_out;
        }
    }

    /// Lists the processes of a role, of a site, or of both.
    fn begin_status_of(&mut self, admin: u64, command: &AdminToLauncher) {
        let AdminToLauncher::StatusOf { ticket, by_role, role, by_site, site, from, limit } = *command else {
            return;
        };
        let (supervisor, to) = (&mut self.supervisor, &mut self.components);
        let role = by_role.then_some(role);
        let site = match to.admin_commands.targets.target(site) {
            _ if !by_site => None,
            Some((_, [])) => return supervisor.answer_to(admin, ticket, Outcome::Failed, GONE),
            Some((name, _)) => Some(name.to_owned()),
            None => return supervisor.protocol_violation(admin),
        };
        let selection = StatusSelection { role, site, with_alike: false, from, limit };
        to.admin_commands.begin_status(supervisor, (admin, ticket), selection);
    }

    /// Tries the jail of a target, preferably of a slot that has a process.
    fn begin_probe(&mut self, (admin, ticket): (u64, u32), target: u32, kind: ProbeKind) {
        let (supervisor, to) = (&mut self.supervisor, &mut self.components);
        match to.admin_commands.targets.slots(target) {
            Some(slots @ &[first, ..]) => {
                let has_process = |slot: &usize| supervisor.slot(*slot).current.is_some();
                let slot = slots.iter().copied().find(has_process).unwrap_or(first);
                to.probes.begin_probe(supervisor, admin, ticket, slot, kind);
            }
            Some([]) => supervisor.answer_to(admin, ticket, Outcome::Failed, GONE),
            None => supervisor.protocol_violation(admin),
        }
    }

    fn handle_command(&mut self, admin: u64, command: AdminToLauncher) {
        let (supervisor, to) = (&mut self.supervisor, &mut self.components);
        match command {
            AdminToLauncher::Ready {} => self.on_ready(admin),
            AdminToLauncher::Counters { counters } => {
                to.health.on_counters(supervisor, admin, &counters);
                to.admin_commands.on_counters(supervisor, admin, counters);
            }
            AdminToLauncher::Status { ticket } => {
                to.admin_commands.begin_status(supervisor, (admin, ticket), StatusSelection::default());
            }
            command @ AdminToLauncher::StatusOf { .. } => self.begin_status_of(admin, &command),
            AdminToLauncher::StatusAlike { ticket, site } => {
                to.admin_commands.begin_status_alike(supervisor, (admin, ticket), site);
            }
            AdminToLauncher::Conditioning { ticket } => {
                to.conditioning_report.begin_survey(supervisor, admin, ticket);
            }
            AdminToLauncher::Upgrade { ticket, dry_run } => {
                self.begin_upgrade(Some((admin, ticket)), dry_run)
            }
            AdminToLauncher::Relaunch { ticket, target } => {
                self.begin_relaunch((admin, ticket), target, Lacking::Refused)
            }
            AdminToLauncher::RelaunchLeavingOut { ticket, target } => {
                self.begin_relaunch((admin, ticket), target, Lacking::LeftOut)
            }
            AdminToLauncher::Probe { ticket, target, kind } => {
                self.begin_probe((admin, ticket), target, kind)
            }
            AdminToLauncher::Republish { ticket, target } => match to.admin_commands.targets.slots(target) {
                Some(slots) => republishing::begin(supervisor, (admin, ticket), slots),
                None => supervisor.protocol_violation(admin),
            },
            AdminToLauncher::Send { ticket, target } => match to.admin_commands.targets.slots(target) {
                Some(slots) => sending::begin(supervisor, (admin, ticket), slots),
                None => supervisor.protocol_violation(admin),
            },
            AdminToLauncher::Reload { ticket, dry_run } => {
                let mode = if dry_run { Mode::DryRun } else { Mode::CarryOut };
                self.begin_reload(Asker::Admin { admin, ticket }, Wanted::new(mode, Look::All));
            }
            AdminToLauncher::ReloadSites { ticket } => {
                self.begin_reload(Asker::Admin { admin, ticket }, Wanted::new(Mode::CarryOut, Look::Seen));
            }
            AdminToLauncher::ReloadOf { ticket, dry_run, all_or_nothing, extent, site } => {
                let asker = Asker::Admin { admin, ticket };
                match self.wanted(dry_run, all_or_nothing, (extent, site)) {
                    Ok(wanted) => self.begin_reload(asker, wanted),
                    Err(reason) => self.supervisor.answer_to(admin, ticket, Outcome::Failed, &reason),
                }
            }
            AdminToLauncher::Reopen { ticket } => to.log_rotation.begin_reopen(supervisor, ticket),
            AdminToLauncher::Certificates { ticket } => {
                to.certificates.begin_certificates(supervisor, admin, ticket);
            }
            AdminToLauncher::TakeUidsBack { ticket } => self.take_uids_back(admin, ticket),
            AdminToLauncher::Bans { ticket } => to.bans.list_bans(supervisor, admin, ticket),
            AdminToLauncher::Unban { ticket, address_high, address_low } => {
                to.bans.unban(supervisor, ticket, address_high, address_low);
            }
            AdminToLauncher::Stop { ticket } => {
                supervisor.answer(ticket, Outcome::Done, "");
                supervisor.stop();
            }
        }
    }
}
