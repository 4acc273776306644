//! The calls that [`super::TriedCall::make`] can make, each with the kernel's prototype.
//!
//! Runs in: the probe. Never: lets an argument through that would do harm, as the end of a process or a restart.

use super::ArgumentKind::{Buffer, Int, Len, Only};
use super::TriedCall;

macro_rules! calls {
    ($($(#[$doc:meta])* $constant:ident = $name:literal $number:ident $shape:tt;)*) => {$(
        $(#[$doc])*
        #[doc = concat!("`", $name, "`, its arguments being ", stringify!($shape), ".")]
        pub const $constant: TriedCall = TriedCall::new($name, libc::$number, &$shape);
    )*};
}

/// A magic number that `reboot` and `kexec` do not know: who may call them gets EINVAL.
const WRONG: &[i64] = &[0];
/// The only signal that does nothing.
const NO_SIGNAL: &[i64] = &[0];

calls! {
    // Processes.
    KILL = "kill" SYS_kill [Int, Only(NO_SIGNAL)];
    TGKILL = "tgkill" SYS_tgkill [Int, Int, Only(NO_SIGNAL)];
    TKILL = "tkill" SYS_tkill [Int, Only(NO_SIGNAL)];
    RT_SIGQUEUEINFO = "rt_sigqueueinfo" SYS_rt_sigqueueinfo [Int, Only(NO_SIGNAL), Buffer];
    PIDFD_OPEN = "pidfd_open" SYS_pidfd_open [Int, Only(&[0])];
    PIDFD_SEND_SIGNAL = "pidfd_send_signal" SYS_pidfd_send_signal [Int, Only(NO_SIGNAL), Buffer, Only(&[0])];
    PIDFD_GETFD = "pidfd_getfd" SYS_pidfd_getfd [Int, Int, Only(&[0])];
    /// Only PTRACE_SEIZE, which neither stops nor changes the other process; it ends with the caller.
    PTRACE = "ptrace" SYS_ptrace [Only(&[0x4206]), Int, Only(&[0]), Only(&[0])];
    KCMP = "kcmp" SYS_kcmp [Int, Int, Int, Int, Int];
    PRLIMIT64 = "prlimit64" SYS_prlimit64 [Int, Int, Only(&[0]), Buffer];
    SCHED_GETAFFINITY = "sched_getaffinity" SYS_sched_getaffinity [Int, Len, Buffer];
    SCHED_SETAFFINITY = "sched_setaffinity" SYS_sched_setaffinity [Int, Len, Buffer];
    SCHED_SETSCHEDULER = "sched_setscheduler" SYS_sched_setscheduler [Int, Int, Buffer];
    GETPRIORITY = "getpriority" SYS_getpriority [Only(&[0]), Int];
    SETPRIORITY = "setpriority" SYS_setpriority [Only(&[0]), Int, Int];
    GETPGID = "getpgid" SYS_getpgid [Int];
    GETSID = "getsid" SYS_getsid [Int];
    PROCESS_MADVISE = "process_madvise" SYS_process_madvise [Int, Buffer, Only(&[0, 1]), Only(&[20]), Only(&[0])];
    MOVE_PAGES = "move_pages" SYS_move_pages [Int, Only(&[0]), Buffer, Buffer, Buffer, Only(&[0])];
    IOPRIO_SET = "ioprio_set" SYS_ioprio_set [Only(&[1]), Int, Int];

    // Identity.
    SETRESUID = "setresuid" SYS_setresuid [Int, Int, Int];
    SETRESGID = "setresgid" SYS_setresgid [Int, Int, Int];
    SETGROUPS = "setgroups" SYS_setgroups [Only(&[0, 1]), Buffer];
    CAPGET = "capget" SYS_capget [Buffer, Buffer];
    /// Of PR_GET_DUMPABLE, _KEEPCAPS, _SECCOMP, PR_CAPBSET_READ, PR_GET_SECUREBITS and _NO_NEW_PRIVS.
    PRCTL_GET = "prctl" SYS_prctl [Only(&[3, 7, 21, 23, 27, 39]), Int, Only(&[0]), Only(&[0]), Only(&[0])];
    /// PR_CAP_AMBIENT_IS_SET.
    PRCTL_AMBIENT = "prctl" SYS_prctl [Only(&[47]), Only(&[1]), Int, Only(&[0]), Only(&[0])];
    /// PR_SET_DUMPABLE.
    PRCTL_DUMPABLE = "prctl" SYS_prctl [Only(&[4]), Only(&[0, 1]), Only(&[0]), Only(&[0]), Only(&[0])];
    CHROOT = "chroot" SYS_chroot [Buffer];
    UNSHARE = "unshare" SYS_unshare [Only(NAMESPACES)];
    SETNS = "setns" SYS_setns [Int, Int];

    // Files.
    NAME_TO_HANDLE_AT = "name_to_handle_at" SYS_name_to_handle_at [Int, Buffer, Buffer, Buffer, Int];
    OPEN_BY_HANDLE_AT = "open_by_handle_at" SYS_open_by_handle_at [Int, Buffer, Int];
    MOUNT = "mount" SYS_mount [Buffer, Buffer, Buffer, Int, Buffer];
    UMOUNT2 = "umount2" SYS_umount2 [Buffer, Int];
    PIVOT_ROOT = "pivot_root" SYS_pivot_root [Buffer, Buffer];
    FSOPEN = "fsopen" SYS_fsopen [Buffer, Int];
    FSPICK = "fspick" SYS_fspick [Int, Buffer, Int];
    OPEN_TREE = "open_tree" SYS_open_tree [Int, Buffer, Int];
    MOVE_MOUNT = "move_mount" SYS_move_mount [Int, Buffer, Int, Buffer, Int];
    MOUNT_SETATTR = "mount_setattr" SYS_mount_setattr [Int, Buffer, Int, Buffer, Len];
    QUOTACTL = "quotactl" SYS_quotactl [Int, Buffer, Int, Buffer];
    ACCT = "acct" SYS_acct [Buffer];
    SWAPON = "swapon" SYS_swapon [Buffer, Int];
    SWAPOFF = "swapoff" SYS_swapoff [Buffer];
    FANOTIFY_INIT = "fanotify_init" SYS_fanotify_init [Int, Int];

    // Inter-process communication.
    SHMGET = "shmget" SYS_shmget [Int, Int, Int];
    SHMAT = "shmat" SYS_shmat [Int, Only(&[0]), Int];
    SHMCTL_REMOVE = "shmctl" SYS_shmctl [Int, Only(&[0]), Only(&[0])];
    SEMGET = "semget" SYS_semget [Int, Int, Int];
    SEMCTL_REMOVE = "semctl" SYS_semctl [Int, Only(&[0]), Only(&[0]), Only(&[0])];
    MSGGET = "msgget" SYS_msgget [Int, Int];
    MSGCTL_REMOVE = "msgctl" SYS_msgctl [Int, Only(&[0]), Only(&[0])];
    MQ_OPEN = "mq_open" SYS_mq_open [Buffer, Int, Int, Buffer];
    MQ_UNLINK = "mq_unlink" SYS_mq_unlink [Buffer];
    SOCKET = "socket" SYS_socket [Int, Int, Int];

    // The kernel.
    BPF = "bpf" SYS_bpf [Only(&[0]), Buffer, Len];
    IO_URING_SETUP = "io_uring_setup" SYS_io_uring_setup [Only(&[1]), Buffer];
    PERF_EVENT_OPEN = "perf_event_open" SYS_perf_event_open [Buffer, Int, Int, Int, Int];
    USERFAULTFD = "userfaultfd" SYS_userfaultfd [Int];
    ADD_KEY = "add_key" SYS_add_key [Buffer, Buffer, Buffer, Len, Int];
    REQUEST_KEY = "request_key" SYS_request_key [Buffer, Buffer, Buffer, Int];
    KEYCTL_NUMBERS = "keyctl" SYS_keyctl [Only(&[0, 1]), Int, Int, Only(&[0]), Only(&[0])];
    KEXEC_LOAD = "kexec_load" SYS_kexec_load [Only(&[0]), Only(&[i64::MAX]), Buffer, Only(&[0xFFFF])];
    KEXEC_FILE_LOAD = "kexec_file_load" SYS_kexec_file_load [Only(&[-1]), Only(&[-1]), Only(&[0]), Buffer, Only(&[0xFFFF])];
    REBOOT = "reboot" SYS_reboot [Only(WRONG), Only(WRONG), Only(WRONG), Buffer];
    INIT_MODULE = "init_module" SYS_init_module [Buffer, Len, Buffer];
    FINIT_MODULE = "finit_module" SYS_finit_module [Only(&[-1]), Buffer, Only(&[0])];
    DELETE_MODULE = "delete_module" SYS_delete_module [Buffer, Int];
    MODIFY_LDT = "modify_ldt" SYS_modify_ldt [Only(&[0]), Buffer, Len];
    PERSONALITY = "personality" SYS_personality [Int];
    IOPL = "iopl" SYS_iopl [Only(&[0, 3])];
    IOPERM = "ioperm" SYS_ioperm [Only(&[0x80]), Only(&[1]), Only(&[0, 1])];
    SYSLOG = "syslog" SYS_syslog [Only(&[3, 10]), Buffer, Len];
    UNAME = "uname" SYS_uname [Buffer];
    SETHOSTNAME = "sethostname" SYS_sethostname [Buffer, Len];
    SETDOMAINNAME = "setdomainname" SYS_setdomainname [Buffer, Len];
    CLOCK_SETTIME = "clock_settime" SYS_clock_settime [Int, Buffer];
    CLOCK_ADJTIME = "clock_adjtime" SYS_clock_adjtime [Only(&[0]), Buffer];
    ADJTIMEX = "adjtimex" SYS_adjtimex [Buffer];
    SETTIMEOFDAY = "settimeofday" SYS_settimeofday [Buffer, Buffer];
    LOOKUP_DCOOKIE = "lookup_dcookie" SYS_lookup_dcookie [Int, Buffer, Len];
    SECCOMP_QUERY = "seccomp" SYS_seccomp [Only(&[2]), Only(&[0]), Buffer];
    IOCTL = "ioctl" SYS_ioctl [Int, Only(IOCTLS), Buffer];
}

/// The namespaces' flags: mount, cgroup, uts, ipc, user, pid, net, and time.
pub const NAMESPACES: &[i64] =
    &[0x2_0000, 0x200_0000, 0x400_0000, 0x800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000, 0x80];

/// TIOCSTI, TIOCLINUX, TIOCSETD, TIOCSCTTY, TIOCGPGRP, FIOSETOWN, SIOCGIFCONF, FS_IOC_GETFLAGS.
pub const IOCTLS: &[i64] = &[0x5412, 0x541C, 0x5423, 0x540E, 0x540F, 0x8901, 0x8912, 0x8008_6601];

/// The calls whose result is a new descriptor.
pub(crate) const MAKE_DESCRIPTORS: &[i64] = &[
    libc::SYS_socket,
    libc::SYS_mq_open,
    libc::SYS_io_uring_setup,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_open_tree,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
];
