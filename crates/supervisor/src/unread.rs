//! Whether a filter reads what is sent to it.
//!
//! Runs in: the launcher, as root, and the guard. Sees: the first bytes of the message that a filter would read next,
//! which come from a gate or from another filter. Never: understands them, or takes them away: only whether they are
//! the same as before is asked.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::net::RecvFlags;

use crate::foreign::Foreign;
use crate::whereabouts::Activity;

/// LIMIT: how long a filter may leave a message unread, however short `start_timeout` is.
pub const UNREAD_MIN: Duration = Duration::from_secs(1);
/// How often the launcher looks in that time.
pub const LOOKS: u32 = 4;
/// How many times `start_timeout` a process may take that nobody waits for: a service may have to read its data.
pub const FIRST_START: u32 = 9;
/// As much of a bundle as tells it from another: its number, and the client.
const BYTES: usize = 28;

/// The filter's end of the channel to it.
#[derive(Debug)]
pub struct Unread {
    inward: Foreign,
    next: Option<([u8; BYTES], Instant)>,
    /// Whether a message was the next one, and is no more.
    has_been_read: bool,
    /// What the filter did when that message was first seen.
    was: Option<(Instant, Activity)>,
}

impl Unread {
    /// What is not read at this end.
    pub fn new(inward: OwnedFd) -> Self {
        Self { inward: inward.into(), next: None, has_been_read: false, was: None }
    }

    /// The end that the filter reads from.
    pub(crate) fn descriptor(&self) -> &Foreign {
        &self.inward
    }

    /// Since when the same message is the next one, as far as was looked.
    ///
    /// SECURITY: without room for descriptors, the kernel takes those of the message for the length of the look and
    /// puts them back: none comes to this process, which would have to close it, and wait for the `flush` of its file
    /// system, as each close does and not the last alone. Whoever reads the message and closes them in these
    /// microseconds has this process close the last: that is for what a jail can make, of which an inotify instance
    /// takes longest (18 ms), and never for bytes to be sent, as nobody in a jail may set `SO_LINGER`.
    pub fn since(&mut self, now: Instant) -> Option<Instant> {
        let mut bytes = [0; BYTES];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let waits = matches!(rustix::net::recv(&self.inward, &mut bytes[..], flags), Ok((1.., _)));
        if self.next.is_none_or(|(before, _)| !waits || before != bytes) {
            self.has_been_read |= self.next.is_some();
            self.next = waits.then_some((bytes, now));
        }
        self.next.map(|(_, since)| since)
    }

    /// Whether the filter has read anything, as far as was looked.
    pub(crate) fn has_been_read(&self) -> bool {
        self.has_been_read
    }

    /// Whether the filter, which does this now, has slept or was stopped ever since the next message was first seen.
    pub(crate) fn is_asleep(&mut self, activity: Option<Activity>, now: Instant) -> bool {
        let (Some(since), Some(activity)) = (self.since(now), activity) else {
            self.was = None;
            return false;
        };
        let was = self.was.filter(|(of, _)| *of == since).map(|(_, was)| was);
        self.was = Some((since, was.unwrap_or(activity)));
        was.is_some_and(|was| {
            let rests = matches!(activity.state, 'S' | 'T' | 't');
            rests && activity.has_run_since(&was).is_zero() && activity.was_starved == was.was_starved
        })
    }

    /// Forgets which message was next: from now on its time counts anew.
    pub fn reset(&mut self) {
        self.next = None;
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::fs::inotify;
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    /// The end that gates write to, a filter's copy of the other, and what watches that.
    fn watched() -> (OwnedFd, OwnedFd, Unread) {
        let (ours, filters) = sys::seqpacket::pair().unwrap();
        let unread = Unread::new(filters.try_clone().unwrap());
        (ours, filters, unread)
    }

    #[test]
    fn only_a_message_that_stays_is_unread() {
        let (ours, filters, mut unread) = watched();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(unread.since(at(0)), None);
        sys::seqpacket::send(&ours, b"one", None).unwrap();
        sys::seqpacket::send(&ours, b"two", None).unwrap();
        assert_eq!((unread.since(at(1)), unread.since(at(2))), (Some(at(1)), Some(at(1))));
        let mut read = [0; 9];
        sys::seqpacket::receive(&filters, &mut read).unwrap();
        assert_eq!(unread.since(at(3)), Some(at(3)));
        unread.reset();
        assert_eq!(unread.since(at(4)), Some(at(4)));
        sys::seqpacket::receive(&filters, &mut read).unwrap();
        assert_eq!(unread.since(at(4)), None);
        drop(ours);
        assert_eq!(unread.since(at(5)), None);
    }

    #[test]
    fn a_filter_that_sleeps_before_a_message_is_told_from_one_that_works() {
        let (ours, filters, mut unread) = watched();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let does = |state, run_ms| {
            let (has_run, was_starved) = (Duration::from_millis(run_ms), Duration::ZERO);
            Some(Activity { state, has_run, was_starved })
        };
        assert!(!unread.is_asleep(does('S', 5), at(0)), "nothing waits");
        sys::seqpacket::send(&ours, b"one", None).unwrap();
        assert!(!unread.is_asleep(does('S', 5), at(1)), "at the first look nobody knows");
        for state in ['S', 'T'] {
            assert!(unread.is_asleep(does(state, 5), at(2)), "{state}");
        }
        for (state, run_ms) in [('S', 6), ('R', 5), ('D', 5)] {
            assert!(!unread.is_asleep(does(state, run_ms), at(3)), "{state}");
        }
        assert!(!unread.is_asleep(None, at(4)) && !unread.has_been_read());
        sys::seqpacket::receive(&filters, &mut [0; 9]).unwrap();
        assert!(!unread.is_asleep(does('S', 5), at(5)) && unread.has_been_read());
    }

    #[test]
    fn a_look_keeps_nothing_that_came_along() {
        let (ours, filters, mut unread) = watched();
        let (reading, writing) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let is_closed = || matches!(rustix::io::read(&reading, &mut [0_u8; 1]), Ok(0));
        sys::seqpacket::send(&ours, b"one", Some(writing.as_fd())).unwrap();
        drop(writing);
        let now = Instant::now();
        assert_eq!(unread.since(now), Some(now));
        let taken = sys::seqpacket::receive(&filters, &mut [0; 9]).unwrap().unwrap().descriptor;
        assert!(taken.is_some() && !is_closed());
        drop(taken);
        assert!(is_closed());
    }

    #[test]
    fn nobody_who_reads_and_closes_meanwhile_holds_up_a_look() {
        let (ours, filters, mut unread) = watched();
        let is_over = AtomicBool::new(false);
        let longest = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let made = inotify::init(inotify::CreateFlags::CLOEXEC);
                    let _ = made.map(|made| sys::seqpacket::send(&ours, b"one", Some(made.as_fd())));
                }
            });
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    drop(sys::seqpacket::receive(&filters, &mut [0; 9]));
                }
            });
            let begin = Instant::now();
            let mut longest = Duration::ZERO;
            while begin.elapsed() < Duration::from_secs(1) {
                let before = Instant::now();
                unread.since(before);
                longest = longest.max(before.elapsed());
            }
            is_over.store(true, Ordering::Relaxed);
            longest
        });
        // A second is what a machine takes on which everything is tested at once.
        assert!(longest < Duration::from_secs(1), "{longest:?}");
    }
}
