/*
 * The bundle protocol in C; see cc_core.h.
 *
 * Runs in: a guarded server, a filter process. Sees: messages of a more trusted peer. Never: trusts a length.
 */
#define _GNU_SOURCE
#include "cc_core.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

enum { VERSION = 1 };
enum { CONNECTION = 1 };                              /* ToWorker */
enum { TOOK = 1, DONE = 2, BACK = 3, KEEPS = 4, SERVED = 5, BATCH = 6 }; /* FromGuarded */
enum { KEEP = 1 };                                    /* ToGuarded */
enum { LISTENING = 1, ACCEPTING = 2, PROCESS = 3 };   /* ToGuard */
enum { ADDRESS = 18, HEAD = 2 + 8 + 2 * ADDRESS + 1 + 4 };

/* LIMIT: how long a server's thread waits for a gate that does not read what it is told, in seconds. */
enum { PATIENCE = 2 };

static unsigned char *put_number(unsigned char *at, uint64_t value, int size)
{
    for (int i = 0; i < size; i++)
        *at++ = (unsigned char)(value >> (8 * i));
    return at;
}

static uint64_t number(const unsigned char *at, int size)
{
    uint64_t value = 0;
    while (size-- > 0)
        value = value << 8 | at[size];
    return value;
}

static const unsigned char MAPPED[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

static unsigned char *put_address(unsigned char *at, const struct sockaddr_storage *address)
{
    in_port_t port = 0;
    memset(at, 0, 16);
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)address;
        memcpy(at, MAPPED, sizeof MAPPED);
        memcpy(at + 12, &v4->sin_addr, 4);
        port = v4->sin_port;
    } else if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const void *)address;
        memcpy(at, &v6->sin6_addr, 16);
        port = v6->sin6_port;
    }
    return put_number(at + 16, ntohs(port), 2);
}

static socklen_t address(const unsigned char *at, struct sockaddr_storage *out)
{
    in_port_t port = htons((uint16_t)number(at + 16, 2));
    memset(out, 0, sizeof *out);
    if (memcmp(at, MAPPED, sizeof MAPPED) == 0) {
        struct sockaddr_in *v4 = (void *)out;
        v4->sin_family = AF_INET;
        v4->sin_port = port;
        memcpy(&v4->sin_addr, at + 12, 4);
        return sizeof *v4;
    }
    struct sockaddr_in6 *v6 = (void *)out;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = port;
    memcpy(&v6->sin6_addr, at, 16);
    return sizeof *v6;
}

/* Sends one message: its fixed part, bytes after it, and a descriptor unless it is -1. */
static int put(int channel, const unsigned char *head, size_t length, const void *rest, size_t count, int fd)
{
    union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control;
    struct iovec parts[2] = {{(void *)head, length}, {(void *)rest, count}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count ? 2 : 1};
    if (fd >= 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = &control;
        message.msg_controllen = sizeof control.room;
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    }
    ssize_t sent;
    do
        sent = sendmsg(channel, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -1 : 0;
}

/* The one descriptor that came with a message, or -1. SECURITY: there is room for exactly one (CMSG_SPACE would be room
 * for two), so the kernel closes any others, and says so by MSG_CTRUNC. */
static int descriptor(struct msghdr *message)
{
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS && part->cmsg_len == CMSG_LEN(sizeof(int))) {
            int fd;
            memcpy(&fd, CMSG_DATA(part), sizeof fd);
            return fd;
        }
    }
    return -1;
}

static int refuse(struct cc_bundle *bundle, int error)
{
    if (bundle->fd >= 0)
        close(bundle->fd);
    bundle->fd = -1;
    errno = error;
    return -1;
}

int cc_core_receive(int channel, struct cc_bundle *bundle, int flags)
{
    union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control;
    unsigned char head[HEAD];
    struct iovec parts[2] = {{head, HEAD}, {bundle->bytes, CC_TAKEN_MAX}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = bundle->bytes ? 2 : 1,
                             .msg_control = &control, .msg_controllen = CMSG_LEN(sizeof(int))};
    bundle->fd = -1;
    ssize_t count = recvmsg(channel, &message, flags);
    if (count <= 0)
        return (int)count;
    bundle->fd = descriptor(&message);
    if (count < HEAD || head[0] != VERSION || head[1] != CONNECTION || head[46] > 1)
        return refuse(bundle, EBADMSG);
    bundle->id = number(head + 2, 8);
    bundle->peerlen = address(head + 10, &bundle->peer);
    bundle->locallen = address(head + 10 + ADDRESS, &bundle->local);
    bundle->relayed = head[46];
    bundle->taken = number(head + 47, 4);
    if (bundle->taken && !bundle->bytes)
        return refuse(bundle, EMSGSIZE);
    if (bundle->fd < 0 || message.msg_flags & (MSG_TRUNC | MSG_CTRUNC) || bundle->taken != (size_t)count - HEAD)
        return refuse(bundle, EBADMSG);
    return 1;
}

int cc_core_send(int channel, const struct cc_bundle *bundle, const void *taken, size_t len)
{
    unsigned char head[HEAD] = {VERSION, CONNECTION};
    if (len > CC_TAKEN_MAX) {
        errno = EMSGSIZE;
        return -1;
    }
    unsigned char *at = put_number(head + 2, bundle->id, 8);
    at = put_address(at, &bundle->peer);
    at = put_address(at, &bundle->local);
    *at++ = bundle->relayed != 0;
    put_number(at, len, 4);
    return put(channel, head, HEAD, taken, len, bundle->fd);
}

/* Whether `fd` is an end of a pair of SOCK_SEQPACKET sockets. */
static int is_channel(int fd)
{
    int domain = 0, type = 0;
    socklen_t size = sizeof(int);
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}

int cc_core_control(void)
{
    const char *text = getenv(CC_CONTROL_VARIABLE);
    if (!text || !*text)
        return -1;
    char *end;
    long fd = strtol(text, &end, 10);
    return *end == '\0' && fd >= 0 && fd < INT32_MAX && is_channel((int)fd) ? (int)fd : -1;
}

/* Makes a channel, sends one end of it with the message `head`, and returns the other. */
static int channel_for(int control, const unsigned char *head, size_t length)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -1;
    int sent = put(control, head, length, NULL, 0, ends[1]), error = errno;
    close(ends[1]);
    if (sent == 0)
        return ends[0];
    close(ends[0]);
    errno = error;
    return -1;
}

int cc_core_adopt(int control, int listening_fd, uint64_t which)
{
    unsigned char head[10] = {VERSION, LISTENING};
    put_number(head + 2, which, 8);
    if (listening_fd >= 0 && put(control, head, sizeof head, NULL, 0, listening_fd) < 0)
        return -1;
    head[1] = ACCEPTING;
    return channel_for(control, head, sizeof head);
}

int cc_core_process(int control)
{
    const unsigned char head[2] = {VERSION, PROCESS};
    int low = channel_for(control, head, sizeof head);
    if (low < 0)
        return -1;
    const struct timeval patience = {.tv_sec = PATIENCE};
    setsockopt(low, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    int high = fcntl(low, F_DUPFD_CLOEXEC, CC_DESCRIPTOR_MIN);
    if (high < 0)
        return low;
    close(low);
    return high;
}

int cc_core_took(int process_channel, const struct cc_bundle *bundle)
{
    unsigned char head[10 + ADDRESS] = {VERSION, TOOK};
    put_address(put_number(head + 2, bundle->id, 8), &bundle->peer);
    return put(process_channel, head, sizeof head, NULL, 0, -1);
}

int cc_core_done(int process_channel, uint64_t id)
{
    unsigned char head[10] = {VERSION, DONE};
    put_number(head + 2, id, 8);
    return put(process_channel, head, sizeof head, NULL, 0, -1);
}

int cc_core_back(int process_channel, uint64_t id, int fd, const void *taken, size_t len)
{
    unsigned char head[14] = {VERSION, BACK};
    if (len > CC_TAKEN_MAX) {
        errno = EMSGSIZE;
        return -1;
    }
    put_number(put_number(head + 2, id, 8), len, 4);
    return put(process_channel, head, sizeof head, taken, len, fd);
}

int cc_core_keeps(int process_channel)
{
    const unsigned char head[2] = {VERSION, KEEPS};
    return put(process_channel, head, sizeof head, NULL, 0, -1);
}

int cc_core_served(int process_channel, uint32_t requests)
{
    unsigned char head[6] = {VERSION, SERVED};
    put_number(head + 2, requests, 4);
    return put(process_channel, head, sizeof head, NULL, 0, -1);
}

int cc_core_batch(int process_channel, const uint64_t *took, size_t took_count, const uint64_t *done, size_t done_count)
{
    unsigned char head[2 + 2 * (2 + 8 * CC_BATCH_MAX)] = {VERSION, BATCH};
    if (took_count > CC_BATCH_MAX || done_count > CC_BATCH_MAX) {
        errno = EMSGSIZE;
        return -1;
    }
    unsigned char *at = put_number(head + 2, took_count, 2);
    for (size_t i = 0; i < took_count; i++)
        at = put_number(at, took[i], 8);
    at = put_number(at, done_count, 2);
    for (size_t i = 0; i < done_count; i++)
        at = put_number(at, done[i], 8);
    return put(process_channel, head, (size_t)(at - head), NULL, 0, -1);
}

int cc_core_keep(int process_channel, struct cc_keep *keep)
{
    unsigned char head[11];
    ssize_t count;
    do
        count = recv(process_channel, head, sizeof head, MSG_DONTWAIT);
    while (count < 0 && errno == EINTR);
    if (count <= 0)
        return (int)count;
    if (count != 10 || head[0] != VERSION || head[1] != KEEP) {
        errno = EBADMSG;
        return -1;
    }
    keep->connections = (uint32_t)number(head + 2, 4);
    keep->head_bytes = (uint32_t)number(head + 6, 4);
    return 1;
}
