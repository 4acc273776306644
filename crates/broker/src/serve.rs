//! The broker's life: one task per listener, until the launcher is done with it.
//!
//! Runs in: the broker. Sees: the launcher's messages (trusted: a malformed one ends the process). Never: receives a call
//! before it was told to begin.

use wire::{ChildToLauncher, LauncherToBroker};
use worker::channel::Channel;
use worker::{Fault, Start};

type Control = Channel<LauncherToBroker, ChildToLauncher>;

/// The whole life of the process.
///
/// # Errors
/// The launcher says what makes no sense, or the system refuses an event loop.
pub async fn serve(start: Start) -> Result<(), Fault> {
    let control: Control = Channel::new(start.control)?;
    while let Some((message, _)) = control.receive().await? {
        match message {
            LauncherToBroker::Begin {} => control.send(&ChildToLauncher::Ready {}, None).await?,
            LauncherToBroker::Report {} => control.report(wire::Counters::default()),
            _ => {}
        }
    }
    Ok(())
}
