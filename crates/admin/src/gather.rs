//! The launcher's answer to an order, which comes in several messages: each adds a line, and the last one ends it.
//!
//! Runs in: the admin role. Sees: the launcher's messages (trusted), with numbers of other processes, which may be
//! compromised. Never: takes a number for anything but a number.

use wire::{LauncherToAdmin, Outcome};

use crate::certified::Certificate;
use crate::conditioned::{ConditioningRow, TopRange};
use crate::reply::{
    AffectedProcess, Ban, Before, ChangedItem, LeftOutFile, OrderReply, ProcessStatus, StatusSummary,
    UidUsage, UpgradedRole,
};

/// The launcher's answer to an order so far.
#[derive(Debug, Default)]
pub(crate) struct PartialReply {
    processes: Vec<ProcessStatus>,
    /// Where the next page of them begins.
    next: Option<u32>,
    uids: Option<UidUsage>,
    before: Before,
    conditioned: Vec<ConditioningRow>,
    bans: Vec<Ban>,
    certificates: Vec<Certificate>,
    changes: Vec<ChangedItem>,
    effects: Vec<AffectedProcess>,
    upgraded: Vec<UpgradedRole>,
    left_out: Vec<LeftOutFile>,
    /// The ranges of the process whose line comes next.
    top_ranges: Vec<TopRange>,
}

/// The ticket of the order that a message answers; `None` if it answers none.
pub(crate) fn ticket_of(message: &LauncherToAdmin) -> Option<u32> {
    use LauncherToAdmin as M;
    match *message {
        M::Process { ticket, .. }
        | M::StatusEnd { ticket, .. }
        | M::Answer { ticket, .. }
        | M::ProbeOutput { ticket }
        | M::TopRange { ticket, .. }
        | M::Shed { ticket, .. }
        | M::ConditioningEnd { ticket }
        | M::Ban { ticket, .. }
        | M::BansEnd { ticket }
        | M::Certificate { ticket, .. }
        | M::CertificatesEnd { ticket }
        | M::Changed { ticket, .. }
        | M::Affected { ticket, .. }
        | M::Upgraded { ticket, .. }
        | M::PublisherOutput { ticket }
        | M::ServiceChannel { ticket, .. }
        | M::StatusNext { ticket, .. }
        | M::UidShare { ticket, .. }
        | M::Before { ticket, .. }
        | M::LeftOut { ticket, .. } => Some(ticket),
        M::Socket {}
        | M::Target { .. }
        | M::Secret { .. }
        | M::Begin {}
        | M::Report {}
        | M::Forget { .. } => None,
    }
}

impl PartialReply {
    /// Takes a message; returns the whole answer if that was its end.
    pub(crate) fn take(&mut self, message: LauncherToAdmin) -> Option<OrderReply> {
        use LauncherToAdmin as M;
        match message {
            M::TopRange { address_high, address_low, bits, held, waiting, .. } => {
                self.top_ranges.push(TopRange::new((address_high, address_low), bits, held, waiting));
            }
            M::Shed { role, name, shed, .. } => {
                let top_ranges = std::mem::take(&mut self.top_ranges);
                self.conditioned.push(ConditioningRow::new(role, name.as_str(), &shed, top_ranges));
            }
            M::Ban { name, address_high, address_low, seconds, .. } => {
                let address = wire::address_of(address_high, address_low).to_canonical().to_string();
                self.bans.push(Ban { site: name.as_str().to_owned(), address, seconds });
            }
            M::Certificate { name, file, verdict, holding, staple, .. } => self
                .certificates
                .push(Certificate::new(name.as_str(), file.as_str(), verdict, holding, &staple)),
            M::Changed { verb, what, keys, .. } => {
                self.changes.push(ChangedItem::new(verb, what.as_str(), keys.as_str()));
            }
            M::Affected { act, process, why, .. } => {
                let (process, why) = (process.as_str().to_owned(), why.as_str().to_owned());
                self.effects.push(AffectedProcess { action: act.word(), process, why });
            }
            M::Upgraded { role, from, to, replaced, kept, .. } => {
                let (from, to) = (from.as_str().to_owned(), to.as_str().to_owned());
                self.upgraded.push(UpgradedRole { role: role.name(), from, to, replaced, kept });
            }
            M::LeftOut { .. } => self.left_out.extend(LeftOutFile::from_message(message)),
            message => return self.take_status(message),
        }
        None
    }

    /// Takes a message of a status, or the end of an answer.
    fn take_status(&mut self, message: LauncherToAdmin) -> Option<OrderReply> {
        use LauncherToAdmin as M;
        match message {
            M::UidShare { first, last, taken, left, is_scarce, .. } => {
                let (range, size) = (format!("{first}-{last}"), u64::from(last) + 1 - u64::from(first));
                self.uids = Some(UidUsage { range, taken, size, left, is_scarce });
            }
            M::Before { processes, is_upgrading, .. } => self.before = Before { processes, is_upgrading },
            M::StatusNext { next, .. } => self.next = Some(next),
            M::StatusEnd {
                missing,
                longest_step_us,
                longest_step,
                longest_lately_us,
                longest_lately,
                ..
            } => {
                let Self { uids, before, processes, next, left_out, .. } = std::mem::take(self);
                let summary = StatusSummary {
                    missing: missing.as_str().to_owned(),
                    longest_step_us,
                    longest_step: longest_step.as_str().to_owned(),
                    longest_lately_us,
                    longest_lately: longest_lately.as_str().to_owned(),
                    uids,
                    before,
                    left_out,
                };
                return Some(OrderReply::status(summary, processes, next));
            }
            M::ConditioningEnd { .. } => {
                return Some(OrderReply::conditioning(std::mem::take(&mut self.conditioned)));
            }
            M::BansEnd { .. } => {
                return Some(OrderReply::Bans { ok: true, bans: std::mem::take(&mut self.bans) });
            }
            M::CertificatesEnd { .. } => {
                let certificates = std::mem::take(&mut self.certificates);
                return Some(OrderReply::Certificates { ok: true, certificates });
            }
            M::Answer { outcome, reason, .. } => return Some(self.answer(outcome, reason.as_str())),
            other => self.processes.extend(ProcessStatus::from_message(other)),
        }
        None
    }

    /// The answer to an order that changes something.
    fn answer(&mut self, outcome: Outcome, reason: &str) -> OrderReply {
        let Self { changes, effects, left_out, upgraded, .. } = std::mem::take(self);
        match outcome {
            Outcome::Done if !upgraded.is_empty() => {
                OrderReply::Upgraded { ok: true, roles: upgraded, half: None, left_out }
            }
            Outcome::Done if !changes.is_empty() || !left_out.is_empty() => {
                OrderReply::Reloaded { ok: true, changes, processes: effects, left_out }
            }
            Outcome::Partly => {
                OrderReply::Upgraded { ok: true, roles: upgraded, half: Some(reason.to_owned()), left_out }
            }
            Outcome::Done => OrderReply::done(),
            Outcome::Failed if reason.is_empty() => OrderReply::failed("the new process did not come up"),
            Outcome::Busy if reason.is_empty() => OrderReply::busy("another such order is under way"),
            Outcome::Busy => OrderReply::busy(reason),
            Outcome::Failed => OrderReply::failed(reason),
        }
    }
}
