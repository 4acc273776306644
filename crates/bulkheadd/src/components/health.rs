//! Processes that hang, and processes that are to be replaced before anything is wrong with them.
//!
//! Runs in: the launcher, as root. Sees: numbers of partitions in use, counters of processes, and what the kernel says of them.
//! Never: wakes a process that nobody uses; ends one that answers.
//!
//! Gates and sites say which partitions are in use. Their processes are asked for their counters, as for `bulkhead status`, until
//! they have no connection any more: a process that does not answer for `hang_after` is told to end, and killed if it does not,
//! and started again like one that has ended by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use wire::Counters;
use wire::successor::LauncherToSuccessor;

use crate::components::Component;
use supervisor::Supervisor;
use supervisor::process::Stage;
use supervisor::restart::Ended;
use supervisor::upgrade::{Handed, Record};

/// Tells a process to end; one that does not catch it, and is the first of its PID namespace, does not hear it.
const SIGTERM: i32 = rustix::process::Signal::TERM.as_raw();
/// How often processes are asked that are in use, and ages looked at.
const PERIOD: Duration = Duration::from_secs(5);
/// How often it is looked whether there are limits of age now, while no process is in use.
const REST: Duration = Duration::from_secs(60);
/// LIMIT: how long a process that hangs has to end by itself, as one may that catches SIGTERM.
const LAST_CHANCE: Duration = Duration::from_secs(5);
/// LIMIT: how long a process is left alone whose successor has just been started, or has failed to start.
const PAUSE: Duration = Duration::from_secs(60);

/// What is known of processes beside what the supervisor knows.
#[derive(Debug)]
pub(crate) struct Health {
    /// The slots whose processes are in use, as far as is known.
    used: BTreeSet<usize>,
    /// Processes that were asked, and since when they owe an answer.
    asked: BTreeMap<u64, Instant>,
    /// Processes that were told to end, and when they are killed.
    ending: BTreeMap<u64, Instant>,
    /// When they are looked at again.
    next: Instant,
    /// Slots whose processes are to be replaced, and why.
    due: Vec<(usize, String)>,
    /// Not to be replaced again before.
    not_before: BTreeMap<usize, Instant>,
}

impl Default for Health {
    fn default() -> Self {
        let (used, asked, ending) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        Self { used, asked, ending, next: Instant::now(), due: Vec::new(), not_before: BTreeMap::new() }
    }
}

impl Health {
    /// A gate or a site has given something to a worker of `partition`.
    pub(crate) fn on_used(&mut self, supervisor: &mut Supervisor, serial: u64, partition: u16) {
        let used = supervisor.on_used(serial, partition);
        if !used.is_empty() {
            self.used.extend(used);
            self.next = self.next.min(Instant::now() + PERIOD);
        }
    }

    /// Writes down which slots are in use.
    pub(crate) fn hand_over(&self, record: &mut Record<'_>) {
        self.used.iter().for_each(|&slot| record.add(LauncherToSuccessor::Used { slot: slot as u32 }));
    }

    /// What is known of the launcher before.
    pub(crate) fn resume(handed: &Handed, supervisor: &Supervisor) -> Self {
        let used = handed.items().filter_map(|item| match item {
            LauncherToSuccessor::Used { slot } => Some(*slot as usize),
            _ => None,
        });
        let slots = supervisor.specs().len();
        Self { used: used.filter(|slot| *slot < slots).collect(), ..Self::default() }
    }

    /// A process has said what it does.
    pub(crate) fn on_counters(&mut self, supervisor: &Supervisor, serial: u64, counters: &Counters) {
        self.asked.remove(&serial);
        let Some(process) = supervisor.process(serial) else { return };
        if counters.connections_now == 0 {
            self.used.remove(&process.slot);
        }
        let recycle = supervisor.context().recycle(supervisor.spec(process.slot));
        let why = if recycle.requests.is_some_and(|most| counters.requests >= most) {
            format!("it has answered {} requests (`max_requests`)", counters.requests)
        } else if let Some(bytes) =
            recycle.memory.and_then(|most| own_memory(process.child.pid).filter(|&has| has >= most))
        {
            format!("it has {} MiB of memory (`max_memory`)", bytes >> 20)
        } else {
            return;
        };
        self.propose(supervisor, serial, why);
    }

    /// Has a process replaced, if it is the one that works.
    fn propose(&mut self, supervisor: &Supervisor, serial: u64, why: String) {
        let (Some(process), now) = (supervisor.process(serial), Instant::now()) else { return };
        let slot = process.slot;
        let is_paused = self.not_before.get(&slot).is_some_and(|at| now < *at);
        let works = process.stage == Stage::Serving && supervisor.slot(slot).current == Some(serial);
        if works && !is_paused && supervisor.slot(slot).next.is_none() {
            self.not_before.insert(slot, now + PAUSE);
            self.due.push((slot, why));
        }
    }

    /// The slots whose processes are to be replaced, each with the reason.
    pub(crate) fn take_due(&mut self) -> Vec<(usize, String)> {
        std::mem::take(&mut self.due)
    }

    /// Asks the processes that are in use, and ends those that have not answered.
    fn ask(&mut self, supervisor: &mut Supervisor, now: Instant) {
        let patience = Duration::from_millis(supervisor.context().config.restart.hang_after_ms.into());
        for slot in self.used.clone() {
            let serial = supervisor.slot(slot).current;
            let serving = serial
                .filter(|serial| supervisor.process(*serial).is_some_and(|one| one.stage == Stage::Serving));
            let Some(serial) = serving else {
                self.used.remove(&slot);
                continue;
            };
            match self.asked.get(&serial) {
                Some(since) if now.duration_since(*since) >= patience => {
                    self.ending.entry(serial).or_insert_with(|| {
                        tell_to_end(supervisor, serial, patience);
                        now + LAST_CHANCE
                    });
                }
                Some(_) => {}
                None => {
                    supervisor.ask_for_report(serial);
                    self.asked.insert(serial, now);
                }
            }
        }
    }

    /// Proposes to replace processes that are old.
    fn look_at_ages(&mut self, supervisor: &Supervisor) -> bool {
        let mut has_limits = false;
        let mut old = Vec::new();
        for (&serial, process) in supervisor.processes() {
            let Some(age) = supervisor.context().recycle(supervisor.spec(process.slot)).age_ms else {
                continue;
            };
            has_limits = true;
            if process.since.elapsed() >= Duration::from_millis(age.into()) {
                old.push(serial);
            }
        }
        old.into_iter()
            .for_each(|serial| self.propose(supervisor, serial, "it is old enough (`max_age`)".into()));
        has_limits
    }
}

impl Component for Health {
    fn deadline(&self) -> Option<Instant> {
        self.ending.values().copied().chain([self.next]).min()
    }

    fn on_time(&mut self, supervisor: &mut Supervisor, now: Instant) {
        for (serial, _) in self.ending.extract_if(.., |_, at| *at <= now) {
            supervisor.process(serial).into_iter().for_each(|process| process.child.kill());
        }
        if self.next > now {
            return;
        }
        self.next = now + REST;
        if supervisor.is_stopping() {
            return;
        }
        self.ask(supervisor, now);
        let has_limits = self.look_at_ages(supervisor);
        self.not_before.retain(|_, at| *at > now);
        if has_limits || !self.used.is_empty() {
            self.next = now + PERIOD;
        }
    }

    fn on_exit(&mut self, _: &mut Supervisor, ended: &mut Ended) {
        self.asked.remove(&ended.serial);
        self.ending.remove(&ended.serial);
    }
}

/// Tells a process to end that does not answer, and says where it is.
fn tell_to_end(supervisor: &mut Supervisor, serial: u64, patience: Duration) {
    let Some(process) = supervisor.process(serial) else { return };
    let (pid, title) = (process.child.pid, supervisor.spec(process.slot).title());
    let line = format!(
        "{title} (pid {pid}) has not answered for {patience:?} and is told to end; it {}",
        whereabouts(pid)
    );
    process.child.pass_on(SIGTERM);
    supervisor.warn(line);
}

/// What a process does, as the kernel says: nothing of this is chosen by the process.
fn whereabouts(pid: u32) -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let stat = read("stat");
    // Behind the name, which may have anything in it, parentheses included.
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start().chars().next().unwrap_or('?');
    let doing = match state {
        'R' => "runs".to_owned(),
        'T' | 't' => "is stopped".to_owned(),
        _ => format!("waits in {}", word(&read("wchan"))),
    };
    let frames: Vec<String> =
        read("stack").lines().take(6).map(word).filter(|frame| !frame.is_empty()).collect();
    if frames.is_empty() { doing } else { format!("{doing} (kernel stack: {})", frames.join(" < ")) }
}

/// The name of a function of the kernel in a line of `wchan` or `stack`.
fn word(line: &str) -> String {
    let name = line.split_whitespace().next_back().unwrap_or_default().split('+').next().unwrap_or_default();
    name.chars().filter(|c| c.is_ascii_alphanumeric() || "._".contains(*c)).take(60).collect()
}

/// Bytes of memory that a process has for itself.
fn own_memory(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let mut pages = text.split(' ').skip(1).map(|field| field.parse::<u64>().ok());
    let (resident, shared) = (pages.next()??, pages.next()??);
    Some(resident.saturating_sub(shared) * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_where_a_process_is() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !whereabouts(child.id()).contains("nanosleep") {
            assert!(Instant::now() < deadline, "{}", whereabouts(child.id()));
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(own_memory(child.id()).unwrap() < 100 << 20);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(word("[<0>] hrtimer_nanosleep+0xc8/0x1d0"), "hrtimer_nanosleep");
        assert_eq!(word("[<0>] \u{1b}[2Jx"), "2Jx");
    }
}
