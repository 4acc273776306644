/*
 * Writing to a client, in all of the ways there are.
 *
 * Runs in: a guarded server. Sees: what the server answers. Never: changes or holds back a byte of it.
 */
#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>

/* A connection that is not here any more has ended, as far as the server can tell; without a signal. */
static bool gone(const struct entry *entry)
{
    if (!entry || entry->kind != GONE)
        return false;
    errno = ECONNRESET;
    return true;
}

static ssize_t wrote(struct entry *entry, int fd, const struct iovec *parts, ssize_t count)
{
    if (count > 0 && entry && entry->kind == CLIENT)
        client_moved(entry, fd, WROTE, parts, (size_t)count);
    return count;
}

EXPORT ssize_t write(int fd, const void *bytes, size_t count)
{
    struct entry *entry = entry_of(fd);
    const struct iovec part = {(void *)bytes, count};
    return gone(entry) ? -1 : wrote(entry, fd, &part, real()->write(fd, bytes, count));
}

EXPORT ssize_t writev(int fd, const struct iovec *parts, int count)
{
    struct entry *entry = entry_of(fd);
    return gone(entry) ? -1 : wrote(entry, fd, parts, real()->writev(fd, parts, count));
}

EXPORT ssize_t send(int fd, const void *bytes, size_t count, int flags)
{
    struct entry *entry = entry_of(fd);
    const struct iovec part = {(void *)bytes, count};
    return gone(entry) ? -1 : wrote(entry, fd, &part, real()->send(fd, bytes, count, flags));
}

EXPORT ssize_t sendto(int fd, const void *bytes, size_t count, int flags, __CONST_SOCKADDR_ARG to, socklen_t size)
{
    struct entry *entry = entry_of(fd);
    const struct iovec part = {(void *)bytes, count};
    return gone(entry) ? -1 : wrote(entry, fd, &part, real()->sendto(fd, bytes, count, flags, to, size));
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct entry *entry = entry_of(fd);
    if (message->msg_controllen)
        leave_in(message);
    return gone(entry) ? -1 : wrote(entry, fd, message->msg_iov, real()->sendmsg(fd, message, flags));
}

EXPORT int sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags)
{
    struct entry *entry = entry_of(fd);
    if (gone(entry))
        return -1;
    for (unsigned i = 0; i < count; i++)
        if (messages[i].msg_hdr.msg_controllen)
            leave_in(&messages[i].msg_hdr);
    const int sent = real()->sendmmsg(fd, messages, count, flags);
    for (int i = 0; i < sent; i++)
        wrote(entry, fd, messages[i].msg_hdr.msg_iov, messages[i].msg_len);
    return sent;
}

EXPORT ssize_t sendfile(int fd, int file, off_t *offset, size_t count)
{
    struct entry *entry = entry_of(fd);
    return gone(entry) ? -1 : wrote(entry, fd, NULL, real()->sendfile(fd, file, offset, count));
}

EXPORT ssize_t sendfile64(int fd, int file, off64_t *offset, size_t count)
{
    struct entry *entry = entry_of(fd);
    return gone(entry) ? -1 : wrote(entry, fd, NULL, real()->sendfile64(fd, file, offset, count));
}

/* The bytes go through a pipe: from a client's connection, or to one. */
EXPORT ssize_t splice(int from, off64_t *from_offset, int to, off64_t *to_offset, size_t count, unsigned flags)
{
    struct entry *source = client_of(from), *target = entry_of(to);
    if (gone(target))
        return -1;
    const bool freely = !source || cc_exchange_reading(&source->exchange) == READS_ALL;
    if (source && (source->taken || (!freely && !cc_exchange_body_left(&source->exchange)))) {
        /* What is not surely of a body has to be looked at; the caller falls back to reading. */
        errno = EINVAL;
        return -1;
    }
    if (!freely && cc_exchange_body_left(&source->exchange) < count)
        count = (size_t)cc_exchange_body_left(&source->exchange);
    const ssize_t moved = real()->splice(from, from_offset, to, to_offset, count, flags);
    if (moved > 0 && source)
        client_moved(source, from, READ, NULL, (size_t)moved);
    return wrote(target, to, NULL, moved);
}
