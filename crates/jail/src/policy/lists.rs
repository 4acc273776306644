//! Values of arguments that programs may pass: options and commands, each list for one call.

use libc as l;

/// What a program may ask and say about itself with `prctl`.
pub(super) const OF_ITSELF: &[u64] = &[
    l::PR_SET_NAME as u64,
    l::PR_GET_NAME as u64,
    l::PR_SET_DUMPABLE as u64,
    l::PR_GET_DUMPABLE as u64,
    l::PR_SET_NO_NEW_PRIVS as u64,
    l::PR_GET_NO_NEW_PRIVS as u64,
    l::PR_GET_PDEATHSIG as u64,
    l::PR_GET_SECCOMP as u64,
    l::PR_GET_KEEPCAPS as u64,
    l::PR_GET_SECUREBITS as u64,
    l::PR_CAPBSET_READ as u64,
    l::PR_SET_TIMERSLACK as u64,
    l::PR_GET_TIMERSLACK as u64,
    // Names of its own mappings, which the C library and runtimes give.
    l::PR_SET_VMA as u64,
];

/// What `fcntl` is good for, with what is one's own.
pub(super) const OF_DESCRIPTORS: &[u64] = &[
    l::F_DUPFD as u64,
    l::F_GETFD as u64,
    l::F_SETFD as u64,
    l::F_GETFL as u64,
    l::F_SETFL as u64,
    l::F_GETLK as u64,
    l::F_SETLK as u64,
    l::F_SETLKW as u64,
    l::F_OFD_GETLK as u64,
    l::F_OFD_SETLK as u64,
    l::F_OFD_SETLKW as u64,
    l::F_DUPFD_CLOEXEC as u64,
    l::F_SETPIPE_SZ as u64,
    l::F_GETPIPE_SZ as u64,
    l::F_ADD_SEALS as u64,
    l::F_GET_SEALS as u64,
];

/// Options of any socket that change nothing but its own buffers and times.
///
/// SECURITY: never `SO_LINGER`: who closes such a socket last waits for its bytes to be sent, and that is whoever it
/// was handed to.
pub(super) const OF_SOCKETS: &[u64] = &[
    l::SO_REUSEADDR as u64,
    l::SO_SNDBUF as u64,
    l::SO_RCVBUF as u64,
    l::SO_KEEPALIVE as u64,
    l::SO_RCVLOWAT as u64,
    l::SO_RCVTIMEO as u64,
    l::SO_SNDTIMEO as u64,
];
/// What may be asked of any socket.
pub(super) const ASKED_OF_SOCKETS: &[u64] = &[
    l::SO_REUSEADDR as u64,
    l::SO_TYPE as u64,
    l::SO_ERROR as u64,
    l::SO_SNDBUF as u64,
    l::SO_RCVBUF as u64,
    l::SO_KEEPALIVE as u64,
    l::SO_LINGER as u64,
    l::SO_PEERCRED as u64,
    l::SO_RCVLOWAT as u64,
    l::SO_RCVTIMEO as u64,
    l::SO_SNDTIMEO as u64,
    l::SO_ACCEPTCONN as u64,
    l::SO_PROTOCOL as u64,
    l::SO_DOMAIN as u64,
    sys::seqpacket::SO_PASSRIGHTS as u64,
];
/// Options of a stream: when it sends, and when it gives up.
pub(super) const OF_TCP: &[u64] = &[
    l::TCP_NODELAY as u64,
    l::TCP_CORK as u64,
    l::TCP_KEEPIDLE as u64,
    l::TCP_KEEPINTVL as u64,
    l::TCP_KEEPCNT as u64,
    l::TCP_QUICKACK as u64,
    l::TCP_USER_TIMEOUT as u64,
    l::TCP_NOTSENT_LOWAT as u64,
];
/// What may be asked of a stream.
pub(super) const ASKED_OF_TCP: &[u64] = &[
    l::TCP_NODELAY as u64,
    l::TCP_MAXSEG as u64,
    l::TCP_CORK as u64,
    l::TCP_KEEPIDLE as u64,
    l::TCP_KEEPINTVL as u64,
    l::TCP_KEEPCNT as u64,
    l::TCP_INFO as u64,
    l::TCP_QUICKACK as u64,
    l::TCP_USER_TIMEOUT as u64,
    l::TCP_NOTSENT_LOWAT as u64,
];
