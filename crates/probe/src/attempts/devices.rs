//! E: devices, and the kernel's own file systems.
//!
//! Runs in: the probe. Never: reads or writes what it opened, except for the kernel's version.

use std::fs;

use crate::attempt::{Attempt, AttemptOutcome, Cx, any, attempt, refused, short, succeeded, tried};
use crate::look;

pub(super) const ATTEMPTS: &[Attempt] = &[
    attempt('E', "dev-memory", "the machine's memory (/dev/mem, /proc/kcore)", "mount namespace", memory)
        .refused_anyway("where the kernel offers neither"),
    attempt('E', "dev-disks", "the machine's disks", "mount namespace", disks),
    attempt('E', "dev-kmsg", "the kernel's log (/dev/kmsg)", "mount namespace", kmsg),
    attempt('E', "dev-others", "other devices (kvm, fuse, tun, ...)", "mount namespace", others),
    attempt('E', "proc-there", "the processes' file system", "mount namespace", proc_there).either(),
    attempt('E', "proc-sys-read", "settings of the kernel", "mount namespace", proc_sys_read),
    attempt('E', "proc-sys-write", "change settings of the kernel", "mount namespace", proc_sys_write),
    attempt('E', "proc-others", "facts of the kernel in /proc", "mount namespace", proc_others),
    attempt('E', "sysrq", "keys to the kernel (sysrq-trigger)", "mount namespace", sysrq)
        .refused_anyway("where the kernel has none"),
    attempt('E', "sys-read", "the devices' file system", "mount namespace", sys_read),
    attempt('E', "sys-write", "change settings of devices", "mount namespace", sys_write),
    attempt('E', "cgroup-write", "move itself to another control group", "mount namespace", cgroup_write),
    attempt(
        'E',
        "cgroup-release-agent",
        "have root run a program when a control group ends",
        "mount namespace",
        agent,
    )
    .refused_anyway("where no group of version 1 is mounted"),
    attempt('E', "debugfs", "the kernel's insides (debugfs, tracefs)", "mount namespace", debugfs)
        .refused_anyway("where they are not mounted"),
];

fn readable(paths: &[&str]) -> AttemptOutcome {
    any(paths.iter(), |path| tried(look::open(path, false)))
}

fn writable(paths: &[&str]) -> AttemptOutcome {
    any(paths.iter(), |path| tried(look::open(path, true)))
}

fn memory(_: &Cx<'_>) -> AttemptOutcome {
    readable(&["/dev/mem", "/dev/kmem", "/dev/port", "/proc/kcore"])
}

fn disks(_: &Cx<'_>) -> AttemptOutcome {
    let known = ["vd", "sd", "nvme", "dm-", "loop", "md", "xvd"];
    let listed = fs::read_dir("/dev").into_iter().flatten().flatten();
    let names = listed.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let found: Vec<String> = names.filter(|name| known.iter().any(|known| name.starts_with(known))).collect();
    if found.is_empty() {
        return refused("none in sight");
    }
    any(found, |name| tried(look::open(format!("/dev/{name}"), false)))
}

fn kmsg(_: &Cx<'_>) -> AttemptOutcome {
    readable(&["/dev/kmsg", "/proc/kmsg"])
}

fn others(_: &Cx<'_>) -> AttemptOutcome {
    readable(&[
        "/dev/kvm",
        "/dev/fuse",
        "/dev/net/tun",
        "/dev/ptmx",
        "/dev/hwrng",
        "/dev/vsock",
        "/dev/rtc0",
        "/dev/tty1",
        "/dev/loop-control",
        "/dev/vhost-net",
        "/dev/uinput",
        "/dev/cpu_dma_latency",
        "/dev/userfaultfd",
    ])
}

fn proc_there(_: &Cx<'_>) -> AttemptOutcome {
    any(["/proc/self", "/proc/1"], |path| tried(fs::read_dir(path)))
}

fn proc_sys_read(_: &Cx<'_>) -> AttemptOutcome {
    readable(&["/proc/sys/kernel/hostname", "/proc/sys/kernel/random/boot_id"])
}

fn proc_sys_write(_: &Cx<'_>) -> AttemptOutcome {
    writable(&["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/net/ipv4/ip_forward"])
}

fn proc_others(_: &Cx<'_>) -> AttemptOutcome {
    readable(&[
        "/proc/cmdline",
        "/proc/kallsyms",
        "/proc/modules",
        "/proc/mounts",
        "/proc/meminfo",
        "/proc/keys",
    ])
}

fn sysrq(_: &Cx<'_>) -> AttemptOutcome {
    writable(&["/proc/sysrq-trigger"])
}

fn sys_read(_: &Cx<'_>) -> AttemptOutcome {
    any(["/sys", "/sys/kernel", "/sys/class"], |path| match fs::read_dir(path) {
        // An empty folder of that name is no file system of devices.
        Ok(listed) => {
            if listed.count() == 0 {
                refused("empty")
            } else {
                succeeded("")
            }
        }
        Err(error) => tried::<(), _>(Err(error)),
    })
}

fn sys_write(_: &Cx<'_>) -> AttemptOutcome {
    writable(&[
        "/sys/kernel/uevent_helper",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/power/state",
    ])
}

/// The mount points of control groups, as far as they are known.
fn groups() -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let points = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (point, kind) = (fields.next()?, fields.next()?);
        kind.starts_with("cgroup").then(|| point.to_owned())
    });
    let mut found: Vec<String> = points.collect();
    found.push("/sys/fs/cgroup".into());
    found
}

/// Whether control groups can be changed, for the score too.
pub(crate) fn cgroup_write(_: &Cx<'_>) -> AttemptOutcome {
    let files: Vec<String> = groups().iter().map(|point| format!("{point}/cgroup.procs")).collect();
    any(files, |path| tried(look::open(path, true)))
}

fn agent(_: &Cx<'_>) -> AttemptOutcome {
    let files: Vec<String> = groups().iter().map(|point| format!("{point}/release_agent")).collect();
    any(files, |path| tried(look::open(path, true)))
}

fn debugfs(_: &Cx<'_>) -> AttemptOutcome {
    let mut found = Vec::new();
    for path in ["/sys/kernel/debug", "/sys/kernel/tracing", "/sys/fs/bpf", "/sys/kernel/security"] {
        if fs::read_dir(path).is_ok_and(|mut listed| listed.next().is_some()) {
            found.push(path);
        }
    }
    if found.is_empty() { refused("none") } else { succeeded(short(&found)) }
}
