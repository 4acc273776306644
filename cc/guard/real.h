/*
 * The functions behind those that the library stands in for.
 *
 * Runs in: a guarded server. Sees: nothing. Never: calls one that it has not found; the C library has them all.
 */
#ifndef REAL_H
#define REAL_H

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* What programs call that were compiled with _FORTIFY_SOURCE; no header declares them. */
ssize_t __read_chk(int fd, void *buffer, size_t count, size_t room);
ssize_t __recv_chk(int fd, void *buffer, size_t count, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *buffer, size_t count, size_t room, int flags, __SOCKADDR_ARG from, socklen_t *size);
int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room);
int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t room);

#define REAL_FUNCTIONS(X)                                                                                             \
    X(bind) X(listen) X(accept) X(accept4) X(getsockname) X(getpeername) X(getsockopt) X(setsockopt) X(ioctl) X(shutdown) \
    X(close) X(close_range) X(fclose) X(fdopen) X(dup) X(dup2) X(dup3) X(fcntl) X(fcntl64) X(clone)                   \
    X(read) X(readv) X(recv) X(recvfrom) X(recvmsg) X(recvmmsg) X(__read_chk) X(__recv_chk) X(__recvfrom_chk)         \
    X(write) X(writev) X(send) X(sendto) X(sendmsg) X(sendmmsg) X(sendfile) X(sendfile64) X(splice)                   \
    X(poll) X(ppoll) X(select) X(pselect) X(__poll_chk) X(__ppoll_chk)                                                \
    X(epoll_ctl) X(epoll_wait) X(epoll_pwait) X(epoll_pwait2)

struct real {
#define REAL_FIELD(name) __typeof__(name) *name;
    REAL_FUNCTIONS(REAL_FIELD)
#undef REAL_FIELD
};

extern struct real real_functions;
extern _Atomic int real_found;
void real_find(void);

/* Other libraries' constructors may call us before our own has run. */
static inline const struct real *real(void)
{
    if (__builtin_expect(!atomic_load_explicit(&real_found, memory_order_acquire), 0))
        real_find();
    return &real_functions;
}

#endif
