//! The certificates, what is known of each, and the workers who are to know it.
//!
//! Runs in: the stapler. Sees: chains from the signer; answers, by way of `fetch` and `answer`. Never: has more than a
//! few questions under way, or lets one certificate wait for another's responder for longer than its deadline.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use names::LocalNames;
use rustls_pki_types::CertificateDer;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use wire::log::Level;
use wire::stapler::{Nothing, SignerToStapler, Staple, Stapled, StaplerToSite, Trouble};
use wire::{Bytes, ChildToLauncher};
use worker::channel::{Channel, Foreign};
use worker::counters::Counters;
use worker::log::Log;

use crate::answer::{OcspAnswer, OcspRefusal, check};
use crate::chains::{CertificateId, Chains};
use crate::fetch::fetch;
use crate::schedule::{RETRY, pause};
use crate::subject::Subject;

/// LIMIT: questions that are under way at once: a thousand sites do not ask within one second, nor hold a thousand
/// sockets.
pub(crate) const ASKED_AT_ONCE: usize = 16;

type SiteChannel = Channel<Nothing, StaplerToSite>;

/// A certificate as it is now.
#[derive(Debug)]
pub(crate) struct StapledCertificate {
    chain: Vec<CertificateDer<'static>>,
    staple: Option<StaplerToSite>,
    known: Staple,
    /// The task that asks about it, if there is a responder to be asked.
    asking: Option<AbortHandle>,
}

impl Drop for StapledCertificate {
    fn drop(&mut self) {
        if let Some(asking) = &self.asking {
            asking.abort();
        }
    }
}

pub(crate) struct Stapler {
    pub(crate) log: Log,
    pub(crate) counters: Counters,
    pub(crate) names: RefCell<LocalNames>,
    /// The names of certificates for people.
    pub(crate) titles: RefCell<BTreeMap<CertificateId, String>>,
    /// Chains of which the launcher has yet to say what they are called.
    pub(crate) early: RefCell<BTreeMap<CertificateId, Vec<CertificateDer<'static>>>>,
    pub(crate) ports: BTreeSet<u16>,
    pub(crate) held: RefCell<BTreeMap<CertificateId, StapledCertificate>>,
    pub(crate) clients: RefCell<Vec<(u16, Rc<SiteChannel>)>>,
    pub(crate) asked: Semaphore,
}

impl Stapler {
    /// Hears a signer until it is gone.
    pub(crate) async fn serve_signer(self: Rc<Self>, channel: OwnedFd) -> std::io::Result<()> {
        let channel: Channel<SignerToStapler, Nothing> = Channel::new(channel)?;
        let mut chains = Chains::default();
        let take = |arrived: Result<(SignerToStapler, Option<Foreign>), _>| match arrived {
            Ok((part, None)) => {
                if let Some((id, chain)) = chains.take(part) {
                    self.take(id, chain);
                }
                0
            }
            _ => 1,
        };
        channel.receive_all("the signer", take).await;
        Ok(())
    }

    /// Takes a worker of a site, who is told at once what is known.
    pub(crate) async fn attend(self: Rc<Self>, site: u16, channel: OwnedFd) -> std::io::Result<()> {
        let channel = Rc::new(SiteChannel::new(channel)?);
        self.clients.borrow_mut().push((site, channel.clone()));
        self.counters.connected();
        let known: Vec<StaplerToSite> = {
            let held = self.held.borrow();
            held.range((site, 0)..=(site, u16::MAX)).filter_map(|(_, held)| held.staple.clone()).collect()
        };
        for staple in known {
            // One that is gone is noticed below.
            let _ = channel.send(&staple, None).await;
        }
        // It has nothing to say: what is waited for is its end.
        channel.receive_all("a site's worker", |_| 1).await;
        self.clients.borrow_mut().retain(|(_, other)| !Rc::ptr_eq(other, &channel));
        self.counters.disconnected();
        Ok(())
    }

    /// Takes a chain; the one that was in its place is asked about no more.
    fn take(self: &Rc<Self>, id: CertificateId, chain: Vec<CertificateDer<'static>>) {
        // A new signer repeats what is known.
        if self.held.borrow().get(&id).is_some_and(|held| held.chain == chain) {
            return;
        }
        if !self.titles.borrow().contains_key(&id) {
            self.early.borrow_mut().insert(id, chain);
            return;
        }
        let (subject, trouble) = match self.subject(&chain) {
            Ok(Some(subject)) => (Some(subject), Trouble::Awaited),
            Ok(None) => (None, Trouble::NoResponder),
            Err(why) => {
                self.log_event(id, Level::Warning, &format!("nothing is stapled: {why}"));
                (None, Trouble::Unaskable)
            }
        };
        let known = Staple { stapled: Stapled::Nothing, trouble, until: 0, asked: 0 };
        let asking =
            subject.map(|subject| tokio::task::spawn_local(self.clone().watch(id, subject)).abort_handle());
        self.held.borrow_mut().insert(id, StapledCertificate { chain, staple: None, known, asking });
    }

    /// There is a certificate, which people call so; its chain may have come before.
    pub(crate) fn name(self: &Rc<Self>, id: CertificateId, title: &str) {
        self.titles.borrow_mut().insert(id, title.to_owned());
        let early = self.early.borrow_mut().remove(&id);
        early.into_iter().for_each(|chain| self.take(id, chain));
    }

    /// The certificates of a site are there no more.
    pub(crate) fn forget(&self, site: u16) {
        let own = (site, 0)..=(site, u16::MAX);
        self.titles.borrow_mut().extract_if(own.clone(), |_, _| true).for_each(drop);
        self.early.borrow_mut().extract_if(own.clone(), |_, _| true).for_each(drop);
        self.held.borrow_mut().extract_if(own, |_, _| true).for_each(drop);
    }

    /// Whom to ask about a chain, if there is somebody, or why that cannot be asked.
    fn subject(&self, chain: &[CertificateDer<'static>]) -> Result<Option<Subject>, String> {
        let subject = Subject::of(chain).map_err(|why| why.to_string())?;
        match &subject {
            Some(Subject { responder, .. }) if !self.ports.contains(&responder.port) => Err(format!(
                "{responder} is not asked, as its port is not in `ocsp_ports`; add {} there",
                responder.port
            )),
            _ => Ok(subject),
        }
    }

    /// Asks about a certificate again and again.
    async fn watch(self: Rc<Self>, id: CertificateId, subject: Subject) {
        let mut logged = None;
        loop {
            let answer = self.ask(&subject).await;
            let trouble = answer.as_ref().err().map_or(Trouble::None, |(trouble, _)| *trouble);
            self.know(id, |known| (known.trouble, known.asked) = (trouble, now()));
            let pause = match answer {
                Ok((answer, response)) => {
                    self.log_state(id, &subject, answer, &mut logged);
                    self.staple(id, answer, response);
                    pause(answer.until, now())
                }
                Err((_, why)) => {
                    self.log_failure(id, &subject, &why, &mut logged);
                    RETRY
                }
            };
            sleep(pause).await;
        }
    }

    async fn ask(&self, subject: &Subject) -> Result<(OcspAnswer, Vec<u8>), (Trouble, String)> {
        let unanswered = |why| (Trouble::Unanswered, why);
        let _turn = self.asked.acquire().await.map_err(|error| unanswered(error.to_string()))?;
        let names = self.names.borrow().clone();
        let response = fetch(&names, &subject.responder, subject.question()).await.map_err(unanswered)?;
        let answer = check(&response, subject, now()).map_err(|why| match why {
            OcspRefusal::Unknown => (Trouble::Unknown, why.to_string()),
            _ => (Trouble::Refused, why.to_string()),
        })?;
        self.counters.answered();
        Ok((answer, response.into()))
    }

    /// Keeps what is stapled now, and tells the site's workers.
    fn staple(&self, (site, number): CertificateId, answer: OcspAnswer, response: Vec<u8>) {
        let OcspAnswer { until, revoked } = answer;
        let stapled = if revoked { Stapled::Revoked } else { Stapled::Good };
        self.know((site, number), |known| (known.stapled, known.until) = (stapled, until));
        let staple = {
            let mut held = self.held.borrow_mut();
            let Some(held) = held.get_mut(&(site, number)) else { return };
            let Some(own) = held.chain.first() else { return };
            let certificate = Bytes(digest(&SHA256, own).as_ref().to_vec());
            let staple = StaplerToSite::Staple { number, certificate, until, response: Bytes(response) };
            held.staple.insert(staple).clone()
        };
        for (_, channel) in self.clients.borrow().iter().filter(|(of, _)| *of == site) {
            // A worker whose channel is full does not read it, and keeps what it has.
            let _ = channel.try_send(&staple, None);
        }
    }

    fn know(&self, id: CertificateId, change: impl FnOnce(&mut Staple)) {
        if let Some(held) = self.held.borrow_mut().get_mut(&id) {
            change(&mut held.known);
        }
    }

    /// How it is with each certificate, for the launcher.
    pub(crate) fn report(&self) -> Vec<ChildToLauncher> {
        let (held, now) = (self.held.borrow(), now());
        let messages = held.iter().map(|(&(site, number), held)| {
            let over = held.known.until <= now;
            let stapled = if over { Stapled::Nothing } else { held.known.stapled };
            ChildToLauncher::Staple { site, number, staple: Staple { stapled, ..held.known.clone() } }
        });
        messages.chain([ChildToLauncher::StaplesEnd {}]).collect()
    }

    /// Says in the log how it is, if that is not how it was.
    fn log_state(
        &self,
        id: CertificateId,
        subject: &Subject,
        answer: OcspAnswer,
        logged: &mut Option<String>,
    ) {
        let state = if answer.revoked { "revoked" } else { "good" };
        if logged.replace(state.to_owned()).as_deref() == Some(state) {
            return;
        }
        let responder = &subject.responder;
        if answer.revoked {
            self.log_event(id, Level::Error, &format!(
                "THE CERTIFICATE IS REVOKED, says {responder}; clients are told so, and go away: replace it"
            ));
        } else {
            self.log_event(id, Level::Info, &format!("is stapled with what {responder} says: it is valid"));
        }
    }

    /// The same for an attempt in vain; once more when the last answer has come to its end meanwhile.
    fn log_failure(&self, id: CertificateId, subject: &Subject, why: &str, logged: &mut Option<String>) {
        let held = self.held.borrow();
        let staple = held.get(&id).and_then(|held| held.staple.as_ref());
        let has = staple.is_some_and(|StaplerToSite::Staple { until, .. }| *until > now());
        let now = if has { "the last answer is stapled until its end" } else { "nothing is stapled" };
        let (responder, minutes) = (&subject.responder, RETRY.as_secs() / 60);
        let text =
            format!("{now}: {responder} was asked in vain: {why}; it is asked again every {minutes} min");
        if logged.as_ref() != Some(&text) {
            self.log_event(id, Level::Warning, &text);
            *logged = Some(text);
        }
    }

    fn log_event(&self, id: CertificateId, level: Level, what: &str) {
        let titles = self.titles.borrow();
        let title = titles.get(&id).map_or("a certificate", String::as_str);
        self.log.event(level, format_args!("{title}: {what}"));
    }
}

/// The time in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}
