//! Which system calls a process may make.
//!
//! Runs in: the jail's test, as root.

use jail::policy::{Grants, Policy};
use jail::{Jail, Root};

use super::{POWERLESS, assert_found, probe, role, root, tries};
use crate::Test;
use crate::process::filter;

pub const TESTS: &[Test] = &[
    ("a_role_makes_only_its_own_calls", a_role_makes_only_its_own_calls),
    ("a_service_reaches_no_other_part_of_the_kernel", a_service_reaches_no_other_part_of_the_kernel),
    ("a_service_with_jit_makes_code", a_service_with_jit_makes_code),
    ("a_service_does_what_programs_do", a_service_does_what_programs_do),
    ("other_ways_into_the_kernel_are_shut", other_ways_into_the_kernel_are_shut),
    ("every_thread_and_child_has_the_filter", every_thread_and_child_has_the_filter),
];

/// A private directory for files, and nothing but the filter to stop anybody.
fn free(policy: Policy, without: &[&'static str]) -> Jail {
    let without = [&POWERLESS[..], &["rlimits", "landlock", "keyring"], without].concat();
    let root = Some(Root { temporary_bytes: Some(1 << 20), ..root(vec![]) });
    Jail { root, without, filter: filter(policy), ..role() }
}

const SERVICE: Policy = Policy::Service(Grants::NONE);

/// What no role does, and what it would come to without the filter.
const OF_NO_ROLE: &[(&str, &str)] = &[
    ("fork", "ok"),
    ("clone 10000000", "EPERM"),
    ("socket 1 1", "ok"),
    ("socket 2 1", "ok"),
    ("socket 2 2", "ok"),
    ("open /tmp", "ok"),
    ("write /tmp/new", "ok"),
    ("mkdir /tmp/directory", "ok"),
    ("list /tmp", "directory new"),
    ("chmod 644 /tmp/mode", "ok"),
    ("execute /tmp/new", "EACCES"),
    ("memfd-of-data", "ok"),
    ("writable-code", "ok"),
    ("late-code", "ok"),
    ("code-of-own-file", "ok"),
    ("outlive", "ok"),
    ("signal 1", "ok"),
];

fn a_role_makes_only_its_own_calls() {
    for policy in [Policy::Gate, Policy::Site, Policy::Logger, Policy::Admin] {
        let found = probe(&tries(OF_NO_ROLE), free(policy, &[]));
        for (what, _) in OF_NO_ROLE {
            // Its own start is executed by descriptor; later there is no file, and this one may not be executed.
            let refused = if what.starts_with("execute") { ["ENOENT", "EACCES"] } else { ["EPERM"; 2] };
            assert!(refused.contains(&found.fact(what)), "{policy:?}: {what}: {}", found.fact(what));
        }
        // What others have sent is closed by a thread.
        assert_eq!(probe(&["thread"], free(policy, &[])).found(), "ok", "{policy:?}");
        // Only a site makes pairs.
        let pair = if policy == Policy::Site { "ok" } else { "EPERM" };
        assert_eq!(probe(&["pair"], free(policy, &[])).found(), pair, "{policy:?}");
    }
    assert_found(&probe(&tries(OF_NO_ROLE), free(Policy::Gate, &["seccomp"])), OF_NO_ROLE);
}

/// What no service does, and what it would come to without the filter.
const OF_NO_SERVICE: &[(&str, &str)] = &[
    // Namespaces: mount, cgroup, uts, ipc, user, pid, network.
    ("clone 20000", "ok"),
    ("clone 2000000", "ok"),
    ("clone 4000000", "ok"),
    ("clone 8000000", "ok"),
    ("clone 10000000", "EPERM"),
    ("clone 20000000", "ok"),
    ("clone 40000000", "ok"),
    ("setns", "EBADF"),
    // Other processes.
    ("seize 4000000", "ESRCH"),
    ("ptrace-high-bits", "ESRCH"),
    ("read-of-process", "EFAULT"),
    ("pidfd_getfd", "EBADF"),
    // Parts of the kernel.
    ("keyctl", "ok"),
    ("io_uring", "ok"),
    ("bpf", "ok"),
    ("perf", "EFAULT"),
    ("userfaultfd", "ok"),
    ("personality", "ok"),
    ("modify_ldt", "ok"),
    ("shared-memory", "ok"),
    ("seccomp", "ok"),
    ("hostname", "ok"),
    // Files.
    ("mount /tmp", "ok"),
    ("fsopen", "ok"),
    ("chmod 4755 /tmp/setuid", "ok"),
    ("chmod 2755 /tmp/setgid", "ok"),
    ("chroot /", "ok"),
    // Code made of data.
    ("writable-code", "ok"),
    ("late-code", "ok"),
    ("memfd-of-data", "ok"),
    ("memfd-of-code", "ok"),
    ("code-of-own-file", "ok"),
    ("code-of-nothing", "ok"),
    // A tie that was cut, and sockets.
    ("outlive", "ok"),
    ("socket 1 1", "ok"),
    ("socket 1 2", "ok"),
    ("listen", "ok"),
    // After which it would be somebody else: of mounts, and of users.
    ("unshare 20000", "ok"),
];

fn a_service_reaches_no_other_part_of_the_kernel() {
    let found = probe(&tries(OF_NO_SERVICE), free(SERVICE, &[]));
    let refused: Vec<_> = OF_NO_SERVICE.iter().map(|(what, _)| (*what, "EPERM")).collect();
    assert_found(&found, &refused);
    assert_found(&probe(&tries(OF_NO_SERVICE), free(SERVICE, &["seccomp"])), OF_NO_SERVICE);
}

/// What `jit` gives, and what it does not.
fn a_service_with_jit_makes_code() {
    let expected = [
        ("writable-code", "ok"),
        ("late-code", "ok"),
        ("code-of-nothing", "ok"),
        ("memfd-of-data", "ok"),
        ("code-of-own-file", "ok"),
        ("memfd-of-code", "EPERM"),
        ("outlive", "EPERM"),
    ];
    let policy = Policy::Service(Grants { jit: true, ..Grants::NONE });
    assert_found(&probe(&tries(&expected), free(policy, &[])), &expected);
}

/// In its whole jail.
fn a_service_does_what_programs_do() {
    let expected = [
        ("fork", "ok"),
        ("thread", "ok"),
        ("map 1048576", "ok"),
        ("write /tmp/new", "ok"),
        ("open /tmp/new", "ok"),
        ("chmod 755 /tmp/mode", "ok"),
        ("mkdir /tmp/directory", "ok"),
        ("list /tmp", "directory mode new"),
        ("pair", "ok"),
        ("signal 1", "ok"),
        // The C library's next choice is `clone`.
        ("clone3 10000000", "ENOSYS"),
    ];
    let root = Some(Root { temporary_bytes: Some(1 << 20), ..root(vec![]) });
    assert_found(&probe(&tries(&expected), Jail { root, ..role() }), &expected);
}

/// Another architecture's numbers mean other calls, so who uses them is ended.
fn other_ways_into_the_kernel_are_shut() {
    if cfg!(not(target_arch = "x86_64")) {
        println!("(skipped: only x86-64 has these ways)");
        return;
    }
    let with = [("int80", "SIGSYS"), ("x32", "EPERM"), ("clone3 10000000", "ENOSYS")];
    assert_found(&probe(&tries(&with), free(SERVICE, &[])), &with);
    // The root of its own would refuse the user namespace as well.
    let without = probe(&tries(&with), free(SERVICE, &["seccomp", "root"]));
    assert_eq!((without.fact("int80"), without.fact("clone3 10000000")), ("ok", "ok"));
    // Where the kernel has no such architecture, the call does not exist.
    assert!(["ok", "ENOSYS"].contains(&without.fact("x32")), "{}", without.fact("x32"));
}

fn every_thread_and_child_has_the_filter() {
    let found = probe(&["in-thread", "in-child"], role());
    assert_found(&found, &[("in-thread", "EPERM"), ("in-child", "EPERM")]);
    let free = probe(&["in-thread", "in-child"], free(SERVICE, &["seccomp"]));
    assert_found(&free, &[("in-thread", "ok"), ("in-child", "ok")]);
}
