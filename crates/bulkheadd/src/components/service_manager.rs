//! What the service manager is told: that the server is up, reloads, stops and lives, and a line about it.
//!
//! Runs in: the launcher. Sees no untrusted bytes. Never: says that the launcher lives from anywhere but its main loop,
//! as a loop that hangs is what the watchdog is for; fails anything if nobody can be told.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use supervisor::Supervisor;
use supervisor::numbers::is_live;
use wire::Role;

use crate::components::Component;
use crate::components::notifier::Notifier;

/// How often the line about the server is made anew, if something has happened.
const STATUS_EVERY: Duration = Duration::from_secs(1);
/// How soon a service manager that has no room is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// What the service manager knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Starting,
    Serving,
    Reloading,
    Stopping,
}

/// What a reload has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reloaded {
    /// What has changed in the configuration.
    #[default]
    All,
    /// The same, but for so many files of sites that were left out.
    Without(usize),
    /// Nothing: it was refused.
    Nothing,
}

/// Signs of life, twice in the time that the service manager waits for one.
#[derive(Debug)]
struct Watchdog {
    every: Duration,
    next: Instant,
}

/// See the file's head. Without a service manager, nothing is done.
#[derive(Debug, Default)]
pub(crate) struct ServiceManager {
    notifier: Option<Notifier>,
    watchdog: Option<Watchdog>,
    stage: Stage,
    last_reload: Reloaded,
    status: String,
    /// Before this, the status is not looked at again; and whether something has happened since it was.
    next_look: Option<Instant>,
    is_outdated: bool,
    /// Whether the log says already that the service manager cannot be reached.
    is_lost: bool,
}

impl Component for ServiceManager {
    fn deadline(&self) -> Option<Instant> {
        let notifier = self.notifier.as_ref()?;
        let retry = notifier.is_waiting().then(|| Instant::now() + RETRY);
        let look = self.next_look.filter(|_| self.is_outdated && self.stage == Stage::Serving);
        let watchdog = self.watchdog.as_ref().map(|watchdog| watchdog.next);
        [retry, look, watchdog].into_iter().flatten().min()
    }

    fn on_time(&mut self, supervisor: &mut Supervisor, now: Instant) {
        if self.notifier.is_none() {
            return;
        }
        match self.stage {
            Stage::Stopping => {}
            _ if supervisor.is_stopping() => self.enter(Stage::Stopping, "STOPPING=1\nSTATUS=stopping"),
            Stage::Starting if supervisor.is_announced() => self.enter_serving(supervisor),
            Stage::Serving => self.look(supervisor, now),
            Stage::Starting | Stage::Reloading => {}
        }
        self.sign_of_life(now);
        self.flush(supervisor);
    }
}

impl ServiceManager {
    /// Reports to `notifier`, if there is one, and says that the launcher lives more often than each `timeout`.
    pub(crate) fn new(notifier: Option<Notifier>, timeout: Option<Duration>) -> Self {
        let watchdog = timeout.map(|timeout| Watchdog { every: timeout / 2, next: Instant::now() });
        Self { notifier, watchdog, ..Self::default() }
    }

    /// The configuration is about to be read again.
    pub(crate) fn reload_begins(&mut self) {
        if self.stage == Stage::Serving {
            let now = clock_gettime(ClockId::Monotonic);
            let now_us = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
            let text = format!("RELOADING=1\nMONOTONIC_USEC={now_us}\nSTATUS=reloading");
            self.enter(Stage::Reloading, &text);
        }
    }

    /// A reload has ended, if one has begun.
    pub(crate) fn reload_ends(&mut self, supervisor: &Supervisor, reloaded: Reloaded) {
        if self.stage == Stage::Reloading {
            self.last_reload = reloaded;
            self.enter_serving(supervisor);
        }
    }

    fn enter_serving(&mut self, supervisor: &Supervisor) {
        self.status = self.status_of(supervisor);
        let text = format!("READY=1\nSTATUS={}", self.status);
        self.enter(Stage::Serving, &text);
    }

    /// Says what is the case from here on. What has no room yet, a turn of the loop sends.
    fn enter(&mut self, stage: Stage, text: &str) {
        self.stage = stage;
        self.push(text);
    }

    fn push(&mut self, text: &str) {
        if let Some(notifier) = &mut self.notifier {
            notifier.push(text.into());
        }
    }

    /// Says what there is now if that is something else than before. A server in which something happens all the time
    /// says so once in [`STATUS_EVERY`].
    fn look(&mut self, supervisor: &Supervisor, now: Instant) {
        self.is_outdated = self.next_look.is_some_and(|next| now < next);
        if self.is_outdated {
            return;
        }
        self.next_look = Some(now + STATUS_EVERY);
        let status = self.status_of(supervisor);
        if status != self.status {
            self.push(&format!("STATUS={status}"));
            self.status = status;
        }
    }

    fn status_of(&self, supervisor: &Supervisor) -> String {
        let sites = supervisor.context().config.sites.iter().filter(|site| is_live(site)).count();
        let workers = supervisor.active(Role::Site, None).len();
        let processes = supervisor.processes().len();
        let slots = 0..supervisor.specs().len();
        let broken = match slots.filter(|&slot| supervisor.slot(slot).broken.is_some()).count() {
            0 => String::new(),
            broken => format!(", broken: {broken}"),
        };
        let without_room = match supervisor.count_without_room() {
            0 => String::new(),
            count => format!(", waiting for room: {count}"),
        };
        let refused = match self.last_reload {
            Reloaded::All => String::new(),
            Reloaded::Without(count) => format!("; files that were left out: {count}"),
            Reloaded::Nothing => "; the last reload was refused".into(),
        };
        format!("sites: {sites}, workers: {workers}, processes: {processes}{broken}{without_room}{refused}")
    }

    fn sign_of_life(&mut self, now: Instant) {
        let Some(watchdog) = self.watchdog.as_mut().filter(|watchdog| watchdog.next <= now) else { return };
        watchdog.next = now + watchdog.every;
        // A service manager that does not read misses none.
        if self.notifier.as_ref().is_some_and(|notifier| !notifier.is_waiting()) {
            self.push("WATCHDOG=1");
        }
    }

    fn flush(&mut self, supervisor: &mut Supervisor) {
        let Some(Err(error)) = self.notifier.as_mut().map(Notifier::flush) else { return };
        if !std::mem::replace(&mut self.is_lost, true) {
            supervisor.warn(format!(
                "the service manager cannot be told how the server is: {error}; it may take the server for one that hangs, and \
                 end it"
            ));
        }
    }
}
