//! What children say to the launcher, and what becomes of it.
//!
//! Runs in: the launcher, as root. Sees: messages of children, which may be compromised: enumerations and integers.
//! Never: takes a string from one, or lets its nonsense cost another.

use wire::{AdminToLauncher, ChildToLauncher, Message, Outcome, Role};

use crate::components::conditioning_report::Range;
use crate::supervisor::Launcher;

/// How many messages of one child are taken before the others get their turn.
const MESSAGES_PER_TURN: usize = 64;
/// LIMIT: bytes of the longest message of a child, what it has shed, and then some.
const MESSAGE_BYTES: usize = 160;
/// How much nonsense a child may send before it is ended.
const VIOLATIONS_MAX: u32 = 100;

impl Launcher {
    /// Takes what a child has to say.
    pub(crate) fn on_message(&mut self, serial: u64) {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(process) = self.processes.get_mut(&serial) else {
                return;
            };
            process.flush();
            let Some(control) = process.control() else { return };
            let mut buffer = [0; MESSAGE_BYTES];
            match sys::seqpacket::receive(control, &mut buffer) {
                // No child has a descriptor to send.
                Ok(Some(got)) if got.descriptor.is_some() => self.protocol_violation(serial),
                Ok(Some(got)) => self.on_bytes(serial, &buffer[..got.len]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                    self.protocol_violation(serial)
                }
                // It has closed its channel: it is ending, or wants to be ended.
                Ok(None) | Err(_) => return self.retire(serial),
            }
        }
    }

    pub(crate) fn on_bytes(&mut self, serial: u64, bytes: &[u8]) {
        let understood = match self.specs[self.processes[&serial].slot].role {
            Role::Admin => AdminToLauncher::decode(bytes).map(|order| self.handle_command(serial, order)),
            _ => ChildToLauncher::decode(bytes).map(|message| self.handle(serial, message)),
        };
        if understood.is_err() {
            self.protocol_violation(serial);
        }
    }

    fn handle(&mut self, serial: u64, message: ChildToLauncher) {
        match message {
            ChildToLauncher::Ready {} => self.on_ready(serial),
            ChildToLauncher::Counters { counters } => self.on_counters(serial, counters),
            ChildToLauncher::TopRange { address_high, address_low, bits, held, waiting } => {
                self.on_heavy(serial, Range { address_high, address_low, bits, held, waiting });
            }
            ChildToLauncher::Shed { shed } => self.on_shed(serial, shed),
            ChildToLauncher::Confirmed { ticket } => self.on_confirmed(serial, ticket),
            ChildToLauncher::Certificate { site, number, verdict, holding } => {
                self.on_certificate(serial, (site, number), verdict, holding);
            }
            ChildToLauncher::Staple { site, number, staple } => {
                self.on_staple(serial, (site, number), staple);
            }
            ChildToLauncher::StaplesEnd {} => self.on_staples_end(serial),
            ChildToLauncher::ChainCut { chain } => self.on_chain_cut(serial, chain),
            ChildToLauncher::Tampered { address_high, address_low } => {
                self.on_tampered(serial, address_high, address_low);
            }
        }
    }

    fn handle_command(&mut self, admin: u64, order: AdminToLauncher) {
        match order {
            AdminToLauncher::Ready {} => self.on_ready(admin),
            AdminToLauncher::Counters { counters } => self.on_counters(admin, counters),
            AdminToLauncher::Status { ticket } => self.begin_status(admin, ticket),
            AdminToLauncher::Conditioning { ticket } => self.begin_survey(admin, ticket),
            AdminToLauncher::Relaunch { ticket, target } => self.begin_relaunch(admin, ticket, target),
            AdminToLauncher::Probe { ticket, target, kind } => self.begin_probe(admin, ticket, target, kind),
            AdminToLauncher::Reopen { ticket } => self.begin_reopen(ticket),
            AdminToLauncher::Certificates { ticket } => self.begin_certificates(admin, ticket),
            AdminToLauncher::Bans { ticket } => self.list_bans(admin, ticket),
            AdminToLauncher::Unban { ticket, address_high, address_low } => {
                self.unban(ticket, address_high, address_low);
            }
            AdminToLauncher::Stop { ticket } => {
                self.answer(ticket, Outcome::Done, "");
                self.stop();
            }
        }
    }

    /// A child sent what no child sends. Only the child pays for it.
    pub(crate) fn protocol_violation(&mut self, serial: u64) {
        let Some(process) = self.processes.get_mut(&serial) else {
            return;
        };
        process.protocol_violations += 1;
        let title = self.specs[process.slot].title();
        if process.protocol_violations == 1 {
            self.log.warning(format!("{title} sent a message that it may not send"));
        } else if process.protocol_violations == VIOLATIONS_MAX {
            process.child.kill();
            self.log.warning(format!("{title} sent {VIOLATIONS_MAX} such messages and was ended"));
        }
    }
}
