/*
 * A client's connection in the hands of the server: what moves over it is followed, and when all that was asked is
 * answered it goes back to the gate.
 *
 * Runs in: a guarded server. Sees: what clients and the server send. Never: sends a descriptor that is not known to be
 * the connection it was; sends one that another descriptor of this process refers to as well.
 */
#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <netinet/tcp.h>

/* SECURITY: a descriptor may have been closed, and its number used again, in a way that nobody saw (a system call
 * without the C library). The kernel's cookie of a socket is never used twice. */
static bool still_itself(const struct entry *entry, int fd)
{
    uint64_t cookie = 0;
    socklen_t size = sizeof cookie;
    return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 && cookie == entry->cookie;
}

/* A socket whose peer has closed. */
static int dead_socket(void)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) < 0)
        return -1;
    close(ends[1]);
    return ends[0];
}

/* Undoes what would trouble the next owner: bytes held back; a descriptor that blocks the gate. */
static void make_neutral(struct entry *entry, int fd)
{
    const int off = 0;
    if (entry->corked)
        setsockopt(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof off);
    fcntl(fd, F_SETFL, O_NONBLOCK);
}

/* SECURITY: a connection that cannot go back is of no more use: its next request has passed no gate. A server that was
 * not told of one that has come already hears of it now, and reads that the client has ended. */
static void stays(struct entry *entry)
{
    entry->exchange.lost = true;
    watch_again(entry);
}

/* With the entry's lock held. To the server, the client has closed; its closing of the descriptor is then local. */
void client_give_back(struct entry *entry, int fd)
{
    keep_end(entry);
    const bool ours = entry->references == 1 && !entry->unwatched && still_itself(entry, fd);
    const int dead = ours ? dead_socket() : -1, status = fcntl(fd, F_GETFL), on_exec = fcntl(fd, F_GETFD);
    if (dead < 0) {
        stays(entry);
        return;
    }
    watch_leave(entry);
    make_neutral(entry, fd);
    if (channel_back(entry, fd)) {
        dup3(dead, fd, on_exec & FD_CLOEXEC ? O_CLOEXEC : 0);
        client_take_leftover(entry);
        entry->kind = GONE;
    } else {
        fcntl(fd, F_SETFL, status);
        stays(entry);
    }
    watch_return(entry);
    close(dead);
}

/* Forgets bytes that nobody has read here: they have gone along. */
void client_take_leftover(struct entry *entry)
{
    unsigned char *taken = entry->taken;
    if (!taken)
        return;
    table_set_pending(entry, false);
    entry->taken = NULL;
    table_buffer_back(taken);
}

static void follow(struct entry *entry, enum way way, const struct iovec *parts, size_t count)
{
    if (!parts) {
        (way == READ ? cc_exchange_read_blind : cc_exchange_wrote_blind)(&entry->exchange, count);
        return;
    }
    for (; count; parts++) {
        const size_t part = parts->iov_len < count ? parts->iov_len : count;
        (way == READ ? cc_exchange_read : cc_exchange_wrote)(&entry->exchange, parts->iov_base, part);
        count -= part;
    }
}

void client_moved(struct entry *entry, int fd, enum way way, const struct iovec *parts, size_t count)
{
    const int error = errno;
    int cancel;
    /* A thread that is cancelled here would leave the lock behind. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    guard_inside++;
    pthread_mutex_lock(&entry->lock);
    /* In a child of vfork(2), the number may be another descriptor's. */
    if (entry->kind == CLIENT && guard_mine()) {
        if (!entry->announced)
            entry->announced = channel_took(entry);
        follow(entry, way, parts, count);
        if (!cc_exchange_idle(&entry->exchange))
            keep_end(entry);
        else if (!entry->kept && !keep_begin(entry, fd))
            client_give_back(entry, fd);
        /* What came after the request is of no more use, but the server is to hear that it came. */
        if (entry->kind == CLIENT && entry->taken && cc_exchange_reading(&entry->exchange) == READS_NOTHING)
            watch_widen(entry);
        if (entry->paused && cc_exchange_reading(&entry->exchange) != READS_LATER)
            watch_resume(entry);
    }
    pthread_mutex_unlock(&entry->lock);
    guard_inside--;
    pthread_setcancelstate(cancel, NULL);
    errno = error;
}
