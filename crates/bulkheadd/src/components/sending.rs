//! Channels from the admin role to processes of services, each for one order.
//!
//! Runs in: the launcher, as root. Sees: which service is meant, as a number. Never: reads an order or an answer.

use wire::{LauncherToAdmin, LauncherToService, Outcome, Role};

use super::admin_commands::GONE;
use supervisor::Supervisor;

/// Makes a channel to each process of the service in these slots.
pub(crate) fn begin(supervisor: &mut Supervisor, (admin, ticket): (u64, u32), slots: &[usize]) {
    let Some(&first) = slots.first() else {
        return supervisor.answer_to(admin, ticket, Outcome::Failed, GONE);
    };
    if supervisor.spec(first).role != Role::Service {
        return supervisor.answer_to(admin, ticket, Outcome::Failed, "it is no service");
    }
    let processes: Vec<(u16, u64)> = slots
        .iter()
        .filter_map(|&slot| Some((supervisor.spec(slot).worker, supervisor.slot(slot).current?)))
        .collect();
    if processes.is_empty() {
        let reason = "it has no process now, as it is at rest or broken";
        return supervisor.answer_to(admin, ticket, Outcome::Failed, reason);
    }
    for (worker, service) in processes {
        let of_admin = LauncherToAdmin::ServiceChannel { ticket, worker };
        if let Err(error) = supervisor.join((service, &LauncherToService::Orders {}), (admin, &of_admin)) {
            return supervisor.answer_to(admin, ticket, Outcome::Failed, &error.to_string());
        }
    }
    supervisor.answer_to(admin, ticket, Outcome::Done, "");
}
