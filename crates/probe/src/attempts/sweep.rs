//! E: every system call from 0 to 470, against what is approved.
//!
//! Runs in: the probe. Never: makes the calls that would end or change the process; `sys` has the list.

use sys::attempt::Errno;
use sys::attempt::sweep::{LAST, LEFT_OUT, Swept, try_number};

use crate::attempt::{Attempt, AttemptOutcome, Cx, attempt, refused, short, succeeded};
use crate::names::{number_of, of_call};

pub(super) const ATTEMPTS: &[Attempt] =
    &[attempt('E', "sweep", "system calls that are not approved, of all from 0 to 470", "seccomp", sweep)];

/// The calls that no process of a server needs; the measure where the hints have no list of approved ones.
const NEVER_NEEDED: &str = "ptrace syslog modify_ldt pivot_root adjtimex chroot acct settimeofday mount umount2 \
    swapon swapoff reboot sethostname setdomainname iopl ioperm init_module delete_module quotactl \
    lookup_dcookie clock_settime kexec_load add_key request_key keyctl unshare perf_event_open \
    name_to_handle_at open_by_handle_at clock_adjtime setns process_vm_readv process_vm_writev kcmp \
    finit_module kexec_file_load bpf userfaultfd io_uring_setup io_uring_enter io_uring_register open_tree \
    move_mount fsopen fsconfig fsmount fspick pidfd_getfd process_madvise mount_setattr fanotify_init \
    fanotify_mark migrate_pages move_pages mbind set_mempolicy vmsplice shmget shmat shmctl shmdt semget semop \
    semctl semtimedop msgget msgsnd msgrcv msgctl mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify \
    mq_getsetattr mknod mknodat io_setup io_submit io_destroy personality setuid setgid setreuid setregid \
    setresuid setresgid setgroups setfsuid setfsgid capset uselib ustat sysfs _sysctl nfsservctl remap_file_pages \
    listmount statmount lsm_set_self_attr open_tree_attr quotactl_fd process_mrelease";

/// The numbers that the kernel did not refuse.
pub(crate) fn reached() -> Vec<i64> {
    (0..=LAST)
        .filter(|&number| match try_number(number) {
            Swept::LeftOut(_) | Swept::Failed(Errno::PERM | Errno::NOSYS) => false,
            Swept::Failed(_) | Swept::Returned(_) => true,
        })
        .collect()
}

fn sweep(cx: &Cx<'_>) -> AttemptOutcome {
    let reached = reached();
    let never: Vec<i64> = NEVER_NEEDED.split_ascii_whitespace().filter_map(number_of).collect();
    let bad = |number: &i64| match &cx.hints.approved {
        Some(approved) => !approved.contains(number),
        None => never.contains(number),
    };
    let wrong: Vec<String> =
        reached.iter().filter(|number| bad(number)).map(|number| of_call(*number)).collect();
    let tried = LAST + 1 - LEFT_OUT.len() as i64;
    let all = format!("{} of {tried} tried come through", reached.len());
    let mut outcome = if wrong.is_empty() {
        refused(all)
    } else {
        succeeded(format!("{all}, {} of them should not: {}", wrong.len(), short(&wrong)))
    };
    outcome.calls = reached;
    outcome
}
