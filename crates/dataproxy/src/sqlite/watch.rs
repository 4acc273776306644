//! Watches a connection while it works: the connection sees whether its call is over, and lets others go first, also
//! within a function of SQLite's. Ends a call that is over without the connection's having seen it.
//!
//! INVARIANT: a call that was given up changes nothing: the connection asks before it commits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, InterruptHandle};
use sys::pause::{self, Remote, Timer};
use tokio_util::sync::CancellationToken;

use crate::job::{Job, Replies};
use crate::queue::Lane;

/// LIMIT: instructions of SQLite's between two looks at the clock; about 20 µs.
const LOOK_EVERY: i32 = 1000;
/// LIMIT: processor time that a call has between two pauses. A process that wakes elsewhere would wait for the kernel's
/// next tick, up to 4 ms, though its turn has come: a few long statements would keep all services waiting so.
/// Priorities do not help, as processes are in control groups of their own, and a yield gives way only within one's
/// own.
const TURN_READING: Duration = Duration::from_micros(300);
/// The same for the one that writes, for whose lock others wait.
const TURN_WRITING: Duration = Duration::from_micros(500);
/// LIMIT: after this time a call is long. Those that are not, have no timer, which costs some 10 µs.
const LONG: Duration = Duration::from_millis(1);
/// LIMIT: how long a call whose time is over may go on until it is answered all the same: it is within one instruction
/// of SQLite's.
pub(super) const GRACE: Duration = Duration::from_millis(30);

/// See the file's head.
#[derive(Clone, Default)]
pub(super) struct Watch {
    state: Arc<Mutex<WatchState>>,
    /// Whether there are long calls, so that each pauses from its beginning: of all threads of a database.
    are_long: Arc<AtomicBool>,
}

#[derive(Default)]
struct WatchState {
    pauses: Option<Remote>,
    lane: Option<Lane>,
    call: Option<RunningCall>,
    interrupt: Option<InterruptHandle>,
    /// Whether another thread has taken the place of this one.
    is_replaced: bool,
}

/// The state of the call under way.
#[derive(Debug)]
struct RunningCall {
    id: u32,
    replies: Replies,
    began: Instant,
    deadline: Instant,
    cancelled: CancellationToken,
    /// Whether it writes to the disk, which nothing interrupts.
    commits: bool,
    /// Since when it is known to be over.
    over_since: Option<Instant>,
    is_given_up: bool,
}

impl Watch {
    /// One that is told by `are_long` whether there are long calls.
    pub(super) fn new(are_long: &Arc<AtomicBool>) -> Self {
        Self { state: Arc::default(), are_long: are_long.clone() }
    }

    /// By this, the calls of the thread can pause.
    pub(super) fn may_pause(&self, timer: &Timer) {
        self.state().pauses = Some(timer.remote());
    }

    /// Has a connection look, which is this thread's alone.
    pub(super) fn over(&self, mut connection: Connection, lane: Lane) -> rusqlite::Result<Connection> {
        let (looking, committing) = (self.clone(), self.clone());
        connection.progress_handler(LOOK_EVERY, Some(move || looking.is_over()))?;
        connection.commit_hook(Some(move || !committing.may_hold()))?;
        let mut state = self.state();
        state.lane = Some(lane);
        state.interrupt = Some(connection.get_interrupt_handle());
        drop(state);
        Ok(connection)
    }

    /// A call begins.
    pub(super) fn begin(&self, job: &Job) {
        let mut state = self.state();
        state.call = Some(RunningCall {
            id: job.id,
            replies: job.replies.clone(),
            began: Instant::now(),
            deadline: job.deadline,
            cancelled: job.cancelled.clone(),
            commits: false,
            over_since: None,
            is_given_up: false,
        });
        let turn = if state.lane == Some(Lane::Write) { TURN_WRITING } else { TURN_READING };
        pause::begin(turn, self.are_long.load(Ordering::Relaxed));
    }

    /// No call is under way.
    pub(super) fn end(&self) {
        pause::end();
        self.state().call = None;
    }

    /// Whether another thread has taken the place of this one, which has worked for too long on one instruction.
    pub(super) fn is_replaced(&self) -> bool {
        self.state().is_replaced
    }

    /// Whether the call is to be interrupted. If it reads, the proxy's other threads go first.
    pub(super) fn is_over(&self) -> bool {
        let (is_over, reads) = {
            let state = self.state();
            let Some(call) = &state.call else { return false };
            (call.is_over(Instant::now()), state.lane == Some(Lane::Read))
        };
        if reads {
            std::thread::yield_now();
        }
        is_over
    }

    /// Whether a call that commits may.
    fn may_hold(&self) -> bool {
        let mut state = self.state();
        pause::end();
        state.call.as_mut().is_none_or(|call| {
            call.commits = true;
            call.replies.may_hold()
        })
    }

    /// Has a call pause that has taken long; whether there is one.
    pub(super) fn pause_if_long(&self, now: Instant) -> bool {
        let state = self.state();
        let is_long = |call: &&RunningCall| !call.commits && now.duration_since(call.began) >= LONG;
        let is_long = state.call.as_ref().filter(is_long).is_some();
        if is_long && let Some(pauses) = state.pauses {
            pauses.pause();
        }
        is_long
    }

    /// Interrupts a call that is over, and answers it if that has no effect; then, `replace` says whether another
    /// thread has taken the place of this one.
    pub(super) fn keep(&self, now: Instant, replace: impl FnOnce() -> bool) {
        let mut state = self.state();
        let WatchState { call: Some(call), interrupt, is_replaced, .. } = &mut *state else { return };
        if !call.is_over(now) {
            return;
        }
        if !call.replies.holds()
            && let Some(interrupt) = interrupt
        {
            // Seen at the next jump, which may be long before a thousand instructions are over.
            interrupt.interrupt();
        }
        let since = *call.over_since.get_or_insert(now);
        if !call.is_given_up && now.duration_since(since) >= GRACE {
            call.is_given_up = true;
            call.replies.give_up(call.id);
            *is_replaced = replace();
        }
    }

    fn state(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningCall {
    fn is_over(&self, now: Instant) -> bool {
        self.cancelled.is_cancelled() || now >= self.deadline
    }
}
