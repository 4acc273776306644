//! The way to the site's publisher, whichever process that is.
//!
//! The publisher that came last is heard, and no earlier one. Without any, the version that holds goes on to hold.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use templates::{Incoming, TemplateSet};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use wire::Text;
use wire::templates::{PublisherToService, ServiceToPublisher};
use worker::channel::Channel;

use super::Templates;
use crate::Error;

/// LIMIT: how long the first version may take to come: a publisher starts with the services, and is replaced within a
/// second.
const FIRST_WAIT: Duration = Duration::from_secs(10);
/// LIMIT: the same once its publisher has gone: a start whose templates have a mistake is not to be waited for.
const NEXT_WAIT: Duration = Duration::from_secs(2);
/// LIMIT: how long the publisher may take to say that nothing is on its way.
const GO_WAIT: Duration = Duration::from_secs(2);

/// LIMIT: mistakes that a publisher is told.
const MISTAKES_MAX: usize = 3;

type PublisherChannel = Channel<PublisherToService, ServiceToPublisher>;

/// How far the process has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LinkStage {
    /// It waits for a version.
    Empty,
    /// It does, and a publisher has gone meanwhile.
    Alone,
    /// It has one.
    HasVersion,
    /// It is about to take requests, and asks the publisher whether anything is on its way.
    Asks,
    /// Nothing was.
    Goes,
}

/// See the file's head.
pub(crate) struct PublisherLink {
    templates: Templates,
    stage: watch::Sender<LinkStage>,
    /// Hears the publisher that came last.
    task: Option<JoinHandle<()>>,
}

impl PublisherLink {
    pub(crate) fn new() -> Self {
        Self { templates: Templates::default(), stage: watch::Sender::new(LinkStage::Empty), task: None }
    }

    pub(crate) fn templates(&self) -> &Templates {
        &self.templates
    }

    /// Hears another publisher from now on.
    pub(crate) fn attach(&mut self, channel: OwnedFd) -> Result<(), Error> {
        let channel = PublisherChannel::new(channel)?;
        let publisher = Publisher {
            channel,
            templates: self.templates.clone(),
            stage: self.stage.clone(),
            incoming: Incoming::default(),
            staged: None,
        };
        if let Some(before) = self.task.replace(tokio::task::spawn_local(publisher.receive())) {
            before.abort();
        }
        Ok(())
    }

    /// Waits for the first version.
    pub(crate) fn first(&self) -> impl Future<Output = Result<(), Error>> + use<> {
        let mut stage = self.stage.subscribe();
        async move {
            let mut until = Instant::now() + FIRST_WAIT;
            loop {
                let now = *stage.borrow_and_update();
                match now {
                    LinkStage::Empty => {}
                    // The stage is reached once, also if others have come and gone since.
                    LinkStage::Alone => until = until.min(Instant::now() + NEXT_WAIT),
                    LinkStage::HasVersion | LinkStage::Asks | LinkStage::Goes => return Ok(()),
                }
                if timeout_at(until, stage.changed()).await.is_err() {
                    return Err(
                        "no templates have come; error.log says what has become of the site's publisher"
                            .into(),
                    );
                }
            }
        }
    }

    /// Waits until no version is on its way that others have already; from then on, none is activated without this
    /// process.
    pub(crate) fn serve(&self) -> impl Future<Output = ()> + use<> {
        let is_heard = self.task.as_ref().is_some_and(|task| !task.is_finished());
        self.stage.send_replace(if is_heard { LinkStage::Asks } else { LinkStage::Goes });
        let mut stage = self.stage.subscribe();
        async move {
            // A publisher that says nothing activates nothing.
            let _ = timeout(GO_WAIT, stage.wait_for(|stage| *stage == LinkStage::Goes)).await;
        }
    }
}

/// One process of the publisher.
struct Publisher {
    channel: PublisherChannel,
    templates: Templates,
    stage: watch::Sender<LinkStage>,
    incoming: Incoming,
    staged: Option<Arc<TemplateSet>>,
}

impl Publisher {
    async fn receive(mut self) {
        let mut stage = self.stage.subscribe();
        let mut has_asked = false;
        loop {
            if *stage.borrow_and_update() >= LinkStage::Asks && !has_asked {
                has_asked = true;
                self.say(ServiceToPublisher::Serving {}).await;
            }
            tokio::select! {
                message = self.channel.receive() => match message {
                    Ok(Some((message, None))) => self.take(message).await,
                    // It is gone, or is not what it should be; what holds goes on to hold.
                    _ => break,
                },
                _ = stage.changed(), if !has_asked => {}
            }
        }
        // Nobody is there who could answer.
        self.stage.send_if_modified(|stage| {
            replace(stage, LinkStage::Asks, LinkStage::Goes)
                || replace(stage, LinkStage::Empty, LinkStage::Alone)
        });
    }

    async fn say(&self, message: ServiceToPublisher) {
        // That it has gone is heard.
        let _ = self.channel.send(&message, None).await;
    }

    async fn take(&mut self, message: PublisherToService) {
        match message {
            PublisherToService::Stage { version } => {
                let answer = match compile(std::mem::take(&mut self.incoming), version) {
                    Ok(set) => {
                        self.staged = Some(set);
                        ServiceToPublisher::Staged { version }
                    }
                    Err(reason) => {
                        eprintln!("error: templates that the publisher has sent cannot be used: {reason}");
                        self.staged = None;
                        ServiceToPublisher::Refused { version, reason: Text::new(reason) }
                    }
                };
                self.say(answer).await;
            }
            PublisherToService::Activate { version } => {
                if let Some(set) = self.staged.take_if(|staged| staged.version() == version) {
                    self.templates.activate(set);
                    self.reach(LinkStage::HasVersion);
                    self.say(ServiceToPublisher::Active { version }).await;
                }
            }
            PublisherToService::Discard { version } => {
                self.staged.take_if(|staged| staged.version() == version);
            }
            PublisherToService::Go {} => self.reach(LinkStage::Goes),
            part => self.incoming.take(part),
        }
    }

    /// Comes to a stage, unless it is there already or beyond.
    fn reach(&self, reached: LinkStage) {
        self.stage.send_if_modified(|stage| {
            let is_further = reached > *stage;
            *stage = reached.max(*stage);
            is_further
        });
    }
}

/// Compiles a version, once all of it has come.
fn compile(incoming: Incoming, version: u64) -> Result<Arc<TemplateSet>, String> {
    let set = TemplateSet::compile(incoming.whole(version)?).map_err(|mistakes| {
        let mistakes: Vec<String> = mistakes.iter().take(MISTAKES_MAX).map(ToString::to_string).collect();
        mistakes.join("; ")
    })?;
    Ok(Arc::new(set))
}

/// Goes from one stage to another, if it is the one.
fn replace(stage: &mut LinkStage, from: LinkStage, to: LinkStage) -> bool {
    let is_it = *stage == from;
    if is_it {
        *stage = to;
    }
    is_it
}
