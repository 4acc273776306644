//! Processes: flags of `clone`, options of `prctl`, filters, limits, and who may be signalled or read.
//!
//! Runs in: the probe. Never: makes a process (each combination of flags is one that the kernel refuses) or a filter,
//! and sets no option to a value that changes anything.

use super::{CallAttempt, Form, NONE, ValueNames, bits, named, topic};
use libc as l;

const CLONE: ValueNames = named![
    CLONE_NEWTIME CLONE_VM CLONE_FS CLONE_FILES CLONE_SIGHAND CLONE_PIDFD CLONE_PTRACE CLONE_VFORK CLONE_PARENT
    CLONE_THREAD CLONE_NEWNS CLONE_SYSVSEM CLONE_SETTLS CLONE_PARENT_SETTID CLONE_CHILD_CLEARTID CLONE_DETACHED
    CLONE_UNTRACED CLONE_CHILD_SETTID CLONE_NEWCGROUP CLONE_NEWUTS CLONE_NEWIPC CLONE_NEWUSER CLONE_NEWPID CLONE_NEWNET
    CLONE_IO
];
const OPTIONS: ValueNames = named![
    PR_SET_PDEATHSIG PR_GET_PDEATHSIG PR_GET_DUMPABLE PR_SET_DUMPABLE PR_GET_KEEPCAPS PR_SET_KEEPCAPS PR_SET_NAME
    PR_GET_NAME PR_GET_SECCOMP PR_SET_SECCOMP PR_CAPBSET_READ PR_CAPBSET_DROP PR_GET_SECUREBITS PR_SET_SECUREBITS
    PR_SET_TIMERSLACK PR_GET_TIMERSLACK PR_SET_MM PR_SET_CHILD_SUBREAPER PR_GET_CHILD_SUBREAPER PR_SET_NO_NEW_PRIVS
    PR_GET_NO_NEW_PRIVS PR_SET_THP_DISABLE PR_CAP_AMBIENT PR_SET_VMA PR_SET_PTRACER
];
/// `AUXV` in letters.
const PR_GET_AUXV: u64 = 0x4155_5856;
/// Options that take -1 for a value: with nought they do nothing.
const TAKE_ANYTHING: &[i32] = &[l::PR_SET_TIMERSLACK, l::PR_SET_CHILD_SUBREAPER, l::PR_SET_PTRACER];

pub(super) fn sweep(lines: &mut Vec<CallAttempt>) {
    // SIGHAND without VM, or THREAD without SIGHAND, is EINVAL whatever else is asked for.
    topic(lines, ("clone flags", Form::Bit(CLONE), l::SYS_clone), bits(), |flag| {
        let never = if flag == l::CLONE_VM as u64 { l::CLONE_THREAD } else { l::CLONE_SIGHAND };
        [flag | never as u64, 0, 0, 0, 0, 0]
    });
    options(lines);
    // The strict mode with an address is EINVAL; all others read a filter or an action at the address 0.
    let operations = Form::Number(&[
        (0, "SET_MODE_STRICT"),
        (1, "SET_MODE_FILTER"),
        (2, "GET_ACTION_AVAIL"),
        (3, "GET_NOTIF_SIZES"),
    ]);
    topic(lines, ("seccomp", operations, l::SYS_seccomp), 0..=10, |operation| {
        [operation, 0, if operation == 0 { NONE } else { 0 }, 0, 0, 0]
    });
    let flags = Form::Bit(&[
        (1, "TSYNC"),
        (2, "LOG"),
        (4, "SPEC_ALLOW"),
        (8, "NEW_LISTENER"),
        (16, "TSYNC_ESRCH"),
        (32, "WAIT_KILLABLE_RECV"),
    ]);
    topic(lines, ("seccomp SET_MODE_FILTER flags", flags, l::SYS_seccomp), bits(), |flag| {
        [1, flag, 0, 0, 0, 0]
    });
    // No resource has the number -1. The kernel knows pids by 32 bits.
    let pids = [0, 1, 2, 3, u64::from(u32::MAX), 1 << 32, NONE];
    topic(lines, ("prlimit64 of process", Form::Number(&[]), l::SYS_prlimit64), pids, |pid| {
        [pid, NONE, 0, 0, 0, 0]
    });
    topic(lines, ("tgkill signal", Form::Number(&[]), l::SYS_tgkill), 0..=64, |signal| {
        [NONE, NONE, signal, 0, 0, 0]
    });
    topic(
        lines,
        ("pidfd_send_signal signal", Form::Number(&[]), l::SYS_pidfd_send_signal),
        0..=64,
        |signal| [NONE, signal, 0, 0, 0, 0],
    );
    for (name, call) in [
        ("process_vm_readv flags", l::SYS_process_vm_readv),
        ("process_vm_writev flags", l::SYS_process_vm_writev),
    ] {
        topic(lines, (name, Form::Bit(&[]), call), bits(), |flag| [NONE, 0, 0, 0, 0, flag]);
    }
}

fn options(lines: &mut Vec<CallAttempt>) {
    let special = [l::PR_SET_VMA as u64, l::PR_SET_PTRACER as u64, PR_GET_AUXV];
    let form = Form::Number(OPTIONS);
    topic(lines, ("prctl", form, l::SYS_prctl), (0..=80).chain(special), |option| {
        let harmless = TAKE_ANYTHING.iter().any(|&known| known as u64 == option);
        [option, if harmless { 0 } else { NONE }, NONE, NONE, NONE, 0]
    });
    // What one signal means to one option may mean something to another: in a child, where there can be one.
    let about = ("prctl with a second argument of 9", form, l::SYS_prctl);
    topic(lines, about, 0..=80, |option| [option, l::SIGKILL as u64, NONE, NONE, NONE, 0]);
    // The last one of each leaves things as they are in a jail.
    let signals = (0..=64).filter(|signal| *signal != l::SIGKILL as u64).chain([l::SIGKILL as u64]);
    let about = ("prctl PR_SET_PDEATHSIG", Form::Number(&[(9, "SIGKILL")]), l::SYS_prctl);
    topic(lines, about, signals, |signal| [l::PR_SET_PDEATHSIG as u64, signal, 0, 0, 0, 0]);
    let about = ("prctl PR_SET_DUMPABLE", Form::Number(&[]), l::SYS_prctl);
    topic(lines, about, [2, 1, 0], |value| [l::PR_SET_DUMPABLE as u64, value, 0, 0, 0, 0]);
    // No capability has the number -1.
    let about = (
        "prctl PR_CAP_AMBIENT",
        Form::Number(&[(1, "IS_SET"), (2, "RAISE"), (3, "LOWER"), (4, "CLEAR_ALL")]),
        l::SYS_prctl,
    );
    topic(lines, about, 0..=6, |what| [l::PR_CAP_AMBIENT as u64, what, NONE, 0, 0, 0]);
}
