//! The processes of services that have the templates, and how far each has come.
//!
//! Never: counts a process that takes no requests yet; one that is starting may be busy for long, and is sent
//! everything in order.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use templates::Sources;
use tokio::sync::Notify;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// LIMIT: what waits to be sent to a process: half as many versions at most. One that takes requests and reads nothing
/// keeps every further version from being activated, so it misses none; one that does not is heard no more.
const ORDERS_MAX: usize = 32;

/// A version, with its number.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) number: u64,
    pub(crate) sources: Sources,
}

/// A message to a process.
#[derive(Clone, Debug)]
pub(crate) enum MemberOrder {
    Stage(Rc<Version>),
    Activate(u64),
    Discard(u64),
    Go,
}

/// The state of a process in regard to the version that was staged last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum StagedVersion {
    /// Nothing that is known.
    #[default]
    Unknown,
    Compiled(u64),
    Refused(u64, String),
}

#[derive(Debug)]
struct ServiceProcess {
    service: String,
    orders: Sender<MemberOrder>,
    /// Whether it takes requests.
    serves: bool,
    staged: StagedVersion,
    active: Option<u64>,
}

/// How far the processes have come with a version.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PublishProgress {
    /// Those that serve and have done what was asked.
    pub(crate) done: usize,
    /// The services of those that have not yet.
    pub(crate) missing: Vec<String>,
    /// The mistakes in it, by services.
    pub(crate) refused: Vec<String>,
}

/// All of them, and the versions that they are sent.
#[derive(Debug)]
pub(crate) struct Members {
    members: RefCell<BTreeMap<u64, ServiceProcess>>,
    current: RefCell<Rc<Version>>,
    /// The version that is being staged.
    next: RefCell<Option<Rc<Version>>>,
    /// Something is known of a process that was not before, or one has gone.
    pub(crate) changed: Notify,
}

impl Members {
    pub(crate) fn new(current: Version) -> Self {
        Self {
            members: RefCell::default(),
            current: RefCell::new(Rc::new(current)),
            next: RefCell::default(),
            changed: Notify::new(),
        }
    }

    /// Takes a new process, which is sent what holds, and what is being staged.
    pub(crate) fn add(&self, key: u64, service: String) -> Receiver<MemberOrder> {
        let (orders, received) = channel(ORDERS_MAX);
        let current = self.current.borrow().clone();
        let number = current.number;
        let next = self.next.borrow().clone();
        let first = [MemberOrder::Stage(current), MemberOrder::Activate(number)];
        first.into_iter().chain(next.map(MemberOrder::Stage)).for_each(|order| drop(orders.try_send(order)));
        let member =
            ServiceProcess { service, orders, serves: false, staged: StagedVersion::Unknown, active: None };
        self.members.borrow_mut().insert(key, member);
        received
    }

    pub(crate) fn remove(&self, key: u64) {
        self.members.borrow_mut().remove(&key);
        self.changed.notify_one();
    }

    fn change(&self, key: u64, change: impl FnOnce(&mut ServiceProcess)) {
        self.members.borrow_mut().get_mut(&key).into_iter().for_each(change_once(change));
        self.changed.notify_one();
    }

    /// A process is about to take requests: from here on it is waited for.
    pub(crate) fn serves(&self, key: u64) {
        self.change(key, |member| {
            member.serves = true;
            let _ = member.orders.try_send(MemberOrder::Go);
        });
    }

    pub(crate) fn staged(&self, key: u64, staged: StagedVersion) {
        self.change(key, |member| member.staged = staged);
    }

    pub(crate) fn active(&self, key: u64, version: u64) {
        self.change(key, |member| member.active = Some(version));
    }

    fn send_all(&self, order: &MemberOrder) {
        self.members.borrow_mut().retain(|_, member| {
            let is_full = matches!(member.orders.try_send(order.clone()), Err(TrySendError::Full(_)));
            member.serves || !is_full
        });
    }

    /// Has all stage a version.
    pub(crate) fn stage(&self, version: Rc<Version>) {
        *self.next.borrow_mut() = Some(version.clone());
        self.send_all(&MemberOrder::Stage(version));
    }

    /// Makes an end of the staging; if it is activated, the version holds for new processes at once.
    pub(crate) fn end_staging(&self, activates: bool) {
        let Some(version) = self.next.borrow_mut().take() else { return };
        let number = version.number;
        if activates {
            *self.current.borrow_mut() = version;
            self.send_all(&MemberOrder::Activate(number));
        } else {
            self.send_all(&MemberOrder::Discard(number));
        }
    }

    /// The processes that have compiled a version.
    pub(crate) fn staging(&self, version: u64) -> PublishProgress {
        self.progress(|member, progress| match &member.staged {
            StagedVersion::Compiled(of) if *of == version => progress.done += 1,
            StagedVersion::Refused(of, reason) if *of == version => {
                progress.refused.push(format!("service {} cannot compile it: {reason}", member.service));
            }
            _ => progress.missing.push(member.service.clone()),
        })
    }

    /// In whom a version holds.
    pub(crate) fn activation(&self, version: u64) -> PublishProgress {
        self.progress(|member, progress| match member.active == Some(version) {
            true => progress.done += 1,
            false => progress.missing.push(member.service.clone()),
        })
    }

    fn progress(&self, mut count: impl FnMut(&ServiceProcess, &mut PublishProgress)) -> PublishProgress {
        let mut progress = PublishProgress::default();
        for member in self.members.borrow().values().filter(|member| member.serves) {
            count(member, &mut progress);
        }
        progress
    }
}

/// A change of one thing, as that of each of at most one.
fn change_once(change: impl FnOnce(&mut ServiceProcess)) -> impl FnMut(&mut ServiceProcess) {
    let mut change = Some(change);
    move |member| change.take().into_iter().for_each(|change| change(member))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Rc<Version> {
        let mut sources = Sources::default();
        sources.add("a".into(), text.into()).unwrap();
        Rc::new(Version { number: sources.version(), sources })
    }

    fn numbers(orders: &mut Receiver<MemberOrder>) -> Vec<String> {
        let word = |order| match order {
            MemberOrder::Stage(version) => format!("stage {}", version.sources.templates["a"]),
            MemberOrder::Activate(_) => "activate".into(),
            MemberOrder::Discard(_) => "discard".into(),
            MemberOrder::Go => "go".into(),
        };
        std::iter::from_fn(|| orders.try_recv().ok()).map(word).collect()
    }

    #[test]
    fn one_that_comes_in_the_middle_is_sent_both_versions_and_waited_for_once_it_serves() {
        let (one, two) = (version("1"), version("2"));
        let members = Members::new(Version { number: one.number, sources: one.sources.clone() });
        let mut first = members.add(1, "a".into());
        members.serves(1);
        assert_eq!(numbers(&mut first), ["stage 1", "activate", "go"]);
        members.stage(two.clone());
        let mut second = members.add(2, "b".into());
        assert_eq!(numbers(&mut second), ["stage 1", "activate", "stage 2"]);
        members.staged(1, StagedVersion::Compiled(two.number));
        assert_eq!(members.staging(two.number), PublishProgress { done: 1, ..PublishProgress::default() });
        members.serves(2);
        assert_eq!(members.staging(two.number).missing, ["b"]);
        members.staged(2, StagedVersion::Refused(two.number, "why".into()));
        assert_eq!(members.staging(two.number).refused, ["service b cannot compile it: why"]);
        // An answer about another version counts for nothing.
        members.staged(2, StagedVersion::Compiled(one.number));
        assert_eq!(members.staging(two.number).missing, ["b"]);
        members.remove(2);
        members.end_staging(true);
        assert_eq!(numbers(&mut first), ["stage 2", "activate"]);
        assert_eq!(numbers(&mut members.add(3, "c".into())), ["stage 2", "activate"]);
        assert_eq!(members.activation(two.number).missing, ["a"]);
        members.active(1, two.number);
        assert_eq!(members.activation(two.number), PublishProgress { done: 1, ..PublishProgress::default() });
    }

    #[test]
    fn one_that_reads_nothing_is_left_unless_it_takes_requests() {
        let one = version("1");
        let members = Members::new(Version { number: one.number, sources: one.sources.clone() });
        let (_starts, _serves) = (members.add(1, "a".into()), members.add(2, "b".into()));
        members.serves(2);
        for number in 0..2 * ORDERS_MAX {
            members.stage(version(&number.to_string()));
            members.end_staging(false);
        }
        assert_eq!(members.members.borrow().keys().copied().collect::<Vec<_>>(), [2]);
        let last = version("last");
        members.stage(last.clone());
        assert_eq!(members.staging(last.number).missing, ["b"]);
    }

    #[test]
    fn what_is_discarded_is_not_sent_to_new_ones() {
        let (one, two) = (version("1"), version("2"));
        let members = Members::new(Version { number: one.number, sources: one.sources.clone() });
        let mut first = members.add(1, "a".into());
        members.stage(two);
        members.end_staging(false);
        assert_eq!(numbers(&mut first), ["stage 1", "activate", "stage 2", "discard"]);
        assert_eq!(numbers(&mut members.add(2, "b".into())), ["stage 1", "activate"]);
    }
}
