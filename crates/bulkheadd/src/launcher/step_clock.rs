//! For how long one step of the launcher's loop keeps all others waiting.
//!
//! Runs in: the launcher, as root. Sees: the clock, and what the kernel says of this process's waiting. Never: asks for
//! more than one system call at the beginning of a step and one at its end.
//!
//! A step's own time is what it computes and what it waits for: a file, a helper, a disk. What it waits for a processor
//! is the machine's load and nobody's fault in the loop; the kernel counts that (`schedstat`), and it is left out. CPU
//! time alone would leave out what matters most: a `close` that blocks, a FIFO that is opened.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

/// LIMIT: for how long a step counts as one of lately: from once to twice this.
const LATELY: Duration = Duration::from_secs(15);

/// A step: how long it took, and what most of it was for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    time: Duration,
    what: &'static str,
}

impl Step {
    fn told(self) -> (u64, &'static str) {
        (self.time.as_micros() as u64, self.what)
    }
}

/// Measures steps.
#[derive(Debug)]
pub(crate) struct StepClock {
    /// What the kernel says of this thread, the only one; `None` if it says nothing.
    schedstat: Option<File>,
    /// When the step has begun, and how long the process had waited for a processor by then.
    begun: Option<(Instant, Duration)>,
    /// What takes longest of the step that has begun, and up to when it is known what it was for.
    most: Step,
    known: Instant,
    longest: Step,
    /// The longest of this part of time, and of the one before.
    parts: (Step, Step),
    part_since: Instant,
}

impl StepClock {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            schedstat: File::open("/proc/thread-self/schedstat").ok(),
            begun: None,
            most: Step::default(),
            known: now,
            longest: Step::default(),
            parts: (Step::default(), Step::default()),
            part_since: now,
        }
    }

    /// Something has happened, and a step begins.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.begun = Some((now, self.waited()));
        (self.most, self.known) = (Step::default(), now);
    }

    /// What the step has done since it began, or since it was last told.
    pub(crate) fn did(&mut self, what: &'static str) {
        let now = Instant::now();
        self.most = self.most.max(Step { time: now.duration_since(self.known), what });
        self.known = now;
    }

    /// The step has ended.
    pub(crate) fn end(&mut self, now: Instant) {
        let Some((begun, waited)) = self.begun.take() else { return };
        let time = now.duration_since(begun).saturating_sub(self.waited().saturating_sub(waited));
        self.note(Step { time, what: self.most.what }, now);
    }

    fn note(&mut self, step: Step, now: Instant) {
        self.turn(now);
        self.longest = self.longest.max(step);
        self.parts.0 = self.parts.0.max(step);
    }

    fn turn(&mut self, now: Instant) {
        let since = now.duration_since(self.part_since);
        if since >= LATELY {
            let before = if since < LATELY * 2 { self.parts.0 } else { Step::default() };
            (self.parts, self.part_since) = ((Step::default(), before), now);
        }
    }

    /// The longest step since the start, and of lately; in microseconds, and what it was for.
    pub(crate) fn longest_us(&mut self, now: Instant) -> [(u64, &'static str); 2] {
        self.turn(now);
        [self.longest.told(), self.parts.0.max(self.parts.1).told()]
    }

    /// How long this process has waited for a processor.
    fn waited(&self) -> Duration {
        let mut text = [0; 64];
        let read = self.schedstat.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        waited_of(&text[..read])
    }
}

/// The second of the three numbers of `schedstat`, which counts nanoseconds.
fn waited_of(text: &[u8]) -> Duration {
    let text = std::str::from_utf8(text).unwrap_or_default();
    let waited = text.split_ascii_whitespace().nth(1).and_then(|number| number.parse().ok());
    Duration::from_nanos(waited.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_of_lately_is_forgotten_and_that_of_all_is_not() {
        let now = Instant::now();
        let mut clock = StepClock::new(now);
        let step = |ms, what| Step { time: Duration::from_millis(ms), what };
        let (end, start) = ((40_000, "end"), (7_000, "start"));
        clock.note(step(40, "end"), now);
        clock.note(step(7, "start"), now + LATELY);
        assert_eq!(clock.longest_us(now + LATELY), [end, end]);
        clock.note(step(1, "time"), now + LATELY * 2);
        assert_eq!(clock.longest_us(now + LATELY * 2), [end, start]);
        assert_eq!(clock.longest_us(now + LATELY * 5), [end, (0, "")]);
    }

    #[test]
    fn a_step_is_called_after_what_took_longest_in_it() {
        let mut clock = StepClock::new(Instant::now());
        clock.begin(Instant::now());
        clock.did("message");
        std::thread::sleep(Duration::from_millis(5));
        clock.did("start");
        clock.did("time");
        clock.end(Instant::now());
        assert_eq!(clock.longest_us(Instant::now()).map(|(_, what)| what), ["start", "start"]);
    }

    #[test]
    fn waiting_is_of_the_step_and_waiting_for_a_processor_is_not() {
        assert_eq!(waited_of(b"123 456 7\n"), Duration::from_nanos(456));
        assert_eq!(waited_of(b""), Duration::ZERO);
        let mut clock = StepClock::new(Instant::now());
        clock.begin(Instant::now());
        let (reading, _writing) = std::io::pipe().unwrap();
        let mut polled = [rustix::event::PollFd::new(&reading, rustix::event::PollFlags::IN)];
        let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        rustix::event::poll(&mut polled, Some(&wait)).unwrap();
        clock.end(Instant::now());
        assert!(clock.longest_us(Instant::now())[0].0 >= 15_000, "a step that waits is a long one");
    }
}
