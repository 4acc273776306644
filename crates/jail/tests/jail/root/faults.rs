//! A layer that fails is named, and nothing runs.
//!
//! Runs in: the jail's test, as root.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use jail::{Bind, Jail, LAYERS, Mode, MountTemplate, Root};
use rustix::process::WaitOptions;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use sys::process::Pids;

use super::{TempDir, bind, role, root, staging};
use crate::Test;
use crate::probe::TELL;
use crate::process::{self, Prepared, open, start, start_on};

pub const TESTS: &[Test] = &[
    (
        "every_layer_that_is_refused_is_named_and_nothing_runs",
        every_layer_that_is_refused_is_named_and_nothing_runs,
    ),
    ("a_layer_that_fails_is_named_and_nothing_runs", a_layer_that_fails_is_named_and_nothing_runs),
    (
        "a_child_without_the_asked_pid_namespace_is_refused",
        a_child_without_the_asked_pid_namespace_is_refused,
    ),
    (
        "a_launcher_that_may_make_no_pid_namespace_names_it",
        a_launcher_that_may_make_no_pid_namespace_names_it,
    ),
    ("a_template_that_cannot_be_made_is_refused", a_template_that_cannot_be_made_is_refused),
    ("roots_that_cannot_be_made_are_refused", roots_that_cannot_be_made_are_refused),
    ("a_directory_outside_of_the_root_is_refused", a_directory_outside_of_the_root_is_refused),
    ("failed_starts_leave_no_process", failed_starts_leave_no_process),
];

/// What a layer cannot do without; it is refused with EPERM.
const NEEDED: &[(&str, &[i64], i32)] = &[
    ("descriptors", &[libc::SYS_close_range], libc::EPERM),
    ("descriptors", &[libc::SYS_dup2, libc::SYS_dup3], libc::EPERM),
    ("session", &[libc::SYS_setsid], libc::EPERM),
    ("rlimits", &[libc::SYS_prlimit64], libc::EPERM),
    ("cgroup", &[libc::SYS_unshare], libc::EPERM),
    ("ipc namespace", &[libc::SYS_unshare], libc::EPERM),
    ("uts namespace", &[libc::SYS_unshare], libc::EPERM),
    ("uts namespace", &[libc::SYS_sethostname], libc::EPERM),
    ("network namespace", &[libc::SYS_unshare], libc::EPERM),
    ("label", &[libc::SYS_open, libc::SYS_openat], libc::EPERM),
    ("root", &[libc::SYS_setns], libc::EPERM),
    ("root", &[libc::SYS_unshare], libc::EPERM),
    ("root", &[libc::SYS_fsopen], libc::EPERM),
    ("root", &[libc::SYS_fsconfig], libc::EPERM),
    ("root", &[libc::SYS_fsmount], libc::EPERM),
    ("root", &[libc::SYS_move_mount], libc::EPERM),
    ("root", &[libc::SYS_mount_setattr], libc::EPERM),
    ("root", &[libc::SYS_chroot], libc::EPERM),
    ("root", &[libc::SYS_chdir], libc::EPERM),
    ("directory", &[libc::SYS_fchdir], libc::EPERM),
    ("keyring", &[libc::SYS_keyctl], libc::EPERM),
    ("bounding set", &[libc::SYS_prctl], libc::EPERM),
    ("identity", &[libc::SYS_setgroups], libc::EPERM),
    ("identity", &[libc::SYS_setresgid], libc::EPERM),
    ("identity", &[libc::SYS_setresuid], libc::EPERM),
    ("identity", &[libc::SYS_getresuid], libc::EPERM),
    ("identity", &[libc::SYS_getresgid], libc::EPERM),
    ("identity", &[libc::SYS_getgroups], libc::EPERM),
    ("capabilities", &[libc::SYS_capset], libc::EPERM),
    ("capabilities", &[libc::SYS_prctl], libc::EPERM),
    ("no_new_privs", &[libc::SYS_prctl], libc::EPERM),
    ("parent death", &[libc::SYS_prctl], libc::EPERM),
    ("parent death", &[libc::SYS_poll, libc::SYS_ppoll], libc::EPERM),
    // A kernel that does not even say which version it has.
    ("landlock", &[libc::SYS_landlock_create_ruleset], libc::ENOSYS),
    ("landlock", &[libc::SYS_landlock_add_rule], libc::EPERM),
    ("landlock", &[libc::SYS_landlock_restrict_self], libc::EPERM),
    ("seccomp", &[libc::SYS_seccomp], libc::EPERM),
];

fn every_layer_that_is_refused_is_named_and_nothing_runs() {
    for (name, calls, errno) in NEEDED {
        // No other layer, as it would be the first to fail of the same refusal.
        let without = LAYERS.iter().map(|layer| layer.name).filter(|other| other != name).collect();
        let root = Root { temporary_bytes: Some(1 << 20), ..root(vec![]) };
        let mut jail = Jail { label: Some("a label".into()), root: Some(root), without, ..role() };
        if *name == "directory" {
            jail = Jail { root: None, directory: Some(open("/usr")), ..jail };
        }
        let error = start_on(TELL, &[], jail, || refuse(calls)).expect_err(name);
        assert_eq!((&*error.step, error.source.raw_os_error()), (*name, Some(*errno)), "{calls:?}");
    }
    let unprovoked: Vec<_> = LAYERS
        .iter()
        .map(|layer| layer.name)
        .filter(|name| !NEEDED.iter().any(|row| row.0 == *name))
        .collect();
    // It is the call that makes the child; the tests below see to it.
    assert_eq!(unprovoked, ["pid namespace"]);
}

/// From here on these system calls answer EPERM.
fn refuse(calls: &[i64]) -> Prepared {
    let filter = || -> io::Result<BpfProgram> {
        let rules: BTreeMap<i64, Vec<_>> = calls.iter().map(|call| (*call, conditions(*call))).collect();
        let arch = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
        let refused = SeccompAction::Errno(libc::EPERM as u32);
        let filter =
            SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).map_err(io::Error::other)?;
        filter.try_into().map_err(io::Error::other)
    };
    let program = filter().map_err(|error| ("compile", error))?;
    seccompiler::apply_filter(&program).map_err(|error| ("apply", io::Error::other(error)))
}

/// Of the calls that ask and set, only the setting is refused.
fn conditions(call: i64) -> Vec<SeccompRule> {
    if call != libc::SYS_prlimit64 {
        return vec![];
    }
    let new_limit = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0);
    vec![new_limit.and_then(|condition| SeccompRule::new(vec![condition])).expect("a rule")]
}

/// Takes capabilities away from the calling process, which is a child before its jail.
fn without(taken: CapabilitySet) -> Prepared {
    let left = CapabilitySet::all().difference(taken);
    let now = rustix::thread::capabilities(None).map_err(|error| ("read capabilities", error.into()))?;
    let sets = CapabilitySets {
        effective: now.effective & left,
        permitted: now.permitted & left,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).map_err(|error| ("take capabilities", error.into()))
}

fn lead_a_group() -> Prepared {
    rustix::process::setpgid(None, None).map_err(|error| ("lead a group", error.into()))
}

fn null() -> OwnedFd {
    File::open("/dev/null").expect("it opens").into()
}

/// A root that is a copy of what is no namespace.
fn of_nothing() -> Root {
    Root { template: Rc::new(MountTemplate::from(null())), ..root(vec![]) }
}

fn full() -> OwnedFd {
    File::options().write(true).open("/dev/full").expect("it opens").into()
}

/// What the operator or the machine gets wrong.
fn a_layer_that_fails_is_named_and_nothing_runs() {
    let powerless = || without(CapabilitySet::SYS_ADMIN);
    let after = |names: &[&'static str]| Jail { without: names.to_vec(), ..role() };
    let no_root = || Jail { root: Some(of_nothing()), ..role() };
    let no_directory = || Jail { root: None, directory: Some(null()), ..role() };
    type Case = (&'static str, i32, fn() -> Prepared, Jail);
    let cases: [Case; 15] = [
        ("descriptors", libc::EBADF, || Ok(()), Jail { descriptors: vec![(null(), 1 << 30)], ..role() }),
        ("session", libc::EPERM, lead_a_group, role()),
        ("cgroup", libc::ENOSPC, || Ok(()), Jail { cgroups: vec![full()], ..role() }),
        ("cgroup", libc::EBADF, || Ok(()), Jail { cgroups: vec![open("/dev/full")], ..role() }),
        ("cgroup", libc::EPERM, powerless, role()),
        ("ipc namespace", libc::EPERM, powerless, after(&["cgroup"])),
        ("uts namespace", libc::EPERM, powerless, after(&["cgroup", "ipc namespace"])),
        ("network namespace", libc::EPERM, powerless, after(&["cgroup", "ipc namespace", "uts namespace"])),
        ("root", libc::EINVAL, || Ok(()), no_root()),
        (
            "root",
            libc::EPERM,
            powerless,
            after(&["cgroup", "ipc namespace", "uts namespace", "network namespace"]),
        ),
        ("directory", libc::ENOTDIR, || Ok(()), no_directory()),
        ("bounding set", libc::EPERM, || without(CapabilitySet::SETPCAP), role()),
        ("identity", libc::EPERM, || without(CapabilitySet::SETUID), role()),
        ("identity", libc::EPERM, || without(CapabilitySet::SETGID), role()),
        ("identity", libc::EPERM, || without(CapabilitySet::SETUID | CapabilitySet::SETGID), role()),
    ];
    for (step, errno, before, jail) in cases {
        let error = start_on(TELL, &[], jail, before).expect_err(step);
        assert_eq!((&*error.step, error.source.raw_os_error()), (step, Some(errno)));
        assert_eq!(error.to_string(), format!("{step}: {}", io::Error::from_raw_os_error(errno)));
    }
}

fn a_child_without_the_asked_pid_namespace_is_refused() {
    let jail = role();
    let program = process::program(TELL, &[]);
    let error = sys::process::start(&program, Pids::Shared, || jail::enter(&jail)).expect_err("no start");
    assert_eq!((&*error.step, error.source.raw_os_error()), ("pid namespace", Some(libc::EINVAL)));
}

fn a_launcher_that_may_make_no_pid_namespace_names_it() {
    let jail = role();
    let program = process::program(TELL, &[]);
    let launch = || -> Prepared {
        without(CapabilitySet::SYS_ADMIN)?;
        match sys::process::start(&program, jail.pids(), || jail::enter(&jail)) {
            Ok(_) => Err(("it started", io::Error::from_raw_os_error(libc::EIO))),
            Err(error) if error.step == "pid namespace" => Err(("pid namespace", error.source)),
            Err(error) => Err(("another step", error.source)),
        }
    };
    let error = sys::process::start(&program, Pids::Shared, launch).expect_err("no start");
    assert_eq!((&*error.step, error.source.raw_os_error()), ("pid namespace", Some(libc::EPERM)));
}

/// What the making of that of which jails have copies cannot do without.
fn a_template_that_cannot_be_made_is_refused() {
    let calls = [
        libc::SYS_fchdir,
        libc::SYS_unshare,
        libc::SYS_mount,
        libc::SYS_fsopen,
        libc::SYS_move_mount,
        libc::SYS_mount_setattr,
        libc::SYS_pivot_root,
        libc::SYS_umount2,
        libc::SYS_chdir,
        libc::SYS_sendmsg,
    ];
    for call in calls {
        let make = || -> Prepared {
            refuse(&[call])?;
            let error = MountTemplate::make(&staging()).expect_err("it is not made");
            let step = if error.step == "root" { "refused" } else { "another step" };
            Err((step, error.source))
        };
        let error = sys::process::run(make).expect_err("it is refused");
        assert_eq!((&*error.step, error.source.raw_os_error()), ("refused", Some(libc::EPERM)), "{call}");
    }
}

fn roots_that_cannot_be_made_are_refused() {
    let place = TempDir::new("refused");
    let at = |path: &str| bind(&place.0, path, Mode::Read);
    let file = |path: &str| bind(&place.0.join("file"), path, Mode::Read);
    let attached = || Bind { at: "/data".into(), tree: place.open(), directory: true };
    let cases = [
        (root(vec![at("data")]), libc::EINVAL, "a path that is not absolute"),
        (root(vec![at("/data/../other")]), libc::EINVAL, "a path that climbs"),
        (root(vec![file("/data"), at("/data/below")]), libc::ENOTDIR, "a directory below a file"),
        (root(vec![attached()]), libc::EINVAL, "a directory of which no view was made"),
        (Root { start_in: "../etc".into(), ..root(vec![]) }, libc::EINVAL, "a start that is not absolute"),
        (
            Root { start_in: format!("/{}", "d/".repeat(1100)).into(), ..root(vec![]) },
            libc::ENOSPC,
            "a deep start",
        ),
    ];
    for (root, errno, what) in cases {
        let error = start(&[], Jail { root: Some(root), ..role() }).expect_err(what);
        assert_eq!((&*error.step, error.source.raw_os_error()), ("root", Some(errno)), "{what}");
    }
}

/// A process that stands outside of its root walks up to the machine's.
fn a_directory_outside_of_the_root_is_refused() {
    let error = start(&[], Jail { directory: Some(open("/usr")), ..role() }).expect_err("no start");
    assert_eq!((&*error.step, error.source.raw_os_error()), ("directory", Some(libc::EINVAL)));
}

fn failed_starts_leave_no_process() {
    for _ in 0..20 {
        let broken = Jail { root: Some(of_nothing()), ..role() };
        start(&[], broken).expect_err("no start");
    }
    let any = rustix::process::wait(WaitOptions::NOHANG);
    assert_eq!(any.err(), Some(rustix::io::Errno::CHILD), "a child is left");
}
