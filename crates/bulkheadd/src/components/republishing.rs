//! Having a publisher read its templates again.
//!
//! Runs in: the launcher, as root. Sees: which publisher is meant, as a number. Never: reads what the publisher says of
//! it; the admin role gets the other end of the socket.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use wire::templates::LauncherToPublisher;
use wire::{LauncherToAdmin, Outcome, Role};

use supervisor::Supervisor;
use supervisor::error::during;

/// Tells the publisher in one of these slots, and gives the admin role what it will say.
pub(crate) fn begin(supervisor: &mut Supervisor, (admin, ticket): (u64, u32), slots: &[usize]) {
    let refuse = |supervisor: &mut Supervisor, reason: &str| {
        supervisor.answer_to(admin, ticket, Outcome::Failed, reason);
    };
    // One that has gone with a change of the configuration has nothing to publish.
    let Some(&slot) = slots.first() else {
        return supervisor.answer_to(admin, ticket, Outcome::Done, "");
    };
    if supervisor.spec(slot).role != Role::Publisher {
        return refuse(supervisor, "it has no templates");
    }
    if supervisor.slot(slot).next.is_some() {
        return supervisor.answer_to(admin, ticket, Outcome::Busy, "its publisher is being replaced");
    }
    let Some(publisher) = supervisor.slot(slot).current else {
        let reason = match supervisor.slot(slot).rests {
            true => "the site is at rest: what is in its folder of templates holds when it starts".to_owned(),
            false => format!(
                "its publisher does not run: it ended with {}; `error.log` says why, and `bulkhead check` what is wrong with templates",
                supervisor.slot(slot).last_exit
            ),
        };
        return refuse(supervisor, &reason);
    };
    match pair().map_err(during("make a channel")) {
        Ok((its, admins)) => {
            supervisor.send(publisher, &LauncherToPublisher::Republish {}, Some(OwnedFd::from(its)));
            let output = OwnedFd::from(admins);
            supervisor.send(admin, &LauncherToAdmin::PublisherOutput { ticket }, Some(output));
        }
        Err(error) => refuse(supervisor, &error.to_string()),
    }
}

/// Waits on either end; neither takes descriptors.
fn pair() -> std::io::Result<(UnixStream, UnixStream)> {
    let (one, other) = UnixStream::pair()?;
    sys::seqpacket::refuse_descriptors(&one)?;
    sys::seqpacket::refuse_descriptors(&other)?;
    Ok((one, other))
}
