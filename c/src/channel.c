/* A channel to another process: messages over a SOCK_SEQPACKET socket, with a descriptor that comes along.
 *
 * Runs in: a service. Sees: what the peer sends, which codec.c decodes. Never: closes a descriptor that nobody has asked for, which
 * takes as long as its sender likes. It stays open until the process ends, which waits for nothing, and its channel is broken off. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

enum {
    KERNEL_MAX = 253, /* Descriptors of a message (SCM_MAX_FD): what finds no room, the kernel closes while this process waits. */
    PASS_RIGHTS = 83, /* SO_PASSRIGHTS, unix(7), from Linux 6.16 on. */
    PIECE = 16 << 10,
    PIECES = 256, /* LIMIT: 4 MiB may wait in a connection when it comes: far more than the kernel's default. */
};

/* One more than the longest message, so that a longer one shows. */
static uint8_t received[MESSAGE_MAX + 1];
static uint8_t sent[MESSAGE_MAX];

void close_descriptor(int *descriptor)
{
    if (*descriptor >= 0)
        close(*descriptor);
    *descriptor = -1;
}

void channel_break_off(int *channel)
{
    shutdown(*channel, SHUT_RDWR);
    *channel = -1;
}

static int option(int socket, int name)
{
    int value = -1;
    socklen_t length = sizeof value;
    return getsockopt(socket, SOL_SOCKET, name, &value, &length) == 0 ? value : -errno;
}

/* Whether no descriptor waits in a Unix stream. */
static bool brings_none(int stream)
{
    static uint8_t scratch[PIECE];
    struct iovec pieces[PIECES];
    int waiting;
    if (ioctl(stream, FIONREAD, &waiting) != 0 || waiting > PIECE * PIECES)
        return false;
    for (size_t i = 0; i < PIECES; i++)
        pieces[i] = (struct iovec){scratch, sizeof scratch};
    /* Without room for descriptors, a flag says that there are some. */
    struct msghdr head = {.msg_iov = pieces, .msg_iovlen = PIECES};
    return waiting == 0 || (recvmsg(stream, &head, MSG_PEEK | MSG_DONTWAIT) >= waiting && (head.msg_flags & MSG_CTRUNC) == 0);
}

bool connection_is(int descriptor)
{
    struct linger linger;
    socklen_t length = sizeof linger;
    if (option(descriptor, SO_TYPE) != SOCK_STREAM || getsockopt(descriptor, SOL_SOCKET, SO_LINGER, &linger, &length) != 0 || linger.l_onoff != 0)
        return false;
    const int takes = option(descriptor, PASS_RIGHTS);
    return option(descriptor, SO_DOMAIN) == AF_UNIX && (takes == 0 || takes == -ENOPROTOOPT) && brings_none(descriptor);
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

/* The only descriptor that came along. -1: none. -2: more than one. */
static int descriptor_of(struct msghdr *head)
{
    int found = -1, count = 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(head); part != NULL; part = CMSG_NXTHDR(head, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        const size_t bytes = part->cmsg_len - CMSG_LEN(0);
        for (size_t at = 0; at + sizeof found <= bytes; at += sizeof found, count++)
            memcpy(&found, CMSG_DATA(part) + at, sizeof found);
    }
    return count > 1 ? -2 : found;
}

enum arrival channel_receive(int channel, const struct edge *edge, struct message *message)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(KERNEL_MAX * sizeof(int))];
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
