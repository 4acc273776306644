//! Answers the requests of a site's worker on its channel.
//!
//! Runs in: the connector. Sees: numbers from a site's worker, which may be compromised. Never: does more for one
//! channel at once than its limit.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;
use wire::log::Level;
use wire::{FromConnector, ToConnector, Unreachable};
use worker::channel::Channel;
use worker::counters::Counters;
use worker::log::Log;

use crate::member::TargetAddress;
use crate::named::{NamedServer, Resolver};
use crate::target::ServerGroup;

/// LIMIT: sockets that are handed over at once before they are connected: as many as make the message cost little for
/// each.
const AIMED: usize = 32;

/// LIMIT: connections of one channel of which it is known to which of several servers they are: those that were made
/// last, more than wait for an answer at once.
const KNOWN_MAX: usize = 4096;

/// The state that all channels share.
#[derive(Debug)]
pub(crate) struct Dialer {
    pub targets: HashMap<u16, ServerGroup>,
    /// How long a connection may take to come about.
    pub timeout: Duration,
    /// How many may be wanted at once on one channel.
    pub waiting_max: usize,
    pub counters: Rc<Counters>,
    pub log: Log,
    /// Looks up the servers that have names.
    pub resolver: Resolver,
    pub sites: RefCell<Vec<Weak<WorkerChannel>>>,
}

/// One site worker's channel.
#[derive(Debug)]
pub(crate) struct WorkerChannel {
    channel: Channel<ToConnector, FromConnector>,
    /// Attempts under way.
    wanted: RefCell<HashMap<u64, AbortHandle>>,
    /// To which of several servers connections are, the newest last.
    known: RefCell<VecDeque<(u64, Weak<TargetAddress>)>>,
}

impl WorkerChannel {
    fn note(&self, id: u64, member: &Rc<TargetAddress>) {
        let mut known = self.known.borrow_mut();
        if known.len() >= KNOWN_MAX {
            known.pop_front();
        }
        known.push_back((id, Rc::downgrade(member)));
    }

    fn server_of(&self, id: u64) -> Option<Rc<TargetAddress>> {
        let known = self.known.borrow();
        known.iter().rev().find(|(other, _)| *other == id).and_then(|(_, member)| member.upgrade())
    }
}

impl Dialer {
    /// Serves a site worker until it is gone.
    pub async fn attend(self: Rc<Self>, channel: OwnedFd) -> std::io::Result<()> {
        let (wanted, known) = (RefCell::default(), RefCell::default());
        let site = Rc::new(WorkerChannel { channel: Channel::new(channel)?, wanted, known });
        self.sites.borrow_mut().push(Rc::downgrade(&site));
        let take = |arrived| match arrived {
            Ok((ToConnector::Connect { id, target }, None)) => self.begin(&site, id, target),
            Ok((ToConnector::Cancel { id }, None)) => {
                // It may be done already; then this came too late.
                if let Some(attempt) = site.wanted.borrow_mut().remove(&id) {
                    attempt.abort();
                    self.counters.disconnected();
                }
                0
            }
            Ok((ToConnector::Aim { target }, None)) => {
                self.aim(&site, target);
                0
            }
            Ok((ToConnector::Silent { id }, None)) => {
                // One that is not known any more, or is alone, is asked as ever.
                let server = site.server_of(id);
                server
                    .iter()
                    .for_each(|server| server.fell_silent(&|text| self.log.event(Level::Warning, text)));
                0
            }
            Ok((_, Some(_))) | Err(_) => 1,
        };
        site.channel.receive_all("the site's worker", take).await;
        for (_, attempt) in site.wanted.take() {
            attempt.abort();
            self.counters.disconnected();
        }
        drop(site);
        self.sites.borrow_mut().retain(|site| site.strong_count() > 0);
        Ok(())
    }

    /// Looks up every server that has a name, now and whenever that is due.
    pub fn look_up_names(self: &Rc<Self>) {
        for (&number, target) in &self.targets {
            for named in target.named() {
                tokio::task::spawn_local(self.clone().keep(number, named.clone()));
            }
        }
    }

    async fn keep(self: Rc<Self>, target: u16, named: Rc<NamedServer>) {
        let log = |level, text: String| self.log.event(level, text);
        named.keep(&self.resolver, &log, &|| self.moved(target)).await;
    }

    /// Has the workers send no more requests on connections from before.
    fn moved(&self, target: u16) {
        for site in self.sites.borrow().iter().filter_map(Weak::upgrade) {
            tokio::task::spawn_local(async move {
                // One that is gone needs no word.
                let _ = site.channel.send(&FromConnector::Moved { target }, None).await;
            });
        }
    }

    /// Begins an attempt; how much nonsense the wish was.
    fn begin(self: &Rc<Self>, site: &Rc<WorkerChannel>, id: u64, target: u16) -> u32 {
        if site.wanted.borrow().contains_key(&id) {
            return 1;
        }
        if site.wanted.borrow().len() >= self.waiting_max {
            let failed = FromConnector::Failed { id, why: Unreachable::Crowded };
            // One whose channel is full does not read its answers, and waits in vain by its own fault.
            let _ = site.channel.try_send(&failed, None);
            return 0;
        }
        self.counters.connected();
        let (dialer, own) = (self.clone(), site.clone());
        let attempt = tokio::task::spawn_local(async move {
            let outcome = dialer.connect(target).await;
            let (message, socket) = match outcome {
                Ok((socket, member)) => {
                    member.iter().for_each(|member| own.note(id, member));
                    (FromConnector::Connected { id }, Some(socket))
                }
                Err(why) => (FromConnector::Failed { id, why }, None),
            };
            let _ = own.channel.send(&message, socket.as_ref().map(AsFd::as_fd)).await;
            if own.wanted.borrow_mut().remove(&id).is_some() {
                dialer.counters.disconnected();
            }
        });
        site.wanted.borrow_mut().insert(id, attempt.abort_handle());
        0
    }

    /// Hands over sockets that are not connected yet.
    fn aim(&self, site: &WorkerChannel, target: u16) {
        let sockets = self.targets.get(&target).map(|target| target.aim(AIMED)).unwrap_or_default();
        let descriptors: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
        // One whose channel is full does not read its answers.
        let _ = site.channel.try_send_many(&FromConnector::Aimed { target }, &descriptors);
    }

    /// A connection, and the server to which it is, if there are several.
    async fn connect(&self, target: u16) -> Result<(OwnedFd, Option<Rc<TargetAddress>>), Unreachable> {
        let target = self.targets.get(&target).ok_or(Unreachable::Unknown)?;
        let log = |text: String| self.log.event(Level::Warning, text);
        let (socket, member) = target.connect_to_member(Instant::now() + self.timeout, &log).await?;
        self.counters.answered();
        Ok((socket, target.has_several().then_some(member)))
    }
}
