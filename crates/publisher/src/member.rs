//! One process of a service: versions go to it, and how far it has come is heard.
//!
//! Sees: messages of a service, which may be compromised. Never: lets one keep the publisher from another, but by not
//! compiling what is to hold for all.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use tokio::sync::mpsc::Receiver;
use wire::log::Level;
use wire::templates::{PublisherToService, ServiceToPublisher};
use worker::channel::{Channel, ChannelError};

use crate::members::{MemberOrder, StagedVersion, Version};
use crate::serve::PublisherState;

type ServiceChannel = Channel<ServiceToPublisher, PublisherToService>;

/// LIMIT: nonsense that a service may send before its channel is closed.
const VIOLATIONS_MAX: u32 = 10;

/// Serves one process of a service until it is gone.
pub(crate) async fn attend(shared: Rc<PublisherState>, key: u64, service: String, channel: OwnedFd) {
    let Ok(channel) = ServiceChannel::new(channel) else { return };
    shared.counters.connected();
    let orders = shared.members.add(key, service.clone());
    tokio::select! {
        () = send(&channel, orders) => {}
        () = receive(&shared, key, &service, &channel) => {}
    }
    shared.members.remove(key);
    shared.counters.disconnected();
}

/// Sends what is to be sent, in order; ends when the process is gone.
async fn send(channel: &ServiceChannel, mut orders: Receiver<MemberOrder>) {
    while let Some(order) = orders.recv().await {
        let sent = match order {
            MemberOrder::Stage(version) => stage(channel, &version).await,
            MemberOrder::Activate(version) => {
                channel.send(&PublisherToService::Activate { version }, None).await
            }
            MemberOrder::Discard(version) => {
                channel.send(&PublisherToService::Discard { version }, None).await
            }
            MemberOrder::Go => channel.send(&PublisherToService::Go {}, None).await,
        };
        if sent.is_err() {
            return;
        }
    }
}

async fn stage(channel: &ServiceChannel, version: &Version) -> std::io::Result<()> {
    for part in version.sources.parts(version.number) {
        channel.send(&part, None).await?;
    }
    Ok(())
}

/// Hears a process until it is gone, or has sent too much nonsense.
async fn receive(shared: &PublisherState, key: u64, service: &str, channel: &ServiceChannel) {
    let mut violations = 0;
    while violations < VIOLATIONS_MAX {
        match channel.receive().await {
            Ok(Some((message, None))) => take(shared, key, message),
            Ok(Some((_, Some(_)))) | Err(ChannelError::Malformed(_)) => violations += 1,
            Ok(None) | Err(ChannelError::Io(_)) => return,
        }
    }
    shared.log.event(Level::Warning, format_args!("service {service} sends nonsense; its channel is closed"));
}

fn take(shared: &PublisherState, key: u64, message: ServiceToPublisher) {
    match message {
        ServiceToPublisher::Staged { version } => {
            shared.members.staged(key, StagedVersion::Compiled(version))
        }
        ServiceToPublisher::Refused { version, reason } => {
            shared.members.staged(key, StagedVersion::Refused(version, reason.as_str().to_owned()));
        }
        ServiceToPublisher::Active { version } => {
            shared.counters.answered();
            shared.members.active(key, version);
        }
        ServiceToPublisher::Serving {} => shared.members.serves(key),
    }
}
