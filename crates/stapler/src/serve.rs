//! The stapler's life: told the certificates and ports, then chains and workers, until the launcher is done with it.
//!
//! Runs in: the stapler. Sees: the launcher's messages (trusted: a malformed one ends the process), and two files of
//! the operator's. Never: waits for a responder before it is ready.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use names::{LocalNames, read};
use tokio::sync::Semaphore;
use wire::stapler::LauncherToStapler;
use wire::{ChildToLauncher, NO_PARTITION};
use worker::channel::Channel;
use worker::counters::Counters;
use worker::log::Log;
use worker::{ProcessFault, ProcessStart};

use crate::stapler::{ASKED_AT_ONCE, Stapler};

type StaplerControl = Channel<LauncherToStapler, ChildToLauncher>;

/// The whole life of the process.
///
/// # Errors
/// The launcher says what makes no sense, or the system refuses an event loop.
pub async fn serve(start: ProcessStart) -> Result<(), ProcessFault> {
    let control: StaplerControl = Channel::control(start.control, start.say)?;
    let Some(stapler) = set_up(&control, start.log).await? else {
        return Ok(());
    };
    control.send(&ChildToLauncher::Ready {}, None).await?;
    while let Some((message, descriptor)) = control.receive().await? {
        match (message, descriptor) {
            (LauncherToStapler::Signer {}, Some(channel)) => {
                tokio::task::spawn_local(stapler.clone().serve_signer(channel));
            }
            (LauncherToStapler::Client { site }, Some(channel)) => {
                tokio::task::spawn_local(stapler.clone().attend(site, channel));
            }
            (LauncherToStapler::Resolver {}, Some(file)) => stapler.names.borrow_mut().resolver(&read(&file)),
            (LauncherToStapler::Hosts {}, Some(file)) => stapler.names.borrow_mut().hosts(&read(&file)),
            (LauncherToStapler::Certificate { site, number, name }, None) => {
                stapler.name((site, number), name.as_str());
            }
            (LauncherToStapler::Forget { site }, None) => stapler.forget(site),
            (LauncherToStapler::Report {}, None) => control.report(stapler.counters.snapshot()),
            (LauncherToStapler::ReportStaples {}, None) => {
                for message in stapler.report() {
                    control.send(&message, None).await?;
                }
            }
            (other, _) => return Err(ProcessFault::Launcher(format!("after Begin: {other:?}"))),
        }
    }
    stapler.log.flush().await;
    Ok(())
}

/// Hears the launcher until it says to begin; `None` if it wants no stapler any more.
async fn set_up(control: &StaplerControl, log: Option<OwnedFd>) -> Result<Option<Rc<Stapler>>, ProcessFault> {
    let Some((LauncherToStapler::Limits { flush_ms }, _)) = control.receive().await? else {
        return Err(ProcessFault::Launcher("it did not begin with the limits".into()));
    };
    let log = Log::new(log, NO_PARTITION, flush_ms)?;
    let (mut titles, mut ports, mut names) = (BTreeMap::new(), BTreeSet::new(), LocalNames::default());
    while let Some((message, descriptor)) = control.receive().await? {
        match (message, descriptor) {
            (LauncherToStapler::Port { port }, None) => drop(ports.insert(port)),
            (LauncherToStapler::Certificate { site, number, name }, None) => {
                titles.insert((site, number), name.as_str().to_owned());
            }
            (LauncherToStapler::Resolver {}, Some(file)) => names.resolver(&read(&file)),
            (LauncherToStapler::Hosts {}, Some(file)) => names.hosts(&read(&file)),
            (LauncherToStapler::Begin {}, None) => {
                return Ok(Some(Rc::new(Stapler {
                    log,
                    counters: Counters::default(),
                    names: names.into(),
                    titles: titles.into(),
                    early: Default::default(),
                    ports,
                    held: Default::default(),
                    clients: Default::default(),
                    asked: Semaphore::new(ASKED_AT_ONCE),
                })));
            }
            (other, _) => return Err(ProcessFault::Launcher(format!("before Begin: {other:?}"))),
        }
    }
    Ok(None)
}
