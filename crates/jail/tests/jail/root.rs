//! The jails that only root can build.
//!
//! Runs in: the jail's test, as root.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use jail::{Identity, Jail, LAYERS, Limits};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::WaitOptions;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use sys::process::Exit;

use crate::Test;
use crate::probe::{ESCAPE, STAY, TELL};
use crate::process::{self, Prepared, Probe, ended, jail, open, start, start_after};
use crate::rootless;

/// A uid that nobody has.
pub const UID: u32 = 64_123;

/// The tests.
pub const TESTS: &[Test] = &[
    ("ids_and_capabilities_are_taken_away", ids_and_capabilities_are_taken_away),
    ("only_the_listed_descriptors_are_open", only_the_listed_descriptors_are_open),
    ("numbers_between_the_listed_ones_are_closed", numbers_between_the_listed_ones_are_closed),
    ("limits_are_set", limits_are_set),
    ("limits_hold", limits_hold),
    ("limits_are_never_raised", limits_are_never_raised),
    ("a_session_of_its_own", a_session_of_its_own),
    ("signals_and_environment_start_afresh", signals_and_environment_start_afresh),
    ("the_root_is_empty", the_root_is_empty),
    ("every_way_out_is_refused", every_way_out_is_refused),
    ("without_a_root_it_starts_in_its_directory", without_a_root_it_starts_in_its_directory),
    ("a_directory_outside_of_the_root_is_refused", a_directory_outside_of_the_root_is_refused),
    ("it_dies_with_the_launcher", it_dies_with_the_launcher),
    ("a_child_of_another_parent_does_not_start", a_child_of_another_parent_does_not_start),
    ("a_layer_that_fails_is_named_and_nothing_runs", a_layer_that_fails_is_named_and_nothing_runs),
    ("a_program_that_cannot_be_executed_is_named", a_program_that_cannot_be_executed_is_named),
    ("the_program_is_executed_by_its_own_identity", the_program_is_executed_by_its_own_identity),
    ("failed_starts_leave_no_process", failed_starts_leave_no_process),
    ("a_signal_ends_it_and_is_told", a_signal_ends_it_and_is_told),
    ("identities_are_not_root", identities_are_not_root),
    ("layers_have_the_stated_order", layers_have_the_stated_order),
    ("the_rootless_tests_pass_as_another_user", the_rootless_tests_pass_as_another_user),
];

/// An empty directory, as the launcher makes one.
fn empty_root() -> OwnedFd {
    let path = std::env::temp_dir().join(format!("jail-test-empty-{}", std::process::id()));
    std::fs::create_dir(&path).expect("the directory is made");
    let directory = open(path.to_str().expect("a path in UTF-8"));
    // Removed already: it is as empty as it was, and nothing is left behind.
    std::fs::remove_dir(&path).expect("the directory is removed");
    directory
}

/// The jail of a role of ours.
fn role() -> Jail {
    Jail { identity: Identity::new(UID), root: Some(empty_root()), ..jail() }
}

fn probe(errand: &str, jail: Jail) -> Probe {
    start(errand, jail).expect("the probe starts")
}

/// Looked at after the probe has tried to get out, so that it also shows what the attempts changed.
fn ids_and_capabilities_are_taken_away() {
    let probe = probe(ESCAPE, role());
    let four = [UID; 4].map(|id| id.to_string()).join(" ");
    assert_eq!(probe.status("Uid"), four);
    assert_eq!(probe.status("Gid"), four);
    assert_eq!(probe.status("Groups"), UID.to_string());
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(probe.status(set), "0000000000000000", "{set}");
    }
    assert_eq!(probe.status("NoNewPrivs"), "1");
    // NOROOT and its lock; the locks of NO_SETUID_FIXUP and KEEP_CAPS; NO_CAP_AMBIENT_RAISE and its lock.
    assert_eq!(probe.told("securebits"), "0xeb");
    assert_eq!(probe.status("Threads"), "1");
    assert_eq!(probe.dismiss(), Exit::Clean);
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
    let probe = probe(TELL, Jail { descriptors, ..role() });
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
    let probe = start_after(TELL, Jail { descriptors, ..role() }, leak).expect("the probe starts");
    let open = probe.descriptors();
    assert_eq!(open.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 6], "{open:?}");
    probe.dismiss();
}

fn limited() -> Jail {
    Jail { limits: Limits { descriptors: 20, processes: 1, memory_bytes: Some(64 << 20) }, ..role() }
}

fn limits_are_set() {
    let probe = probe(TELL, limited());
    let both = |value: &str| (value.to_owned(), value.to_owned());
    assert_eq!(probe.limit("Max open files"), both("20"));
    assert_eq!(probe.limit("Max processes"), both("1"));
    assert_eq!(probe.limit("Max data size"), both("67108864"));
    assert_eq!(probe.limit("Max core file size"), both("0"));
    probe.dismiss();
}

fn limits_hold() {
    let probe = probe(ESCAPE, limited());
    assert_eq!(probe.told("fork"), format!("errno {}", libc::EAGAIN));
    assert_eq!(probe.told("map_128_mib"), format!("errno {}", libc::ENOMEM));
    assert_eq!(probe.told("descriptors_more"), "17");
    probe.dismiss();
}

fn limits_are_never_raised() {
    let limits = Limits { descriptors: u64::MAX, processes: u64::MAX, memory_bytes: Some(u64::MAX) };
    let lower = || {
        let limit = rustix::process::Rlimit { current: Some(100), maximum: Some(100) };
        let lowered = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
        lowered.map_err(|error| ("lower", error.into()))
    };
    let probe = start_after(TELL, Jail { limits, ..role() }, lower).expect("the probe starts");
    assert_eq!(probe.limit("Max open files"), ("100".into(), "100".into()));
    probe.dismiss();
}

fn a_session_of_its_own() {
    let probe = probe(TELL, role());
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
    let probe = probe(TELL, role());
    set_all(libc::SIG_DFL);
    unblock_signals();
    drop(signals);
    assert_eq!(probe.status("SigBlk"), "0000000000000000");
    // glibc keeps 32 and 33 to itself: they stay as whoever started this test left them.
    let reserved = 0b11 << 31;
    let ignored = u64::from_str_radix(&probe.status("SigIgn"), 16).expect("a number");
    // Rust's own start-up ignores SIGPIPE.
    assert_eq!(ignored & !reserved, 1 << (libc::SIGPIPE - 1), "{ignored:x}");
    assert_eq!(probe.told("arguments"), "1");
    assert_eq!(probe.told("environment"), "0");
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

fn the_root_is_empty() {
    let probe = probe(TELL, role());
    assert_eq!(probe.told("entries_of_root"), "0");
    assert_eq!(probe.told("entries_above"), "0");
    assert_eq!(probe.link("cwd"), probe.link("root"), "it starts in its root");
    assert_ne!(probe.link("root").to_str(), Some("/"));
    probe.dismiss();
}

fn every_way_out_is_refused() {
    let probe = probe(ESCAPE, role());
    let ways: Vec<_> = probe.told.iter().filter(|(_, value)| *value == "refused").collect();
    let succeeded: Vec<_> = probe.told.iter().filter(|(_, value)| *value == "SUCCEEDED").collect();
    // `fork` and the mapping are within the limits of this jail.
    assert_eq!(succeeded.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["fork", "map_128_mib"]);
    assert_eq!(ways.len(), 24, "{ways:?}");
    probe.dismiss();
}

fn without_a_root_it_starts_in_its_directory() {
    let jail = Jail { root: None, directory: Some(open("/usr")), ..role() };
    let probe = probe(TELL, jail);
    assert_eq!(probe.link("root").to_str(), Some("/"));
    assert_eq!(probe.link("cwd").to_str(), Some("/usr"));
    assert_eq!(probe.status("CapBnd"), "0000000000000000");
    probe.dismiss();
}

/// A process that stands outside of its root walks up to the machine's.
fn a_directory_outside_of_the_root_is_refused() {
    let error = start(TELL, Jail { directory: Some(open("/usr")), ..role() }).expect_err("no start");
    assert_eq!((&*error.step, error.source.raw_os_error()), ("directory", Some(libc::EINVAL)));
}

fn it_dies_with_the_launcher() {
    assert_eq!(probe(TELL, role()).told("parent_death_signal"), libc::SIGKILL.to_string());
    // The orphan becomes our child, so its end can be seen.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).expect("we reap");
    let (launcher, orphan, _keep) = process::start_launcher();
    launcher.kill();
    assert_eq!(ended(&launcher), Exit::Signal(libc::SIGKILL));
    let end = rustix::process::waitpid(Some(orphan), WaitOptions::empty()).expect("the orphan is ours now");
    rustix::process::set_child_subreaper(None).expect("we reap no more");
    let (_, status) = end.expect("it has ended");
    assert_eq!(status.terminating_signal(), Some(libc::SIGKILL));
}

/// Its parent's death would be the wrong one to die of.
fn a_child_of_another_parent_does_not_start() {
    let program = process::program(TELL);
    let jail = role();
    let from_a_child = || -> Prepared {
        match sys::process::start(&program, || jail::enter(&jail)) {
            Ok(_) => Err(("it started", io::Error::from_raw_os_error(libc::EIO))),
            Err(error) if error.step == "parent death" => Err(("parent death", error.source)),
            Err(error) => Err(("another step", error.source)),
        }
    };
    let error = sys::process::start(&program, from_a_child).expect_err("no start");
    assert_eq!((&*error.step, error.source.raw_os_error()), ("parent death", Some(libc::ESRCH)));
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

fn a_layer_that_fails_is_named_and_nothing_runs() {
    let null = || OwnedFd::from(File::open("/dev/null").expect("it opens"));
    let far = || Jail { descriptors: vec![(null(), 1 << 30)], ..role() };
    let no_root = || Jail { root: Some(null()), ..role() };
    let no_directory = || Jail { root: None, directory: Some(null()), ..role() };
    type Case = (&'static str, i32, fn() -> Prepared, Jail);
    let cases: [Case; 9] = [
        ("descriptors", libc::EBADF, || Ok(()), far()),
        ("session", libc::EPERM, lead_a_group, role()),
        ("root", libc::ENOTDIR, || Ok(()), no_root()),
        ("root", libc::EPERM, || without(CapabilitySet::SYS_CHROOT), role()),
        ("directory", libc::ENOTDIR, || Ok(()), no_directory()),
        ("bounding set", libc::EPERM, || without(CapabilitySet::SETPCAP), role()),
        ("identity", libc::EPERM, || without(CapabilitySet::SETUID), role()),
        ("identity", libc::EPERM, || without(CapabilitySet::SETGID), role()),
        ("identity", libc::EPERM, || without(CapabilitySet::SETUID | CapabilitySet::SETGID), role()),
    ];
    for (step, errno, before, jail) in cases {
        let error = start_after(TELL, jail, before).expect_err(step);
        assert_eq!((&*error.step, error.source.raw_os_error()), (step, Some(errno)));
        assert_eq!(error.to_string(), format!("{step}: {}", io::Error::from_raw_os_error(errno)));
    }
}

fn a_program_that_cannot_be_executed_is_named() {
    let jail = role();
    for (path, errno) in [("/dev/null", libc::EACCES), ("/usr", libc::EACCES), ("/etc/passwd", libc::EACCES)]
    {
        let program = sys::process::Program { file: open(path), ..process::program(TELL) };
        let error = sys::process::start(&program, || jail::enter(&jail)).expect_err(path);
        assert_eq!((&*error.step, error.source.raw_os_error()), ("exec", Some(errno)), "{path}");
    }
}

/// A program that only root may execute: the ids are gone before it is looked at.
fn the_program_is_executed_by_its_own_identity() {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::temp_dir().join(format!("jail-test-program-{}", std::process::id()));
    std::fs::copy("/proc/self/exe", &path).expect("a copy");
    let chmod = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("chmod");
    let jail = role();
    let attempt = || {
        let file = open(path.to_str().expect("a path in UTF-8"));
        let program = sys::process::Program { file, ..process::program(TELL) };
        sys::process::start(&program, || jail::enter(&jail)).map(|child| ended(&child))
    };
    chmod(0o700);
    let as_root_only = attempt();
    // The mode of a service's program: its group executes it and nobody of the partition reads it.
    chmod(0o410);
    std::os::unix::fs::chown(&path, Some(0), Some(UID)).expect("chown");
    let as_group = attempt();
    std::fs::remove_file(&path).expect("the copy is removed");
    let error = as_root_only.expect_err("only root may execute it");
    assert_eq!((&*error.step, error.source.raw_os_error()), ("exec", Some(libc::EACCES)));
    assert!(as_group.is_ok(), "{as_group:?}");
}

fn failed_starts_leave_no_process() {
    for _ in 0..20 {
        let broken = Jail { root: Some(File::open("/dev/null").expect("it opens").into()), ..role() };
        start(TELL, broken).expect_err("no start");
    }
    let any = rustix::process::wait(WaitOptions::NOHANG);
    assert_eq!(any.err(), Some(rustix::io::Errno::CHILD), "a child is left");
}

fn a_signal_ends_it_and_is_told() {
    let probe = probe(STAY, role());
    assert!(matches!(probe.child.try_wait(), Ok(None)), "it stays");
    probe.child.kill();
    assert_eq!(ended(&probe.child), Exit::Signal(libc::SIGKILL));
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
    assert!(position("root") < position("identity"), "chroot needs a capability");
    assert!(position("bounding set") < position("identity"), "so does the bounding set");
    assert!(position("identity") < position("capabilities"), "and the change of ids");
    assert!(position("identity") < position("parent death"), "which clears that signal");
    assert_eq!(jail::missing(false), ["root", "bounding set", "identity"]);
    assert_eq!(jail::missing(true), [""; 0]);
}

/// The same process without root, which is how a rootless launcher begins.
fn the_rootless_tests_pass_as_another_user() {
    let identity = Jail { identity: Identity::new(UID), ..jail() };
    let layer = LAYERS.iter().find(|layer| layer.name == "identity").expect("the layer");
    let (output, errors) = (io::stdout(), io::stderr());
    let become_user = || -> Prepared {
        let inherit = |from: std::os::fd::BorrowedFd<'_>, to| sys::process::place(&from, to);
        inherit(output.as_fd(), 1)
            .and_then(|()| inherit(errors.as_fd(), 2))
            .map_err(|error| ("place", error))?;
        (layer.apply)(&identity).map_err(|error| (layer.name, error))
    };
    let suite = sys::process::start(&process::program(rootless::SUITE), become_user).expect("it starts");
    assert_eq!(ended(&suite), Exit::Clean);
}
