//! What the kernel says of a process: where it is, how much of a processor it has had and has waited for, its memory.
//!
//! Runs in: the launcher, as root, and the guard. Sees: files of `/proc`. Nothing of what it says is chosen by the
//! process. Never: waits for it.

use std::fs;
use std::time::Duration;

/// LIMIT: the kernel counts processor time in hundredths of a second where it does not count it in nanoseconds.
const TICK: Duration = Duration::from_millis(10);

/// What the first thread of a process does, which is the one that answers the launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// As in `/proc/PID/stat`.
    pub state: char,
    /// How long it has run.
    pub has_run: Duration,
    /// How long it could have run, and had no processor; known as soon as it has one again.
    pub was_starved: Duration,
}

impl Activity {
    /// What a process does now; nothing if there is none of this number.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = read(pid, &format!("task/{pid}/stat"));
        // Behind the name, which may have anything in it, parentheses included.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let schedule = read(pid, &format!("task/{pid}/schedstat"));
        let mut times = schedule.split_whitespace().map_while(|time| time.parse().ok());
        let (has_run, was_starved) = match (times.next(), times.next()) {
            (Some(run), Some(starved)) => (Duration::from_nanos(run), Duration::from_nanos(starved)),
            _ => {
                let ticks: u32 = fields.skip(10).take(2).filter_map(|ticks| ticks.parse::<u32>().ok()).sum();
                (TICK * ticks, Duration::ZERO)
            }
        };
        Some(Self { state, has_run, was_starved })
    }

    /// Whether it has run since `before`, or could have, for half of this time at least, or could run now.
    pub fn is_runnable(&self, before: &Self, time: Duration) -> bool {
        let starved = self.was_starved.saturating_sub(before.was_starved);
        self.state == 'R' || self.has_run_since(before) + starved >= time / 2
    }

    /// How long it has run since `before`.
    pub fn has_run_since(&self, before: &Self) -> Duration {
        self.has_run.saturating_sub(before.has_run)
    }

    /// Whether it waits for a disk, or for a page of memory.
    pub fn waits_for_disk(&self) -> bool {
        self.state == 'D'
    }
}

fn read(pid: u32, name: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default()
}

/// What a process does, in words.
pub fn whereabouts(pid: u32) -> String {
    let doing = match Activity::of(pid).map(|activity| activity.state) {
        Some('R') => "runs".to_owned(),
        Some('T' | 't') => "is stopped".to_owned(),
        _ => format!("waits in {}", word(&read(pid, "wchan"))),
    };
    let stack = read(pid, "stack");
    let frames: Vec<String> = stack.lines().take(6).map(word).filter(|frame| !frame.is_empty()).collect();
    if frames.is_empty() { doing } else { format!("{doing} (kernel stack: {})", frames.join(" < ")) }
}

/// The name of a function of the kernel in a line of `wchan` or `stack`.
fn word(line: &str) -> String {
    let name = line.split_whitespace().next_back().unwrap_or_default().split('+').next().unwrap_or_default();
    name.chars().filter(|c| c.is_ascii_alphanumeric() || "._".contains(*c)).take(60).collect()
}

/// Bytes of memory that a process has for itself.
pub fn own_memory(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let mut pages = text.split(' ').skip(1).map(|field| field.parse::<u64>().ok());
    let (resident, shared) = (pages.next()??, pages.next()??);
    Some(resident.saturating_sub(shared) * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::time::Instant;

    use super::*;

    /// Waits until this holds.
    fn until(what: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !what() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn the_kernel_says_where_a_process_is() {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        until(|| whereabouts(child.id()).contains("nanosleep"));
        assert!(own_memory(child.id()).unwrap() < 100 << 20);
        end(child);
        assert_eq!(word("[<0>] hrtimer_nanosleep+0xc8/0x1d0"), "hrtimer_nanosleep");
        assert_eq!(word("[<0>] \u{1b}[2Jx"), "2Jx");
    }

    #[test]
    fn one_that_computes_is_runnable_and_one_that_sleeps_or_is_stopped_is_not() {
        let of = |child: &Child| Activity::of(child.id()).unwrap();
        let spinning = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let before = of(&spinning);
        until(|| of(&spinning).has_run > before.has_run + Duration::from_millis(50));
        assert!(of(&spinning).is_runnable(&before, Duration::from_millis(50)));
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&spinning),
            rustix::process::Signal::STOP,
        )
        .unwrap();
        until(|| of(&spinning).state == 'T');
        let stopped = of(&spinning);
        assert!(!of(&spinning).is_runnable(&stopped, Duration::from_millis(1)));
        assert_eq!(whereabouts(spinning.id()).split(" (").next(), Some("is stopped"));
        end(spinning);
        let sleeping = Command::new("sleep").arg("60").spawn().unwrap();
        until(|| of(&sleeping).state == 'S');
        let before = of(&sleeping);
        assert!(!of(&sleeping).is_runnable(&before, Duration::from_secs(1)));
        end(sleeping);
        assert_eq!(Activity::of(0), None);
    }
}
