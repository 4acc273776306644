//! How fast a client takes what it asked for, and sends what it announced: one that is too slow is given up.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: when a client moves bytes, and how many. Must
//! never: cost anything as long as nobody has to wait for the client.
//!
//! Only the time counts in which the client, and nobody else, was waited for: the clock by which a transfer is judged
//! stands still otherwise.
//!
//! A client has taken the bytes that the kernel accepts for it. epoll reports room only once a third of the buffer is
//! free, which for a slow client and the buffer of a fast one can take minutes; hence the kernel is also asked
//! directly, the more often the sooner the client is given up. It then takes as much as the client has acknowledged
//! since.

use std::cell::Cell;
use std::io;
use std::time::{Duration, Instant};

use conditioning::{MinRate, Pace as Transfer};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout_at;

/// LIMIT: the kernel is asked no more often whether a slow client has acknowledged anything.
const PROBE: Duration = Duration::from_secs(1);
/// LIMIT: nor before so much of the time is over that the client has left. Thousands that are slow, but not too slow,
/// cost little by that, and none stands still for much longer than it may: what it moved just before counts as moved
/// when the kernel is asked.
const PROBE_PART: u32 = 4;

/// One direction of one exchange with a client.
#[derive(Debug)]
pub(crate) struct TransferPace {
    transfer: Cell<Transfer>,
    /// How long the client may move nothing at all.
    stall: Duration,
    /// The time on the clock that only runs while the client is waited for.
    clock: Cell<Instant>,
    /// Since when the client is being waited for.
    since: Cell<Option<Instant>>,
}

impl TransferPace {
    pub fn new(rate: MinRate, stall: Duration) -> Self {
        let now = Instant::now();
        let transfer = Cell::new(Transfer::new(rate, now));
        Self { transfer, stall, clock: Cell::new(now), since: Cell::new(None) }
    }

    /// From now on the client is being waited for, if it was not before.
    pub fn wait(&self) {
        if self.since.get().is_none() {
            self.since.set(Some(Instant::now()));
        }
    }

    /// The client has moved `count` bytes.
    pub fn moved(&self, count: usize) {
        if let Some(since) = self.since.take() {
            self.clock.set(self.clock.get() + since.elapsed());
        }
        let mut transfer = self.transfer.get();
        transfer.moved(count as u64, self.clock.get());
        self.transfer.set(transfer);
    }

    /// When the client will have been too slow; `None` while nobody waits for it.
    pub fn deadline(&self) -> Option<Instant> {
        let since = self.since.get()?;
        let rate = self.transfer.get().deadline();
        let left = rate.map_or(self.stall, |at| at.saturating_duration_since(self.clock.get()));
        Some(since + left.min(self.stall))
    }

    /// When the kernel is to be asked what the client has moved, if it does not say so before.
    pub fn probe(&self, now: Instant) -> Instant {
        let Some(deadline) = self.deadline() else {
            return now + PROBE;
        };
        let left = deadline.saturating_duration_since(now);
        now + left.min(PROBE.max(left / PROBE_PART))
    }
}

/// Does `attempt`, which moves bytes to `stream` without waiting, once there is room.
///
/// # Errors
/// `TimedOut` if the client was too slow; otherwise what the kernel says.
pub(crate) async fn push(
    stream: &TcpStream,
    pace: &TransferPace,
    mut attempt: impl FnMut() -> rustix::io::Result<usize>,
) -> io::Result<usize> {
    let mut attempt = || loop {
        match attempt() {
            Err(Errno::INTR) => {}
            other => return other.map_err(io::Error::from),
        }
    };
    let mut outcome = stream.try_io(Interest::WRITABLE, &mut attempt);
    loop {
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(count) => {
                pace.moved(count);
                return Ok(count);
            }
            Err(error) => return Err(error),
        }
        pace.wait();
        let now = Instant::now();
        let deadline = pace.deadline().unwrap_or(now);
        outcome = match timeout_at(pace.probe(now).into(), stream.writable()).await {
            Ok(ready) => {
                ready?;
                stream.try_io(Interest::WRITABLE, &mut attempt)
            }
            Err(_) => attempt(),
        };
        let nothing = matches!(&outcome, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        if nothing && Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const RATE: MinRate = MinRate::new(1000, Duration::from_secs(10));

    /// Waits for `ago` for the client to move `count` bytes; whether that was too slow.
    fn late(pace: &TransferPace, ago: Duration, count: usize) -> bool {
        pace.since.set(Some(Instant::now() - ago));
        let late = pace.deadline().is_some_and(|deadline| deadline <= Instant::now());
        pace.moved(count);
        late
    }

    #[test]
    fn a_client_just_fast_enough_lasts_and_one_just_too_slow_does_not() {
        for (count, lasts) in [(1010, true), (800, false)] {
            let pace = TransferPace::new(RATE, 30 * SECOND);
            assert_eq!((0..2000).any(|_| late(&pace, SECOND, count)), !lasts, "{count}");
        }
    }

    #[test]
    fn the_kernel_is_asked_more_often_towards_the_deadline() {
        let pace = TransferPace::new(RATE, 30 * SECOND);
        let now = Instant::now();
        assert_eq!(pace.probe(now), now + PROBE);
        pace.since.set(Some(now));
        let (mut at, mut probes) = (now, Vec::new());
        while at < now + 10 * SECOND {
            let next = pace.probe(at);
            probes.push((next - at).as_millis());
            at = next;
        }
        assert_eq!(at, now + 10 * SECOND);
        assert_eq!(probes[..4], [2500, 1875, 1406, 1054]);
        assert!(probes[4..].iter().all(|&between| between <= 1000), "{probes:?}");
    }

    #[test]
    fn what_we_take_our_time_for_is_not_counted() {
        let pace = TransferPace::new(RATE, 30 * SECOND);
        pace.moved(10);
        assert_eq!(pace.deadline(), None);
        std::thread::sleep(Duration::from_millis(20));
        pace.moved(10);
        assert!(pace.clock.get() < Instant::now() - Duration::from_millis(15));
    }

    #[test]
    fn one_that_was_quick_has_not_bought_the_right_to_stand_still() {
        let pace = TransferPace::new(RATE, 30 * SECOND);
        pace.moved(1 << 30);
        pace.moved(60_000);
        assert!(!late(&pace, 29 * SECOND, 1));
        assert!(late(&pace, 31 * SECOND, 1));
    }

    #[test]
    fn without_a_rate_any_byte_will_do() {
        let pace = TransferPace::new(MinRate::new(0, 10 * SECOND), 30 * SECOND);
        assert!((0..1000).all(|_| !late(&pace, 29 * SECOND, 1)));
        assert!(late(&pace, 31 * SECOND, 1));
    }
}
