//! Whether the gate answers. Connections in the accept queues of a gate that hangs are served by nobody else.
//!
//! Runs in: the guard. Sees: what the kernel says of the gate. Never: takes a gate for hung that has had no processor.

use std::time::{Duration, Instant};

use supervisor::health_check::{Arrivals, ArrivalsDue, HealthCheck, LOOK, SHORT_PATIENCE, Seen};
use supervisor::whereabouts::Activity;

/// See the file.
#[derive(Debug)]
pub struct GateHealth {
    arrivals: Arrivals,
    check: Option<HealthCheck>,
    /// How long a gate may spin, or wait for a disk.
    hang_after: Duration,
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateDue {
    /// Nothing.
    Nothing,
    /// The gate is asked whether it is there.
    Ask,
    /// Nobody has come lately: the next connection is to be seen.
    Rest,
    /// The gate hangs, and has not answered for so long.
    Kill(Duration),
}

impl GateHealth {
    /// By `hang_after` of `[restart]`.
    pub fn new(restart: &config::Restart) -> Self {
        let hang_after = Duration::from_millis(restart.hang_after_ms.into());
        Self { arrivals: Arrivals::default(), check: None, hang_after }
    }

    /// A client has connected.
    pub fn on_arrival(&mut self, now: Instant) {
        self.arrivals.on_arrival(now);
    }

    /// The gate has answered, or is gone.
    pub fn settle(&mut self) {
        self.check = None;
    }

    /// When something is due.
    pub fn deadline(&self) -> Option<Instant> {
        let look = self.check.as_ref().map(|check| check.next);
        look.into_iter().chain(self.arrivals.deadline()).min()
    }

    /// The action that is due for the gate, which serves as this process, or has yet to serve.
    pub fn due(&mut self, serving: Option<Serving>, now: Instant) -> GateDue {
        let Some(serving) = serving else {
            self.check = None;
            return self.due_of_arrivals(false, now);
        };
        let Some(check) = self.check.as_mut().filter(|check| check.next <= now) else {
            return self.due_of_arrivals(true, now);
        };
        let seen = Activity::of(serving.pid).map(|activity| Seen { activity, is_behind: serving.is_behind });
        let is_first = check.next.duration_since(check.since) == SHORT_PATIENCE;
        if seen.is_some_and(|seen| check.is_hung(seen, self.hang_after, now)) {
            let waited = now.duration_since(check.since);
            self.check = None;
            return GateDue::Kill(waited);
        }
        check.next = now + LOOK;
        // Nobody waits for room in a channel: the answer may have been lost, and is asked for once more.
        if is_first { GateDue::Ask } else { GateDue::Nothing }
    }

    fn due_of_arrivals(&mut self, serves: bool, now: Instant) -> GateDue {
        match self.arrivals.due(now) {
            ArrivalsDue::Ask if serves && self.check.is_none() => {
                self.check = Some(HealthCheck::new(now, SHORT_PATIENCE));
                GateDue::Ask
            }
            ArrivalsDue::Ask | ArrivalsDue::Nothing => GateDue::Nothing,
            ArrivalsDue::Rest => GateDue::Rest,
        }
    }
}

/// A gate that serves.
#[derive(Clone, Copy, Debug)]
pub struct Serving {
    /// Its process.
    pub pid: u32,
    /// Whether it has yet to be sent what comes before the check.
    pub is_behind: bool,
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn health() -> GateHealth {
        let arrivals = Arrivals::default();
        GateHealth { arrivals, check: None, hang_after: Duration::from_secs(10) }
    }

    #[test]
    fn one_that_does_not_answer_is_asked_twice_and_killed() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let sleeps = |pid| Activity::of(pid).is_some_and(|activity| activity.state == 'S');
        let begun = Instant::now();
        while !sleeps(child.id()) && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (mut health, now) = (health(), Instant::now());
        let serving = Some(Serving { pid: child.id(), is_behind: false });
        assert_eq!((health.due(serving, now), health.deadline()), (GateDue::Nothing, None));
        health.on_arrival(now);
        assert_eq!(health.due(serving, now), GateDue::Ask);
        let late = now + SHORT_PATIENCE;
        assert_eq!(health.due(serving, late), GateDue::Ask);
        assert_eq!(health.due(serving, late + LOOK), GateDue::Kill(SHORT_PATIENCE + LOOK));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn one_that_answers_is_left_alone_and_rests_when_nobody_comes() {
        let (mut health, mut now) = (health(), Instant::now());
        let serving = Some(Serving { pid: std::process::id(), is_behind: false });
        health.on_arrival(now);
        let mut asked = 0;
        loop {
            match health.due(serving, now) {
                GateDue::Ask => asked += 1,
                GateDue::Rest => break,
                GateDue::Nothing => now = health.deadline().unwrap(),
                GateDue::Kill(_) => panic!("it answers"),
            }
            health.settle();
        }
        assert!((5..10).contains(&asked), "{asked}");
        assert_eq!(health.deadline(), None);
    }

    #[test]
    fn one_that_has_yet_to_serve_is_not_asked() {
        let (mut health, now) = (health(), Instant::now());
        health.on_arrival(now);
        assert_eq!(health.due(None, now), GateDue::Nothing);
    }
}
