//! The groups of system calls that the score asks for, and whether any call of them comes through.
//!
//! Runs in: the probe. Never: makes a call itself; the sweep did.

use super::check::{CheckResult, ScoreFacts};
use crate::names::number_of;

/// The groups; of their members, those that x86-64 has.
const GROUPS: &[(&str, &str)] = &[
    ("@clock", "adjtimex clock_adjtime clock_settime settimeofday"),
    ("@cpu-emulation", "modify_ldt"),
    ("@debug", "lookup_dcookie perf_event_open pidfd_getfd ptrace"),
    ("@module", "delete_module finit_module init_module"),
    (
        "@mount",
        "chroot fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree pivot_root umount2",
    ),
    (
        "@obsolete",
        "_sysctl afs_syscall create_module epoll_ctl_old epoll_wait_old get_kernel_syms getpmsg nfsservctl \
         putpmsg query_module security sysfs tuxcall uselib ustat vserver",
    ),
    (
        "@privileged",
        "chown fchown fchownat lchown adjtimex clock_adjtime clock_settime settimeofday delete_module \
         finit_module init_module ioperm iopl kexec_file_load kexec_load reboot swapoff swapon _sysctl acct bpf \
         capset chroot fanotify_init fanotify_mark nfsservctl open_by_handle_at pivot_root quotactl quotactl_fd \
         setdomainname setfsuid setgroups sethostname setresuid setreuid setuid vhangup",
    ),
    ("@raw-io", "ioperm iopl"),
    ("@reboot", "kexec_file_load kexec_load reboot"),
    (
        "@resources",
        "ioprio_set mbind migrate_pages move_pages sched_setaffinity sched_setattr sched_setparam \
         sched_setscheduler set_mempolicy set_mempolicy_home_node setpriority setrlimit",
    ),
    ("@swap", "swapoff swapon"),
];

/// 10 without any filter, 9 if a call of the group comes through, else 0.
pub(super) fn fill(group: &str, facts: &ScoreFacts) -> CheckResult {
    let members = GROUPS.iter().find(|(name, _)| *name == group).map_or("", |(_, members)| *members);
    let through: Vec<&str> = members
        .split_ascii_whitespace()
        .filter(|name| match *name {
            // With arguments that mean nothing it says ENOSYS also where it is there.
            "modify_ldt" => facts.any(&["modify-ldt"]),
            name => number_of(name).is_some_and(|number| facts.reached.contains(&number)),
        })
        .collect();
    match (facts.filtered, through.as_slice()) {
        (false, _) => CheckResult::new(10, "system calls are not filtered"),
        (true, []) => CheckResult::new(0, "none comes through"),
        (true, through) => CheckResult::new(9, format!("through: {}", through.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn every_member_has_a_number() {
        for (group, members) in GROUPS {
            for name in members.split_ascii_whitespace() {
                assert!(number_of(name).is_some(), "{name} of {group}");
            }
        }
    }

    #[test]
    fn one_call_is_enough() {
        let facts =
            |filtered, reached| ScoreFacts { results: HashMap::new(), reached, filtered, bounding: 0 };
        assert_eq!(fill("@swap", &facts(true, vec![0, 1])).badness, Some(0));
        assert_eq!(fill("@swap", &facts(true, vec![167])).badness, Some(9));
        assert_eq!(fill("@swap", &facts(false, vec![])).badness, Some(10));
    }
}
