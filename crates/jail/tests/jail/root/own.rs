//! What a process in a jail has.
//!
//! Runs in: the jail's test, as root.

use std::fs::File;

use jail::{Identity, Jail, LAYERS, Limits};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use sys::process::Exit;

use super::{assert_found, probe, role, tries, uid};
use crate::Test;
use crate::probe::TELL;
use crate::process::{open, start_on};

pub const TESTS: &[Test] = &[
    ("ids_and_capabilities_are_taken_away", ids_and_capabilities_are_taken_away),
    ("every_way_out_is_refused", every_way_out_is_refused),
    ("only_the_listed_descriptors_are_open", only_the_listed_descriptors_are_open),
    ("numbers_between_the_listed_ones_are_closed", numbers_between_the_listed_ones_are_closed),
    ("limits_are_set", limits_are_set),
    ("limits_hold", limits_hold),
    ("limits_are_never_raised", limits_are_never_raised),
    ("a_session_of_its_own", a_session_of_its_own),
    ("the_score_for_want_of_memory_stays", the_score_for_want_of_memory_stays),
    ("signals_and_environment_start_afresh", signals_and_environment_start_afresh),
    ("without_a_root_it_starts_in_its_directory", without_a_root_it_starts_in_its_directory),
    ("identities_are_not_root", identities_are_not_root),
    ("layers_have_the_stated_order", layers_have_the_stated_order),
];

/// Looked at after the probe has tried to get out, so that it also shows what the attempts changed.
fn ids_and_capabilities_are_taken_away() {
    let probe = probe(&["ways-out"], role());
    let four = [uid(); 4].map(|id| id.to_string()).join(" ");
    assert_eq!(probe.status("Uid"), four);
    assert_eq!(probe.status("Gid"), four);
    assert_eq!(probe.status("Groups"), uid().to_string());
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(probe.status(set), "0000000000000000", "{set}");
    }
    assert_eq!(probe.status("NoNewPrivs"), "1");
    // NOROOT and its lock; the locks of NO_SETUID_FIXUP and KEEP_CAPS; NO_CAP_AMBIENT_RAISE and its lock.
    assert_eq!(probe.fact("securebits"), "0xeb");
    assert_eq!(probe.status("Threads"), "1");
    assert_eq!(probe.dismiss(), Exit::Clean);
}

/// By each of the layers that refuse most of them.
fn every_way_out_is_refused() {
    for without in [vec![], vec!["seccomp"], vec!["landlock"], vec!["seccomp", "landlock"]] {
        let probe = probe(&["ways-out"], Jail { without: without.clone(), ..role() });
        assert_eq!(probe.found(), "20 refused", "without {without:?}");
    }
}

fn only_the_listed_descriptors_are_open() {
    let (control, _ours) = sys::seqpacket::pair().expect("a pair");
    let behind = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&control));
    let behind = std::fs::read_link(behind).expect("a link").display().to_string();
    let mut leaks = Vec::new();
    for number in [10, 50, 200, 1000] {
        let leak =
            fcntl_dupfd_cloexec(File::open("/etc/passwd").expect("a file"), number).expect("a duplicate");
        fcntl_setfd(&leak, FdFlags::empty()).expect("it can be inherited");
        leaks.push(leak);
    }
    let descriptors = vec![(control, 3), (File::open("/dev/null").expect("it opens").into(), 4)];
    let probe = probe(&[], Jail { descriptors, ..role() });
    let open = probe.descriptors();
    assert_eq!(open.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3, 4], "{open:?}");
    assert_eq!(open[&3], behind);
    assert_eq!(open[&4], "/dev/null");
    probe.dismiss();
}

fn numbers_between_the_listed_ones_are_closed() {
    let secret = File::open("/etc/passwd").expect("a file");
    let leak = || sys::process::place(&secret, 4).map_err(|error| ("leak", error));
    let descriptors = vec![(File::open("/dev/null").expect("it opens").into(), 6)];
    let probe = start_on(TELL, &[], Jail { descriptors, ..role() }, leak).expect("the probe starts");
    let open = probe.descriptors();
    assert_eq!(open.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 6], "{open:?}");
    probe.dismiss();
}

fn limited() -> Jail {
    Jail {
        limits: Limits {
            descriptors: 48,
            processes: 1,
            memory_bytes: Some(64 << 20),
            file_bytes: Some(1 << 20),
            core_bytes: 0,
            cpu_seconds: Some(60),
        },
        ..role()
    }
}

fn limits_are_set() {
    let probe = probe(&[], limited());
    let both = |value: &str| (value.to_owned(), value.to_owned());
    let all = [
        ("open files", "48"),
        ("processes", "1"),
        ("data size", "67108864"),
        ("core file size", "0"),
        ("file size", "1048576"),
        ("cpu time", "60"),
        ("locked memory", "0"),
        ("msgqueue size", "0"),
        ("realtime priority", "0"),
        ("nice priority", "0"),
    ];
    for (name, value) in all {
        assert_eq!(probe.limit(&format!("Max {name}")), both(value), "{name}");
    }
    probe.dismiss();
}

fn limits_hold() {
    let expected =
        [("fork", "EAGAIN"), ("thread", "EAGAIN"), ("map 134217728", "ENOMEM"), ("descriptors", "45")];
    let held = probe(&tries(&expected), limited());
    assert_found(&held, &expected);
    let expected = [("fork", "ok"), ("thread", "ok"), ("map 134217728", "ok")];
    let free = probe(&tries(&expected), Jail { without: vec!["rlimits"], ..limited() });
    assert_found(&free, &expected);
}

fn limits_are_never_raised() {
    let most = u64::MAX;
    let limits = Limits {
        descriptors: most,
        processes: most,
        memory_bytes: Some(most),
        file_bytes: Some(most),
        core_bytes: most,
        cpu_seconds: Some(most),
    };
    let lower = || {
        let limit = rustix::process::Rlimit { current: Some(100), maximum: Some(100) };
        let lowered = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
        lowered.map_err(|error| ("lower", error.into()))
    };
    let probe = start_on(TELL, &[], Jail { limits, ..role() }, lower).expect("the probe starts");
    assert_eq!(probe.limit("Max open files"), ("100".into(), "100".into()));
    probe.dismiss();
}

fn a_session_of_its_own() {
    let probe = probe(&[], role());
    let pid = i64::from(probe.child.pid);
    assert_eq!(probe.session(), [pid, pid, 0], "group, session, terminal");
    assert_eq!(probe.status("Umask"), "0077");
    probe.dismiss();
}

fn signals_and_environment_start_afresh() {
    let signals = sys::signals::signal_descriptor().expect("the signals are blocked");
    let set_all = |disposition| {
        // SAFETY: both dispositions that are passed here are valid for both signals.
        unsafe {
            libc::signal(libc::SIGTERM, disposition);
            libc::signal(libc::SIGHUP, disposition);
        }
    };
    set_all(libc::SIG_IGN);
    let probe = probe(&[], role());
    set_all(libc::SIG_DFL);
    unblock_signals();
    drop(signals);
    assert_eq!(probe.status("SigBlk"), "0000000000000000");
    let ignored = u64::from_str_radix(&probe.status("SigIgn"), 16).expect("a number");
    // Rust's own start-up ignores SIGPIPE.
    assert_eq!(ignored, 1 << (libc::SIGPIPE - 1), "{ignored:x}");
    assert_eq!(probe.fact("arguments"), "1");
    assert_eq!(probe.fact("environment"), "0");
    probe.dismiss();
}

fn unblock_signals() {
    let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set before sigprocmask reads it; a null old set is allowed.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

fn without_a_root_it_starts_in_its_directory() {
    let jail = Jail { root: None, directory: Some(open("/usr")), ..role() };
    let probe = probe(&[], jail);
    assert_eq!(probe.link("root").to_str(), Some("/"));
    assert_eq!(probe.link("cwd").to_str(), Some("/usr"));
    assert_eq!(probe.status("CapBnd"), "0000000000000000");
    probe.dismiss();
}

/// In its root there is nothing to write to; beside that, the kernel keeps the least score, if the launcher may set
/// one.
fn the_score_for_want_of_memory_stays() {
    let score = sys::oom::own().expect("a score") + 300;
    let jail = || Jail { oom_score: Some(score), ..role() };
    let jailed = probe(&["lower-oom-score"], jail());
    assert_eq!((jailed.found().as_str(), jailed.oom_score()), ("ENOENT", score));
    jailed.dismiss();
    let capabilities = rustix::thread::capabilities(None).expect("capabilities").effective;
    if capabilities.contains(rustix::thread::CapabilitySet::SYS_RESOURCE) {
        let free =
            probe(&["lower-oom-score"], Jail { without: vec!["root", "landlock", "seccomp"], ..jail() });
        assert_eq!((free.found().as_str(), free.oom_score()), ("EACCES", score));
        free.dismiss();
    }
}

fn identities_are_not_root() {
    assert_eq!(Identity::new(0), None);
    assert_eq!(Identity::new(u32::MAX), None);
    assert_eq!(Identity::new(1).map(Identity::id), Some(1));
}

/// The order is part of the promise: see `LAYERS`.
fn layers_have_the_stated_order() {
    let names: Vec<_> = LAYERS.iter().map(|layer| layer.name).collect();
    let position = |name| names.iter().position(|found| *found == name).expect(name);
    for (first, then, why) in [
        ("descriptors", "session", "what comes after needs none that is not its own"),
        ("cgroup", "root", "a control group is joined while the machine is in sight"),
        ("label", "root", "its file is in the machine's /proc"),
        ("root", "identity", "a mount needs a capability"),
        ("bounding set", "identity", "so does the bounding set"),
        ("identity", "capabilities", "and the change of ids"),
        ("identity", "parent death", "which clears that signal"),
        ("root", "landlock", "which forbids mounts"),
        ("no_new_privs", "landlock", "which asks for it"),
    ] {
        assert!(position(first) < position(then), "{first} before {then}: {why}");
    }
    assert_eq!(names.last(), Some(&"seccomp"), "it would hinder the others");
    let of_root = [
        "pid namespace",
        "cgroup",
        "ipc namespace",
        "uts namespace",
        "network namespace",
        "label",
        "root",
        "bounding set",
        "identity",
    ];
    assert_eq!(jail::missing(false), of_root);
    assert_eq!(jail::missing(true), [""; 0]);
}
