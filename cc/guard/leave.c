/*
 * Connections that leave for where nothing can be followed: into a stream of stdio, or to another process.
 *
 * Runs in: a guarded server. Sees: nothing of the network. Never: lets one go whose head a filter has read: who got it
 * would take the client's next request, which no filter has seen, for the first.
 */
#define _GNU_SOURCE
#include "guard.h"

#include <string.h>

/* Without filters, nothing is missing: the connection is only not followed. */
static void ends_here(int fd)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    keep_leave(fd);
    struct entry *entry = guard_filters ? client_of(fd) : NULL;
    if (!entry)
        return;
    guard_inside++;
    pthread_mutex_lock(&entry->lock);
    entry->exchange.free = false;
    entry->exchange.lost = true;
    pthread_mutex_unlock(&entry->lock);
    /* What shutdown(2) leaves to be read is thrown away by this. */
    if (connect(fd, &nobody, sizeof nobody) < 0)
        shutdown(fd, SHUT_RDWR);
    guard_inside--;
    if (!atomic_flag_test_and_set(&said))
        guard_say("with filters, connections that are read by stdio or passed to another process are closed");
}

void leave_in(const struct msghdr *message)
{
    struct msghdr *const whole = (struct msghdr *)message;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(whole); part; part = CMSG_NXTHDR(whole, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = CMSG_LEN(0); at + sizeof(int) <= part->cmsg_len; at += sizeof(int)) {
            int fd;
            memcpy(&fd, (char *)part + at, sizeof fd);
            ends_here(fd);
        }
    }
}

EXPORT FILE *fdopen(int fd, const char *mode)
{
    ends_here(fd);
    return real()->fdopen(fd, mode);
}
