//! The strict lists of our own roles.

use super::{Allow, DATAGRAM, EXECUTABLE, INTERNET, NO_OTHER_SENDING, STREAM, When, allow, allow_when};
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
        &[l::SYS_read, l::SYS_write, l::SYS_close],
        "words on standard error, wake-ups, and the end of a descriptor",
    ),
    allow_when(
        &[l::SYS_sendmsg],
        &[When::Bits(2, NO_OTHER_SENDING, 0)],
        "messages of the control and log channels",
    ),
    allow(&[l::SYS_recvmsg], "messages of the control and log channels"),
    allow_when(
        &[l::SYS_getsockopt],
        &[When::Is(1, l::SOL_SOCKET as u64), When::In(2, KIND_OF_SOCKET)],
        "what kind of socket a descriptor is, whether it has failed, and what its closing would wait for",
    ),
    allow(&[l::SYS_getpid], "the pid in a warning"),
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
    allow(&[l::SYS_gettid], "abort, should an invariant be broken"),
    allow_when(&[l::SYS_tgkill], &[When::Is(2, l::SIGABRT as u64)], "abort, should an invariant be broken"),
];

/// Descriptors of others are closed by a thread (`sys::foreign`). The flags of a thread: a process cannot be made so.
pub(super) const CLOSING: &[Allow] = &[
    allow_when(
        &[l::SYS_clone],
        &[When::Is(0, THREAD)],
        "its threads, of which one closes what others have sent",
    ),
    allow(&[l::SYS_sched_getaffinity], "the C library's start of a thread"),
    allow(
        &[l::SYS_shutdown],
        "a channel that takes nothing more before it is closed, and the end of a connection",
    ),
    allow_when(
        &[l::SYS_setitimer],
        &[When::Is(0, l::ITIMER_REAL as u64)],
        "the end of a wait for the bytes of a socket that is closed",
    ),
];

/// The options of a socket that say what it is.
const KIND_OF_SOCKET: &[u64] = &[
    l::SO_TYPE as u64,
    l::SO_ERROR as u64,
    l::SO_ACCEPTCONN as u64,
    l::SO_PROTOCOL as u64,
    l::SO_DOMAIN as u64,
    l::SO_LINGER as u64,
    sys::seqpacket::SO_PASSRIGHTS as u64,
];

/// Small answers of a connection are not held back.
const NO_DELAY: Allow = allow_when(
    &[l::SYS_setsockopt],
    &[When::Is(1, l::IPPROTO_TCP as u64), When::Is(2, l::TCP_NODELAY as u64)],
    "no delay of small answers",
);

/// Ends that take no descriptors.
const REFUSE_DESCRIPTORS: Allow = allow_when(
    &[l::SYS_setsockopt],
    &[When::Is(1, l::SOL_SOCKET as u64), When::Is(2, sys::seqpacket::SO_PASSRIGHTS as u64)],
    "ends that take no descriptors",
);

/// Whether descriptors wait in a connection that somebody has sent.
const WAITING: Allow = allow_when(
    &[l::SYS_ioctl],
    &[When::Is(1, l::FIONREAD)],
    "how much waits in a connection that came from another process",
);

/// Bytes of a connection.
const RECEIVE: Allow = allow(&[l::SYS_recvfrom], "what a connection brings, or a look at it");
const SEND: Allow =
    allow_when(&[l::SYS_sendto], &[When::Bits(3, NO_OTHER_SENDING, 0)], "what goes out on a connection");

/// A gate accepts, peeks, answers refusals, and passes connections on.
pub(super) const GATE: &[Allow] = &[
    allow(&[l::SYS_accept4, l::SYS_getsockname, l::SYS_getpeername], "a new connection and whose it is"),
    RECEIVE,
    SEND,
    allow(&[l::SYS_writev], "an answer of the gate's own, such as 404"),
    NO_DELAY,
    SEND_BUFFER,
];

/// A channel is as long as what may wait on it.
const SEND_BUFFER: Allow = allow_when(
    &[l::SYS_setsockopt],
    &[When::Is(1, l::SOL_SOCKET as u64), When::Is(2, l::SO_SNDBUF as u64)],
    "room of a channel for what waits",
);

/// A site opens files below its root directory, sends them, and relays requests to services.
pub(super) const SITE: &[Allow] = &[
    allow(&[l::SYS_openat2], "files and directories below the root directory"),
    allow(&[l::SYS_fstat, l::SYS_statx, l::SYS_newfstatat], "size, times and kind of a file"),
    allow(&[l::SYS_pread64, l::SYS_sendfile, l::SYS_lseek], "the content of a file"),
    allow(
        &[l::SYS_pwrite64, l::SYS_ftruncate, l::SYS_fstatfs],
        "bodies of requests in the one file that it writes to, and whether its disk is nearly full",
    ),
    allow(&[l::SYS_getdents64], "the names in a directory"),
    allow(
        &[l::SYS_readlinkat],
        "where a symbolic link leads, for those that may lead into another folder of the site",
    ),
    allow(
        &[l::SYS_inotify_init1, l::SYS_inotify_add_watch, l::SYS_inotify_rm_watch],
        "being told when files below the root directory change",
    ),
    allow(
        &[l::SYS_fchdir],
        "a step into a directory that it holds open: the only way to name one to inotify, as its root is empty",
    ),
    RECEIVE,
    SEND,
    allow(&[l::SYS_writev], "requests and answers"),
    NO_DELAY,
    SEND_BUFFER,
    REFUSE_DESCRIPTORS,
    WAITING,
    allow_when(
        &[l::SYS_connect],
        &[When::Is(2, sys::reset::FAMILY_BYTES as u64)],
        "a connection that is reset rather than ended: an address with no room for more than its family connects to nothing",
    ),
    allow(&[l::SYS_getsockname, l::SYS_getpeername], "addresses of a connection"),
    allow_when(
        &[l::SYS_socketpair],
        &[When::Is(0, l::AF_UNIX as u64), STREAM, When::Is(2, 0)],
        "the two ends of a relayed connection, one of which goes to a service or to another site",
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
        "a connection of the command, and where from",
    ),
    allow_when(
        &[l::SYS_getsockopt],
        &[When::Is(1, l::SOL_SOCKET as u64), When::Is(2, l::SO_PEERCRED as u64)],
        "whose a connection of the command is",
    ),
    RECEIVE,
    SEND,
    allow(&[l::SYS_writev], "orders and answers"),
];

/// A connector makes connections to what it was told of, and gives them away unread.
pub(super) const CONNECTOR: &[Allow] =
    &[allow(&[l::SYS_connect], "the connection; where to is Landlock's and the network's to limit")];

/// What a connector does to a socket for a server on this machine.
pub(super) const AIM: &[Allow] = &[allow_when(
    &[l::SYS_setsockopt],
    &[When::Is(1, l::IPPROTO_TCP as u64), When::In(2, AIMING)],
    "a socket that connects, to where the connector says, with the first bytes that are written to it",
)];

const AIMING: &[u64] = &[sys::aimed::OPTIONS[0] as u64, sys::aimed::OPTIONS[1] as u64];

/// What a connector needs for servers with a Unix socket.
pub(super) const UNIX: &[Allow] = &[
    allow_when(
        &[l::SYS_socket],
        &[When::Is(0, l::AF_UNIX as u64), STREAM, When::Is(2, 0)],
        "a stream to a Unix socket",
    ),
    allow(&[l::SYS_fchdir], "into the directory of a Unix socket, which came as a descriptor"),
];

/// Streams over IP: a connector's, the stapler's, and what a program with `network` may ask for.
pub(super) const TCP: &[Allow] = &[allow_when(
    &[l::SYS_socket],
    &[INTERNET, STREAM, When::In(2, &[0, l::IPPROTO_TCP as u64])],
    "a stream over IP, in no other protocol than TCP, as Landlock knows no other",
)];

/// Datagrams over IP: a connector's, and what a program with `network` may ask for.
pub(super) const UDP: &[Allow] = &[allow_when(
    &[l::SYS_socket],
    &[INTERNET, DATAGRAM, When::In(2, &[0, l::IPPROTO_UDP as u64])],
    "datagrams over IP, in no other protocol than UDP",
)];

/// A broker looks at the calls of its service, and answers them.
pub(super) const BROKER: &[Allow] = &[
    allow_when(
        &[l::SYS_ioctl],
        &[When::In(1, &[0xc050_2100, 0xc018_2101, 0x4008_2102, 0x4018_2103, 0x4008_2104])],
        "notifications: receive, answer, is it still there, add a descriptor, wake at once (seccomp_unotify(2))",
    ),
    allow_when(
        &[l::SYS_process_vm_readv],
        &[When::Is(5, 0)],
        "the address in the memory of a caller, which has the same uid; the kernel refuses all others",
    ),
    allow(
        &[l::SYS_pidfd_open, l::SYS_pidfd_getfd],
        "the socket of a caller, which has the same uid; the kernel refuses all others",
    ),
    allow_when(&[l::SYS_tgkill], &[When::Is(2, 0)], "whether a thread belongs to a process; nothing is sent"),
];

/// The stapler connects to DNS servers and responders.
pub(super) const STAPLER: &[Allow] =
    &[allow(&[l::SYS_connect], "the connection; to which ports is Landlock's to limit")];

/// What asks DNS servers, or responders, also reads what they answer.
pub(super) const ASKING: &[Allow] = &[RECEIVE, SEND, allow(&[l::SYS_writev], "questions and answers")];

/// A publisher reads the files in one folder, and writes nothing but messages and reports.
pub(super) const PUBLISHER: &[Allow] = &[
    allow(&[l::SYS_openat2], "templates, by name below the folder that it was handed"),
    allow(&[l::SYS_fstat, l::SYS_statx, l::SYS_newfstatat], "whether it is a file or a folder"),
    allow(&[l::SYS_getdents64, l::SYS_lseek], "the names in a folder"),
    SEND,
];

/// The flags of threads: everything shared with the process, and nothing of anybody else's.
const THREAD: u64 = (l::CLONE_VM
    | l::CLONE_FS
    | l::CLONE_FILES
    | l::CLONE_SIGHAND
    | l::CLONE_THREAD
    | l::CLONE_SYSVSEM
    | l::CLONE_SETTLS
    | l::CLONE_PARENT_SETTID
    | l::CLONE_CHILD_CLEARTID) as u64;

/// A data proxy works on the files of a SQLite database, by threads. Its root has one folder, and Landlock lets it
/// make no links, devices or sockets there.
pub(super) const DATA_PROXY: &[Allow] = &[
    allow(
        &[l::SYS_openat, l::SYS_unlinkat],
        "the database, its log of changes and its shared index, by name in its folder",
    ),
    allow(
        &[
            l::SYS_fstat,
            l::SYS_statx,
            l::SYS_newfstatat,
            l::SYS_readlinkat,
            l::SYS_faccessat,
            l::SYS_faccessat2,
        ],
        "whether a file is there, how long it is, and that it is no link",
    ),
    #[cfg(target_arch = "x86_64")]
    allow(
        &[l::SYS_open, l::SYS_unlink, l::SYS_stat, l::SYS_lstat, l::SYS_readlink, l::SYS_access],
        "the same, by the calls that this processor has beside",
    ),
    allow(&[l::SYS_getcwd], "the whole path of a database that was named so already"),
    allow(&[l::SYS_pread64, l::SYS_pwrite64, l::SYS_lseek], "pages of the database"),
    allow(&[l::SYS_ftruncate, l::SYS_fallocate], "files that shrink and grow"),
    allow(&[l::SYS_fsync, l::SYS_fdatasync], "what is acknowledged is on disk"),
    allow_when(
        &[l::SYS_fcntl],
        &[When::In(1, &[l::F_SETLK as u64, l::F_GETLK as u64])],
        "locks, by which processes that have the database open take turns",
    ),
    allow(&[l::SYS_sched_yield], "waiting for a lock of the shared index, and giving way to other threads"),
    allow(
        &[l::SYS_timer_create, l::SYS_timer_settime, l::SYS_timer_delete],
        "a timer of each thread, whose signal has it pause in a long statement",
    ),
];

/// A data proxy at a server has no file: it reads what was opened for it, and talks on connections that are made for
/// it.
pub(super) const DATA_PROXY_AT_SERVER: &[Allow] = &[
    allow(
        &[l::SYS_pread64],
        "the file of statements and that of the password, which the launcher has opened",
    ),
    RECEIVE,
    SEND,
    allow(&[l::SYS_writev], "a question to the server, and the end of a connection"),
    NO_DELAY,
    REFUSE_DESCRIPTORS,
    WAITING,
];

/// A reaper ends processes, and nothing else.
pub(super) const REAPER: &[Allow] = &[allow_when(
    &[l::SYS_pidfd_send_signal],
    &[When::Is(1, l::SIGKILL as u64)],
    "the end of a process whose pidfd it was given",
)];
