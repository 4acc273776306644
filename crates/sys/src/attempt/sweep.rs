//! Every system call there is, with arguments that mean nothing.
//!
//! Runs in: the probe. Never: makes a call that would end, stop or change the process even with such arguments;
//! those are in [`LEFT_OUT`], each with its reason.

use super::{Errno, checked};

/// The highest number that is tried.
pub const LAST: i64 = 470;

/// The calls that are not made, and why.
pub const LEFT_OUT: &[(i64, &str)] = &[
    (libc::SYS_rt_sigreturn, "jumps to wherever the stack says"),
    (libc::SYS_pause, "waits for a signal"),
    (libc::SYS_alarm, "would end the process later"),
    (libc::SYS_fork, "makes a second process that goes on from here"),
    (libc::SYS_vfork, "makes a second process on the same stack"),
    (libc::SYS_exit, "ends the thread"),
    (libc::SYS_exit_group, "ends the process"),
    (libc::SYS_umask, "changes the mask"),
    (libc::SYS_setsid, "takes no argument and changes the session"),
    (libc::SYS_vhangup, "takes no argument and hangs up the terminal"),
    (libc::SYS_sync, "takes no argument and makes the machine busy"),
    (libc::SYS_set_tid_address, "changes what the kernel writes at the end of the thread"),
    (libc::SYS_restart_syscall, "depends on what was interrupted before"),
    (libc::SYS_rseq, "changes what the kernel writes while the thread runs"),
    (libc::SYS_personality, "takes no error for an answer; tried by an attempt of its own"),
    (libc::SYS_munlockall, "takes no argument and changes the process"),
    (libc::SYS_close_range, "with other flags it closes everything"),
    (libc::SYS_msgget, "would leave a queue behind; tried by an attempt of its own"),
    (libc::SYS_inotify_init, "takes no argument and opens a descriptor"),
    (libc::SYS_eventfd, "takes -1 for a count and opens a descriptor"),
    (335, "only for code that the kernel itself has placed (uretprobe)"),
    (336, "only for code that the kernel itself has placed (uprobe)"),
];

/// What became of one number.
#[derive(Debug, PartialEq, Eq)]
pub enum Swept {
    /// It was not tried, for this reason.
    LeftOut(&'static str),
    /// The kernel did something.
    Returned(i64),
    /// The kernel, or a filter before it, did not.
    Failed(Errno),
}

/// Makes the call `number` with six arguments that are -1 each.
pub fn try_number(number: i64) -> Swept {
    if let Some((_, reason)) = LEFT_OUT.iter().find(|(left_out, _)| *left_out == number) {
        return Swept::LeftOut(reason);
    }
    if !(0..=LAST).contains(&number) {
        return Swept::LeftOut("out of range");
    }
    let none = -1_i64;
    // SAFETY: -1 is no descriptor, no pid to be waited for or signalled, no valid combination of flags, no length
    // that anything has, and as an address it is the kernel's, at which it neither reads nor writes for a process.
    // A mapping cannot be made, moved or taken away at it, as it is no multiple of a page. What takes no argument
    // or takes -1 for something is in LEFT_OUT, or only asks.
    match checked(unsafe { libc::syscall(number, none, none, none, none, none, none) }) {
        Ok(value) => Swept::Returned(value),
        Err(errno) => Swept::Failed(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_hurt_is_left_out() {
        assert!(matches!(try_number(libc::SYS_exit_group), Swept::LeftOut(_)));
        assert!(matches!(try_number(-1), Swept::LeftOut(_)));
        assert_eq!(try_number(libc::SYS_read), Swept::Failed(Errno::BADF));
        assert!(matches!(try_number(libc::SYS_getpid), Swept::Returned(_)));
    }
}
