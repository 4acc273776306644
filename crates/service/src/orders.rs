//! Orders of the administrator: what the service has done and is doing, and words of its own.
//!
//! Sees: what the administrator has typed, by way of the admin role. Never: answers more than one order on a channel.

use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use wire::Text;
use wire::orders::{AdminToService, ServiceToAdmin};
use worker::channel::Channel;

use crate::process::{RequestHandler, Worker};

/// Carries out the order on a channel.
pub(crate) async fn attend<P: RequestHandler>(worker: Rc<Worker<P>>, channel: OwnedFd) {
    let Ok(channel) = Channel::<AdminToService, ServiceToAdmin>::new(channel) else { return };
    let Ok(Some((message, None))) = channel.receive().await else { return };
    let outcome = match message {
        AdminToService::Diagnostics {} => Ok(diagnostics(&worker)),
        AdminToService::Order { name, argument } => {
            worker.process.command(name.as_str(), argument.as_str()).await
        }
    };
    let answer = match outcome {
        Ok(text) => ServiceToAdmin::Done { text: Text::new(text) },
        Err(error) => ServiceToAdmin::Failed { reason: Text::new(error.to_string()) },
    };
    // The administrator may have given up.
    let _ = channel.send(&answer, None).await;
}

/// The counters and the state of the process, as JSON.
fn diagnostics<P>(worker: &Worker<P>) -> String {
    let counters = worker.receiver.counters.snapshot();
    let mut text = format!(
        "{{\"uptime_s\":{},\"connections_now\":{},\"connections\":{},\"requests\":{}",
        worker.since.elapsed().as_secs(),
        counters.connections_now,
        counters.connections,
        counters.requests
    );
    if let Some(pages) = worker.templates.as_ref().and_then(crate::Templates::current) {
        let _ = write!(text, ",\"templates\":\"{}\"", pages.version());
    }
    text + "}"
}
