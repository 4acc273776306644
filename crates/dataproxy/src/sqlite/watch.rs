//! What a connection does now and then while it works: it sees whether its call is over, and lets others go first.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio_util::sync::CancellationToken;

use crate::job::Job;
use crate::queue::Lane;

/// LIMIT: instructions of SQLite's between two looks at the clock; about 20 µs.
const LOOK_EVERY: i32 = 1000;
/// LIMIT: how long a call that reads keeps its processor. A process that wakes elsewhere would wait for the kernel's next tick, up to
/// 4 ms, though its turn has come: a few long statements would keep all services waiting so. Priorities do not help, as processes are in
/// control groups of their own, and a yield gives way only within one's own.
const TURN: Duration = Duration::from_micros(300);
/// How long the thread sleeps then: the shortest sleep, which the kernel stretches to about 55 µs.
const NAP: Duration = Duration::from_nanos(1);

/// See the file's head.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch(Arc<Mutex<Option<Limit>>>);

/// What holds for the call under way.
#[derive(Debug)]
struct Limit {
    deadline: Instant,
    cancelled: CancellationToken,
    turn_ends: Instant,
}

impl Watch {
    /// Has a connection look, which is this thread's alone. One that writes does not sleep: others wait for the lock that it has.
    pub(super) fn over(mut connection: Connection, lane: Lane) -> rusqlite::Result<(Connection, Self)> {
        let watch = Self::default();
        let looking = watch.clone();
        let may_sleep = lane == Lane::Read;
        connection.progress_handler(LOOK_EVERY, Some(move || looking.look(may_sleep)))?;
        Ok((connection, watch))
    }

    /// A call begins.
    pub(super) fn begin(&self, job: &Job) {
        let (deadline, cancelled) = (job.deadline, job.cancelled.clone());
        *self.limit() = Some(Limit { deadline, cancelled, turn_ends: Instant::now() + TURN });
    }

    /// No call is under way.
    pub(super) fn end(&self) {
        *self.limit() = None;
    }

    /// Whether the call is to be interrupted.
    fn look(&self, may_sleep: bool) -> bool {
        let mut limit = self.limit();
        let Some(limit) = limit.as_mut() else { return false };
        if may_sleep {
            give_way(&mut limit.turn_ends);
        }
        limit.cancelled.is_cancelled() || Instant::now() >= limit.deadline
    }

    fn limit(&self) -> MutexGuard<'_, Option<Limit>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets the proxy's other threads go first at each look, and other processes when the turn is over.
fn give_way(turn_ends: &mut Instant) {
    std::thread::yield_now();
    if Instant::now() >= *turn_ends {
        std::thread::sleep(NAP);
        *turn_ends = Instant::now() + TURN;
    }
}
