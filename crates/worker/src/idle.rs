//! A worker that nobody needs says so, for the launcher to stop it.
//!
//! Runs in: site and service workers. Sees: how many connections there are. Never: ends by itself: only the launcher
//! knows whether one is wanted, and starts the next.
//!
//! Source: Mihara, "Hi-sap" (2009), the content access scheduler.

use std::rc::Rc;
use std::time::Duration;

use wire::{ChildToLauncher, Message};

use crate::channel::Channel;
use crate::receiver::Receiver;

/// In how many steps it is looked whether there was a connection.
const STEPS: u32 = 4;

/// Says that there has been no connection for so long, again and again. Without a time, nothing.
pub async fn report<In: Message>(
    receiver: Rc<Receiver>,
    control: &Channel<In, ChildToLauncher>,
    time: Option<Duration>,
) {
    let Some(time) = time else { return std::future::pending().await };
    loop {
        receiver.rested(time, STEPS).await;
        // If there is no room for it, the next time.
        let _ = control.try_send(&ChildToLauncher::Idle {}, None);
    }
}

/// The time that the launcher says, in which 0 is never.
pub fn time(milliseconds: u32) -> Option<Duration> {
    (milliseconds > 0).then(|| Duration::from_millis(milliseconds.into()))
}
