/*
 * Addresses and options of what is a Unix socket now, and was or believes to be a TCP socket.
 *
 * Runs in: a guarded server. Sees: nothing of the network. Never: answers for a descriptor that is not guarded.
 */
#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <string.h>

static int give(const struct address *known, struct sockaddr *address, socklen_t *size)
{
    if (!address || !size) {
        errno = EFAULT;
        return -1;
    }
    memcpy(address, &known->is, *size < known->length ? *size : known->length);
    *size = known->length;
    return 0;
}

EXPORT int getsockname(int fd, __SOCKADDR_ARG address, socklen_t *size)
{
    struct entry *entry = entry_of(fd);
    if (!entry) {
        const int result = real()->getsockname(fd, address, size);
        if (result < 0 || !address.__sockaddr__ || address.__sockaddr__->sa_family != AF_UNIX)
            return result;
        entry = listener_known_again(fd);
        if (!entry)
            return result;
    }
    return give(&entry->local, address.__sockaddr__, size);
}

EXPORT int getpeername(int fd, __SOCKADDR_ARG address, socklen_t *size)
{
    struct entry *entry = entry_of(fd);
    if (!entry || entry->kind == BOUND)
        return real()->getpeername(fd, address, size);
    if (entry->kind == LISTENER) {
        errno = ENOTCONN;
        return -1;
    }
    return give(&entry->peer, address.__sockaddr__, size);
}

static bool shows_kind(int level, int option)
{
    return level == SOL_SOCKET &&
           (option == SO_TYPE || option == SO_DOMAIN || option == SO_PROTOCOL || option == SO_ACCEPTCONN);
}

/* Those that would show a Unix socket. -1: the kernel may answer. */
static int replaced_option(const struct entry *entry, int option)
{
    switch (option) {
    case SO_TYPE: return SOCK_STREAM;
    case SO_DOMAIN: return entry->local.is.any.sa_family;
    case SO_PROTOCOL: return IPPROTO_TCP;
    case SO_ACCEPTCONN: return entry->kind == LISTENER;
    default: return -1;
    }
}

static int give_number(int number, void *value, socklen_t *size)
{
    if (!value || !size) {
        errno = EFAULT;
        return -1;
    }
    memset(value, 0, *size);
    if (*size > sizeof number)
        *size = sizeof number;
    memcpy(value, &number, *size);
    return 0;
}

EXPORT int getsockopt(int fd, int level, int option, void *restrict value, socklen_t *restrict size)
{
    struct entry *entry = entry_of(fd);
    if (!entry && shows_kind(level, option))
        entry = listener_known_again(fd);
    if (!entry || entry->kind == CLIENT || entry->kind == BOUND)
        return real()->getsockopt(fd, level, option, value, size);
    if (level != SOL_SOCKET)
        return give_number(0, value, size);
    const int number = replaced_option(entry, option);
    return number >= 0 ? give_number(number, value, size) : real()->getsockopt(fd, level, option, value, size);
}

EXPORT int setsockopt(int fd, int level, int option, const void *value, socklen_t size)
{
    struct entry *entry = entry_of(fd);
    /* The next owner of a connection closes it in another way. */
    if (level == SOL_SOCKET && option == SO_LINGER)
        keep_leave(fd);
    const int error = errno, result = real()->setsockopt(fd, level, option, value, size);
    if (entry && (entry->kind == LISTENER || entry->kind == GONE)) {
        errno = error;
        return 0;
    }
    if (entry && result == 0 && level == IPPROTO_TCP && option == TCP_CORK && size >= sizeof(int))
        entry->corked = *(const int *)value != 0;
    return result;
}

EXPORT int ioctl(int fd, unsigned long request, ...)
{
    va_list more;
    va_start(more, request);
    void *argument = va_arg(more, void *);
    va_end(more);
    const int result = real()->ioctl(fd, request, argument);
    struct entry *entry = request == FIONREAD && result == 0 ? client_of(fd) : NULL;
    if (entry && entry->taken)
        *(int *)argument += (int)(entry->taken_size - entry->taken_at);
    return result;
}
