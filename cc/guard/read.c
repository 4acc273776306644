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
#include <limits.h>
#include <string.h>

__attribute__((noreturn)) void __chk_fail(void);

/* LIMIT: what is thrown away at once of what comes to a connection that nobody reads any more. */
enum { WASTE = 65536, WASTE_TIMES = 16 };

/* LIMIT: what is read at once to be thrown away, as with MSG_TRUNC. */
enum { SCRAP = 4096 };

static bool waits(int fd, int flags)
{
    return !(flags & MSG_DONTWAIT) && !(real()->fcntl(fd, F_GETFL) & O_NONBLOCK);
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

static void lose_track(struct entry *entry)
{
    guard_inside++;
    pthread_mutex_lock(&entry->lock);
    entry->exchange.lost = true;
    pthread_mutex_unlock(&entry->lock);
    guard_inside--;
}

/* Whether a server that will read nothing more is to hear that the client has ended. Not one that closes by itself, and
 * may wait for the client to do so first; nor one whose answer is under way, unless the client asks on. */
static bool hears_the_end(const struct exchange *now, bool thrown_away)
{
    return !now->leaves && (thrown_away || !now->waiting || now->in.stage > EMPTY_LINE);
}

/* To a server that has half of a request, an end would be one of the body, to some. */
static ssize_t reset(void)
{
    errno = ECONNRESET;
    return -1;
}

/* What came after the request, and is not in the socket any more; whether there was something. */
static bool throw_away_taken(struct entry *entry)
{
    guard_inside++;
    pthread_mutex_lock(&entry->lock);
    const bool some = entry->kind == CLIENT && entry->taken;
    if (some) {
        watch_narrow(entry);
        client_take_leftover(entry);
    }
    pthread_mutex_unlock(&entry->lock);
    guard_inside--;
    return some;
}

/* Nothing is to be read any more: what comes is thrown away, so that closing the connection makes no reset of the
 * answer. */
static ssize_t read_nothing(struct entry *entry, int fd, int flags)
{
    const struct exchange now = as_it_is(entry);
    const bool wait = waits(fd, flags), half = now.in.stage > EMPTY_LINE || !(now.waiting || now.answered);
    bool thrown_away = throw_away_taken(entry);
    for (int i = 0; i < WASTE_TIMES; i++) {
        const bool ends = hears_the_end(&now, thrown_away);
        const ssize_t got = real()->recv(fd, NULL, WASTE, MSG_TRUNC | (wait && !ends ? 0 : MSG_DONTWAIT));
        if (got < 0 && ends && errno == EAGAIN)
            return half ? reset() : 0;
        if (got <= 0)
            return got;
        thrown_away = true;
    }
    errno = EAGAIN;
    return wait || hears_the_end(&now, true) ? 0 : -1;
}

/* Something may have come while the server is answering. It is for later; there is nothing yet. A server that waits for
 * it, although it has its request, would wait for ever: it hears that there is no more. */
static ssize_t read_later(struct entry *entry, int fd, int flags)
{
    char byte;
    if (waits(fd, flags))
        return 0;
    const ssize_t there = entry->taken ? 1 : real()->recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (there <= 0)
        return there;
    guard_inside++;
    pthread_mutex_lock(&entry->lock);
    entry->hidden = true;
    watch_pause(entry);
    pthread_mutex_unlock(&entry->lock);
    guard_inside--;
    errno = EAGAIN;
    return -1;
}

static bool reads_on(const struct exchange *exchange)
{
    const enum reading reading = cc_exchange_reading(exchange);
    return reading == READS_REQUEST || reading == READS_ALL;
}

/* A server that takes its buffer for a string shall not find the next request in it. */
static void blank_out(const struct iovec *parts, size_t from, size_t to)
{
    for (size_t at = 0; at < to; at += parts->iov_len, parts++) {
        const size_t skip = from > at ? from - at : 0, end = to - at < parts->iov_len ? to - at : parts->iov_len;
        if (skip < end)
            memset((char *)parts->iov_base + skip, 0, end - skip);
    }
}

static size_t whole(const struct iovec *parts, size_t parts_count)
{
    size_t size = 0;
    for (size_t i = 0; i < parts_count; i++)
        size += parts[i].iov_len;
    return size;
}

/* How much of what was looked at belongs to the request. Piece by piece, as the pieces lie. */
static size_t request_part(struct entry *entry, const struct iovec *parts, size_t count)
{
    struct exchange ahead = as_it_is(entry);
    size_t all = 0;
    for (; count; parts++) {
        const size_t part = parts->iov_len < count ? parts->iov_len : count;
        const size_t ours = cc_exchange_request_part(&ahead, parts->iov_base, part);
        all += ours;
        count -= part;
        if (ours < part || !count)
            break;
        cc_exchange_read(&ahead, parts->iov_base, part);
        if (!reads_on(&ahead))
            break;
    }
    return all;
}

/* Keeps the bytes from `from` to `to` for the gate, which gets them with the connection: they come after the request. */
static void keep_rest(struct entry *entry, const struct iovec *parts, size_t from, size_t to)
{
    guard_inside++;
    pthread_mutex_lock(&entry->lock);
    unsigned char *const rest = entry->taken ? NULL : table_buffer();
    entry->exchange.lost |= !rest;
    entry->taken_at = entry->taken_size = 0;
    for (size_t at = 0; rest && at < to; at += parts->iov_len, parts++) {
        const size_t skip = from > at ? from - at : 0, end = to - at < parts->iov_len ? to - at : parts->iov_len;
        if (skip >= end)
            continue;
        memcpy(rest + entry->taken_size, (char *)parts->iov_base + skip, end - skip);
        entry->taken_size += end - skip;
    }
    if (rest)
        entry->taken = rest;
    pthread_mutex_unlock(&entry->lock);
    guard_inside--;
}

/* Reads what is there, of which the server gets what belongs to the request. */
static ssize_t read_request_at_once(struct entry *entry, int fd, struct msghdr *message, int flags)
{
    const ssize_t there = real()->recvmsg(fd, message, flags);
    if (there <= 0)
        return there;
    const size_t part = request_part(entry, message->msg_iov, (size_t)there);
    if (part == (size_t)there)
        return there;
    keep_rest(entry, message->msg_iov, part, (size_t)there);
    blank_out(message->msg_iov, part, (size_t)there);
    if (part)
        return (ssize_t)part;
    lose_track(entry);
    return read_nothing(entry, fd, flags);
}

/* Looks at what is there, and then reads as much as belongs to the request. */
static ssize_t read_request(struct entry *entry, int fd, struct msghdr *message, int flags)
{
    if (!(flags & MSG_PEEK) && whole(message->msg_iov, message->msg_iovlen) <= CC_TAKEN_MAX)
        return read_request_at_once(entry, fd, message, flags);
    const ssize_t there = real()->recvmsg(fd, message, flags | MSG_PEEK);
    if (there <= 0)
        return there;
    const size_t part = request_part(entry, message->msg_iov, (size_t)there);
    if (!part) {
        lose_track(entry);
        return read_nothing(entry, fd, flags);
    }
    blank_out(message->msg_iov, part, (size_t)there);
    /* Read by throwing away: the bytes are where they belong. */
    return flags & MSG_PEEK ? (ssize_t)part : real()->recv(fd, NULL, part, MSG_TRUNC | MSG_DONTWAIT);
}

/* Copies taken bytes into `parts`. Once all are used up, the epoll sets need not know of them any more. */
static ssize_t read_taken(struct entry *entry, const struct iovec *parts, size_t parts_count, bool peek)
{
    size_t count = 0;
    guard_inside++;
    pthread_mutex_lock(&entry->lock);
    const unsigned char *taken = entry->taken;
    size_t at = entry->taken_at, end = at;
    if (taken)
        end += cc_exchange_request_part(&entry->exchange, taken + at, entry->taken_size - at);
    for (size_t i = 0; taken && i < parts_count && at < end; i++) {
        const size_t left = end - at, part = parts[i].iov_len < left ? parts[i].iov_len : left;
        if (part)
            memcpy(parts[i].iov_base, taken + at, part);
        at += part;
        count += part;
    }
    const bool nothing = taken && !count;
    entry->exchange.lost |= nothing;
    if (taken && !peek) {
        entry->taken_at = at;
        if (at == entry->taken_size) {
            watch_narrow(entry);
            client_take_leftover(entry);
        }
    }
    if (entry->taken && (peek || at < end))
        watch_widen(entry);
    pthread_mutex_unlock(&entry->lock);
    guard_inside--;
    return nothing ? reset() : (ssize_t)count;
}

/* Every way to read ends here; `entry` is a client's. */
static ssize_t receive(struct entry *entry, int fd, struct msghdr *message, int flags)
{
    const size_t room = whole(message->msg_iov, message->msg_iovlen);
    if (entry->kept && room && !(flags & (MSG_OOB | MSG_ERRQUEUE)) && keep_read(entry, fd, flags) == KEPT_NOTHING)
        return -1;
    const enum reading reading = cc_exchange_reading(&entry->exchange);
    if (flags & (MSG_OOB | MSG_ERRQUEUE) || !room)
        return real()->recvmsg(fd, message, flags);
    /* A server that is told nothing does not learn of bytes that are kept for it, either. */
    if (entry->taken && reads_on(&entry->exchange)) {
        message->msg_namelen = 0;
        message->msg_controllen = 0;
        message->msg_flags = 0;
        return read_taken(entry, message->msg_iov, message->msg_iovlen, flags & MSG_PEEK);
    }
    switch (reading) {
    case READS_NOTHING:
        return read_nothing(entry, fd, flags);
    case READS_LATER:
        return read_later(entry, fd, flags);
    case READS_REQUEST:
        if (cc_exchange_body_left(&entry->exchange) < room)
            return read_request(entry, fd, message, flags);
        break;
    case READS_ALL:
        break;
    }
    return real()->recvmsg(fd, message, flags);
}

/* What nobody wants to have is read all the same, so that it can be followed. */
static ssize_t receive_to_drop(struct entry *entry, int fd, size_t count, int flags)
{
    unsigned char scrap[SCRAP];
    struct iovec part = {scrap, count < SCRAP ? count : SCRAP};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    const ssize_t got = receive(entry, fd, &message, flags & ~(MSG_TRUNC | MSG_WAITALL));
    if (got > 0 && !(flags & MSG_PEEK))
        client_moved(entry, fd, READ, &part, (size_t)got);
    return got;
}

static ssize_t receive_once(struct entry *entry, int fd, struct msghdr *message, int flags)
{
    if (flags & MSG_TRUNC && cc_exchange_reading(&entry->exchange) != READS_ALL)
        return receive_to_drop(entry, fd, whole(message->msg_iov, message->msg_iovlen), flags);
    const ssize_t got = receive(entry, fd, message, flags);
    if (got > 0 && entry->kind == CLIENT && !(flags & (MSG_PEEK | MSG_ERRQUEUE)))
        client_moved(entry, fd, READ, flags & MSG_TRUNC ? NULL : message->msg_iov, (size_t)got);
    return got;
}

/* With MSG_WAITALL, it is read until all room is filled, or the request has ended. Into one piece only: that is how it is
 * used, and otherwise a server is content with less. */
static ssize_t receive_all(struct entry *entry, int fd, struct msghdr *message, int flags)
{
    struct iovec rest = message->msg_iov[0];
    struct msghdr piece = {.msg_iov = &rest, .msg_iovlen = 1};
    ssize_t all = 0;
    while (rest.iov_len) {
        const ssize_t got = receive_once(entry, fd, &piece, flags & ~MSG_WAITALL);
        if (got <= 0)
            return all ? all : got;
        all += got;
        rest.iov_base = (char *)rest.iov_base + got;
        rest.iov_len -= (size_t)got;
        if (entry->kind != CLIENT || !reads_on(&entry->exchange))
            break;
    }
    message->msg_flags = 0;
    return all;
}

static ssize_t receive_and_follow(struct entry *entry, int fd, struct msghdr *message, int flags)
{
    const bool all = flags & MSG_WAITALL && !(flags & (MSG_PEEK | MSG_OOB | MSG_ERRQUEUE)) && message->msg_iovlen == 1;
    return all ? receive_all(entry, fd, message, flags) : receive_once(entry, fd, message, flags & ~MSG_WAITALL);
}

static ssize_t receive_parts(struct entry *entry, int fd, const struct iovec *parts, size_t count, int flags)
{
    struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = count};
    return receive_and_follow(entry, fd, &message, flags);
}

EXPORT ssize_t read(int fd, void *buffer, size_t count)
{
    struct entry *entry = client_of(fd);
    const struct iovec part = {buffer, count};
    return entry ? receive_parts(entry, fd, &part, 1, 0) : real()->read(fd, buffer, count);
}

EXPORT ssize_t readv(int fd, const struct iovec *parts, int count)
{
    struct entry *entry = count >= 0 && count <= IOV_MAX ? client_of(fd) : NULL;
    return entry ? receive_parts(entry, fd, parts, (size_t)count, 0) : real()->readv(fd, parts, count);
}

EXPORT ssize_t recvfrom(int fd, void *buffer, size_t count, int flags, __SOCKADDR_ARG from, socklen_t *size)
{
    struct entry *entry = client_of(fd);
    const struct iovec part = {buffer, count};
    if (!entry)
        return real()->recvfrom(fd, buffer, count, flags, from, size);
    if (size)
        *size = 0;
    return receive_parts(entry, fd, &part, 1, flags);
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
    return entry ? receive_and_follow(entry, fd, message, flags) : real()->recvmsg(fd, message, flags);
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
