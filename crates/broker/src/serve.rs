//! The broker's life: one task per process of its service, until the launcher is done with it.
//!
//! Runs in: the broker. Sees: the launcher's messages (trusted: a malformed one ends the process). Never: receives a
//! call before it knows its limits.

use std::rc::Rc;
use std::time::Duration;

use sys::notify::Listener;
use wire::{ChildToLauncher, LauncherToBroker, NO_PARTITION};
use worker::channel::Channel;
use worker::log::Log;
use worker::{ProcessFault, ProcessStart};

use crate::broker::Broker;

type BrokerControl = Channel<LauncherToBroker, ChildToLauncher>;

/// The whole life of the process.
///
/// # Errors
/// The launcher says what makes no sense, or the system refuses an event loop.
pub async fn serve(start: ProcessStart) -> Result<(), ProcessFault> {
    let control: BrokerControl = Channel::control(start.control, start.say)?;
    let limits = match control.receive().await? {
        Some((LauncherToBroker::Limits { waiting_max, connect_timeout_ms, flush_ms }, _)) => {
            (waiting_max as usize, Duration::from_millis(connect_timeout_ms.into()), flush_ms)
        }
        Some(_) => return Err(ProcessFault::Launcher("it did not begin with the limits".into())),
        None => return Ok(()),
    };
    let (waiting_max, timeout, flush_ms) = limits;
    let log = Log::new(start.log, NO_PARTITION, flush_ms)?;
    let broker = Rc::new(Broker::new(waiting_max, timeout, log.clone()));
    while let Some((message, descriptor)) = control.receive().await? {
        match (message, descriptor) {
            (LauncherToBroker::Begin {}, None) => control.send(&ChildToLauncher::Ready {}, None).await?,
            (LauncherToBroker::Listener { leader }, Some(listener)) => {
                let listener = Listener::new(listener);
                tokio::task::spawn_local(broker.clone().attend_process(listener, leader));
            }
            (LauncherToBroker::Connector {}, Some(channel)) => {
                tokio::task::spawn_local(broker.clone().attend_connector(channel));
            }
            (LauncherToBroker::Report {}, None) => control.report(broker.counters()),
            (other, _) => return Err(ProcessFault::Launcher(format!("{other:?} out of place"))),
        }
    }
    log.flush().await;
    Ok(())
}
