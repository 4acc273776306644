//! The checks of the capability bounding set.
//!
//! Runs in: the probe. The numbers are those of the kernel's `capability.h`.

use super::check::{Check, How};

const fn bounding(id: &'static str, means: &'static str, weight: u64, mask: u64) -> Check {
    Check { id, means, weight, range: 1, how: How::Bounding(mask) }
}

pub(super) const CHECKS: &[Check] = &[
    bounding("CapabilityBoundingSet=~CAP_SYS_ADMIN", "May it administer the machine?", 1500, 1 << 21),
    bounding(
        "CapabilityBoundingSet=~CAP_SET(UID|GID|PCAP)",
        "May it become somebody else, or pass capabilities on?",
        1500,
        1 << 7 | 1 << 6 | 1 << 8,
    ),
    bounding("CapabilityBoundingSet=~CAP_SYS_PTRACE", "May it look into any process?", 1500, 1 << 19),
    bounding("CapabilityBoundingSet=~CAP_SYS_TIME", "May it set the clock?", 1000, 1 << 25),
    bounding("CapabilityBoundingSet=~CAP_NET_ADMIN", "May it configure the network?", 1000, 1 << 12),
    bounding(
        "CapabilityBoundingSet=~CAP_SYS_RAWIO",
        "May it reach ports and memory of the hardware?",
        1000,
        1 << 17,
    ),
    bounding("CapabilityBoundingSet=~CAP_SYS_MODULE", "May it load code into the kernel?", 1000, 1 << 16),
    bounding(
        "CapabilityBoundingSet=~CAP_AUDIT_*",
        "May it read, write or steer the audit log?",
        500,
        1 << 30 | 1 << 37 | 1 << 29,
    ),
    bounding("CapabilityBoundingSet=~CAP_SYSLOG", "May it reach the kernel's log?", 500, 1 << 34),
    bounding(
        "CapabilityBoundingSet=~CAP_SYS_(NICE|RESOURCE)",
        "May it take more than its limits and priority?",
        500,
        1 << 23 | 1 << 24,
    ),
    bounding("CapabilityBoundingSet=~CAP_MKNOD", "May it make device nodes?", 500, 1 << 27),
    bounding(
        "CapabilityBoundingSet=~CAP_(CHOWN|FSETID|SETFCAP)",
        "May it change owners and privileges of any file?",
        1000,
        1 << 0 | 1 << 4 | 1 << 31,
    ),
    bounding(
        "CapabilityBoundingSet=~CAP_(DAC_*|FOWNER|IPC_OWNER)",
        "May it pass by the permissions of files and IPC?",
        1000,
        1 << 1 | 1 << 2 | 1 << 3 | 1 << 15,
    ),
    bounding("CapabilityBoundingSet=~CAP_KILL", "May it signal any process?", 500, 1 << 5),
    bounding(
        "CapabilityBoundingSet=~CAP_NET_(BIND_SERVICE|BROADCAST|RAW)",
        "May it use low ports, broadcasts and raw sockets?",
        500,
        1 << 10 | 1 << 11 | 1 << 13,
    ),
    bounding("CapabilityBoundingSet=~CAP_SYS_BOOT", "May it restart the machine?", 100, 1 << 22),
    bounding(
        "CapabilityBoundingSet=~CAP_MAC_*",
        "May it change mandatory access control?",
        100,
        1 << 33 | 1 << 32,
    ),
    bounding("CapabilityBoundingSet=~CAP_LINUX_IMMUTABLE", "May it mark files as immutable?", 75, 1 << 9),
    bounding("CapabilityBoundingSet=~CAP_IPC_LOCK", "May it lock memory?", 50, 1 << 14),
    bounding("CapabilityBoundingSet=~CAP_SYS_CHROOT", "May it change its root?", 50, 1 << 18),
    bounding("CapabilityBoundingSet=~CAP_BLOCK_SUSPEND", "May it keep the machine awake?", 25, 1 << 36),
    bounding("CapabilityBoundingSet=~CAP_WAKE_ALARM", "May it wake the machine up?", 25, 1 << 35),
    bounding("CapabilityBoundingSet=~CAP_LEASE", "May it be told before others open a file?", 25, 1 << 28),
    bounding("CapabilityBoundingSet=~CAP_SYS_TTY_CONFIG", "May it hang up terminals?", 25, 1 << 26),
    bounding("CapabilityBoundingSet=~CAP_SYS_PACCT", "May it turn on accounting?", 25, 1 << 20),
    bounding("CapabilityBoundingSet=~CAP_BPF", "May it load programs of BPF?", 25, 1 << 39),
];
