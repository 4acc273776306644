//! The connector's life: told its targets, then one task per channel, until the launcher is done with it.
//!
//! Runs in: the connector. Sees: the launcher's messages (trusted: a malformed one ends the process). Never: connects
//! before it knows all its targets.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use names::{LocalNames, read};
use wire::{ChildToLauncher, LauncherToConnector, NO_PARTITION};
use worker::channel::Channel;
use worker::counters::Counters;
use worker::log::Log;
use worker::{ProcessFault, ProcessStart};

use crate::address::Address;
use crate::calls::Calls;
use crate::dialer::Dialer;
use crate::grants::Grants;
use crate::named::{NamedServer, Resolver};
use crate::target::ServerGroup;

type ConnectorControl = Channel<LauncherToConnector, ChildToLauncher>;

/// The whole life of the process.
///
/// # Errors
/// The launcher says what makes no sense, or the system refuses an event loop.
pub async fn serve(start: ProcessStart) -> Result<(), ProcessFault> {
    let control: ConnectorControl = Channel::control(start.control, start.say)?;
    let Some(Roles { dialer, calls }) = set_up(&control, start.log).await? else {
        return Ok(());
    };
    dialer.look_up_names();
    control.send(&ChildToLauncher::Ready {}, None).await?;
    while let Some((message, descriptor)) = control.receive().await? {
        match (message, descriptor) {
            (LauncherToConnector::Attach {}, Some(channel)) => {
                tokio::task::spawn_local(dialer.clone().attend(channel));
            }
            (LauncherToConnector::AttachBroker {}, Some(channel)) => {
                tokio::task::spawn_local(calls.clone().attend(channel));
            }
            (LauncherToConnector::Resolver {}, Some(file)) => {
                dialer.resolver.change(|names| names.resolver(&read(&file)));
            }
            (LauncherToConnector::Hosts {}, Some(file)) => {
                dialer.resolver.change(|names| names.hosts(&read(&file)));
            }
            (LauncherToConnector::Report {}, _) => control.report(dialer.counters.snapshot()),
            (other, _) => return Err(ProcessFault::Launcher(format!("after Begin: {other:?}"))),
        }
    }
    dialer.log.flush().await;
    Ok(())
}

/// The tasks that serve a site's worker, and those that serve a service's broker.
struct Roles {
    dialer: Rc<Dialer>,
    calls: Rc<Calls>,
}

/// Hears the launcher until it says to begin; `None` if it wants no connector any more.
async fn set_up(control: &ConnectorControl, log: Option<OwnedFd>) -> Result<Option<Roles>, ProcessFault> {
    let Some((LauncherToConnector::Limits { connect_timeout_ms, waiting_max, flush_ms }, _)) =
        control.receive().await?
    else {
        return Err(ProcessFault::Launcher("it did not begin with the limits".into()));
    };
    let log = Log::new(log, NO_PARTITION, flush_ms)?;
    let mut targets: HashMap<u16, ServerGroup> = HashMap::new();
    let (mut grants, mut names) = (Grants::default(), LocalNames::default());
    while let Some((message, descriptor)) = control.receive().await? {
        match (message, descriptor) {
            (LauncherToConnector::Tcp { target, address }, _) => {
                targets.entry(target).or_default().add(Address::Tcp(address));
            }
            (LauncherToConnector::Unix { target, name }, Some(directory)) => {
                targets.entry(target).or_default().add(Address::Unix(directory, name.as_str().to_owned()));
            }
            (LauncherToConnector::Name { target, name, port }, _) => {
                targets.entry(target).or_default().add_named(Rc::new(NamedServer::new(name.as_str(), port)));
            }
            (LauncherToConnector::Resolver {}, Some(file)) => names.resolver(&read(&file)),
            (LauncherToConnector::Hosts {}, Some(file)) => names.hosts(&read(&file)),
            (LauncherToConnector::Grant { network, port }, _) => {
                grants
                    .add(network.as_str(), port)
                    .map_err(|error| ProcessFault::Launcher(error.to_string()))?;
            }
            (LauncherToConnector::GrantUdp {}, _) => grants.add_udp(),
            (LauncherToConnector::Begin {}, _) => {
                let timeout = Duration::from_millis(connect_timeout_ms.into());
                let (waiting_max, counters) = (waiting_max as usize, Rc::new(Counters::default()));
                let calls = Calls::new(grants, timeout, waiting_max, counters.clone(), log.clone());
                let (resolver, sites) = (Resolver::new(names), Default::default());
                let dialer = Dialer { targets, timeout, waiting_max, counters, log, resolver, sites };
                return Ok(Some(Roles { dialer: Rc::new(dialer), calls: Rc::new(calls) }));
            }
            (other, _) => return Err(ProcessFault::Launcher(format!("before Begin: {other:?}"))),
        }
    }
    Ok(None)
}
