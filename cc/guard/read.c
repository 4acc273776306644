/*
 * Reading from a client, in all of the ways there are. Bytes that a filter has taken come before those in the socket.
 *
 * Runs in: a guarded server. Sees: what clients send. Never: changes a byte of it.
 *
 * SECURITY: the server is given one request, and nothing of what comes after it: that stays in the socket, and goes to
 * the gate with it. Otherwise a client could send a request and one more byte, and have the server wait for the rest.
 */
#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <string.h>

__attribute__((noreturn)) void __chk_fail(void);

/* Copies taken bytes into `parts`. Once all are used up, the epoll sets need not know of them any more. */
static ssize_t read_taken(struct entry *entry, const struct iovec *parts, size_t parts_count, bool peek)
{
    size_t count = 0;
    guard_inside++;
    pthread_mutex_lock(&entry->lock);
    const unsigned char *taken = entry->taken;
    size_t at = entry->taken_at, end = at;
    if (taken)
        end += exchange_request_part(&entry->exchange, taken + at, entry->taken_size - at);
    for (size_t i = 0; taken && i < parts_count && at < end; i++) {
        const size_t left = end - at, part = parts[i].iov_len < left ? parts[i].iov_len : left;
        if (part)
            memcpy(parts[i].iov_base, taken + at, part);
        at += part;
        count += part;
    }
    if (taken && !peek) {
        entry->taken_at = at;
        if (at == entry->taken_size) {
            watch_narrow(entry);
            client_take_leftover(entry);
        }
    }
    pthread_mutex_unlock(&entry->lock);
    guard_inside--;
    return (ssize_t)count;
}

/* What is to be read into nothing is left to the kernel. */
static bool has_taken(const struct entry *entry, size_t room)
{
    return entry && entry->kind == CLIENT && entry->taken && room;
}

static size_t whole(const struct iovec *parts, size_t parts_count)
{
    size_t size = 0;
    for (size_t i = 0; i < parts_count; i++)
        size += parts[i].iov_len;
    return size;
}

/* Whether more could be read than belongs to the request. */
static bool could_exceed(const struct exchange *exchange, size_t room, int flags)
{
    if (exchange->lost || exchange->last || room == 0 || flags & (MSG_PEEK | MSG_OOB | MSG_ERRQUEUE | MSG_WAITALL))
        return false;
    return !((exchange->in.stage == COUNTED || exchange->in.stage == CHUNK) && exchange->in.left >= room);
}

/* What has passed until now; another thread may be writing. */
static struct exchange as_it_is(struct entry *entry)
{
    guard_inside++;
    pthread_mutex_lock(&entry->lock);
    const struct exchange now = entry->exchange;
    pthread_mutex_unlock(&entry->lock);
    guard_inside--;
    return now;
}

/* How much of what was looked at belongs to the request. Piece by piece, as the pieces lie. */
static size_t request_part(struct entry *entry, const struct iovec *parts, size_t count)
{
    struct exchange ahead = as_it_is(entry);
    size_t all = 0;
    for (; count; parts++) {
        const size_t part = parts->iov_len < count ? parts->iov_len : count;
        const size_t ours = exchange_request_part(&ahead, parts->iov_base, part);
        all += ours;
        if (ours < part)
            break;
        exchange_read(&ahead, parts->iov_base, part);
        if (exchange_answering(&ahead))
            break;
        count -= part;
    }
    return all;
}

/* Something has come while the server is answering. It is for later; there is nothing yet. */
static ssize_t nothing_yet(struct entry *entry)
{
    guard_inside++;
    pthread_mutex_lock(&entry->lock);
    watch_pause(entry);
    pthread_mutex_unlock(&entry->lock);
    guard_inside--;
    errno = EAGAIN;
    return -1;
}

/* Looks at what is there, and then reads as much as belongs to the request. */
static ssize_t read_request(struct entry *entry, int fd, struct msghdr *message, int flags)
{
    const bool answering = exchange_answering(&entry->exchange);
    /* A server that waits here although it has not answered must not wait for ever: it gets what comes. */
    if (answering && !(flags & MSG_DONTWAIT) && !(real()->fcntl(fd, F_GETFL) & O_NONBLOCK))
        return real()->recvmsg(fd, message, flags);
    const ssize_t there = real()->recvmsg(fd, message, flags | MSG_PEEK);
    if (there <= 0)
        return there;
    if (answering)
        return nothing_yet(entry);
    /* Read by throwing away: the bytes are where they belong. */
    return real()->recv(fd, NULL, request_part(entry, message->msg_iov, (size_t)there), MSG_TRUNC | MSG_DONTWAIT);
}

/* The same for calls that have no message. */
static ssize_t read_parts(struct entry *entry, int fd, const struct iovec *parts, size_t count, int flags)
{
    struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = count};
    return read_request(entry, fd, &message, flags);
}

static ssize_t was_read(struct entry *entry, int fd, const struct iovec *parts, ssize_t count, int flags)
{
    if (count > 0 && entry && entry->kind == CLIENT && !(flags & (MSG_PEEK | MSG_ERRQUEUE)))
        client_moved(entry, fd, READ, flags & MSG_TRUNC ? NULL : parts, (size_t)count);
    return count;
}

EXPORT ssize_t read(int fd, void *buffer, size_t count)
{
    struct entry *entry = client_of(fd);
    if (!entry)
        return real()->read(fd, buffer, count);
    const struct iovec part = {buffer, count};
    ssize_t got;
    if (has_taken(entry, count))
        got = read_taken(entry, &part, 1, false);
    else if (could_exceed(&entry->exchange, count, 0))
        got = read_parts(entry, fd, &part, 1, 0);
    else
        got = real()->read(fd, buffer, count);
    return was_read(entry, fd, &part, got, 0);
}

EXPORT ssize_t readv(int fd, const struct iovec *parts, int count)
{
    struct entry *entry = client_of(fd);
    if (!entry)
        return real()->readv(fd, parts, count);
    const size_t room = count > 0 ? whole(parts, (size_t)count) : 0;
    ssize_t got;
    if (has_taken(entry, room))
        got = read_taken(entry, parts, (size_t)count, false);
    else if (could_exceed(&entry->exchange, room, 0))
        got = read_parts(entry, fd, parts, (size_t)count, 0);
    else
        got = real()->readv(fd, parts, count);
    return was_read(entry, fd, parts, got, 0);
}

/* With MSG_WAITALL, what the taken bytes do not fill is waited for in the socket. */
static ssize_t rest(int fd, unsigned char *buffer, size_t count, ssize_t got, int flags)
{
    if (got < 0 || (size_t)got == count || !(flags & MSG_WAITALL))
        return got;
    const ssize_t more = real()->recv(fd, buffer + got, count - (size_t)got, flags);
    return more > 0 ? got + more : got;
}

EXPORT ssize_t recvfrom(int fd, void *buffer, size_t count, int flags, __SOCKADDR_ARG from, socklen_t *size)
{
    struct entry *entry = client_of(fd);
    const struct iovec part = {buffer, count};
    if (!entry)
        return real()->recvfrom(fd, buffer, count, flags, from, size);
    if (!has_taken(entry, count) || flags & (MSG_OOB | MSG_ERRQUEUE)) {
        const bool one = could_exceed(&entry->exchange, count, flags);
        if (one && size)
            *size = 0;
        return was_read(entry, fd, &part, one ? read_parts(entry, fd, &part, 1, flags)
                                              : real()->recvfrom(fd, buffer, count, flags, from, size), flags);
    }
    const ssize_t got = read_taken(entry, &part, 1, flags & MSG_PEEK);
    if (size)
        *size = 0;
    return was_read(entry, fd, &part, rest(fd, buffer, count, got, flags), flags & ~MSG_TRUNC);
}

EXPORT ssize_t recv(int fd, void *buffer, size_t count, int flags)
{
    if (!client_of(fd))
        return real()->recv(fd, buffer, count, flags);
    return recvfrom(fd, buffer, count, flags, NULL, NULL);
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    struct entry *entry = client_of(fd);
    if (!entry)
        return real()->recvmsg(fd, message, flags);
    const size_t room = whole(message->msg_iov, message->msg_iovlen);
    if (!has_taken(entry, room) || flags & MSG_ERRQUEUE) {
        const bool one = could_exceed(&entry->exchange, room, flags);
        return was_read(entry, fd, message->msg_iov,
                        one ? read_request(entry, fd, message, flags) : real()->recvmsg(fd, message, flags), flags);
    }
    message->msg_namelen = 0;
    message->msg_controllen = 0;
    message->msg_flags = 0;
    const ssize_t got = read_taken(entry, message->msg_iov, message->msg_iovlen, flags & MSG_PEEK);
    return was_read(entry, fd, message->msg_iov, got, flags & ~MSG_TRUNC);
}

EXPORT int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout)
{
    if (!client_of(fd))
        return real()->recvmmsg(fd, messages, count, flags, timeout);
    const ssize_t got = count ? recvmsg(fd, &messages->msg_hdr, flags & ~MSG_WAITFORONE) : 0;
    if (got <= 0)
        return (int)got;
    messages->msg_len = (unsigned)got;
    return 1;
}

/* What programs call that were compiled with _FORTIFY_SOURCE. */

EXPORT ssize_t __read_chk(int fd, void *buffer, size_t count, size_t room)
{
    if (count > room)
        __chk_fail();
    return read(fd, buffer, count);
}

EXPORT ssize_t __recv_chk(int fd, void *buffer, size_t count, size_t room, int flags)
{
    if (count > room)
        __chk_fail();
    return recv(fd, buffer, count, flags);
}

EXPORT ssize_t __recvfrom_chk(int fd, void *buffer, size_t count, size_t room, int flags, __SOCKADDR_ARG from,
                              socklen_t *size)
{
    if (count > room)
        __chk_fail();
    return recvfrom(fd, buffer, count, flags, from, size);
}
