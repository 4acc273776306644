//! Set-up of a gate by the launcher's messages, and its end.
//!
//! Runs in: the gate. Sees: messages of the launcher, which is trusted. Never: goes on after one that makes no
//! sense.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use wire::{ChildToLauncher, LauncherToGate};
use worker::channel::Channel;
use worker::log::Log;
use worker::{Fault, Start};

use crate::accept;
use crate::desk::{Desk, Limits};

/// LIMIT: how long a retiring gate waits for heads that have begun to arrive.
const LAST_HEADS: Duration = Duration::from_secs(5);

type Control = Channel<LauncherToGate, ChildToLauncher>;

/// The whole life of the process.
pub async fn run(start: Start) -> Result<(), Fault> {
    let control: Control = Channel::new(start.control)?;
    let Some((desk, listeners)) = set_up(&control, start.log).await? else {
        return Ok(());
    };
    control.send(&ChildToLauncher::Ready {}, None).await?;
    let accepting: Vec<_> = listeners
        .into_iter()
        .map(|socket| accept::accept(desk.clone(), socket).map(tokio::task::spawn_local))
        .collect::<Result<_, _>>()?;
    while let Some((message, descriptor)) = control.receive().await? {
        obey(&desk, &control, message, descriptor)?;
    }
    // The sockets stay with the launcher, and with them whoever waits there; those already here are passed on.
    accepting.iter().for_each(tokio::task::JoinHandle::abort);
    let _ = tokio::time::timeout(LAST_HEADS, desk.empty()).await;
    desk.log.flush().await;
    Ok(())
}

type Listeners = Vec<OwnedFd>;

async fn set_up(control: &Control, log: Option<OwnedFd>) -> Result<Option<(Rc<Desk>, Listeners)>, Fault> {
    let Some((
        LauncherToGate::Limits { head_bytes, head_timeout_ms, start_timeout_ms, connections, flush_ms },
        _,
    )) = control.receive().await?
    else {
        return Err(Fault::Launcher("it did not begin with the limits".into()));
    };
    let limits = Limits {
        head_bytes: head_bytes as usize,
        head_timeout: Duration::from_millis(head_timeout_ms.into()),
        start_timeout: Duration::from_millis(start_timeout_ms.into()),
        connections,
    };
    let mut desk = Desk::new(limits, Log::new(log, wire::NO_PARTITION, flush_ms)?);
    let mut listeners = Vec::new();
    while let Some((message, descriptor)) = control.receive().await? {
        match (message, descriptor) {
            (LauncherToGate::Listen { index }, Some(socket)) => {
                desk.listener(index, accept::address_of(&socket)?);
                listeners.push(socket);
            }
            (LauncherToGate::Route { listener, host, path, partition, site }, None) => {
                desk.route(listener, host.as_str(), path.as_str(), partition, site);
            }
            (LauncherToGate::Begin {}, None) => {
                let desk = Rc::new(desk);
                desk.introduce();
                return Ok(Some((desk, listeners)));
            }
            (other, _) => return Err(Fault::Launcher(format!("before Begin: {other:?}"))),
        }
    }
    Ok(None)
}

fn obey(
    desk: &Rc<Desk>,
    control: &Control,
    message: LauncherToGate,
    descriptor: Option<OwnedFd>,
) -> Result<(), Fault> {
    match (message, descriptor) {
        (LauncherToGate::Attach { partition }, Some(channel)) => {
            desk.partition(partition).outlets.attach(channel)?
        }
        (LauncherToGate::Broken { partition, broken }, None) => desk.partition(partition).broken.set(broken),
        (LauncherToGate::Report {}, None) => {
            // A launcher whose channel is full asks again.
            let counters = desk.counters();
            let _ = control.try_send(&ChildToLauncher::Counters { counters }, None);
        }
        (other, _) => return Err(Fault::Launcher(format!("after Begin: {other:?}"))),
    }
    Ok(())
}
