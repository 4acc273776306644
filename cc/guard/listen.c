/*
 * Listening, and accepting: a listening socket becomes the end of a channel on which the gate sends connections.
 *
 * Runs in: a guarded server. Sees: bundles of the gate. Never: leaves the server without a socket to listen on: where
 * the guard cannot be reached, it keeps its own.
 *
 * The channel is a descriptor like any other: it is readable when a connection waits, and goes through fork, dup and
 * exec. Its end is bound to an abstract address that holds the TCP address it stands for; a program that inherited it
 * through exec(2) knows it again by that.
 */
#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/un.h>

#define LISTEN_VARIABLE "BULKHEAD_GUARD_LISTEN"

/* LIMIT: this near to the limit of descriptors, room for one is made sure of before one is received: the kernel drops
 * a descriptor for which there is no room, and with it somebody's request. */
enum { ROOM = 32 };

static const char MARK[] = "\0bulkhead-guard:";
enum { MARK_SIZE = sizeof MARK - 1, CHANCE = 8 };

static bool is_tcp(int fd)
{
    int domain = 0, type = 0, protocol = 0;
    socklen_t size = sizeof(int);
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && (domain == AF_INET || domain == AF_INET6) &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM &&
           getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 &&
           (protocol == IPPROTO_TCP || protocol == IPPROTO_MPTCP);
}

static uint64_t listener_number(void)
{
    static _Atomic uint32_t count;
    return (uint64_t)getpid() << 32 | ++count;
}

static void mark(int channel, const struct address *local)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    memcpy(name.sun_path, MARK, MARK_SIZE);
    if (getrandom(name.sun_path + MARK_SIZE, CHANCE, GRND_NONBLOCK) != CHANCE)
        return;
    memcpy(name.sun_path + MARK_SIZE + CHANCE, &local->is, sizeof local->is);
    const size_t size = offsetof(struct sockaddr_un, sun_path) + MARK_SIZE + CHANCE + sizeof local->is;
    /* Without a name it works all the same, but not after exec(2). */
    (void)bind(channel, (struct sockaddr *)&name, (socklen_t)size);
}

struct entry *listener_known_again(int fd)
{
    struct sockaddr_un name;
    socklen_t size = sizeof name;
    if (guard_control < 0 || guard_inside || fd < 0 || fd >= DESCRIPTORS_MAX)
        return NULL;
    const int error = errno, found = real()->getsockname(fd, (struct sockaddr *)&name, &size);
    errno = error;
    struct address local;
    if (found < 0 || size != offsetof(struct sockaddr_un, sun_path) + MARK_SIZE + CHANCE + sizeof local.is ||
        name.sun_family != AF_UNIX || memcmp(name.sun_path, MARK, MARK_SIZE) != 0)
        return NULL;
    memcpy(&local.is, name.sun_path + MARK_SIZE + CHANCE, sizeof local.is);
    local.length = local.is.any.sa_family == AF_INET ? sizeof local.is.v4 : sizeof local.is.v6;
    struct entry *entry = table_new(LISTENER);
    if (entry) {
        entry->local = local;
        table_put(fd, entry);
    }
    return entry;
}

EXPORT int bind(int fd, __CONST_SOCKADDR_ARG address, socklen_t size)
{
    const struct sockaddr *asked = address.__sockaddr__;
    struct address local = {.length = size};
    if (guard_control < 0 || guard_inside || !getenv(LISTEN_VARIABLE) || !asked || size > sizeof local.is ||
        size < sizeof local.is.v4 || fd < 0 || fd >= DESCRIPTORS_MAX)
        return real()->bind(fd, address, size);
    memcpy(&local.is, asked, size);
    guard_inside++;
    const bool ours = is_tcp(fd) && local.is.v4.sin_port != 0 && !table_entries[fd];
    guard_inside--;
    if (!ours)
        return real()->bind(fd, address, size);
    /* The guard listens; this one's port is for nobody. */
    struct address hidden = {.length = size};
    hidden.is.any.sa_family = asked->sa_family;
    if (asked->sa_family == AF_INET)
        hidden.is.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        hidden.is.v6.sin6_addr = in6addr_loopback;
    struct entry *entry = table_new(BOUND);
    const int result = real()->bind(fd, (struct sockaddr *)&hidden.is, size);
    if (entry && result == 0) {
        entry->local = local;
        table_put(fd, entry);
    } else if (entry) {
        table_discard(entry);
    }
    return result;
}

/* Puts the channel in the place of the socket `fd`, which listens at `local`. */
static bool become_listener(int fd, const struct address *local, bool hidden)
{
    struct entry *entry = table_new(LISTENER);
    /* Before the gate has the socket: it makes it one that does not block. */
    const int status = fcntl(fd, F_GETFL), on_exec = fcntl(fd, F_GETFD);
    const int channel = entry ? cc_core_adopt(guard_control, hidden ? -1 : fd, listener_number()) : -1;
    if (channel >= 0) {
        mark(channel, local);
        fcntl(channel, F_SETFL, status & O_NONBLOCK);
    }
    const bool done = channel >= 0 && dup3(channel, fd, on_exec & FD_CLOEXEC ? O_CLOEXEC : 0) >= 0;
    if (channel >= 0)
        close(channel);
    if (done) {
        entry->local = *local;
        table_put(fd, entry);
        return true;
    }
    fcntl(fd, F_SETFL, status);
    if (entry)
        table_discard(entry);
    return false;
}

EXPORT int listen(int fd, int backlog)
{
    struct entry *entry = entry_of(fd);
    if (!entry && guard_control >= 0 && !guard_inside)
        entry = listener_known_again(fd);
    if (entry && entry->kind == LISTENER)
        return 0;
    const int result = real()->listen(fd, backlog);
    if (result < 0 || guard_control < 0 || guard_inside || fd >= DESCRIPTORS_MAX)
        return result;
    struct address local = {.length = sizeof local.is};
    const bool hidden = entry && entry->kind == BOUND;
    if (hidden) {
        local = entry->local;
        table_take(fd);
    }
    guard_inside++;
    const bool ours = is_tcp(fd) && (hidden || getsockname(fd, &local.is.any, &local.length) == 0);
    if (ours && !become_listener(fd, &local, hidden))
        guard_say("the guard cannot be reached; this program listens itself, unguarded");
    guard_inside--;
    return 0;
}

/* The gate has ended. A channel that has ended is readable for ever; what takes its place never is, so that the server
 * rests until it is told to end. The other end stays open, and is nobody's. False, and errno: there is no room for it. */
static bool rest(struct entry *entry, int fd)
{
    int ends[2];
    const int status = fcntl(fd, F_GETFL), on_exec = fcntl(fd, F_GETFD);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return false;
    guard_say("the gate has ended; no connection will come any more");
    fcntl(ends[0], F_SETFL, status & O_NONBLOCK);
    pthread_mutex_lock(&entry->lock);
    watch_leave(entry);
    dup3(ends[0], fd, on_exec & FD_CLOEXEC ? O_CLOEXEC : 0);
    watch_return(entry);
    pthread_mutex_unlock(&entry->lock);
    close(ends[0]);
    if (fcntl(ends[1], F_DUPFD_CLOEXEC, CC_DESCRIPTOR_MIN) >= 0)
        close(ends[1]);
    return true;
}

static _Atomic int last_descriptor;

/* False: EMFILE. */
static bool has_room(int fd)
{
    static _Atomic rlim_t limit;
    struct rlimit now;
    if ((rlim_t)last_descriptor + ROOM < limit)
        return true;
    if (getrlimit(RLIMIT_NOFILE, &now) == 0)
        limit = now.rlim_cur;
    const int probe = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (probe < 0)
        return false;
    close(probe);
    last_descriptor = probe;
    return true;
}

/* The form in which a socket of the listener's family would say it. */
static struct address as_seen(const struct sockaddr_storage *address, socklen_t size, const struct entry *listener)
{
    struct address seen = {.length = size};
    memcpy(&seen.is, address, size);
    if (address->ss_family == AF_INET && listener->local.is.any.sa_family == AF_INET6) {
        const struct sockaddr_in v4 = seen.is.v4;
        memset(&seen.is.v6, 0, sizeof seen.is.v6);
        seen.length = sizeof seen.is.v6;
        seen.is.v6.sin6_family = AF_INET6;
        seen.is.v6.sin6_port = v4.sin_port;
        memset(&seen.is.v6.sin6_addr.s6_addr[10], 0xff, 2);
        memcpy(&seen.is.v6.sin6_addr.s6_addr[12], &v4.sin_addr, 4);
    }
    return seen;
}

/* The next connection from the channel, or -1. `entry` is without one, and `bundle` has room for taken bytes. */
static int receive(struct entry *listener, int fd, struct cc_bundle *bundle, int flags)
{
    for (;;) {
        if (!has_room(fd))
            return -1;
        /* A signal may interrupt this, and its handler may close what it likes. */
        guard_inside--;
        const int got = cc_core_receive(fd, bundle, flags & SOCK_CLOEXEC ? MSG_CMSG_CLOEXEC : 0);
        guard_inside++;
        if (got > 0)
            return bundle->fd;
        if (got == 0 ? !rest(listener, fd) : errno != EBADMSG)
            return -1;
    }
}

static void begin_client(struct entry *client, const struct entry *listener, struct cc_bundle *bundle)
{
    socklen_t size = sizeof client->cookie;
    client->id = bundle->id;
    client->peer = as_seen(&bundle->peer, bundle->peerlen, listener);
    client->local = as_seen(&bundle->local, bundle->locallen, listener);
    if (getsockopt(bundle->fd, SOL_SOCKET, SO_COOKIE, &client->cookie, &size) < 0)
        client->exchange.lost = true;
    /* One that stays is not followed, and may read what it likes. */
    client->exchange.free = !guard_persists;
    if (bundle->taken) {
        client->taken_size = bundle->taken;
        client->taken = bundle->bytes;
        bundle->bytes = NULL;
        table_set_pending(client, true);
    }
    client->announced = channel_took(client);
    last_descriptor = bundle->fd;
}

static int accept_client(struct entry *listener, int fd, struct sockaddr *address, socklen_t *size, int flags)
{
    struct entry *client = table_new(CLIENT);
    struct cc_bundle bundle = {.bytes = client ? table_buffer() : NULL};
    int result = -1;
    if (!client || !bundle.bytes)
        errno = ENOMEM;
    else
        result = receive(listener, fd, &bundle, flags);
    if (result >= 0) {
        /* The gate's end does not block, which a filter may have changed; the server decides for itself. */
        if (guard_filters || !(flags & SOCK_NONBLOCK))
            fcntl(result, F_SETFL, flags & SOCK_NONBLOCK ? O_NONBLOCK : 0);
        begin_client(client, listener, &bundle);
        if (address && size) {
            memcpy(address, &client->peer.is, *size < client->peer.length ? *size : client->peer.length);
            *size = client->peer.length;
        }
        if (result < DESCRIPTORS_MAX) {
            /* Whatever had this number was closed in a way that nobody saw. */
            const struct ended stale = table_take(result);
            if (stale.tell)
                channel_done(stale.id);
            table_put(result, client);
            client = NULL;
        }
    }
    const int error = errno;
    if (client)
        table_discard(client);
    if (bundle.bytes)
        table_buffer_back(bundle.bytes);
    errno = error;
    return result;
}

EXPORT int accept4(int fd, __SOCKADDR_ARG address, socklen_t *size, int flags)
{
    struct entry *entry = entry_of(fd);
    if (!entry || entry->kind != LISTENER) {
        const int result = real()->accept4(fd, address, size, flags);
        if (result >= 0 || errno != EINVAL || !(entry = listener_known_again(fd)))
            return result;
    }
    guard_forked();
    guard_inside++;
    const int result = accept_client(entry, fd, address.__sockaddr__, size, flags);
    guard_inside--;
    return result;
}

EXPORT int accept(int fd, __SOCKADDR_ARG address, socklen_t *size)
{
    return accept4(fd, address, size, 0);
}
