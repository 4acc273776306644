/* Ways onto the network: with sockets of the program's own, and with the client's connection. */
#define _GNU_SOURCE
#include "attack.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MSG_FASTOPEN
#define MSG_FASTOPEN 0x20000000
#endif
enum { PROTO_SCTP = 132, PROTO_UDPLITE = 136, PROTO_MPTCP = 262, AF_SMC_ = 43, PATIENCE_MS = 5000 };

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* 127.0.0.1, ::1, or for AF_UNSPEC the first by way of IPv6. */
static socklen_t loopback(union address *to, int family, int port) {
    memset(to, 0, sizeof *to);
    if (family == AF_INET) {
        to->v4 = (struct sockaddr_in){AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}, {0}};
        return sizeof to->v4;
    }
    to->v6.sin6_family = AF_INET6, to->v6.sin6_port = htons(port);
    inet_pton(AF_INET6, family == AF_INET6 ? "::1" : "::ffff:127.0.0.1", &to->v6.sin6_addr);
    return sizeof to->v6;
}

/* A connection that began well, or is still on its way, is one. */
static int begun(long result) {
    return result >= 0 || errno == EINPROGRESS || errno == ETIMEDOUT ? 0 : errno;
}

static long send_fast(int fd, int how, const union address *to, socklen_t length) {
    struct iovec part = {"x", 1};
    struct mmsghdr message = {{(void *)to, length, &part, 1, NULL, 0, 0}, 0};
    if (how == 0) return syscall(SYS_sendto, fd, "x", 1, MSG_FASTOPEN | MSG_NOSIGNAL, to, length);
    if (how == 1) return syscall(SYS_sendmsg, fd, &message.msg_hdr, MSG_FASTOPEN | MSG_NOSIGNAL);
    return syscall(SYS_sendmmsg, fd, &message, 1, MSG_FASTOPEN | MSG_NOSIGNAL);
}

/* Every family, type and protocol but Unix, which anybody may have, and plain TCP and UDP, which `network` grants. */
static int strange_sockets(const struct way *way) {
    const int protocols[] = {0, 1, 2, 6, 17, 33, 58, PROTO_SCTP, PROTO_UDPLITE, 255, 256, PROTO_MPTCP, 0x300};
    int error = EPERM;
    (void)way;
    for (int family = 0; family < 64; family++)
        for (int type = 0; type <= 10; type++)
            for (size_t at = 0; at < sizeof protocols / sizeof *protocols; at++) {
                int protocol = protocols[at], ip = family == AF_INET || family == AF_INET6;
                if (family == AF_UNIX || (ip && type == SOCK_STREAM && (protocol == 0 || protocol == 6))) continue;
                if (ip && type == SOCK_DGRAM && (protocol == 0 || protocol == 17)) continue;
                int fd = syscall(SYS_socket, family, type, protocol);
                if (fd >= 0) {
                    note("family %d, type %d, protocol %d", family, type, protocol);
                    return 0;
                }
                if (errno != EPERM) error = errno;
            }
    return error;
}

static int netlink(const struct way *way) {
    (void)way;
    for (int protocol = 0; protocol < 32; protocol++)
        if (syscall(SYS_socket, AF_NETLINK, SOCK_RAW, protocol) >= 0) return note("protocol %d", protocol), 0;
    return errno;
}

/* A new socket: its family and protocol. */
static int of_protocol(const struct way *way) {
    return failed(syscall(SYS_socket, (int)way->first, SOCK_STREAM, (int)way->second));
}

static int connects(const struct way *way) {
    union address to;
    int family = way->first == AF_SMC_ ? AF_INET : (int)way->first;
    int fd = syscall(SYS_socket, way->first == AF_UNSPEC ? AF_INET6 : (int)way->first, SOCK_STREAM, (int)way->second);
    if (fd < 0) return errno;
    socklen_t length = loopback(&to, family, way->port);
    return begun(syscall(SYS_connect, fd, &to, length));
}

static int fast_open(const struct way *way) {
    union address to;
    socklen_t length = loopback(&to, (int)way->first, way->port);
    int fd = syscall(SYS_socket, (int)way->first, SOCK_STREAM, 0);
    return fd < 0 ? errno : begun(send_fast(fd, (int)way->second, &to, length));
}

static int fast_open_later(const struct way *way) {
    union address to;
    socklen_t length = loopback(&to, AF_INET, way->port);
    int fd = syscall(SYS_socket, AF_INET, SOCK_STREAM, 0), on = 1;
    if (fd < 0) return errno;
    if (setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof on)) return errno;
    if (syscall(SYS_connect, fd, &to, length)) return errno;
    return begun(syscall(SYS_write, fd, "x", 1));
}

static int datagram(const struct way *way) {
    union address to;
    socklen_t length = loopback(&to, AF_INET, way->port);
    int fd = syscall(SYS_socket, AF_INET, SOCK_DGRAM, (int)way->second);
    return fd < 0 ? errno : failed(syscall(SYS_sendto, fd, "x", 1, 0, &to, length));
}

static int listens_unbound(const struct way *way) {
    int fd = syscall(SYS_socket, (int)way->first, SOCK_STREAM, (int)way->second);
    return fd < 0 ? errno : failed(syscall(SYS_listen, fd, 1));
}

static int listens(const struct way *way) {
    union address at;
    socklen_t length = loopback(&at, (int)way->first, 0);
    int fd = syscall(SYS_socket, (int)way->first, SOCK_STREAM, (int)way->second);
    if (fd < 0) return errno;
    return syscall(SYS_bind, fd, &at, length) ? errno : failed(syscall(SYS_listen, fd, 1));
}

static int io_uring(const struct way *way) {
    char parameters[120] = {0};
    (void)way;
    return failed(syscall(425, 4, parameters));
}

#ifdef __x86_64__
/* socket(AF_INET, SOCK_STREAM, 0) as a program of 32 bits asks for it. */
static int entry_of_32_bits(const struct way *way) {
    long result;
    (void)way;
    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "a"(359L), "b"(2L), "c"(1L), "d"(0L)
                     : "memory", "r8", "r9", "r10", "r11");
    return result >= 0 ? 0 : (int)-result;
}

static int entry_of_x32(const struct way *way) {
    (void)way;
    return failed(syscall(0x40000000 | SYS_socket, AF_INET, SOCK_STREAM, 0));
}
#endif

const struct attempt NETWORK[] = {
    {"strange-sockets", strange_sockets, 0, 0, 0},
    {"netlink", netlink, 0, 0, 0},
    {"socket-mptcp", of_protocol, 0, AF_INET, PROTO_MPTCP},
    {"socket-mptcp6", of_protocol, 0, AF_INET6, PROTO_MPTCP},
    {"socket-sctp", of_protocol, 0, AF_INET, PROTO_SCTP},
    {"connect", connects, 0, AF_INET, 0},
    {"connect6", connects, 0, AF_INET6, 0},
    {"connect-mapped", connects, 0, AF_UNSPEC, 0},
    {"connect-mptcp", connects, 0, AF_INET, PROTO_MPTCP},
    {"connect-mptcp-mapped", connects, 0, AF_UNSPEC, PROTO_MPTCP},
    {"connect-smc", connects, 0, AF_SMC_, 0},
    {"connect-sctp", connects, 0, AF_INET, PROTO_SCTP},
    {"fastopen-sendto", fast_open, 0, AF_INET, 0},
    {"fastopen-sendmsg", fast_open, 0, AF_INET, 1},
    {"fastopen-sendmmsg", fast_open, 0, AF_INET, 2},
    {"fastopen6", fast_open, 0, AF_INET6, 0},
    {"fastopen-later", fast_open_later, 0, 0, 0},
    {"datagram", datagram, 0, 0, 0},
    {"datagram-lite", datagram, 0, 0, PROTO_UDPLITE},
    {"listen-unbound", listens_unbound, 0, AF_INET, 0},
    {"listen-unbound6", listens_unbound, 0, AF_INET6, 0},
    {"listen-unbound-mptcp", listens_unbound, 0, AF_INET, PROTO_MPTCP},
    {"listen", listens, 0, AF_INET, 0},
    {"listen6", listens, 0, AF_INET6, 0},
    {"listen-mptcp", listens, 0, AF_INET, PROTO_MPTCP},
    {"io-uring", io_uring, 0, 0, 0},
#ifdef __x86_64__
    {"socket-by-int80", entry_of_32_bits, 0, 0, 0},
    {"socket-by-x32", entry_of_x32, 0, 0, 0},
#endif
    {NULL, NULL, 0, 0, 0},
};

/* How the connection is held, and what is done with it. */
enum { AS_IS, DUPLICATE, PASSED, ENDED, EXECUTED };
enum { DISCONNECT, FASTOPEN, FASTOPEN_MSG, CONNECT, BIND, LISTEN, ACCEPT };

/* A copy that has travelled through a pair of sockets. */
static int passed(int fd) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr header;
    } control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct iovec part = {"x", 1};
    struct msghdr message = {NULL, 0, &part, 1, &control, sizeof control, 0};
    char byte;
    int pair[2];
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) || sendmsg(pair[0], &message, 0) < 0) return -1;
    part.iov_base = &byte;
    if (recvmsg(pair[1], &message, 0) < 0) return -1;
    memcpy(&fd, CMSG_DATA(&control.header), sizeof fd);
    return fd;
}

static int on_connection(const struct way *way) {
    union address to;
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    int fd = way->connection;
    if (way->first == DUPLICATE) fd = dup(fd);
    if (way->first == PASSED) fd = passed(fd);
    if (way->first == ENDED) {
        /* The client ends it when it hears this: before, the server may not have passed it on yet. */
        struct pollfd ends = {fd, POLLRDHUP, 0};
        if (write(fd, "HTTP/1.1 200 OK\r\n\r\nx", 20) != 20) return errno;
        if (poll(&ends, 1, PATIENCE_MS) != 1) return ETIME;
    }
    if (fd < 0) return errno;
    int parted = failed(syscall(SYS_connect, fd, &nobody, sizeof nobody));
    socklen_t length = loopback(&to, AF_INET, way->second == BIND || way->second == LISTEN ? 0 : way->port);
    switch (way->second) {
    case DISCONNECT: return parted;
    case FASTOPEN: return begun(send_fast(fd, 0, &to, length));
    case FASTOPEN_MSG: return begun(send_fast(fd, 1, &to, length));
    case CONNECT: return begun(syscall(SYS_connect, fd, &to, length));
    case BIND: return failed(syscall(SYS_bind, fd, &to, length));
    case LISTEN: return failed(syscall(SYS_listen, fd, 1));
    default: fcntl(fd, F_SETFL, O_NONBLOCK); return begun(syscall(SYS_accept4, fd, NULL, NULL, 0));
    }
}

static int executed(const struct way *way) {
    fcntl(way->connection, F_SETFD, 0);
    return after_exec(way->second == LISTEN ? "held-listen" : "held-fastopen", way->connection, way->port);
}

/* Level and name of an option. */
static int option(const struct way *way) {
    struct sock_filter everything = {BPF_RET | BPF_K, 0, 0, 0xffff};
    struct sock_fprog code = {1, &everything};
    struct ip_mreqn group = {{htonl(0xe0000001)}, {htonl(INADDR_LOOPBACK)}, 0};
    const void *value = (int[16]){1};
    socklen_t length = sizeof(int);
    if (way->first == SOL_SOCKET && (way->second == 26 || way->second == 51)) value = &code, length = sizeof code;
    if (way->first == SOL_SOCKET && way->second == SO_BINDTODEVICE) value = "lo", length = 3;
    if (way->first == IPPROTO_TCP && way->second == 31) value = "tls", length = 4;
    if (way->first == IPPROTO_TCP && way->second == 13) value = "reno", length = 5;
    if (way->first == IPPROTO_TCP && way->second == 33) length = 16;
    if (way->first == IPPROTO_IP && way->second == 35) value = &group, length = sizeof group;
    int error = failed(syscall(SYS_setsockopt, way->connection, (int)way->first, (int)way->second, value, length));
    /* Whoever is told that there is no such option, or that the value is wrong, was let through. */
    return error == EPERM || error == EACCES ? error : (note("errno %d", error), 0);
}

static int control(const struct way *way) {
    char data[256] = "lo";
    int error = failed(syscall(SYS_ioctl, way->connection, way->first, data));
    return error == EPERM || error == EACCES || error == ENOTTY ? error : (note("errno %d", error), 0);
}

/* Urgent data, of which the receiver hears by a signal, past what it has yet to read. */
static int urgent(const struct way *way) {
    return failed(syscall(SYS_sendto, way->connection, "x", 1, MSG_OOB | MSG_NOSIGNAL, NULL, 0));
}

#define HELD(name, how)                                                                                              \
    {name "disconnect", on_connection, 1, how, DISCONNECT},                                                          \
        {name "fastopen", on_connection, 1, how, FASTOPEN},                                                          \
        {name "fastopen-sendmsg", on_connection, 1, how, FASTOPEN_MSG},                                              \
        {name "connect", on_connection, 1, how, CONNECT}, {name "bind", on_connection, 1, how, BIND},                \
        {name "listen", on_connection, 1, how, LISTEN}

const struct attempt CONNECTION[] = {
    HELD("held-", AS_IS),
    HELD("duplicate-", DUPLICATE),
    HELD("passed-", PASSED),
    HELD("closed-", ENDED),
    HELD("reset-", ENDED),
    {"held-accept", on_connection, 1, AS_IS, ACCEPT},
    {"executed-fastopen", executed, 1, EXECUTED, FASTOPEN},
    {"executed-listen", executed, 1, EXECUTED, LISTEN},
    {"urgent", urgent, 1, 0, 0},
    {"option-reuseport", option, 1, SOL_SOCKET, SO_REUSEPORT},
    {"option-attach-filter", option, 1, SOL_SOCKET, SO_ATTACH_FILTER},
    {"option-attach-bpf", option, 1, SOL_SOCKET, SO_ATTACH_BPF},
    {"option-reuseport-filter", option, 1, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF},
    {"option-bind-device", option, 1, SOL_SOCKET, SO_BINDTODEVICE},
    {"option-bind-interface", option, 1, SOL_SOCKET, 62},
    {"option-mark", option, 1, SOL_SOCKET, SO_MARK},
    {"option-zerocopy", option, 1, SOL_SOCKET, 60},
    {"option-transmit-time", option, 1, SOL_SOCKET, 61},
    {"option-busy-poll", option, 1, SOL_SOCKET, SO_BUSY_POLL},
    {"option-upper-protocol", option, 1, IPPROTO_TCP, 31},
    {"option-repair", option, 1, IPPROTO_TCP, 19},
    {"option-fastopen", option, 1, IPPROTO_TCP, 23},
    {"option-fastopen-connect", option, 1, IPPROTO_TCP, 30},
    {"option-fastopen-key", option, 1, IPPROTO_TCP, 33},
    {"option-congestion", option, 1, IPPROTO_TCP, 13},
    {"option-signature", option, 1, IPPROTO_TCP, 14},
    {"option-transparent", option, 1, IPPROTO_IP, 19},
    {"option-freebind", option, 1, IPPROTO_IP, 15},
    {"option-source-route", option, 1, IPPROTO_IP, 4},
    {"option-join-group", option, 1, IPPROTO_IP, 35},
    {"option-address-form", option, 1, IPPROTO_IPV6, 1},
    {"option-transparent6", option, 1, IPPROTO_IPV6, 75},
    {"ioctl-interfaces", control, 1, 0x8912, 0},
    {"ioctl-interface-address", control, 1, 0x8915, 0},
    {"ioctl-namespace", control, 1, 0x894c, 0},
    {"ioctl-ethtool", control, 1, 0x8946, 0},
    {"ioctl-owner", control, 1, 0x8901, 0},
    {NULL, NULL, 0, 0, 0},
};
