//! Where clients' orders and the launcher's answers meet: tickets, and the names that stand for targets.
//!
//! Runs in: the admin role. Sees: the launcher's messages (trusted), names from clients. Never: hands a name on;
//! it finds the number that the launcher gave it.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::os::fd::OwnedFd;

use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use wire::{AdminToLauncher, Extent, LauncherToAdmin, Outcome, ProbeKind, Role, Shed, number_of_name};
use worker::channel::Channel;
use worker::counters::Counters;

use crate::certified::Certificate;
use crate::command::{Command, Findings};
use crate::conditioned::{ConditioningRow, TopRange};
use crate::reply::{
    AffectedProcess, Ban, Before, ChangedItem, LeftOutFile, OrderReply, ProcessStatus, StatusSummary,
    UidUsage, UpgradedRole,
};
use crate::republish::TEMPLATES_OF;
use crate::secret::ServerSecret;
use crate::targets::Targets;

/// LIMIT: bytes of a report of a probe or publisher; a few hundred findings of a few hundred bytes.
const REPORT_MAX: u64 = 1 << 20;

/// The channel to and from the launcher.
pub(crate) type AdminControl = Channel<LauncherToAdmin, AdminToLauncher>;

/// The state of this process.
#[derive(Debug)]
pub(crate) struct Admin {
    pub(crate) control: AdminControl,
    pub(crate) counters: Counters,
    /// The secret with which every order begins.
    pub(crate) secret: OnceCell<ServerSecret>,
    pub(crate) targets: RefCell<Targets>,
    pending: RefCell<HashMap<u32, Pending>>,
    next_ticket: Cell<u32>,
    /// The launcher has closed its end: no order can be given any more.
    closed: Cell<bool>,
}

/// An answer of the launcher's, with channels to processes of a service, each with the number of its worker.
pub(crate) type LauncherAnswer = (OrderReply, Vec<(u16, OwnedFd)>);

/// An order that the launcher has yet to answer.
#[derive(Debug)]
struct Pending {
    gathered: PartialReply,
    reply: oneshot::Sender<LauncherAnswer>,
}

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
    channels: Vec<(u16, OwnedFd)>,
    /// The ranges of the process whose line comes next.
    top_ranges: Vec<TopRange>,
}

/// Takes a ticket back, however its order ends.
struct Ticket<'d> {
    admin: &'d Admin,
    number: u32,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.admin.pending.borrow_mut().remove(&self.number);
    }
}

impl Admin {
    pub(crate) fn new(control: AdminControl) -> Self {
        Self {
            control,
            counters: Counters::default(),
            secret: OnceCell::new(),
            targets: RefCell::default(),
            pending: RefCell::default(),
            // When `admin` itself is relaunched, two of them use tickets at a time; each begins somewhere else.
            next_ticket: Cell::new(RandomState::new().build_hasher().finish() as u32),
            closed: Cell::new(false),
        }
    }

    /// Passes an order on and waits for its answer.
    pub(crate) async fn command(&self, command: Command) -> OrderReply {
        match command {
            Command::Republish { site } => self.republish(site).await.of_several(),
            Command::Send { name, order, argument } => self.send(name, order, argument).await.of_several(),
            other => self.give(other).await.0,
        }
    }

    /// Gives one order to the launcher.
    pub(crate) async fn give(&self, command: Command) -> LauncherAnswer {
        let (number, answer) = self.ticket();
        let ticket = Ticket { admin: self, number };
        let ends_us = match &command {
            Command::Stop {} => true,
            Command::Relaunch { name, .. } => name == wire::Role::Admin.name(),
            Command::Status { .. }
            | Command::Conditioning {}
            | Command::Bans {}
            | Command::Certificates {}
            | Command::Unban { .. }
            | Command::Reopen {}
            | Command::Republish { .. }
            | Command::Send { .. }
            | Command::Reload { .. }
            | Command::ReloadSites { .. }
            | Command::TakeUidsBack {}
            | Command::Upgrade { .. }
            | Command::Probe { .. } => false,
        };
        let changes_nothing = matches!(
            command,
            Command::Status { .. } | Command::Conditioning {} | Command::Bans {} | Command::Certificates {}
        );
        let message = match command {
            Command::Status { role: None, site: None, after: 0, limit: None, alike: false } => {
                AdminToLauncher::Status { ticket: number }
            }
            Command::Status { role: None, site: Some(site), after: 0, limit: None, alike: true } => {
                match self.target(&site) {
                    Ok(site) => AdminToLauncher::StatusAlike { ticket: number, site },
                    Err(reply) => return (reply, Vec::new()),
                }
            }
            Command::Status { alike: true, .. } => {
                return (OrderReply::wrong("`alike` goes with a `site`, and with nothing else"), Vec::new());
            }
            Command::Status { role, site, after, limit, alike: false } => {
                match self.page(number, (role, site), after, limit) {
                    Ok(message) => message,
                    Err(reply) => return (reply, Vec::new()),
                }
            }
            Command::Conditioning {} => AdminToLauncher::Conditioning { ticket: number },
            Command::Republish { site } => match self.target(&(site.unwrap_or_default() + TEMPLATES_OF)) {
                Ok(target) => AdminToLauncher::Republish { ticket: number, target },
                Err(reply) => return (reply, Vec::new()),
            },
            Command::Send { name, .. } => match self.target(&name) {
                Ok(target) => AdminToLauncher::Send { ticket: number, target },
                Err(reply) => return (reply, Vec::new()),
            },
            Command::Reopen {} => AdminToLauncher::Reopen { ticket: number },
            Command::Reload { dry_run, all_or_nothing: false, site: None } => {
                AdminToLauncher::Reload { ticket: number, dry_run }
            }
            Command::Reload { dry_run, all_or_nothing, site } => {
                let extent = if site.is_some() { Extent::One } else { Extent::All };
                let site = site.map_or(0, |site| number_of_name(&site));
                AdminToLauncher::ReloadOf { ticket: number, dry_run, all_or_nothing, extent, site }
            }
            Command::ReloadSites { site: None } => AdminToLauncher::ReloadSites { ticket: number },
            Command::ReloadSites { site: Some(site) } => AdminToLauncher::ReloadOf {
                ticket: number,
                dry_run: false,
                all_or_nothing: false,
                extent: Extent::Seen,
                site: number_of_name(&site),
            },
            Command::TakeUidsBack {} => AdminToLauncher::TakeUidsBack { ticket: number },
            Command::Upgrade { dry_run } => AdminToLauncher::Upgrade { ticket: number, dry_run },
            Command::Bans {} => AdminToLauncher::Bans { ticket: number },
            Command::Certificates {} => AdminToLauncher::Certificates { ticket: number },
            Command::Unban { address } => {
                let (address_high, address_low) = wire::halves(address);
                AdminToLauncher::Unban { ticket: number, address_high, address_low }
            }
            Command::Stop {} => AdminToLauncher::Stop { ticket: number },
            Command::Probe { name, what } => match self.target(&name) {
                Ok(target) => AdminToLauncher::Probe { ticket: number, target, kind: kind(what) },
                Err(reply) => return (reply, Vec::new()),
            },
            Command::Relaunch { name, leave_out } => match self.target(&name) {
                Ok(target) => relaunch(number, target, leave_out),
                Err(reply) => return (reply, Vec::new()),
            },
        };
        let sent = !self.closed.get() && self.control.send(&message, None).await.is_ok();
        let reply = if sent { answer.await.ok() } else { None };
        drop(ticket);
        match reply {
            Some(answer) => answer,
            // The channel's end before the answer is what was asked for: the launcher retires this process only
            // when it stops, or when a successor is ready.
            None if sent && ends_us => (OrderReply::done(), Vec::new()),
            None => {
                let reason = "the admin process is ending, as the server stops or it is being relaunched";
                let reply = if sent && !changes_nothing { OrderReply::failed } else { OrderReply::not_begun };
                (reply(reason), Vec::new())
            }
        }
    }

    fn ticket(&self) -> (u32, oneshot::Receiver<LauncherAnswer>) {
        let number = self.next_ticket.get();
        self.next_ticket.set(number.wrapping_add(1));
        let (reply, answer) = oneshot::channel();
        let gathered = PartialReply::default();
        self.pending.borrow_mut().insert(number, Pending { gathered, reply });
        (number, answer)
    }

    fn target(&self, name: &str) -> Result<u32, OrderReply> {
        self.targets.borrow().number(name)
    }

    /// The order for the part of a status that somebody wants to see.
    fn page(
        &self,
        ticket: u32,
        (role_name, site): (Option<String>, Option<String>),
        from: u32,
        limit: Option<u32>,
    ) -> Result<AdminToLauncher, OrderReply> {
        let site = site.map(|site| self.target(&site)).transpose()?;
        let role = role_name.map(|name| role(&name)).transpose()?;
        Ok(AdminToLauncher::StatusOf {
            ticket,
            by_role: role.is_some(),
            role: role.unwrap_or(Role::Launcher),
            by_site: site.is_some(),
            site: site.unwrap_or_default(),
            from,
            limit: limit.unwrap_or(u32::MAX),
        })
    }

    /// Takes a line of a status.
    pub(crate) fn process(&self, ticket: u32, process: ProcessStatus) {
        if let Some(pending) = self.pending.borrow_mut().get_mut(&ticket) {
            pending.gathered.processes.push(process);
        }
    }

    /// Takes a range of the process whose line follows.
    pub(crate) fn top_range(&self, ticket: u32, range: TopRange) {
        if let Some(pending) = self.pending.borrow_mut().get_mut(&ticket) {
            pending.gathered.top_ranges.push(range);
        }
    }

    /// Takes what a process has shed.
    pub(crate) fn shed(&self, ticket: u32, role: Role, name: &str, shed: &Shed) {
        if let Some(pending) = self.pending.borrow_mut().get_mut(&ticket) {
            let top_ranges = std::mem::take(&mut pending.gathered.top_ranges);
            pending.gathered.conditioned.push(ConditioningRow::new(role, name, shed, top_ranges));
        }
    }

    /// Takes the end of what was shed.
    pub(crate) fn conditioning_end(&self, ticket: u32) {
        self.finish(ticket, |gathered| OrderReply::conditioning(gathered.conditioned));
    }

    /// Takes a ban.
    pub(crate) fn ban(&self, ticket: u32, site: &str, (high, low): (u64, u64), seconds: u32) {
        if let Some(pending) = self.pending.borrow_mut().get_mut(&ticket) {
            let address = wire::address_of(high, low).to_canonical();
            let (site, address) = (site.to_owned(), address.to_string());
            pending.gathered.bans.push(Ban { site, address, seconds });
        }
    }

    /// Takes the end of the bans.
    pub(crate) fn bans_end(&self, ticket: u32) {
        self.finish(ticket, |gathered| OrderReply::Bans { ok: true, bans: gathered.bans });
    }

    /// Takes a certificate.
    pub(crate) fn certificate(&self, ticket: u32, certificate: Certificate) {
        if let Some(pending) = self.pending.borrow_mut().get_mut(&ticket) {
            pending.gathered.certificates.push(certificate);
        }
    }

    /// Takes the end of the certificates.
    pub(crate) fn certificates_end(&self, ticket: u32) {
        self.finish(ticket, |gathered| OrderReply::Certificates {
            ok: true,
            certificates: gathered.certificates,
        });
    }

    /// Takes something that a reload changes.
    pub(crate) fn changed(&self, ticket: u32, changed: ChangedItem) {
        if let Some(pending) = self.pending.borrow_mut().get_mut(&ticket) {
            pending.gathered.changes.push(changed);
        }
    }

    /// Takes what a reload means for a process.
    pub(crate) fn affected(&self, ticket: u32, affected: AffectedProcess) {
        if let Some(pending) = self.pending.borrow_mut().get_mut(&ticket) {
            pending.gathered.effects.push(affected);
        }
    }

    /// Takes what has become of the processes of a role.
    pub(crate) fn upgraded(&self, ticket: u32, upgraded: UpgradedRole) {
        if let Some(pending) = self.pending.borrow_mut().get_mut(&ticket) {
            pending.gathered.upgraded.push(upgraded);
        }
    }

    /// Takes a file of sites that was left out.
    pub(crate) fn left_out(&self, ticket: u32, left_out: LeftOutFile) {
        if let Some(pending) = self.pending.borrow_mut().get_mut(&ticket) {
            pending.gathered.left_out.push(left_out);
        }
    }

    /// Takes where the next page of a status begins.
    pub(crate) fn status_next(&self, ticket: u32, next: u32) {
        if let Some(pending) = self.pending.borrow_mut().get_mut(&ticket) {
            pending.gathered.next = Some(next);
        }
    }

    /// Takes how much of the range of uids is given out.
    pub(crate) fn uids(&self, ticket: u32, uids: UidUsage) {
        if let Some(pending) = self.pending.borrow_mut().get_mut(&ticket) {
            pending.gathered.uids = Some(uids);
        }
    }

    /// Takes how many processes of a launcher before work on.
    pub(crate) fn before(&self, ticket: u32, before: Before) {
        if let Some(pending) = self.pending.borrow_mut().get_mut(&ticket) {
            pending.gathered.before = before;
        }
    }

    /// Takes the end of a status.
    pub(crate) fn status_end(&self, ticket: u32, missing: &str, steps: [(u64, String); 2]) {
        let [(longest_step_us, longest_step), (longest_lately_us, longest_lately)] = steps;
        self.finish(ticket, |PartialReply { uids, before, processes, next, left_out, .. }| {
            let missing = missing.to_owned();
            let summary = StatusSummary {
                missing,
                longest_step_us,
                longest_step,
                longest_lately_us,
                longest_lately,
                uids,
                before,
                left_out,
            };
            OrderReply::status(summary, processes, next)
        });
    }

    /// Takes the answer to a relaunch or a stop.
    pub(crate) fn answer(&self, ticket: u32, outcome: Outcome, reason: &str) {
        self.finish(ticket, |gathered| match outcome {
            Outcome::Done if !gathered.upgraded.is_empty() => {
                let PartialReply { upgraded, left_out, .. } = gathered;
                OrderReply::Upgraded { ok: true, roles: upgraded, half: None, left_out }
            }
            Outcome::Done if !gathered.changes.is_empty() || !gathered.left_out.is_empty() => {
                let PartialReply { changes, effects, left_out, .. } = gathered;
                OrderReply::Reloaded { ok: true, changes, processes: effects, left_out }
            }
            Outcome::Partly => {
                let PartialReply { upgraded, left_out, .. } = gathered;
                OrderReply::Upgraded { ok: true, roles: upgraded, half: Some(reason.to_owned()), left_out }
            }
            Outcome::Done => OrderReply::done(),
            Outcome::Failed if reason.is_empty() => OrderReply::failed("the new process did not come up"),
            Outcome::Busy if reason.is_empty() => OrderReply::busy("another such order is under way"),
            Outcome::Busy => OrderReply::busy(reason),
            Outcome::Failed => OrderReply::failed(reason),
        });
    }

    /// Takes a channel to a process of a service.
    pub(crate) fn service_channel(&self, ticket: u32, worker: u16, channel: OwnedFd) {
        if let Some(pending) = self.pending.borrow_mut().get_mut(&ticket) {
            pending.gathered.channels.push((worker, channel));
        }
    }

    /// Takes what a probe says, to its end.
    pub(crate) async fn probe_output(&self, ticket: u32, output: OwnedFd) {
        let (text, read) = read_output(output).await;
        self.finish(ticket, |_| match read {
            Ok(_) => OrderReply::probed(&text),
            Err(error) => OrderReply::failed(format!("the probe's report could not be read: {error}")),
        });
    }

    /// Answers an order; one whose client has given up is not found, or does not listen.
    pub(crate) fn finish(&self, ticket: u32, reply: impl FnOnce(PartialReply) -> OrderReply) {
        let pending = self.pending.borrow_mut().remove(&ticket);
        if let Some(mut pending) = pending {
            let channels = std::mem::take(&mut pending.gathered.channels);
            let _ = pending.reply.send((reply(pending.gathered), channels));
        }
    }

    /// Ends every order that has no answer: none can come any more.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        let pending = self.pending.take();
        drop(pending);
    }
}

/// The relaunch of a target; that of a signer, perhaps without certificates that cannot be used.
fn relaunch(ticket: u32, target: u32, leave_out: bool) -> AdminToLauncher {
    match leave_out {
        true => AdminToLauncher::RelaunchLeavingOut { ticket, target },
        false => AdminToLauncher::Relaunch { ticket, target },
    }
}

/// Reads a socket to its end.
pub(crate) async fn read_output(output: OwnedFd) -> (Vec<u8>, io::Result<usize>) {
    let mut text = Vec::new();
    let read = match readable(output) {
        Ok(stream) => stream.take(REPORT_MAX).read_to_end(&mut text).await,
        Err(error) => Err(error),
    };
    (text, read)
}

fn readable(output: OwnedFd) -> io::Result<UnixStream> {
    let stream = std::os::unix::net::UnixStream::from(output);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// The role that is called so.
fn role(name: &str) -> Result<Role, OrderReply> {
    let names: Vec<&str> = Role::ALL.iter().map(|role| role.name()).collect();
    Role::ALL.iter().find(|role| role.name() == name).copied().ok_or_else(|| {
        let meant = suggest::did_you_mean(name, &names);
        OrderReply::wrong(format!("there is no role {name:?}; {meant}the roles are: {}", names.join(", ")))
    })
}

fn kind(what: Findings) -> ProbeKind {
    match what {
        Findings::Attempts => ProbeKind::Attempts,
        Findings::Score => ProbeKind::Score,
        Findings::Sweep => ProbeKind::Sweep,
        Findings::Foreign => ProbeKind::Foreign,
    }
}
