/*
 * Sends bundles, whole and spoilt, over a channel for a number of seconds, and checks what cc_core_receive makes of
 * them: a whole one arrives as it was sent; a spoilt one is refused or is one that could have been sent; no descriptor
 * is lost or kept.
 *
 * Runs in: the tests, with the sanitizers.
 */
#define _GNU_SOURCE
#include "cc_core.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int channel[2];
static unsigned char sent_bytes[CC_TAKEN_MAX], got_bytes[CC_TAKEN_MAX];

static void fail(const char *what)
{
    fprintf(stderr, "core_fuzz: %s (errno %d)\n", what, errno);
    abort();
}

static struct cc_bundle some_bundle(void)
{
    struct cc_bundle bundle = {.id = (uint64_t)rand() << 32 | (unsigned)rand(), .relayed = rand() & 1, .fd = 1};
    struct sockaddr_in *peer = (void *)&bundle.peer;
    struct sockaddr_in6 *local = (void *)&bundle.local;
    peer->sin_family = AF_INET;
    peer->sin_addr.s_addr = (in_addr_t)rand();
    peer->sin_port = (in_port_t)rand();
    local->sin6_family = AF_INET6;
    local->sin6_addr.s6_addr[0] = 0x20;
    local->sin6_addr.s6_addr[15] = (unsigned char)rand();
    local->sin6_port = (in_port_t)rand();
    return bundle;
}

static void whole(void)
{
    struct cc_bundle sent = some_bundle(), got = {.bytes = got_bytes};
    const size_t size = (size_t)rand() % (rand() % 4 ? 100 : CC_TAKEN_MAX + 1);
    if (cc_core_send(channel[0], &sent, sent_bytes, size) != 0)
        fail("cannot send");
    if (cc_core_receive(channel[1], &got, MSG_CMSG_CLOEXEC) != 1)
        fail("cannot receive");
    if (got.id != sent.id || got.relayed != sent.relayed || got.taken != size || memcmp(got_bytes, sent_bytes, size) ||
        got.peerlen != sizeof(struct sockaddr_in) || memcmp(&got.peer, &sent.peer, got.peerlen) ||
        got.locallen != sizeof(struct sockaddr_in6) || memcmp(&got.local, &sent.local, got.locallen))
        fail("it is another one");
    close(got.fd);
}

/* A message of bytes that are nearly a bundle, with up to three descriptors. */
static void spoilt(void)
{
    union { struct cmsghdr header; char room[CMSG_SPACE(3 * sizeof(int))]; } control = {0};
    unsigned char bytes[300] = {1, 1};
    size_t size = (size_t)rand() % 120;
    const unsigned fds = (unsigned)rand() % 4;
    for (size_t i = 2; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(rand() % 3 ? 0 : rand());
    if (rand() % 4 == 0)
        bytes[rand() % 2] = (unsigned char)rand();
    if (rand() % 2 && size >= 51)
        bytes[46] &= 1, bytes[47] = (unsigned char)(size - 51), bytes[48] = bytes[49] = bytes[50] = 0;
    struct iovec part = {bytes, size ? size : 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fds) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(fds * sizeof(int));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(fds * sizeof(int));
        memset(CMSG_DATA(&control.header), 0, fds * sizeof(int));
    }
    if (sendmsg(channel[0], &message, 0) < 0)
        fail("cannot send");
    struct cc_bundle got = {.bytes = rand() % 2 ? got_bytes : NULL};
    const int result = cc_core_receive(channel[1], &got, MSG_DONTWAIT);
    if (result == 1 && (got.fd < 0 || got.taken != size - 51 || fds != 1))
        fail("took what nobody can have sent");
    if (result == 1)
        close(got.fd);
    else if (result != -1 || (errno != EBADMSG && errno != EMSGSIZE) || got.fd != -1)
        fail("refused in another way");
}

int main(int argc, char **argv)
{
    const time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 10);
    unsigned long runs = 0;
    srand((unsigned)end);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, channel) != 0)
        fail("no channel");
    for (size_t i = 0; i < sizeof sent_bytes; i++)
        sent_bytes[i] = (unsigned char)rand();
    const int first = dup(0);
    close(first);
    for (; runs % 256 || time(NULL) < end; runs++)
        rand() % 2 ? whole() : spoilt();
    if (dup(0) != first)
        fail("descriptors were left open");
    printf("core_fuzz: %lu runs\n", runs);
    return 0;
}
