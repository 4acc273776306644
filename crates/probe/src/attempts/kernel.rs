//! E: parts of the kernel that a server's processes have no business with.
//!
//! Runs in: the probe. Never: changes the machine: values are those that are there, or wrong on purpose.

use std::time::SystemTime;

use sys::attempt::{Arg, Errno, TriedCall, calls};

use crate::attempt::{Attempt, AttemptOutcome, Cx, any, attempt, denied, reached, tried};

pub(super) const ATTEMPTS: &[Attempt] = &[
    attempt('E', "io-uring", "a ring for system calls that no filter sees", "seccomp", io_uring),
    attempt('E', "bpf", "a map of BPF", "seccomp", bpf),
    attempt('E', "perf", "performance events", "seccomp", perf),
    attempt('E', "userfaultfd", "handle its own page faults", "seccomp", userfaultfd),
    attempt('E', "add-key", "store a key in the kernel", "seccomp", add_key),
    attempt('E', "request-key", "ask the kernel for a key", "seccomp", request_key),
    attempt('E', "join-keyring", "a new session keyring", "seccomp", join_keyring),
    attempt('E', "kexec", "load another kernel", "seccomp", kexec)
        .refused_anyway("where the kernel cannot do it"),
    attempt('E', "kexec-file", "load another kernel from a file", "seccomp", kexec_file)
        .refused_anyway("where the kernel cannot do it"),
    attempt('E', "reboot", "restart the machine", "seccomp", reboot),
    attempt('E', "init-module", "load a module", "seccomp", init_module)
        .refused_anyway("where the kernel has no modules"),
    attempt('E', "finit-module", "load a module from a file", "seccomp", finit_module)
        .refused_anyway("where the kernel has no modules"),
    attempt('E', "delete-module", "unload a module", "seccomp", delete_module)
        .refused_anyway("where the kernel has no modules"),
    attempt('E', "modify-ldt", "change the table of segments", "seccomp", modify_ldt),
    attempt('E', "personality", "change the personality", "seccomp", personality),
    attempt('E', "iopl", "all ports of the hardware", "seccomp", iopl)
        .refused_anyway("where the kernel is built without it"),
    attempt('E', "ioperm", "a port of the hardware", "seccomp", ioperm)
        .refused_anyway("where the kernel is built without it"),
    attempt('E', "syslog", "read the kernel's log", "seccomp", syslog),
    attempt('E', "hostname", "set the host name", "seccomp", hostname),
    attempt('E', "domainname", "set the domain name", "seccomp", domainname),
    attempt('E', "clock-settime", "set the clock", "seccomp", clock_settime),
    attempt('E', "settimeofday", "set the clock (settimeofday)", "seccomp", settimeofday),
    attempt('E', "adjtimex", "tune the clock", "seccomp", adjtimex),
    attempt('E', "clock-adjtime", "tune the clock (clock_adjtime)", "seccomp", clock_adjtime),
    attempt('E', "quotactl", "change quotas", "seccomp", quotactl),
    attempt('E', "acct", "turn on accounting of processes", "seccomp", acct),
    attempt('E', "swapon", "turn on swap", "seccomp", swapon),
    attempt('E', "swapoff", "turn off swap", "seccomp", swapoff),
    attempt('E', "lookup-dcookie", "paths of the profiler", "seccomp", lookup_dcookie)
        .refused_anyway("where the kernel no longer has the call"),
    attempt('E', "dumpable-again", "make itself dumpable again", "seccomp", dumpable_again).either(),
];

fn int(value: impl Into<i64>) -> Arg<'static> {
    Arg::Int(value.into())
}

fn io_uring(_: &Cx<'_>) -> AttemptOutcome {
    let parameters = [0; 120];
    tried(calls::IO_URING_SETUP.make(&mut [int(1), Arg::Bytes(&parameters)]))
}

fn bpf(_: &Cx<'_>) -> AttemptOutcome {
    // BPF_MAP_CREATE: an array of one value of four bytes.
    let mut attributes = [0; 72];
    for (at, value) in [2_u32, 4, 4, 1].into_iter().enumerate() {
        attributes[at * 4..at * 4 + 4].copy_from_slice(&value.to_ne_bytes());
    }
    tried(calls::BPF.make(&mut [int(0), Arg::Bytes(&attributes), Arg::Len(1)]))
}

fn perf(_: &Cx<'_>) -> AttemptOutcome {
    // Software event, size, clock of this process; also a counter for the whole machine.
    let mut attributes = [0; 128];
    attributes[..4].copy_from_slice(&1_u32.to_ne_bytes());
    attributes[4..8].copy_from_slice(&128_u32.to_ne_bytes());
    // exclude_kernel and exclude_hv, which need less privilege.
    attributes[40] = 0b0110_0000;
    tried(calls::PERF_EVENT_OPEN.make(&mut [Arg::Bytes(&attributes), int(0), int(-1), int(-1), int(8)]))
}

fn userfaultfd(_: &Cx<'_>) -> AttemptOutcome {
    // O_CLOEXEC, and for user space only, which needs less privilege.
    tried(calls::USERFAULTFD.make(&mut [int(0o2_000_000 | 1)]))
}

fn add_key(_: &Cx<'_>) -> AttemptOutcome {
    const PROCESS_KEYRING: i64 = -2;
    let (kind, name) = (Arg::Text("user"), Arg::Text("bulkhead-probe"));
    tried(calls::ADD_KEY.make(&mut [kind, name, Arg::Bytes(b"x"), Arg::Len(2), int(PROCESS_KEYRING)]))
}

fn request_key(_: &Cx<'_>) -> AttemptOutcome {
    let (kind, name) = (Arg::Text("user"), Arg::Text("bulkhead-probe-none"));
    reached(calls::REQUEST_KEY.make(&mut [kind, name, Arg::Null, int(0)]))
}

fn join_keyring(cx: &Cx<'_>) -> AttemptOutcome {
    if !cx.aside {
        // KEYCTL_GET_KEYRING_ID of the thread's, making none.
        return reached(calls::KEYCTL_NUMBERS.make(&mut [int(0), int(-1), int(0), int(0), int(0)]));
    }
    tried(calls::KEYCTL_NUMBERS.make(&mut [int(1), int(0), int(0), int(0), int(0)]))
}

fn kexec(_: &Cx<'_>) -> AttemptOutcome {
    reached(calls::KEXEC_LOAD.make(&mut [int(0), int(i64::MAX), Arg::Null, int(0xFFFF)]))
}

fn kexec_file(_: &Cx<'_>) -> AttemptOutcome {
    let wrong = [int(-1), int(-1), int(0), Arg::Null, int(0xFFFF)];
    reached(calls::KEXEC_FILE_LOAD.make(&mut { wrong }))
}

fn reboot(_: &Cx<'_>) -> AttemptOutcome {
    reached(calls::REBOOT.make(&mut [int(0), int(0), int(0), Arg::Null]))
}

fn init_module(_: &Cx<'_>) -> AttemptOutcome {
    reached(calls::INIT_MODULE.make(&mut [Arg::Bytes(b"no module"), Arg::Len(0), Arg::Text("")]))
}

fn finit_module(_: &Cx<'_>) -> AttemptOutcome {
    reached(calls::FINIT_MODULE.make(&mut [int(-1), Arg::Text(""), int(0)]))
}

fn delete_module(_: &Cx<'_>) -> AttemptOutcome {
    reached(calls::DELETE_MODULE.make(&mut [Arg::Text("bulkhead_probe_no_such_module"), int(0o4000)]))
}

fn modify_ldt(_: &Cx<'_>) -> AttemptOutcome {
    let mut table = [0; 16];
    tried(calls::MODIFY_LDT.make(&mut [int(0), Arg::Out(&mut table), Arg::Len(1)]))
}

/// ADDR_NO_RANDOMIZE, which makes the next program's addresses known.
fn personality(cx: &Cx<'_>) -> AttemptOutcome {
    const ASK: i64 = 0xFFFF_FFFF;
    const ADDR_NO_RANDOMIZE: i64 = 0x004_0000;
    let now = match calls::PERSONALITY.make(&mut [int(ASK)]) {
        Ok(now) => now,
        Err(errno) => return denied(errno, "the question itself is refused"),
    };
    let outcome = tried(calls::PERSONALITY.make(&mut [int(now | ADDR_NO_RANDOMIZE)]));
    if !cx.aside {
        let _ = calls::PERSONALITY.make(&mut [int(now)]);
    }
    outcome
}

fn iopl(cx: &Cx<'_>) -> AttemptOutcome {
    let outcome = tried(calls::IOPL.make(&mut [int(3)]));
    if !cx.aside {
        let _ = calls::IOPL.make(&mut [int(0)]);
    }
    outcome
}

fn ioperm(cx: &Cx<'_>) -> AttemptOutcome {
    let outcome = tried(calls::IOPERM.make(&mut [int(0x80), int(1), int(1)]));
    if !cx.aside {
        let _ = calls::IOPERM.make(&mut [int(0x80), int(1), int(0)]);
    }
    outcome
}

fn syslog(_: &Cx<'_>) -> AttemptOutcome {
    let mut text = [0; 256];
    tried(calls::SYSLOG.make(&mut [int(3), Arg::Out(&mut text), Arg::Len(1)]))
}

/// One of the machine's six names, each of 65 bytes at most; empty if a filter refuses the question.
fn system_name(at: usize) -> Vec<u8> {
    const ROOM: usize = 65;
    let mut names = [0; 6 * ROOM];
    if calls::UNAME.make(&mut [Arg::Out(&mut names)]).is_err() {
        return Vec::new();
    }
    names[at * ROOM..].iter().copied().take(ROOM).take_while(|byte| *byte != 0).collect()
}

/// Sets a name to what it is; without knowing that, to a name that is too long, which tells as much.
fn rename(call: &TriedCall, at: usize) -> AttemptOutcome {
    let name = system_name(at);
    if name.is_empty() {
        return reached(call.make(&mut [Arg::Bytes(&[b'x'; 65]), Arg::Len(0)]));
    }
    tried(call.make(&mut [Arg::Bytes(&name), Arg::Len(0)]))
}

fn hostname(_: &Cx<'_>) -> AttemptOutcome {
    rename(&calls::SETHOSTNAME, 1)
}

fn domainname(_: &Cx<'_>) -> AttemptOutcome {
    rename(&calls::SETDOMAINNAME, 5)
}

/// To the time that it is.
fn clock_settime(_: &Cx<'_>) -> AttemptOutcome {
    const REALTIME: i64 = 0;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut time = [0; 16];
    time[..8].copy_from_slice(&now.as_secs().to_ne_bytes());
    time[8..].copy_from_slice(&u64::from(now.subsec_nanos()).to_ne_bytes());
    tried(calls::CLOCK_SETTIME.make(&mut [int(REALTIME), Arg::Bytes(&time)]))
}

/// To nothing: the kernel asks for the privilege all the same.
fn settimeofday(_: &Cx<'_>) -> AttemptOutcome {
    tried(calls::SETTIMEOFDAY.make(&mut [Arg::Null, Arg::Null]))
}

/// Reads the clock's state and sets its status word to what it is (ADJ_STATUS).
fn timex(mut make: impl FnMut(Arg<'_>) -> Result<i64, Errno>) -> AttemptOutcome {
    const ADJ_STATUS: u32 = 0x10;
    let mut state = [0; 208];
    if let Err(errno) = make(Arg::Out(&mut state)) {
        return denied(errno, "the question itself is refused");
    }
    state[..4].copy_from_slice(&ADJ_STATUS.to_ne_bytes());
    tried(make(Arg::Bytes(&state)))
}

fn adjtimex(_: &Cx<'_>) -> AttemptOutcome {
    timex(|state| calls::ADJTIMEX.make(&mut [state]))
}

fn clock_adjtime(_: &Cx<'_>) -> AttemptOutcome {
    timex(|state| calls::CLOCK_ADJTIME.make(&mut [int(0), state]))
}

fn quotactl(_: &Cx<'_>) -> AttemptOutcome {
    // Q_SYNC of user quotas, of a device that is none.
    const Q_SYNC: i64 = 0x80_0001 << 8;
    any(["/dev/null"], |device| {
        reached(calls::QUOTACTL.make(&mut [int(Q_SYNC), Arg::Text(device), int(0), Arg::Null]))
    })
}

fn acct(_: &Cx<'_>) -> AttemptOutcome {
    reached(calls::ACCT.make(&mut [Arg::Text("/bulkhead-probe-no-such-file")]))
}

fn swapon(_: &Cx<'_>) -> AttemptOutcome {
    reached(calls::SWAPON.make(&mut [Arg::Text("/bulkhead-probe-no-such-file"), int(0)]))
}

fn swapoff(_: &Cx<'_>) -> AttemptOutcome {
    reached(calls::SWAPOFF.make(&mut [Arg::Text("/bulkhead-probe-no-such-file")]))
}

fn lookup_dcookie(_: &Cx<'_>) -> AttemptOutcome {
    let mut path = [0; 64];
    reached(calls::LOOKUP_DCOOKIE.make(&mut [int(0), Arg::Out(&mut path), Arg::Len(1)]))
}

fn dumpable_again(cx: &Cx<'_>) -> AttemptOutcome {
    let none = || int(0);
    let outcome = tried(calls::PRCTL_DUMPABLE.make(&mut [int(4), int(1), none(), none(), none()]));
    if !cx.aside && outcome.has_succeeded() {
        let _ = calls::PRCTL_DUMPABLE.make(&mut [int(4), int(0), none(), none(), none()]);
    }
    outcome
}
