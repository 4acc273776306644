/* A channel to another process: messages over a SOCK_SEQPACKET socket, with a descriptor that comes along.
 *
 * Runs in: a service. Sees: what the peer sends, which codec.c decodes. Never: leaves a descriptor open that nobody has asked
 * for. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

/* One more than the longest message, so that a longer one shows. */
static uint8_t received[MESSAGE_MAX + 1];
static uint8_t sent[MESSAGE_MAX];

void close_descriptor(int *descriptor)
{
    if (*descriptor >= 0)
        close(*descriptor);
    *descriptor = -1;
}

bool channel_is(int descriptor)
{
    int type;
    socklen_t length = sizeof type;
    if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_SEQPACKET)
        return false;
    return fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0;
}

bool pipe_is(int descriptor)
{
    const int flags = fcntl(descriptor, F_GETFL);
    return flags >= 0 && (flags & O_ACCMODE) == O_WRONLY && (flags & O_DIRECT) != 0 &&
           fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0;
}

/* The only descriptor that came along. -1: none. -2: more than one, which are closed. */
static int descriptor_of(struct msghdr *head)
{
    int found = -1, count = 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(head); part != NULL; part = CMSG_NXTHDR(head, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        const size_t bytes = part->cmsg_len - CMSG_LEN(0);
        for (size_t at = 0; at + sizeof found <= bytes; at += sizeof found, count++) {
            if (count > 0)
                close(found);
            memcpy(&found, CMSG_DATA(part) + at, sizeof found);
        }
    }
    if (count > 1)
        close(found);
    return count > 1 ? -2 : found;
}

enum arrival channel_receive(int channel, const struct edge *edge, struct message *message)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(BUNDLES_MAX * sizeof(int))];
    } control;
    struct iovec part = {received, sizeof received};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    const ssize_t size = recvmsg(channel, &head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0)
        return errno == EAGAIN || errno == EINTR ? NOTHING_YET : CHANNEL_END;
    message->descriptor = descriptor_of(&head);
    if (size == 0 && message->descriptor == -1)
        return CHANNEL_END;
    const bool is_cut = (head.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
    message->number = is_cut ? -1 : message_decode(edge, received, (size_t)size, message->fields);
    if (message->number >= 0 && message->descriptor != -2)
        return ARRIVED;
    close_descriptor(&message->descriptor);
    return NO_MESSAGE;
}

enum sending channel_send(int channel, const struct edge *edge, int number, const struct field *fields)
{
    const size_t size = message_encode(edge, number, fields, sent, sizeof sent);
    if (size == 0)
        return PEER_GONE;
    if (send(channel, sent, size, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
        return SENT;
    return errno == EAGAIN || errno == EINTR || errno == ENOBUFS ? NO_ROOM : PEER_GONE;
}

/* A pipe has no flag against the signal. It waits in this thread if it came, and is taken away. */
static ssize_t write_quietly(int pipe, const void *bytes, size_t size)
{
    sigset_t broken, before, waiting;
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    sigpending(&waiting);
    pthread_sigmask(SIG_BLOCK, &broken, &before);
    const ssize_t written = write(pipe, bytes, size);
    const int error = errno;
    if (written < 0 && error == EPIPE && !sigismember(&waiting, SIGPIPE))
        sigtimedwait(&broken, NULL, &(struct timespec){0, 0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return written;
}

enum sending pipe_send(int pipe, const struct edge *edge, int number, const struct field *fields)
{
    const size_t size = message_encode(edge, number, fields, sent, sizeof sent);
    if (size == 0)
        return PEER_GONE;
    if (write_quietly(pipe, sent, size) >= 0)
        return SENT;
    return errno == EAGAIN || errno == EINTR ? NO_ROOM : PEER_GONE;
}
