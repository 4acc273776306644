//! The place that is taken: what the launcher gives to the role, kept together, and the work done meanwhile.
//!
//! Runs in: `rogue`. Sees: messages of the launcher and of peers. Never: refuses one.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sys::inherit::Inherited;
use sys::seqpacket;
use wire::data::{LauncherToDataProxy, Token};
use wire::stapler::LauncherToStapler;
use wire::templates::LauncherToPublisher;
use wire::tls::LauncherToSigner;
use wire::{
    Bundle, ChildToLauncher, FromWorker, LauncherToAdmin, LauncherToBroker, LauncherToConnector,
    LauncherToGate, LauncherToLogger, LauncherToService, LauncherToSite, MESSAGE_MAX, Message, Role,
    ToWorker,
};

use crate::hands::{encoded, send};
use crate::{orders, pages};

/// LIMIT: how many connections of clients are kept, to be misused.
const KEPT_MAX: usize = 8;

/// A channel to a worker.
pub struct Line {
    pub partition: u16,
    pub channel: OwnedFd,
    pub credits: u32,
    pub next_id: u64,
}

/// A connection that waits for its head, in a gate.
pub struct Waiting {
    pub stream: OwnedFd,
    pub peer: SocketAddr,
    pub local: SocketAddr,
    pub preread: Vec<u8>,
}

/// What a role is given.
pub struct Place {
    pub role: Role,
    pub control: OwnedFd,
    pub log: Option<OwnedFd>,
    /// Channels to workers.
    pub lines: Vec<Line>,
    /// Channels from gates and sites.
    pub sources: Vec<OwnedFd>,
    /// Connections of clients that arrived on a source.
    pub kept: Vec<(usize, Bundle, OwnedFd)>,
    pub listeners: Vec<OwnedFd>,
    /// Host, path, partition.
    pub routes: Vec<(String, String, u16)>,
    pub waiting: Vec<Waiting>,
    /// What a logger is given: channels, pipes and files.
    pub logs: Vec<OwnedFd>,
    /// A service's channels to data proxies, each with its token.
    pub proxies: Vec<(OwnedFd, Token)>,
    /// A service's channels to its site's publisher.
    pub publishers: Vec<OwnedFd>,
    /// A service's channels for orders, each for one.
    pub orders: Vec<OwnedFd>,
    /// How many orders were answered.
    pub answered: usize,
    /// Channels from sites, in a signer or a connector; to them, in a stapler; from services, in a data proxy.
    pub clients: Vec<OwnedFd>,
    /// Connections that a connector was asked for.
    pub asked: Vec<u64>,
    /// A site's channels to its signer and its connector; a stapler's from the signer.
    pub signers: Vec<OwnedFd>,
    /// See `signers`.
    pub connectors: Vec<OwnedFd>,
    /// Reads nothing any more.
    pub deaf: bool,
    begun: bool,
    buffer: Vec<u8>,
}

impl Place {
    /// Takes what was inherited, and waits for the launcher's `Begin`.
    pub fn take(role: Role) -> io::Result<Self> {
        let Inherited { control, log, .. } = Inherited::take()?;
        let mut place = Self {
            role,
            control,
            log,
            lines: Vec::new(),
            sources: Vec::new(),
            kept: Vec::new(),
            listeners: Vec::new(),
            routes: Vec::new(),
            waiting: Vec::new(),
            logs: Vec::new(),
            proxies: Vec::new(),
            publishers: Vec::new(),
            orders: Vec::new(),
            answered: 0,
            clients: Vec::new(),
            asked: Vec::new(),
            signers: Vec::new(),
            connectors: Vec::new(),
            deaf: false,
            begun: false,
            buffer: vec![0; MESSAGE_MAX],
        };
        while !place.begun {
            place.live(10);
        }
        send(&place.control, &encoded(&ChildToLauncher::Ready {}), &[]);
        Ok(place)
    }

    /// Says what was done.
    pub fn tell(&self, what: impl std::fmt::Display) {
        eprintln!("rogue: {what}");
    }

    /// A descriptor that is no socket.
    pub fn pipe(&self) -> BorrowedFd<'_> {
        rustix::stdio::stderr()
    }

    /// Does the role's work for some time.
    pub fn live(&mut self, milliseconds: u64) {
        let end = Instant::now() + Duration::from_millis(milliseconds);
        while Instant::now() < end {
            self.pause();
            if self.deaf {
                continue;
            }
            self.hear_launcher();
            self.hear_sources();
            self.hear_workers();
            self.hear_clients();
            orders::answer(self);
            self.pass_on();
        }
    }

    /// Waits for five milliseconds, or until the launcher has something to say.
    fn pause(&self) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        let flags = if self.deaf { PollFlags::empty() } else { PollFlags::IN };
        let _ = poll(&mut [PollFd::new(&self.control, flags)], Some(&timeout));
    }

    /// Waits for a millisecond.
    pub fn breathe(&self) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let _ = poll(&mut [PollFd::new(&self.control, PollFlags::empty())], Some(&timeout));
    }

    pub fn receive<M: Message>(&mut self, from: impl Fn(&Self) -> &OwnedFd) -> Option<(M, Option<OwnedFd>)> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let got = seqpacket::receive(from(self), &mut buffer);
        let message =
            got.ok().flatten().and_then(|got| Some((M::decode(&buffer[..got.len]).ok()?, got.descriptor)));
        self.buffer = buffer;
        message
    }

    fn hear_launcher(&mut self) {
        match self.role {
            Role::Gate => {
                while let Some((message, descriptor)) = self.receive(|place| &place.control) {
                    self.gate_told(message, descriptor);
                }
            }
            Role::Site => {
                while let Some((message, descriptor)) = self.receive(|place| &place.control) {
                    self.site_told(message, descriptor);
                }
            }
            Role::Service => {
                while let Some((message, descriptor)) = self.receive(|place| &place.control) {
                    match (message, descriptor) {
                        (LauncherToService::Begin {}, _) => self.begun = true,
                        (LauncherToService::Attach { .. }, Some(source)) => self.attach(source),
                        (LauncherToService::DataProxy { token, .. }, Some(channel)) => {
                            self.proxies.push((channel, token));
                        }
                        (LauncherToService::Publisher {}, Some(channel)) => self.publishers.push(channel),
                        (LauncherToService::Orders {}, Some(channel)) => self.orders.push(channel),
                        _ => {}
                    }
                }
            }
            Role::Logger => {
                while let Some((message, descriptor)) = self.receive(|place| &place.control) {
                    self.begun |= matches!(message, LauncherToLogger::Begin {});
                    self.logs.extend(descriptor);
                }
            }
            Role::Signer => {
                while let Some((message, descriptor)) = self.receive(|place| &place.control) {
                    match message {
                        LauncherToSigner::Begin {} => self.begun = true,
                        LauncherToSigner::Client { .. } => self.clients.extend(descriptor),
                        _ => {}
                    }
                }
            }
            Role::Connector => {
                while let Some((message, descriptor)) = self.receive(|place| &place.control) {
                    match message {
                        LauncherToConnector::Begin {} => self.begun = true,
                        LauncherToConnector::Attach {} | LauncherToConnector::AttachBroker {} => {
                            self.clients.extend(descriptor)
                        }
                        _ => {}
                    }
                }
            }
            Role::Stapler => {
                while let Some((message, descriptor)) = self.receive(|place| &place.control) {
                    match message {
                        LauncherToStapler::Begin {} => self.begun = true,
                        LauncherToStapler::Client { .. } => self.clients.extend(descriptor),
                        LauncherToStapler::Signer {} => self.signers.extend(descriptor),
                        _ => {}
                    }
                }
            }
            Role::Broker => {
                while let Some((message, descriptor)) = self.receive(|place| &place.control) {
                    match message {
                        LauncherToBroker::Begin {} => self.begun = true,
                        LauncherToBroker::Connector {} => self.connectors.extend(descriptor),
                        LauncherToBroker::Listener { .. } => self.listeners.extend(descriptor),
                        _ => {}
                    }
                }
            }
            Role::DataProxy => {
                while let Some((message, descriptor)) = self.receive(|place| &place.control) {
                    match message {
                        LauncherToDataProxy::Begin {} => self.begun = true,
                        LauncherToDataProxy::Attach { .. } => self.clients.extend(descriptor),
                        LauncherToDataProxy::Connector {} => self.connectors.extend(descriptor),
                        _ => {}
                    }
                }
            }
            Role::Publisher => {
                while let Some((message, descriptor)) = self.receive(|place| &place.control) {
                    match message {
                        LauncherToPublisher::Begin {} => self.begun = true,
                        LauncherToPublisher::Memory {} => {
                            let memory = descriptor.map(pages::fill);
                            let full = memory.unwrap_or_default();
                            self.tell(format_args!("pages: of its memory, {full} bytes are full"));
                        }
                        LauncherToPublisher::Attach { .. } => {
                            descriptor.iter().for_each(pages::send_version);
                            self.clients.extend(descriptor);
                        }
                        _ => {}
                    }
                }
            }
            // A filter has no channel to the launcher; what bad ones do is tried in crates/gate/tests/chain.rs.
            Role::Filter => {}
            Role::Admin | Role::Launcher => {
                while let Some((message, descriptor)) = self.receive(|place| &place.control) {
                    self.begun |= matches!(message, LauncherToAdmin::Begin {});
                    self.listeners.extend(descriptor);
                }
            }
        }
    }

    fn gate_told(&mut self, message: LauncherToGate, descriptor: Option<OwnedFd>) {
        match (message, descriptor) {
            (LauncherToGate::Commit {}, _) => self.begun = true,
            (LauncherToGate::Listen { .. }, Some(socket)) => self.listeners.push(socket),
            (LauncherToGate::Route { host, path, partition, .. }, _) => {
                self.routes.push((host.as_str().to_owned(), path.as_str().to_owned(), partition));
            }
            (LauncherToGate::Attach { partition }, Some(channel)) => self.line(partition, channel),
            _ => {}
        }
    }

    fn site_told(&mut self, message: LauncherToSite, descriptor: Option<OwnedFd>) {
        match (message, descriptor) {
            (LauncherToSite::Begin {}, _) => self.begun = true,
            (LauncherToSite::Attach {}, Some(source)) => self.attach(source),
            (LauncherToSite::Signer {}, Some(channel)) => self.signers.push(channel),
            (LauncherToSite::Connector {}, Some(channel)) => self.connectors.push(channel),
            (LauncherToSite::AttachRelay {}, Some(source)) => self.attach(source),
            (
                LauncherToSite::AttachService { partition } | LauncherToSite::AttachSite { partition },
                Some(channel),
            ) => self.line(partition, channel),
            _ => {}
        }
    }

    fn line(&mut self, partition: u16, channel: OwnedFd) {
        self.lines.push(Line { partition, channel, credits: 0, next_id: 0 });
    }

    fn attach(&mut self, source: OwnedFd) {
        send(&source, &encoded(&FromWorker::Returns { credits: 64, done: vec![] }), &[]);
        self.sources.push(source);
    }

    /// Takes connections, keeps some of them, and answers none.
    fn hear_sources(&mut self) {
        for index in 0..self.sources.len() {
            while let Some((ToWorker::Connection { bundle }, stream)) =
                self.receive(|place| &place.sources[index])
            {
                if let Some(stream) = stream.filter(|_| self.kept.len() < KEPT_MAX) {
                    self.kept.push((index, bundle, stream));
                }
            }
        }
    }

    fn hear_workers(&mut self) {
        for index in 0..self.lines.len() {
            while let Some((message, descriptor)) = self.receive(|place| &place.lines[index].channel) {
                match (message, descriptor) {
                    (FromWorker::Returns { credits, .. }, _) => {
                        self.lines[index].credits += u32::from(credits);
                    }
                    (FromWorker::Back { preread, .. }, Some(stream)) => self.came(stream, preread.0),
                    _ => {}
                }
            }
        }
    }
}
