//! Every system call, with six arguments that are -1 each, or with others where those would do harm.
//!
//! Runs in: the probe. Never: makes what would end, stop or change the process; that is only asked about.

use super::super::sweep::{LAST, LEFT_OUT};
use super::{CallAttempt, Form, NONE};
use libc as l;

/// Calls that -1 would make do something, and arguments with which they do not.
///
/// The mask is the one that every jail sets. No alarm is set, none is ended; a queue that is not made is not there.
/// `rseq` and `close_range` refuse flags that they do not know, before anything else.
const INSTEAD: &[(i64, [u64; 6])] = &[
    (l::SYS_alarm, [0; 6]),
    (l::SYS_umask, [0o077, 0, 0, 0, 0, 0]),
    (l::SYS_msgget, [NONE, 0, 0, 0, 0, 0]),
    (l::SYS_rseq, [NONE; 6]),
    (l::SYS_close_range, [NONE; 6]),
    (l::SYS_munlockall, [NONE; 6]),
    // 0xffffffff only asks.
    (l::SYS_personality, [NONE; 6]),
    (l::SYS_inotify_init, [NONE; 6]),
    (l::SYS_eventfd, [0; 6]),
];

pub(super) fn sweep(lines: &mut Vec<CallAttempt>) {
    for (topic, left_out) in [("calls with arguments -1", false), ("calls that are not tried", true)] {
        let instead =
            |call| INSTEAD.iter().find(|(known, _)| *known == call).map(|(_, arguments)| *arguments);
        let is_left_out = |call| instead(call).is_none() && LEFT_OUT.iter().any(|(known, _)| *known == call);
        lines.extend((0..=LAST).filter(|call| is_left_out(*call) == left_out).map(|call| CallAttempt {
            topic: topic.into(),
            value: call.unsigned_abs(),
            form: Form::Call,
            call,
            arguments: instead(call).unwrap_or([NONE; 6]),
            left_out,
        }));
    }
}
