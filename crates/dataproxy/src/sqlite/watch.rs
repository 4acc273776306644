//! What a connection does now and then while it works: it sees whether its call is over, and lets others go first. And what is done
//! about a call that is over without its having seen it.
//!
//! INVARIANT: a call that was given up changes nothing: the connection asks before it commits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, InterruptHandle};
use tokio_util::sync::CancellationToken;

use crate::job::{Job, Replies};
use crate::queue::Lane;

/// LIMIT: instructions of SQLite's between two looks at the clock; about 20 µs.
const LOOK_EVERY: i32 = 1000;
/// LIMIT: how long a call that reads keeps its processor. A process that wakes elsewhere would wait for the kernel's next tick, up to
/// 4 ms, though its turn has come: a few long statements would keep all services waiting so. Priorities do not help, as processes are in
/// control groups of their own, and a yield gives way only within one's own.
const TURN: Duration = Duration::from_micros(300);
/// How long the thread sleeps then: the shortest sleep, which the kernel stretches to about 55 µs.
const NAP: Duration = Duration::from_nanos(1);
/// LIMIT: how long a call whose time is over may go on until it is answered all the same: it is within one instruction of SQLite's.
pub(super) const GRACE: Duration = Duration::from_millis(30);

/// See the file's head.
#[derive(Clone, Default)]
pub(super) struct Watch(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    may_sleep: bool,
    call: Option<UnderWay>,
    interrupt: Option<InterruptHandle>,
    /// Whether another thread has taken the place of this one.
    is_replaced: bool,
}

/// What holds for the call under way.
#[derive(Debug)]
struct UnderWay {
    id: u32,
    replies: Replies,
    deadline: Instant,
    cancelled: CancellationToken,
    turn_ends: Instant,
    /// Since when it is known to be over.
    over_since: Option<Instant>,
    is_given_up: bool,
}

impl Watch {
    /// Has a connection look, which is this thread's alone. One that writes does not sleep: others wait for the lock that it has.
    pub(super) fn over(&self, mut connection: Connection, lane: Lane) -> rusqlite::Result<Connection> {
        let (looking, committing) = (self.clone(), self.clone());
        connection.progress_handler(LOOK_EVERY, Some(move || looking.is_over()))?;
        connection.commit_hook(Some(move || !committing.may_hold()))?;
        let mut state = self.state();
        state.may_sleep = lane == Lane::Read;
        state.interrupt = Some(connection.get_interrupt_handle());
        drop(state);
        Ok(connection)
    }

    /// A call begins.
    pub(super) fn begin(&self, job: &Job) {
        self.state().call = Some(UnderWay {
            id: job.id,
            replies: job.replies.clone(),
            deadline: job.deadline,
            cancelled: job.cancelled.clone(),
            turn_ends: Instant::now() + TURN,
            over_since: None,
            is_given_up: false,
        });
    }

    /// No call is under way.
    pub(super) fn end(&self) {
        self.state().call = None;
    }

    /// Whether another thread has taken the place of this one, which has worked for too long on one instruction.
    pub(super) fn is_replaced(&self) -> bool {
        self.state().is_replaced
    }

    /// Whether the call is to be interrupted.
    pub(super) fn is_over(&self) -> bool {
        let mut state = self.state();
        let may_sleep = state.may_sleep;
        let Some(call) = state.call.as_mut() else { return false };
        if !may_sleep {
            return call.is_over(Instant::now());
        }
        let mut turn_ends = call.turn_ends;
        drop(state);
        give_way(&mut turn_ends);
        let mut state = self.state();
        state.call.as_mut().is_some_and(|call| {
            call.turn_ends = turn_ends;
            call.is_over(Instant::now())
        })
    }

    fn may_hold(&self) -> bool {
        self.state().call.as_ref().is_none_or(|call| call.replies.may_hold())
    }

    /// Interrupts a call that is over, and answers it if that has no effect; then, `replace` says whether another thread has taken the
    /// place of this one.
    pub(super) fn keep(&self, now: Instant, replace: impl FnOnce() -> bool) {
        let mut state = self.state();
        let State { call: Some(call), interrupt, is_replaced, .. } = &mut *state else { return };
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnderWay {
    fn is_over(&self, now: Instant) -> bool {
        self.cancelled.is_cancelled() || now >= self.deadline
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
