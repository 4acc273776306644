//! The event loop of connections without a whole request: arrivals, and deadlines that have passed.
//!
//! Runs in: the gate. Sees: when something arrives, and from whom. Never: waits for one connection.

use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{Event, EventFlags};

use crate::connection::PeekResult;
use crate::gate::Gate;
use crate::incomplete::{BATCH, HeadStage, IncompleteConnection};

/// How often the launcher is told of a partition that is in use.
const USED_EVERY: Duration = Duration::from_secs(10);

/// Looks at each connection on which something has arrived, until the task is ended.
pub async fn arrivals(gate: Rc<Gate>) {
    let mut events = Vec::with_capacity(BATCH);
    while gate.incomplete.arrivals(&mut events).await {
        let now = Instant::now();
        events.iter().for_each(|event: &Event| arrived(&gate, event, now));
        if events.len() == BATCH {
            tokio::task::yield_now().await;
        }
    }
}

/// Something has arrived on a connection, or its client has closed it.
fn arrived(gate: &Rc<Gate>, event: &Event, now: Instant) {
    let slot = event.data.u64() as u32;
    let flags = event.flags;
    let closed = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
    let incomplete = &gate.incomplete;
    let look = |held: &mut IncompleteConnection| match held.stage {
        HeadStage::Answered { left } => match held.connection.discard(&mut gate.peeked.borrow_mut(), left) {
            Some(left) => {
                held.stage = HeadStage::Answered { left };
                None
            }
            None => Some((PeekResult::Gone, held.stage)),
        },
        stage => Some((held.connection.peek(gate, now), stage)),
    };
    let Some(Some((seen, stage))) = incomplete.with(slot, look) else {
        return;
    };
    match seen {
        // SECURITY: bytes that stay in the socket hide the end of the stream from a look.
        PeekResult::Partial { begun } if !closed => {
            if begun && stage != HeadStage::Begun {
                incomplete.head_began(slot, now);
            }
        }
        PeekResult::Partial { .. } | PeekResult::Gone => {
            if incomplete.leave(slot).is_some() {
                gate.connection_closed();
            }
        }
        seen => {
            if let Some(held) = incomplete.leave(slot) {
                held.connection.dispatch(gate, seen, now);
            }
        }
    }
}

/// Has the launcher be told again and again which partitions are in use, until the task is ended.
pub async fn uses(gate: Rc<Gate>) {
    loop {
        tokio::time::sleep(USED_EVERY).await;
        gate.forget_used();
    }
}

/// Ends what is past its deadline, until the task is ended.
pub async fn deadlines(gate: Rc<Gate>) {
    loop {
        gate.incomplete.deadline().await;
        let now = Instant::now();
        while let Some(IncompleteConnection { connection, stage, .. }) = gate.incomplete.leave_late(now) {
            if stage == HeadStage::Begun {
                connection.dispatch(&gate, PeekResult::LATE, now);
                continue;
            }
            if stage == HeadStage::Silent {
                gate.drops.note(|shed| shed.late_first_byte += 1);
            }
            gate.connection_closed();
        }
    }
}
