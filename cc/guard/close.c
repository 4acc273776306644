/*
 * Descriptors and connections that end, and that are made from others.
 *
 * Runs in: a guarded server. Sees: nothing of the network. Never: lets the server close the library's own descriptors,
 * which it does not know of: programs close "all others" when they start, and before they start another.
 */
#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>

static bool is_ours(int fd)
{
    return fd >= 0 && !guard_inside && guard_control >= 0 && (fd == guard_control || fd == channel_descriptor());
}

static void tell(struct ended ended)
{
    if (ended.tell)
        channel_done(ended.id);
}

EXPORT int close(int fd)
{
    keep_forget_set(guard_inside ? -1 : fd);
    if (is_ours(fd)) {
        errno = EBADF;
        return -1;
    }
    if (!entry_of(fd) || !guard_mine())
        return real()->close(fd);
    keep_leave(fd);
    /* First out of the table: once it is closed, another thread may be given its number. */
    const struct ended ended = table_take(fd);
    const int result = real()->close(fd);
    tell(ended);
    return result;
}

EXPORT int fclose(FILE *stream)
{
    const int fd = stream ? fileno(stream) : -1;
    if (!entry_of(fd) || !guard_mine())
        return real()->fclose(stream);
    const struct ended ended = table_take(fd);
    const int result = real()->fclose(stream);
    tell(ended);
    return result;
}

/* All but the library's own, of which there are two. */
static int close_others(unsigned first, unsigned last, int flags)
{
    unsigned kept[2] = {(unsigned)guard_control, (unsigned)channel_descriptor()};
    if (kept[0] > kept[1])
        kept[0] = kept[1], kept[1] = (unsigned)guard_control;
    int result = 0;
    for (int i = 0; i < 2; i++) {
        if (kept[i] < first || kept[i] > last)
            continue;
        if (kept[i] > first)
            result |= real()->close_range(first, kept[i] - 1, flags);
        if (kept[i] == UINT_MAX || kept[i] == last)
            return result;
        first = kept[i] + 1;
    }
    return result | real()->close_range(first, last, flags);
}

EXPORT int close_range(unsigned first, unsigned last, int flags)
{
    if (guard_control < 0 || guard_inside || first > last)
        return real()->close_range(first, last, flags);
    keep_forget_range(first, last);
    const unsigned top = (unsigned)table_top;
    /* With CLOSE_RANGE_UNSHARE, this thread's descriptors are its own, and the other threads go on with theirs. */
    if (!flags && guard_mine())
        for (unsigned fd = first; fd <= top && fd <= last; fd++)
            if (entry_of((int)fd))
                close((int)fd);
    return close_others(first, last, flags);
}

EXPORT void closefrom(int lowest)
{
    const int error = errno;
    close_range(lowest < 0 ? 0 : (unsigned)lowest, UINT_MAX, 0);
    errno = error;
}

/* `to` has become another name of `from`, or of none; what the table knows of that number was closed unseen. */
static int shared(int from, int to)
{
    if (to < 0 || to == from || (!entry_of(from) && !entry_of(to)) || !guard_mine())
        return to;
    const struct ended stale = table_take(to);
    table_share(from, to);
    tell(stale);
    return to;
}

EXPORT int dup(int fd)
{
    return shared(fd, real()->dup(fd));
}

/* Before a descriptor is written over; true if that must not happen. */
static bool written_over(int from, int to, struct ended *ended)
{
    ended->tell = false;
    if (is_ours(to)) {
        errno = EBUSY;
        return true;
    }
    if (from != to)
        keep_forget_set(guard_inside ? -1 : to);
    if (from != to && entry_of(to) && guard_mine()) {
        keep_leave(to);
        *ended = table_take(to);
    }
    return false;
}

EXPORT int dup2(int from, int to)
{
    struct ended ended;
    if (written_over(from, to, &ended))
        return -1;
    const int result = shared(from, real()->dup2(from, to));
    tell(ended);
    return result;
}

EXPORT int dup3(int from, int to, int flags)
{
    struct ended ended;
    if (written_over(from, to, &ended))
        return -1;
    const int result = shared(from, real()->dup3(from, to, flags));
    tell(ended);
    return result;
}

EXPORT int fcntl(int fd, int command, ...)
{
    va_list more;
    va_start(more, command);
    void *argument = va_arg(more, void *);
    va_end(more);
    const int result = real()->fcntl(fd, command, argument);
    return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? shared(fd, result) : result;
}

EXPORT int fcntl64(int fd, int command, ...)
{
    va_list more;
    va_start(more, command);
    void *argument = va_arg(more, void *);
    va_end(more);
    const int result = real()->fcntl64(fd, command, argument);
    return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? shared(fd, result) : result;
}

/* The client of a connection that is kept has not heard that anything ends. */
EXPORT int shutdown(int fd, int how)
{
    keep_leave(fd);
    return real()->shutdown(fd, how);
}
