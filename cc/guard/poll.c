/*
 * Waiting with poll(2) and select(2) for connections of which bytes are waiting here, and not in the socket.
 *
 * Runs in: a guarded server. Sees: nothing of the network. Never: waits while such a connection is asked about.
 */
#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <string.h>

/* The header says that the kernel only writes to these, and so the compiler takes what we read for nothing. */
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

__attribute__((noreturn)) void __chk_fail(void);

static bool has_taken(int fd)
{
    const struct entry *entry = client_of(fd);
    return entry && entry->pending;
}

static bool wanted(const struct pollfd *polled)
{
    return polled->events & (POLLIN | POLLRDNORM) && has_taken(polled->fd);
}

static bool any_wanted(const struct pollfd *fds, nfds_t count)
{
    for (nfds_t i = 0; table_pending && i < count; i++)
        if (wanted(&fds[i]))
            return true;
    return false;
}

static int add_taken(struct pollfd *fds, nfds_t count, int result)
{
    for (nfds_t i = 0; result >= 0 && i < count; i++) {
        if (!wanted(&fds[i]))
            continue;
        result += fds[i].revents == 0;
        fds[i].revents |= fds[i].events & (POLLIN | POLLRDNORM);
    }
    return result;
}

/* Whoever waits in this way for the next request waits for nothing else: that is the gate's business. */
static void leave_kept(const struct pollfd *fds, nfds_t count)
{
    for (nfds_t i = 0; keep_count() && i < count; i++)
        if (fds[i].events & (POLLIN | POLLRDNORM))
            keep_leave(fds[i].fd);
}

static void leave_selected(int count, const fd_set *set)
{
    for (int fd = 0; set && keep_count() && fd < count && fd < FD_SETSIZE; fd++)
        if (FD_ISSET(fd, set))
            keep_leave(fd);
}

EXPORT int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    leave_kept(fds, count);
    if (!any_wanted(fds, count))
        return real()->poll(fds, count, timeout);
    return add_taken(fds, count, real()->poll(fds, count, 0));
}

EXPORT int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
    static const struct timespec none;
    leave_kept(fds, count);
    if (!any_wanted(fds, count))
        return real()->ppoll(fds, count, timeout, mask);
    return add_taken(fds, count, real()->ppoll(fds, count, &none, mask));
}

EXPORT int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room)
{
    if (room / sizeof *fds < count)
        __chk_fail();
    return poll(fds, count, timeout);
}

EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask,
                       size_t room)
{
    if (room / sizeof *fds < count)
        __chk_fail();
    return ppoll(fds, count, timeout, mask);
}

/* The descriptors below `count` in `set` of which bytes are waiting here; how many. */
static int asked(int count, const fd_set *set, fd_set *here)
{
    int found = 0;
    if (!set || !table_pending)
        return 0;
    FD_ZERO(here);
    for (int fd = 0; fd < count && fd < FD_SETSIZE; fd++) {
        if (FD_ISSET(fd, set) && has_taken(fd)) {
            FD_SET(fd, here);
            found++;
        }
    }
    return found;
}

static int add_asked(int count, fd_set *set, const fd_set *here, int result)
{
    for (int fd = 0; result >= 0 && fd < count && fd < FD_SETSIZE; fd++) {
        if (!FD_ISSET(fd, here) || FD_ISSET(fd, set))
            continue;
        FD_SET(fd, set);
        result++;
    }
    return result;
}

EXPORT int select(int count, fd_set *readable, fd_set *writable, fd_set *special, struct timeval *timeout)
{
    fd_set here;
    struct timeval none = {0, 0};
    leave_selected(count, readable);
    if (!asked(count, readable, &here))
        return real()->select(count, readable, writable, special, timeout);
    return add_asked(count, readable, &here, real()->select(count, readable, writable, special, &none));
}

EXPORT int pselect(int count, fd_set *readable, fd_set *writable, fd_set *special, const struct timespec *timeout,
                   const sigset_t *mask)
{
    fd_set here;
    static const struct timespec none;
    leave_selected(count, readable);
    if (!asked(count, readable, &here))
        return real()->pselect(count, readable, writable, special, timeout, mask);
    return add_asked(count, readable, &here, real()->pselect(count, readable, writable, special, &none, mask));
}
