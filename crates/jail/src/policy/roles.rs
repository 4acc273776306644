//! The strict lists of our own roles.

use super::{Allow, EXECUTABLE, When, allow, allow_when};
use libc as l;

/// What every role does: start, wait, talk over its channels, end.
pub(super) const EVERY: &[Allow] = &[
    allow(
        &[l::SYS_set_tid_address, l::SYS_set_robust_list, l::SYS_rseq, l::SYS_getrandom],
        "the C library's start: thread descriptor, seeds of hash tables",
    ),
    allow_when(
        &[l::SYS_prlimit64],
        &[When::Exactly(0, 0)],
        "the C library's start: the size of its own stack",
    ),
    #[cfg(target_arch = "x86_64")]
    allow(&[l::SYS_arch_prctl], "the C library's start: thread-local storage"),
    allow(
        &[l::SYS_rt_sigaction, l::SYS_rt_sigprocmask, l::SYS_rt_sigreturn, l::SYS_sigaltstack],
        "the runtime's start: SIGPIPE is ignored, and an overflow of the stack is told from other faults",
    ),
    allow(
        &[l::SYS_brk, l::SYS_munmap, l::SYS_mremap, l::SYS_madvise, l::SYS_futex],
        "memory of the allocator, and locks that are free",
    ),
    allow_when(
        &[l::SYS_mmap, l::SYS_mprotect],
        &[When::Bits(2, EXECUTABLE, 0)],
        "memory of the allocator; none that can be executed",
    ),
    allow_when(
        &[l::SYS_execveat],
        &[When::Is(4, l::AT_EMPTY_PATH as u64)],
        "the role's own start, from the descriptor that the launcher opened; later there is no file to execute",
    ),
    allow_when(
        &[l::SYS_prctl],
        &[When::Is(0, l::PR_SET_DUMPABLE as u64), When::Is(1, 0)],
        "the process makes itself one that nobody may trace",
    ),
    allow_when(
        &[l::SYS_prctl],
        &[When::Is(0, l::PR_CAPBSET_READ as u64)],
        "a question that the probe of a jail asks",
    ),
    allow_when(
        &[l::SYS_prctl],
        &[When::Is(0, l::PR_GET_NO_NEW_PRIVS as u64)],
        "a question that the probe asks",
    ),
    allow_when(&[l::SYS_prctl], &[When::Is(0, l::PR_GET_DUMPABLE as u64)], "a question that the probe asks"),
    allow(
        &[l::SYS_getuid, l::SYS_geteuid, l::SYS_getgid, l::SYS_getegid, l::SYS_getgroups, l::SYS_capget],
        "who it is: questions that the probe asks, as `/proc` would answer them",
    ),
    #[cfg(target_arch = "x86_64")]
    allow(&[l::SYS_epoll_wait, l::SYS_poll], "waiting, and the check of descriptors 0 to 2 at the start"),
    allow(
        &[l::SYS_epoll_create1, l::SYS_epoll_ctl, l::SYS_epoll_pwait, l::SYS_eventfd2, l::SYS_ppoll],
        "waiting for what it has open",
    ),
    allow(
        &[l::SYS_read, l::SYS_write, l::SYS_recvmsg, l::SYS_sendmsg, l::SYS_close],
        "messages of the control and log channels, words on standard error, and the end of a descriptor",
    ),
    allow(&[l::SYS_getsockopt, l::SYS_getpid], "what kind a descriptor is, and the pid in a warning"),
    allow_when(&[l::SYS_fcntl], &[When::Is(1, l::F_SETFD as u64)], "channels that close at exec"),
    allow_when(&[l::SYS_fcntl], &[When::Is(1, l::F_GETFL as u64)], "whether a channel blocks"),
    allow_when(&[l::SYS_fcntl], &[When::Is(1, l::F_SETFL as u64)], "channels that do not block"),
    allow_when(
        &[l::SYS_fcntl],
        &[When::Is(1, l::F_DUPFD_CLOEXEC as u64)],
        "a second handle of the runtime's waker",
    ),
    allow_when(&[l::SYS_ioctl], &[When::Is(1, l::FIONBIO)], "channels that do not block"),
    allow(
        &[l::SYS_clock_gettime, l::SYS_clock_nanosleep, l::SYS_nanosleep],
        "the time, where the vDSO has none",
    ),
    allow(&[l::SYS_exit, l::SYS_exit_group, l::SYS_restart_syscall], "the end, and what a stop interrupted"),
    allow(&[l::SYS_gettid, l::SYS_tgkill], "abort, should an invariant be broken"),
];

/// A gate accepts, peeks, answers refusals, and passes connections on.
pub(super) const GATE: &[Allow] = &[
    allow(&[l::SYS_accept4, l::SYS_getsockname, l::SYS_getpeername], "a new connection and whose it is"),
    allow(&[l::SYS_recvfrom], "a look at the first bytes of a connection"),
    allow(&[l::SYS_sendto, l::SYS_writev, l::SYS_shutdown], "an answer of the gate's own, such as 404"),
    allow(&[l::SYS_setsockopt], "how many bytes wake the gate, and no delay of small answers"),
];

/// A site opens files below its root directory, sends them, and relays requests to services.
pub(super) const SITE: &[Allow] = &[
    allow(&[l::SYS_openat2], "files and directories below the root directory"),
    allow(&[l::SYS_fstat, l::SYS_statx, l::SYS_newfstatat], "size, times and kind of a file"),
    allow(&[l::SYS_pread64, l::SYS_sendfile, l::SYS_lseek], "the content of a file"),
    allow(&[l::SYS_getdents64], "the names in a directory"),
    allow(
        &[l::SYS_inotify_init1, l::SYS_inotify_add_watch, l::SYS_inotify_rm_watch],
        "being told when files below the root directory change",
    ),
    allow(
        &[l::SYS_fchdir],
        "a step into a directory that it holds open: the only way to name one to inotify, as its root is empty",
    ),
    allow(&[l::SYS_recvfrom, l::SYS_sendto, l::SYS_writev, l::SYS_shutdown], "requests and answers"),
    allow(
        &[l::SYS_setsockopt, l::SYS_getsockname, l::SYS_getpeername],
        "options and addresses of a connection",
    ),
    allow_when(
        &[l::SYS_socketpair],
        &[When::Is(0, l::AF_UNIX as u64)],
        "the two ends of a relayed connection, one of which goes to a service",
    ),
];

/// The logger appends to files that it was given.
pub(super) const LOGGER: &[Allow] = &[allow(
    &[l::SYS_writev, l::SYS_fstat, l::SYS_statx, l::SYS_lseek],
    "lines of logs, and how long a log is",
)];

/// The admin role accepts on one socket.
pub(super) const ADMIN: &[Allow] = &[
    allow(
        &[l::SYS_accept4, l::SYS_getsockname, l::SYS_getpeername],
        "a connection of the command, and whose it is",
    ),
    allow(&[l::SYS_recvfrom, l::SYS_sendto, l::SYS_writev, l::SYS_shutdown], "orders and answers"),
];

/// A connector makes streams to the servers that it was told of, and gives them away unread.
pub(super) const CONNECTOR: &[Allow] = &[
    allow_when(
        &[l::SYS_socket],
        &[When::Is(0, l::AF_UNIX as u64), When::Bits(1, 0xf, l::SOCK_STREAM as u64)],
        "a stream to a Unix socket",
    ),
    allow(&[l::SYS_connect], "the connection; where to is Landlock's and the network's to limit"),
    allow(&[l::SYS_fchdir], "into the directory of a Unix socket, which came as a descriptor"),
];

/// What has to reach IP addresses: a connector of which one server has one, and the stapler.
pub(super) const TCP: &[Allow] = &[
    allow_when(
        &[l::SYS_socket],
        &[When::Is(0, l::AF_INET as u64), When::Bits(1, 0xf, l::SOCK_STREAM as u64)],
        "a stream over IPv4",
    ),
    allow_when(
        &[l::SYS_socket],
        &[When::Is(0, l::AF_INET6 as u64), When::Bits(1, 0xf, l::SOCK_STREAM as u64)],
        "a stream over IPv6",
    ),
];

/// The stapler asks servers of names and responders, and reads what they answer.
pub(super) const STAPLER: &[Allow] = &[
    allow(&[l::SYS_connect], "the connection; to which ports is Landlock's to limit"),
    allow(&[l::SYS_recvfrom, l::SYS_sendto, l::SYS_writev, l::SYS_shutdown], "questions and answers"),
];
