//! The signer at work: certificates of the launcher's, and channels on which sites ask.
//!
//! Runs in: the signer. Sees: messages of the launcher, which is trusted; and of sites, which may be compromised.
//! Never: hears a stapler, or serves one site twice while another waits.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use wire::log::Level;
use wire::stapler::{Nothing, SignerToStapler};
use wire::tls::{Holding, LauncherToSigner, SignerToSite, SiteToSigner, Verdict};
use wire::{Bytes, ChildToLauncher};
use worker::channel::{Channel, ChannelError};
use worker::counters::Counters;
use worker::log::Log;
use worker::{ProcessFault, ProcessStart};

use crate::certificate::CertifiedKey;
use crate::step::step;

/// LIMIT: how long a signer that goes waits for workers to ask for one more signature.
const QUIET: Duration = Duration::from_secs(1);

/// How long a line of the log may wait.
const FLUSH_MS: u32 = 1000;
/// How much a site may ask for that it may not have before its channel is closed.
const REFUSALS_MAX: u32 = 100;

type SiteChannel = Channel<SiteToSigner, SignerToSite>;
type StaplerChannel = Channel<Nothing, SignerToStapler>;

/// The whole life of the process.
pub async fn run(start: ProcessStart) -> Result<(), ProcessFault> {
    let control: Channel<LauncherToSigner, ChildToLauncher> = Channel::control(start.control, start.say)?;
    let signer = Rc::new(Signer {
        log: Log::new(start.log, wire::NO_PARTITION, FLUSH_MS)?,
        names: RefCell::default(),
        hosts: RefCell::default(),
        held: RefCell::default(),
        going: RefCell::default(),
        clients: RefCell::default(),
        staplers: RefCell::default(),
        has_begun: Cell::new(false),
        versions: Cell::new(0),
        counters: Counters::default(),
    });
    let mut key = None;
    while let Some((message, descriptor)) = control.receive().await? {
        match (message, descriptor) {
            (LauncherToSigner::Key { site, number }, Some(file)) => key = Some(((site, number), file)),
            (LauncherToSigner::Certificate { site, number }, Some(file)) => {
                let key = key.take().filter(|(of, _)| *of == (site, number)).map(|(_, file)| file);
                let verdict = signer.take(site, number, &file, key.as_ref());
                let holding = signer.holding(site, number);
                let verdict_message = ChildToLauncher::Certificate { site, number, verdict, holding };
                control.send(&verdict_message, None).await?;
            }
            (LauncherToSigner::Host { site, host }, None) => {
                signer.hosts.borrow_mut().entry(site).or_default().push(host.as_str().to_owned());
            }
            (LauncherToSigner::Name { site, name }, None) => signer.begin_site(site, name.as_str()),
            (LauncherToSigner::Forget { site }, None) => signer.forget(site),
            (LauncherToSigner::Confirm { ticket }, None) => {
                control.send(&ChildToLauncher::Confirmed { ticket }, None).await?;
            }
            (LauncherToSigner::Client { site }, Some(channel)) => signer.attach(site, channel)?,
            (LauncherToSigner::Stapler {}, Some(channel)) => signer.attach_stapler(channel)?,
            (LauncherToSigner::Begin {}, None) => {
                control.send(&ChildToLauncher::Ready {}, None).await?;
                signer.begin();
            }
            (LauncherToSigner::Report {}, None) => control.report(signer.counters.snapshot()),
            (other, _) => return Err(ProcessFault::Launcher(format!("out of place: {other:?}"))),
        }
    }
    signer.finish().await;
    signer.log.flush().await;
    Ok(())
}

/// A certificate as it is now, and as it was before: handshakes that have begun with that are to end.
struct CertificateVersions {
    version: u32,
    now: Rc<CertifiedKey>,
    before: Option<(u32, Rc<CertifiedKey>)>,
}

struct Signer {
    log: Log,
    /// The names of sites.
    names: RefCell<BTreeMap<u16, String>>,
    /// By site.
    hosts: RefCell<BTreeMap<u16, Vec<String>>>,
    /// By site and number.
    held: RefCell<BTreeMap<(u16, u16), CertificateVersions>>,
    /// Sites that have gone, and have workers yet.
    going: RefCell<BTreeSet<u16>>,
    clients: RefCell<Vec<(u16, Rc<SiteChannel>)>>,
    staplers: RefCell<Vec<Rc<StaplerChannel>>>,
    /// Whether the signer has read all certificates that there were at its start.
    has_begun: Cell<bool>,
    versions: Cell<u32>,
    counters: Counters,
}

impl Signer {
    /// Signs on after the launcher's end, for workers that retire as well: connections that have come to them are to
    /// begin. Ends when no worker is left, or none has asked for a while: those that stay have a successor's channel.
    async fn finish(&self) {
        let mut before = None;
        while !self.clients.borrow().is_empty() {
            let answered = self.counters.requests.get();
            if before.replace(answered) == Some(answered) {
                return;
            }
            tokio::time::sleep(QUIET).await;
        }
    }

    /// The name of a site.
    fn name(&self, site: u16) -> String {
        self.names.borrow().get(&site).cloned().unwrap_or_else(|| "without a name".to_owned())
    }

    /// A site comes, perhaps by the number of one that has gone.
    fn begin_site(&self, site: u16, name: &str) {
        self.going.borrow_mut().remove(&site);
        self.leave(site);
        self.names.borrow_mut().insert(site, name.to_owned());
    }

    /// A site has gone. Its workers finish what they have begun, handshakes as well.
    fn forget(&self, site: u16) {
        self.going.borrow_mut().insert(site);
        self.leave_if_idle(site);
    }

    /// Forgets a site that has gone, if no worker is left.
    fn leave_if_idle(&self, site: u16) {
        let is_asked = self.clients.borrow().iter().any(|(of, _)| *of == site);
        if !is_asked && self.going.borrow_mut().remove(&site) {
            self.leave(site);
        }
    }

    /// Forgets all that is known of a site. Its keys are overwritten.
    fn leave(&self, site: u16) {
        self.held.borrow_mut().extract_if((site, 0)..=(site, u16::MAX), |_, _| true).for_each(drop);
        self.hosts.borrow_mut().remove(&site);
        self.names.borrow_mut().remove(&site);
    }

    /// Reads a certificate. The launcher logs its fault, as the launcher knows the names of the files.
    fn take(self: &Rc<Self>, site: u16, number: u16, file: &OwnedFd, key: Option<&OwnedFd>) -> Verdict {
        let certified = match CertifiedKey::read(file, key) {
            Ok(certified) => Rc::new(certified),
            Err(verdict) => return verdict,
        };
        self.versions.set(self.versions.get().wrapping_add(1));
        let version = self.versions.get();
        let mut held = self.held.borrow_mut();
        let before = held.remove(&(site, number)).map(|held| (held.version, held.now));
        held.insert((site, number), CertificateVersions { version, now: certified, before });
        drop(held);
        for (_, channel) in self.clients.borrow().iter().filter(|(of, _)| *of == site) {
            let (signer, channel) = (self.clone(), channel.clone());
            tokio::task::spawn_local(async move { signer.send_chains(site, Some(number), &channel).await });
        }
        if self.has_begun.get() {
            self.staplers.borrow().iter().for_each(|channel| self.tell(channel, Some((site, number))));
        }
        Verdict::Good
    }

    /// Tells staplers of all certificates, which the signer has read by now. The launcher waits for the signer until
    /// then, and nobody waits for a stapler.
    fn begin(self: &Rc<Self>) {
        self.has_begun.set(true);
        self.staplers.borrow().iter().for_each(|channel| self.tell(channel, None));
    }

    /// Tells a stapler of all certificates, or of one.
    fn tell(self: &Rc<Self>, channel: &Rc<StaplerChannel>, only: Option<(u16, u16)>) {
        let (signer, channel) = (self.clone(), channel.clone());
        tokio::task::spawn_local(async move { signer.send_to_stapler(only, &channel).await });
    }

    /// The facts about the certificate in this place now.
    fn holding(&self, site: u16, number: u16) -> Holding {
        let held = self.held.borrow();
        let now = held.get(&(site, number)).map(|held| &held.now);
        let hosts = self.hosts.borrow();
        let hosts = hosts.get(&site).map_or(&[][..], Vec::as_slice);
        now.map_or(Holding::NOTHING, |now| now.holding(hosts))
    }

    fn attach(self: &Rc<Self>, site: u16, channel: OwnedFd) -> std::io::Result<()> {
        let channel = Rc::new(SiteChannel::new(channel)?);
        self.clients.borrow_mut().push((site, channel.clone()));
        self.counters.connected();
        let signer = self.clone();
        tokio::task::spawn_local(async move {
            signer.send_chains(site, None, &channel).await;
            signer.serve_site(site, &channel).await;
            signer.clients.borrow_mut().retain(|(_, other)| !Rc::ptr_eq(other, &channel));
            signer.leave_if_idle(site);
            signer.counters.disconnected();
        });
        Ok(())
    }

    /// A stapler gets all chains, which are public, and has nothing to say: what is waited for is its end.
    fn attach_stapler(self: &Rc<Self>, channel: OwnedFd) -> std::io::Result<()> {
        let channel = Rc::new(StaplerChannel::new(channel)?);
        self.staplers.borrow_mut().push(channel.clone());
        let (signer, has_begun) = (self.clone(), self.has_begun.get());
        tokio::task::spawn_local(async move {
            if has_begun {
                signer.send_to_stapler(None, &channel).await;
            }
            channel.receive_all("the stapler", |_| 1).await;
            signer.staplers.borrow_mut().retain(|other| !Rc::ptr_eq(other, &channel));
        });
        Ok(())
    }

    /// Sends all chains to a stapler, or that of one certificate.
    async fn send_to_stapler(&self, only: Option<(u16, u16)>, channel: &StaplerChannel) {
        let mut messages = Vec::new();
        // A signer may hold thousands, and says so of each that is renewed: the loop looks at no other.
        let (first, last) = only.map_or(((0, 0), (u16::MAX, u16::MAX)), |only| (only, only));
        for (&(site, number), held) in self.held.borrow().range(first..=last) {
            let count = held.now.chain.len() as u8;
            messages.extend(held.now.chain.iter().enumerate().map(|(index, der)| {
                let (index, der) = (index as u8, Bytes(der.to_vec()));
                SignerToStapler::Certificate { site, number, index, count, der }
            }));
        }
        for message in messages {
            if channel.send(&message, None).await.is_err() {
                return;
            }
        }
    }

    /// Sends the chains of a site to one of its workers, or that of one certificate.
    async fn send_chains(&self, site: u16, only: Option<u16>, channel: &SiteChannel) {
        let mut messages = Vec::new();
        let (first, last) = only.map_or((0, u16::MAX), |only| (only, only));
        for ((_, number), held) in self.held.borrow().range((site, first)..=(site, last)) {
            let (count, kind) = (held.now.chain.len() as u8, held.now.kind());
            messages.extend(held.now.chain.iter().enumerate().map(|(index, der)| {
                SignerToSite::Certificate {
                    number: *number,
                    version: held.version,
                    kind,
                    index: index as u8,
                    count,
                    der: Bytes(der.to_vec()),
                }
            }));
        }
        for message in messages {
            if channel.send(&message, None).await.is_err() {
                return;
            }
        }
    }

    /// Answers one site until it is gone, or has asked too often for what it may not have.
    async fn serve_site(&self, site: u16, channel: &SiteChannel) {
        let mut refusals = 0;
        while refusals < REFUSALS_MAX {
            let answer = match channel.receive().await {
                Ok(Some((SiteToSigner::Sign { ticket, number, version, scheme, message }, None))) => {
                    match self.sign(site, number, version, scheme, &message.0) {
                        Ok(signature) => SignerToSite::Signed { ticket, signature: Bytes(signature) },
                        Err(why) => {
                            refusals += 1;
                            let text = format_args!("refused a signature to site {}: {why}", self.name(site));
                            self.log.event(Level::Warning, text);
                            SignerToSite::Refused { ticket }
                        }
                    }
                }
                Ok(Some(_)) | Err(ChannelError::Malformed(_)) => {
                    refusals += 1;
                    continue;
                }
                Ok(None) | Err(ChannelError::Io(_)) => return,
            };
            self.counters.answered();
            // A site that asks and does not listen waits in vain.
            let _ = channel.try_send(&answer, None);
            // One signature, then the others have their turn.
            tokio::task::yield_now().await;
        }
        self.log.event(
            Level::Error,
            format_args!("site {} asks for what it may not have; its channel is closed", self.name(site)),
        );
    }

    fn sign(
        &self,
        site: u16,
        number: u16,
        version: u32,
        scheme: u16,
        message: &[u8],
    ) -> Result<Vec<u8>, &'static str> {
        let step = step(message).ok_or("it is no step of a handshake")?;
        let certified = {
            let held = self.held.borrow();
            let held = held.get(&(site, number)).ok_or("it has no certificate of that number")?;
            match &held.before {
                _ if held.version == version => held.now.clone(),
                Some((before, certified)) if *before == version => certified.clone(),
                _ => return Err("its certificate is out of date"),
            }
        };
        certified.sign(scheme, step, message).ok_or("its key does not sign by that scheme")
    }
}
