//! The checks that are filled by attempts and by system calls.
//!
//! Runs in: the probe. Names, weights and ranges are those of `systemd-analyze security` (systemd 252).

use super::check::{Check, How};
use super::own;

const fn by(id: &'static str, means: &'static str, weight: u64, attempts: &'static [&'static str]) -> Check {
    Check { id, means, weight, range: 1, how: How::Attempts(attempts) }
}

const fn calls(id: &'static str, weight: u64, group: &'static str) -> Check {
    let means = "Does a filter keep it from this group of system calls?";
    Check { id, means, weight, range: 10, how: How::Calls(group) }
}

pub(super) const CHECKS: &[Check] = &[
    own::check("User=/DynamicUser=", "Whose uid is it?", 2000, 10, "the uid itself", own::user),
    own::check(
        "SupplementaryGroups=",
        "Has it other groups than its own?",
        200,
        1,
        "the groups themselves",
        own::groups,
    ),
    by(
        "PrivateDevices=",
        "Can it open the machine's devices?",
        1000,
        &["dev-disks", "dev-memory", "dev-others", "dev-kmsg", "device-files"],
    ),
    by(
        "PrivateMounts=",
        "Can it mount, or take mounts away?",
        1000,
        &["mount", "mount-bind", "remount", "umount", "open-tree", "move-mount"],
    ),
    by(
        "PrivateNetwork=",
        "Does it reach the machine's network?",
        2500,
        &["connect-loopback", "connect-outside", "interfaces", "udp", "bind-loopback"],
    ),
    own::check(
        "PrivateTmp=",
        "Does it see temporary files of others?",
        1000,
        1,
        "/tmp and /var/tmp listed",
        own::temporary,
    ),
    // systemd asks for a user namespace; what that is for is that other users are out of reach.
    by(
        "PrivateUsers=",
        "Are other users within its reach?",
        1000,
        &["become-other", "become-root", "become-group", "visible-by-kill", "visible-by-proc", "kill"],
    ),
    by(
        "ProtectControlGroups=",
        "Can it change control groups?",
        1000,
        &["cgroup-write", "cgroup-release-agent"],
    ),
    by(
        "ProtectKernelModules=",
        "Can it load or unload modules?",
        1000,
        &["init-module", "finit-module", "delete-module"],
    ),
    by(
        "ProtectKernelTunables=",
        "Can it change settings of the kernel?",
        1000,
        &["proc-sys-write", "sys-write", "sysrq"],
    ),
    by("ProtectKernelLogs=", "Can it read the kernel's log?", 1000, &["syslog", "dev-kmsg"]),
    by(
        "ProtectClock=",
        "Can it set or tune the clock?",
        1000,
        &["clock-settime", "settimeofday", "adjtimex", "clock-adjtime"],
    ),
    own::check(
        "ProtectHome=",
        "What of the users' folders does it see?",
        1000,
        10,
        "/home, /root, /run/user listed",
        own::homes,
    ),
    by("ProtectHostname=", "Can it change the host's or the domain's name?", 50, &["hostname", "domainname"]),
    own::check(
        "ProtectSystem=",
        "What of the system's folders can it write?",
        1000,
        10,
        "access(2) to them",
        own::system,
    ),
    by("RootDirectory=/RootImage=", "Is its root the machine's?", 200, &["root-list", "read-machine"]),
    by("LockPersonality=", "Can it change its personality?", 100, &["personality"]),
    by(
        "MemoryDenyWriteExecute=",
        "Can it execute what it wrote into memory?",
        100,
        &["write-execute", "write-then-execute", "memfd-execute"],
    ),
    by("NoNewPrivileges=", "Can a program that it executes gain privileges?", 1000, &["no-new-privs"]),
    own::check(
        "UMask=",
        "Who may use the files that it makes?",
        100,
        10,
        "umask set and put back",
        own::mask,
    ),
    by("KeyringMode=", "Does it share keys with others?", 1000, &["keyring", "add-key", "request-key"]),
    own::check(
        "ProtectProc=",
        "Does it see other processes in /proc?",
        1000,
        3,
        "/proc listed",
        own::processes,
    ),
    by("ProcSubset=", "Does it see facts of the kernel in /proc?", 10, &["proc-others", "proc-sys-read"]),
    // There is no such channel to our launcher; what counts is whether it reaches that of systemd.
    own::check(
        "NotifyAccess=",
        "Can it report a state of the service to systemd?",
        1000,
        1,
        "$NOTIFY_SOCKET and its usual path",
        own::notify,
    ),
    by(
        "RemoveIPC=",
        "Can it leave objects of IPC behind?",
        100,
        &["sysv-shm", "sysv-sem", "sysv-msg", "posix-mq", "dev-shm"],
    ),
    // Nobody delegates a group to it; what counts is whether it can manage one.
    by("Delegate=", "Can it manage control groups of its own?", 100, &["cgroup-write"]),
    by("RestrictRealtime=", "Can it be scheduled before all others?", 500, &["realtime"]),
    by("RestrictSUIDSGID=", "Can it make setuid files?", 1000, &["chmod-setuid"]),
    by(
        "RestrictNamespaces=~user",
        "Can it make a user namespace?",
        1500,
        &["unshare-user", "clone-user", "clone3-user"],
    ),
    by(
        "RestrictNamespaces=~mnt",
        "Can it make a mount namespace?",
        500,
        &["unshare-mount", "clone-mount", "clone3-mount"],
    ),
    by(
        "RestrictNamespaces=~ipc",
        "Can it make an IPC namespace?",
        500,
        &["unshare-ipc", "clone-ipc", "clone3-ipc"],
    ),
    by(
        "RestrictNamespaces=~pid",
        "Can it make a process namespace?",
        500,
        &["unshare-pid", "clone-pid", "clone3-pid"],
    ),
    by(
        "RestrictNamespaces=~cgroup",
        "Can it make a namespace of control groups?",
        500,
        &["unshare-cgroup", "clone-cgroup", "clone3-cgroup"],
    ),
    by(
        "RestrictNamespaces=~net",
        "Can it make a network namespace?",
        500,
        &["unshare-net", "clone-net", "clone3-net"],
    ),
    by(
        "RestrictNamespaces=~uts",
        "Can it make a namespace of host names?",
        100,
        &["unshare-uts", "clone-uts", "clone3-uts"],
    ),
    by(
        "RestrictAddressFamilies=~AF_(INET|INET6)",
        "Can it make sockets of the Internet?",
        1500,
        &["socket-inet", "socket-inet6"],
    ),
    by("RestrictAddressFamilies=~AF_UNIX", "Can it make Unix sockets?", 25, &["socket-unix"]),
    by("RestrictAddressFamilies=~AF_NETLINK", "Can it make netlink sockets?", 200, &["socket-netlink"]),
    by("RestrictAddressFamilies=~AF_PACKET", "Can it make packet sockets?", 1000, &["socket-packet"]),
    by(
        "RestrictAddressFamilies=~…",
        "Can it make sockets of any other family?",
        1250,
        &["socket-alg", "socket-vsock", "socket-xdp", "socket-others"],
    ),
    Check {
        id: "SystemCallArchitectures=",
        means: "Can it make system calls of other architectures?",
        weight: 1000,
        range: 10,
        how: How::Attempts(&["int80", "x32"]),
    },
    calls("SystemCallFilter=~@swap", 1000, "@swap"),
    calls("SystemCallFilter=~@obsolete", 250, "@obsolete"),
    calls("SystemCallFilter=~@clock", 1000, "@clock"),
    calls("SystemCallFilter=~@cpu-emulation", 250, "@cpu-emulation"),
    calls("SystemCallFilter=~@debug", 1000, "@debug"),
    calls("SystemCallFilter=~@mount", 1000, "@mount"),
    calls("SystemCallFilter=~@module", 1000, "@module"),
    calls("SystemCallFilter=~@raw-io", 1000, "@raw-io"),
    calls("SystemCallFilter=~@reboot", 1000, "@reboot"),
    calls("SystemCallFilter=~@privileged", 700, "@privileged"),
    calls("SystemCallFilter=~@resources", 700, "@resources"),
    own::check(
        "IPAddressDeny=",
        "Which addresses can it talk to?",
        1000,
        10,
        "connecting and sending",
        own::addresses,
    ),
    own::check(
        "DeviceAllow=",
        "Which devices are there for it?",
        1000,
        10,
        "opening and listing devices",
        own::devices,
    ),
    by("AmbientCapabilities=", "Does it pass capabilities on to any program?", 500, &["caps-ambient"]),
];
