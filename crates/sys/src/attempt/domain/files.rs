//! Files, memory and descriptors: flags and modes, commands of `fcntl`, requests of `ioctl`.
//!
//! Runs in: the probe. Never: opens, changes or maps anything: the descriptor is -1, the path is null, a mapping has
//! no length or begins within a page.

use super::{CallAttempt, Form, NONE, ValueNames, bits, named, topic};
use libc as l;

const OPEN: ValueNames = named![
    O_WRONLY O_RDWR O_CREAT O_EXCL O_NOCTTY O_TRUNC O_APPEND O_NONBLOCK O_DIRECT O_DIRECTORY O_NOFOLLOW O_NOATIME
    O_CLOEXEC O_PATH
];
const MAP: ValueNames = named![
    MAP_SHARED MAP_PRIVATE MAP_FIXED MAP_ANONYMOUS MAP_GROWSDOWN MAP_LOCKED MAP_NORESERVE MAP_POPULATE MAP_STACK
    MAP_HUGETLB MAP_SYNC MAP_FIXED_NOREPLACE
];
const PROTECTION: ValueNames =
    &[(0, "none"), (1, "r"), (2, "w"), (3, "rw"), (4, "x"), (5, "rx"), (6, "wx"), (7, "rwx")];
/// PROT_SEM, and what architectures and stacks have.
const OTHER_PROTECTION: [u64; 4] = [0x8, 0x10, 0x100_0000, 0x200_0000];
const MEMORY_FILE: ValueNames = named![MFD_CLOEXEC MFD_ALLOW_SEALING MFD_HUGETLB MFD_NOEXEC_SEAL MFD_EXEC];
const AT: ValueNames =
    named![AT_SYMLINK_NOFOLLOW AT_REMOVEDIR AT_SYMLINK_FOLLOW AT_NO_AUTOMOUNT AT_EMPTY_PATH];
const COMMANDS: ValueNames = named![
    F_DUPFD F_GETFD F_SETFD F_GETFL F_SETFL F_GETLK F_SETLK F_SETLKW F_SETOWN F_GETOWN F_OFD_GETLK F_OFD_SETLK
    F_OFD_SETLKW F_SETLEASE F_GETLEASE F_NOTIFY F_DUPFD_CLOEXEC F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS F_GET_SEALS
];
const MODES: ValueNames = named![S_ISUID S_ISGID S_ISVTX];

/// Requests of `ioctl` beside whole ranges: of file systems, descriptors' owners, notifications of seccomp,
/// userfault, devices in user space, virtual machines.
const REQUESTS: ValueNames = &[
    (0x8008_6601, "FS_IOC_GETFLAGS"),
    (0x4008_6602, "FS_IOC_SETFLAGS"),
    (0x801c_581f, "FS_IOC_FSGETXATTR"),
    (0x401c_5820, "FS_IOC_FSSETXATTR"),
    (0x4004_9409, "FICLONE"),
    (0x4020_940d, "FICLONERANGE"),
    (0xc020_660b, "FS_IOC_FIEMAP"),
    (0xc004_5877, "FIFREEZE"),
    (0xc004_5878, "FITHAW"),
    (0xc018_5879, "FITRIM"),
    (0xc050_2100, "SECCOMP_IOCTL_NOTIF_RECV"),
    (0xc018_2101, "SECCOMP_IOCTL_NOTIF_SEND"),
    (0x4008_2102, "SECCOMP_IOCTL_NOTIF_ID_VALID"),
    (0x4018_2103, "SECCOMP_IOCTL_NOTIF_ADDFD"),
    (0x4008_2104, "SECCOMP_IOCTL_NOTIF_SET_FLAGS"),
    (0xc018_aa3f, "UFFDIO_API"),
    (0xaa00, "USERFAULTFD_IOC_NEW"),
    (0x4004_54ca, "TUNSETIFF"),
    (0xae01, "KVM_CREATE_VM"),
    (0x4c00, "LOOP_SET_FD"),
    (0x0001, "FIBMAP"),
    (0x5421, "FIONBIO"),
    (0x5450, "FIONCLEX"),
    (0x5451, "FIOCLEX"),
    (0x5452, "FIOASYNC"),
    (0x541b, "FIONREAD"),
    (0x5401, "TCGETS"),
    (0x5412, "TIOCSTI"),
    (0x541c, "TIOCLINUX"),
    (0x5413, "TIOCGWINSZ"),
    (0xb701, "NS_GET_USERNS"),
    (0xb703, "NS_GET_NSTYPE"),
    (0x2400, "PERF_EVENT_IOC_ENABLE"),
    (0xc020_661a, "FS_IOC_ADD_ENCRYPTION_KEY"),
];

pub(super) fn sweep(lines: &mut Vec<CallAttempt>) {
    memory(lines);
    topic(lines, ("openat flags", Form::Bit(OPEN), l::SYS_openat), bits(), |flag| [NONE, 0, flag, 0, 0, 0]);
    for (name, call, at, base) in [
        ("unlinkat flags", l::SYS_unlinkat, 2, [NONE, 0, 0, 0, 0, 0]),
        ("renameat2 flags", l::SYS_renameat2, 4, [NONE, 0, NONE, 0, 0, 0]),
        ("linkat flags", l::SYS_linkat, 4, [NONE, 0, NONE, 0, 0, 0]),
        ("statx flags", l::SYS_statx, 2, [NONE, 0, 0, 0, 0, 0]),
        ("execveat flags", l::SYS_execveat, 4, [NONE, 0, 0, 0, 0, 0]),
        ("fallocate mode", l::SYS_fallocate, 1, [NONE, 0, 0, 0, 0, 0]),
        ("pipe2 flags", l::SYS_pipe2, 1, [0; 6]),
        ("eventfd2 flags", l::SYS_eventfd2, 1, [0; 6]),
    ] {
        let names = if at == 1 { OPEN } else { AT };
        topic(lines, (name, Form::Bit(names), call), bits(), |flag| {
            let mut arguments = base;
            arguments[at] = flag;
            arguments
        });
    }
    let modes = || (0..16).map(|bit| 1 << bit).chain([0]);
    let form = Form::Bit(MODES);
    topic(lines, ("fchmod mode", form, l::SYS_fchmod), modes(), |mode| [NONE, mode, 0, 0, 0, 0]);
    topic(lines, ("fchmodat mode", form, l::SYS_fchmodat), modes(), |mode| [NONE, 0, mode, 0, 0, 0]);
    topic(lines, ("chmod mode", form, l::SYS_chmod), modes(), |mode| [0, mode, 0, 0, 0, 0]);
    let commands = (0..=40).chain(1024..=1050);
    topic(lines, ("fcntl", Form::Number(COMMANDS), l::SYS_fcntl), commands, |command| {
        [NONE, command, 0, 0, 0, 0]
    });
    let ranges = [0x1200..=0x12ff, 0x5300..=0x53ff, 0x5400..=0x54ff, 0x8900..=0x89ff];
    let mut requests: Vec<u64> =
        ranges.into_iter().flatten().chain(REQUESTS.iter().map(|(request, _)| *request)).collect();
    requests.sort_unstable();
    requests.dedup();
    topic(lines, ("ioctl", Form::Number(REQUESTS), l::SYS_ioctl), requests, |request| {
        [NONE, request, 0, 0, 0, 0]
    });
}

fn memory(lines: &mut Vec<CallAttempt>) {
    let protections = || (0..8).chain(OTHER_PROTECTION);
    for protection in protections() {
        let known =
            PROTECTION.iter().find(|(value, _)| *value == protection).map(|(_, name)| (*name).to_owned());
        let name = known.unwrap_or_else(|| format!("{protection:#x}"));
        let about = (format!("mmap <{name}> flags"), Form::Bit(MAP), l::SYS_mmap);
        topic(lines, about, bits(), |flag| [0, 0, protection, flag, NONE, 0]);
    }
    let form = Form::Number(PROTECTION);
    topic(lines, ("mprotect", form, l::SYS_mprotect), protections(), |protection| {
        [1, 4096, protection, 0, 0, 0]
    });
    topic(lines, ("madvise", Form::Number(&[]), l::SYS_madvise), 0..=110, |advice| [1, 0, advice, 0, 0, 0]);
    let form = Form::Bit(MEMORY_FILE);
    topic(lines, ("memfd_create flags", form, l::SYS_memfd_create), bits(), |flag| [0, flag, 0, 0, 0, 0]);
    let sealed = l::MFD_NOEXEC_SEAL as u64;
    let about = ("memfd_create flags with MFD_NOEXEC_SEAL", form, l::SYS_memfd_create);
    topic(lines, about, bits(), |flag| [0, flag | sealed, 0, 0, 0, 0]);
}
