/* cc_select, cc_poll: a request that is buffered here makes its connection readable, though the socket is empty.
 *
 * Runs in: a server's processes and threads. Sees: nothing of clients. Never: waits while a request is buffered. */
#define _GNU_SOURCE
#include "../include/cc.h"
#include "table.h"

static bool is_buffered(int fd)
{
    const struct cci_connection *connection = cci_find(fd, CCI_CONNECTION);
    return connection && cci_is_buffered(connection);
}

int cc_select(int n, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout)
{
    fd_set ready;
    int found = 0;

    cci_lock();
    if (readfds && cci_buffered > 0) {
        FD_ZERO(&ready);
        for (int fd = 0; fd < n; fd++) {
            if (FD_ISSET(fd, readfds) && is_buffered(fd)) {
                FD_SET(fd, &ready);
                found++;
            }
        }
    }
    cci_unlock();
    if (found == 0)
        return select(n, readfds, writefds, exceptfds, timeout);

    struct timeval now = {0, 0};
    int count = select(n, readfds, writefds, exceptfds, &now);
    if (count < 0)
        return count;
    for (int fd = 0; fd < n; fd++) {
        if (FD_ISSET(fd, &ready) && !FD_ISSET(fd, readfds)) {
            FD_SET(fd, readfds);
            count++;
        }
    }
    return count;
}

/* What poll(2) would say of `asked` if the buffered request were in the socket. */
static short readable(const struct pollfd *asked)
{
    short wanted = asked->events & (POLLIN | POLLRDNORM);
    return wanted && is_buffered(asked->fd) ? wanted : 0;
}

int cc_poll(struct pollfd fds[], nfds_t nfds, int timeout)
{
    bool any = false;
    cci_lock();
    for (nfds_t i = 0; cci_buffered > 0 && i < nfds && !any; i++)
        any = readable(&fds[i]) != 0;
    cci_unlock();

    int count = poll(fds, nfds, any ? 0 : timeout);
    if (!any || count < 0)
        return count;
    cci_lock();
    for (nfds_t i = 0; i < nfds; i++) {
        short more = readable(&fds[i]);
        if (more && fds[i].revents == 0)
            count++;
        fds[i].revents |= more;
    }
    cci_unlock();
    return count;
}
