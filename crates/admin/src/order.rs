//! Each order's facts: its message to the launcher, how long it may take, what it changes, and its line in the log.
//!
//! Runs in: the admin role. Sees: names from clients. Never: hands a name on; it finds the number that the launcher
//! gave it.

use std::time::Duration;

use wire::{AdminToLauncher, Extent, ProbeKind, Role, number_of_name};

use crate::command::{Command, Findings};
use crate::reply::OrderReply;
use crate::targets::{TEMPLATES_OF, Targets};

/// How long an order may take.
///
/// LIMIT: above the longest usual `start_timeout`; after it the order goes on, but nobody is told its end.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// LIMIT: the same of an upgrade, which replaces the processes of thousands of sites one after the other, and of the
/// templates of all sites.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(600);

/// The effect of an order on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderEffect {
    /// It changes nothing: it can be given once more.
    Nothing,
    /// It changes something, or starts a process.
    Changes,
    /// It ends this process too, so that no answer to it may come.
    EndsAdmin,
}

/// The facts about an order, besides its message.
#[derive(Debug)]
pub(crate) struct OrderFacts {
    pub(crate) timeout: Duration,
    pub(crate) effect: OrderEffect,
    /// The order in words, for the log; `None` if it leaves no trace.
    pub(crate) trace: Option<String>,
}

impl OrderFacts {
    fn reads() -> Self {
        Self { timeout: COMMAND_TIMEOUT, effect: OrderEffect::Nothing, trace: None }
    }

    fn changes(trace: impl Into<String>) -> Self {
        Self { effect: OrderEffect::Changes, trace: Some(trace.into()), ..Self::reads() }
    }
}

impl Command {
    /// The facts about it.
    pub(crate) fn facts(&self) -> OrderFacts {
        match self {
            Self::Status { .. } | Self::Conditioning {} | Self::Bans {} | Self::Certificates {} => {
                OrderFacts::reads()
            }
            Self::Probe { .. } | Self::Reload { dry_run: true, .. } => {
                OrderFacts { effect: OrderEffect::Changes, ..OrderFacts::reads() }
            }
            Self::Upgrade { dry_run: true } => {
                OrderFacts { timeout: UPGRADE_TIMEOUT, effect: OrderEffect::Changes, ..OrderFacts::reads() }
            }
            Self::Upgrade { dry_run: false } => {
                OrderFacts { timeout: UPGRADE_TIMEOUT, ..OrderFacts::changes("upgrade") }
            }
            Self::Republish { site } => {
                let of = site.as_deref().unwrap_or("all sites");
                let trace = format!("republishing of the templates of {of:?}");
                OrderFacts { timeout: UPGRADE_TIMEOUT, ..OrderFacts::changes(trace) }
            }
            Self::Unban { address } => OrderFacts::changes(format!("end of the bans of {address}")),
            Self::Relaunch { name, .. } => {
                let facts = OrderFacts::changes(format!("relaunch of {name:?}"));
                let effect =
                    if name == Role::Admin.name() { OrderEffect::EndsAdmin } else { OrderEffect::Changes };
                OrderFacts { effect, ..facts }
            }
            Self::Send { name, order, .. } => {
                let order = order.as_deref().unwrap_or("diagnostics");
                OrderFacts::changes(format!("{order:?} to {name:?}"))
            }
            Self::TakeUidsBack {} => OrderFacts::changes("uids to be taken back"),
            Self::Reopen {} => OrderFacts::changes("logs to be opened anew"),
            Self::Reload { dry_run: false, site, .. } | Self::ReloadSites { site } => OrderFacts::changes(
                site.as_ref().map_or("reload".to_owned(), |site| format!("reload of {site:?}")),
            ),
            Self::Stop {} => OrderFacts { effect: OrderEffect::EndsAdmin, ..OrderFacts::changes("stop") },
        }
    }

    /// Its message, under this ticket.
    ///
    /// # Errors
    /// The answer to the client who has named what there is not.
    pub(crate) fn message(self, ticket: u32, targets: &Targets) -> Result<AdminToLauncher, OrderReply> {
        Ok(match self {
            Self::Status { role, site, after, limit, alike } => {
                return status(ticket, (role, site, alike), (after, limit), targets);
            }
            Self::Conditioning {} => AdminToLauncher::Conditioning { ticket },
            Self::Republish { site } => {
                let target = targets.number(&(site.unwrap_or_default() + TEMPLATES_OF))?;
                AdminToLauncher::Republish { ticket, target }
            }
            Self::Send { name, .. } => AdminToLauncher::Send { ticket, target: targets.number(&name)? },
            Self::Reopen {} => AdminToLauncher::Reopen { ticket },
            Self::Reload { dry_run, all_or_nothing: false, site: None } => {
                AdminToLauncher::Reload { ticket, dry_run }
            }
            Self::Reload { dry_run, all_or_nothing, site } => {
                let extent = if site.is_some() { Extent::One } else { Extent::All };
                let site = site.map_or(0, |site| number_of_name(&site));
                AdminToLauncher::ReloadOf { ticket, dry_run, all_or_nothing, extent, site }
            }
            Self::ReloadSites { site: None } => AdminToLauncher::ReloadSites { ticket },
            Self::ReloadSites { site: Some(site) } => {
                let (extent, site) = (Extent::Seen, number_of_name(&site));
                AdminToLauncher::ReloadOf { ticket, dry_run: false, all_or_nothing: false, extent, site }
            }
            Self::TakeUidsBack {} => AdminToLauncher::TakeUidsBack { ticket },
            Self::Upgrade { dry_run } => AdminToLauncher::Upgrade { ticket, dry_run },
            Self::Bans {} => AdminToLauncher::Bans { ticket },
            Self::Certificates {} => AdminToLauncher::Certificates { ticket },
            Self::Unban { address } => {
                let (address_high, address_low) = wire::halves(address);
                AdminToLauncher::Unban { ticket, address_high, address_low }
            }
            Self::Stop {} => AdminToLauncher::Stop { ticket },
            Self::Probe { name, what } => {
                AdminToLauncher::Probe { ticket, target: targets.number(&name)?, kind: kind(what) }
            }
            Self::Relaunch { name, leave_out: false } => {
                AdminToLauncher::Relaunch { ticket, target: targets.number(&name)? }
            }
            Self::Relaunch { name, leave_out: true } => {
                AdminToLauncher::RelaunchLeavingOut { ticket, target: targets.number(&name)? }
            }
        })
    }
}

/// The message for the part of a status that is asked for.
fn status(
    ticket: u32,
    (role, site, alike): (Option<String>, Option<String>, bool),
    (from, limit): (u32, Option<u32>),
    targets: &Targets,
) -> Result<AdminToLauncher, OrderReply> {
    match (role, site, alike, from, limit) {
        (None, None, false, 0, None) => Ok(AdminToLauncher::Status { ticket }),
        (None, Some(site), true, 0, None) => {
            Ok(AdminToLauncher::StatusAlike { ticket, site: targets.number(&site)? })
        }
        (_, _, true, ..) => Err(OrderReply::wrong("`alike` goes with a `site`, and with nothing else")),
        (role, site, false, from, limit) => {
            let site = site.map(|site| targets.number(&site)).transpose()?;
            let role = role.map(|name| role_of(&name)).transpose()?;
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
    }
}

/// The role that is called so.
fn role_of(name: &str) -> Result<Role, OrderReply> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(order: &str) -> OrderFacts {
        Command::parse(format!("{{\"command\":{order}}}").as_bytes()).unwrap().facts()
    }

    #[test]
    fn what_changes_something_leaves_a_trace() {
        for reads in [r#""status""#, r#""bans""#, r#""certificates""#, r#""conditioning""#] {
            let OrderFacts { effect, trace, .. } = facts(reads);
            assert_eq!((effect, trace), (OrderEffect::Nothing, None), "{reads}");
        }
        let changes = [
            (r#""relaunch","name":"gate""#, OrderEffect::Changes, r#"relaunch of "gate""#),
            (r#""relaunch","name":"admin""#, OrderEffect::EndsAdmin, r#"relaunch of "admin""#),
            (r#""reload","site":"shop""#, OrderEffect::Changes, r#"reload of "shop""#),
            (
                r#""send","name":"shop/cart","order":"flush""#,
                OrderEffect::Changes,
                r#""flush" to "shop/cart""#,
            ),
            (r#""stop""#, OrderEffect::EndsAdmin, "stop"),
        ];
        for (order, effect, trace) in changes {
            let facts = facts(order);
            assert_eq!((facts.effect, facts.trace.as_deref()), (effect, Some(trace)), "{order}");
        }
        assert_eq!(facts(r#""reload","dry_run":true"#).trace, None);
        assert_eq!(facts(r#""upgrade""#).timeout, UPGRADE_TIMEOUT);
    }
}
