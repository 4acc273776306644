/* The C library of connection conditioning: a server that calls these in the place of the socket calls takes whole
 * requests, in the order that the policies choose, from a gate that holds and defends all connections.
 *
 * Runs in: a server's processes, as its user. Sees: requests, which are clients' bytes; bundles from its own gate.
 * Never: writes to a client by itself, or changes what the server writes.
 *
 * Source: seed 001, 3.2 and figure 2. cc(3) explains each call. */
#ifndef BULKHEAD_CC_H
#define BULKHEAD_CC_H

#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* Policies of the gate, as names for filters[]. The gate always does the first three; to name them is no error. */
#define CC_FILTER_REQUEST "flt_request"   /* only whole requests go on */
#define CC_FILTER_PERSIST "flt_persist"   /* each request of a kept-alive connection is accepted by itself */
#define CC_FILTER_CHECK "flt_check"       /* strange requests are refused */
#define CC_FILTER_PRIOR "flt_prior"       /* who was served least recently comes first */
#define CC_FILTER_SLOWREAD "flt_slowread" /* no range of addresses holds more than its share */

/* A listening socket behind a gate, for cc_accept; or -1 with errno. Address and port in network byte order, as in
 * struct sockaddr_in. filters[] ends with NULL, and may itself be NULL; each is a policy, or the path and arguments of a
 * filter program, the one nearest to the server first, or an option of `bulkhead guard` as "--connections=20000". */
int cc_createlsock(struct in_addr sin_addr, in_port_t sin_port, int backlog, char *filters[]);

/* The same for any TCP address. */
int cc_createlsock_on(const struct sockaddr *address, socklen_t length, int backlog, char *filters[]);

/* The next client's connection, whose request is there whole; or -1 with errno, EINVAL if the gate has ended. */
int cc_accept(int s, struct sockaddr *addr, socklen_t *addrlen);
int cc_accept4(int s, struct sockaddr *addr, socklen_t *addrlen, int flags);

/* read(2); never reads beyond the request, with its body: at its end it returns 0, or fails with EAGAIN on a descriptor
 * that does not block. ECONNRESET: it cannot be known where the request ends. */
ssize_t cc_read(int fd, void *buf, size_t count);

/* Closes the descriptor. When no other refers to the connection, in any process of cc_fork: with 0 the gate has it
 * back, if the request was read whole, and waits for its next request; with anything else, here or at an earlier close, the connection ends. */
int cc_close(int fd, int closeAllFilters);

/* select(2), poll(2), epoll(7), which know of requests that cc_accept has buffered. */
int cc_select(int n, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout);
int cc_poll(struct pollfd fds[], nfds_t nfds, int timeout);
int cc_epoll_create1(int flags);
int cc_epoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
int cc_epoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout);

/* dup(2), dup2(2), fork(2), which count who refers to a connection. */
int cc_dup(int oldfd);
int cc_dup2(int oldfd, int newfd);
pid_t cc_fork(void);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
