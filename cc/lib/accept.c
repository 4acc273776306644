/* cc_accept, cc_read, cc_close: the life of a connection in a server.
 *
 * Runs in: a server's processes and threads. Sees: bundles from the gate, requests of clients. Never: reads beyond the
 * head of a request that the server has not read whole. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../core/cc_core.h"
#include "../include/cc.h"
#include "table.h"

/* Makes `fd` as accept4(2) would: the gate has it in its own mode, which comes along. */
static int set_mode(int fd, int flags)
{
    int mode = fcntl(fd, F_GETFL);
    int wanted = flags & SOCK_NONBLOCK ? mode | O_NONBLOCK : mode & ~O_NONBLOCK;
    return mode < 0 || (wanted != mode && fcntl(fd, F_SETFL, wanted) < 0) ? -1 : 0;
}

/* Copies an address as far as there is room, and says how long it is, as accept(2) does. */
static void give_address(const struct sockaddr_storage *address, socklen_t length, struct sockaddr *to, socklen_t *room)
{
    if (!to || !room)
        return;
    memcpy(to, address, *room < length ? *room : length);
    *room = length;
}

/* Waits for a bundle, and makes a connection of it, which is in no table yet; its descriptor is in `bundle`. */
static struct cci_connection *receive(int s, struct cc_bundle *bundle, int flags)
{
    /* Room for the longest head, cut to size when the head is known. */
    struct cci_connection *connection = malloc(sizeof *connection + CC_TAKEN_MAX);
    if (!connection)
        return NULL;
    *bundle = (struct cc_bundle){.fd = -1, .bytes = connection->taken};
    int got = cc_core_receive(s, bundle, flags & SOCK_CLOEXEC ? MSG_CMSG_CLOEXEC : 0);
    if (got <= 0) {
        free(connection);
        if (got == 0)
            errno = EINVAL; /* what accept(2) says of a socket that was shut down */
        return NULL;
    }
    size_t whole = sizeof *connection + bundle->taken;
    struct cci_connection *cut = realloc(connection, whole);
    connection = cut ? cut : connection;
    memset(connection, 0, sizeof *connection);
    connection->id = bundle->id;
    connection->peer = bundle->peer;
    connection->peerlen = bundle->peerlen;
    connection->len = bundle->taken;
    return connection;
}

/* Enters what was received, and tells the gate whose it is now. */
static int enter(int s, struct cc_bundle *bundle, struct cci_connection *connection)
{
    int entered = -1;
    cci_lock();
    struct cci_guard *guard = cci_find(s, CCI_GUARD);
    if (guard && cci_put(bundle->fd, CCI_CONNECTION, connection) == 0) {
        cci_connection_add(connection, guard);
        cc_core_took(cci_guard_process(guard), bundle);
        entered = 0;
    } else if (!guard) {
        errno = EBADF; /* another thread has closed it meanwhile */
    }
    cci_unlock();
    return entered;
}

int cc_accept4(int s, struct sockaddr *addr, socklen_t *addrlen, int flags)
{
    cci_lock();
    bool ours = cci_find(s, CCI_GUARD) != NULL;
    cci_unlock();
    if (!ours)
        return accept4(s, addr, addrlen, flags);

    struct cc_bundle bundle;
    struct cci_connection *connection = receive(s, &bundle, flags);
    if (!connection)
        return -1;
    if (set_mode(bundle.fd, flags) < 0 || enter(s, &bundle, connection) < 0) {
        int error = errno;
        close(bundle.fd);
        free(connection);
        errno = error;
        return -1;
    }
    give_address(&bundle.peer, bundle.peerlen, addr, addrlen);
    return bundle.fd;
}

int cc_accept(int s, struct sockaddr *addr, socklen_t *addrlen)
{
    return cc_accept4(s, addr, addrlen, 0);
}

/* How many of `count` bytes belong to the head, which ends with an empty line; all, once it has ended. */
static size_t of_head(enum cci_head *head, const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count && *head != CCI_WHOLE; i++) {
        if (bytes[i] == '\n')
            *head = *head == CCI_NOTHING ? CCI_NOTHING : *head == CCI_LINE ? CCI_END : CCI_WHOLE;
        else if (bytes[i] != '\r')
            *head = CCI_LINE;
        else if (*head == CCI_END)
            *head = CCI_END_CR;
        else if (*head == CCI_END_CR)
            *head = CCI_LINE;
        if (*head == CCI_WHOLE)
            return i + 1;
    }
    return count;
}

/* From what came in the bundle. */
static size_t read_buffered(struct cci_connection *connection, void *buf, size_t count)
{
    const unsigned char *bytes = connection->taken + connection->next;
    size_t there = connection->len - connection->next;
    size_t part = of_head(&connection->head, bytes, count < there ? count : there);
    memcpy(buf, bytes, part);
    cci_took(connection, part);
    return part;
}

/* From the socket, but not beyond the head: the next request on the connection is for whoever gets it from the gate. */
static ssize_t read_head(int fd, void *buf, size_t count)
{
    ssize_t there = recv(fd, buf, count, MSG_PEEK);
    if (there <= 0)
        return there;
    size_t part = (size_t)there;
    cci_lock();
    struct cci_connection *connection = cci_find(fd, CCI_CONNECTION);
    if (connection)
        part = of_head(&connection->head, buf, part);
    cci_unlock();
    /* A server that takes the buffer for a string shall not find the next request in it. */
    memset((char *)buf + part, 0, (size_t)there - part);
    return recv(fd, buf, part, 0);
}

ssize_t cc_read(int fd, void *buf, size_t count)
{
    bool in_head = false;
    cci_lock();
    struct cci_connection *connection = cci_find(fd, CCI_CONNECTION);
    if (connection && count > 0) {
        if (cci_is_buffered(connection)) {
            size_t part = read_buffered(connection, buf, count);
            cci_unlock();
            return (ssize_t)part;
        }
        in_head = connection->head != CCI_WHOLE;
    }
    cci_unlock();
    return in_head ? read_head(fd, buf, count) : read(fd, buf, count);
}

int cc_close(int fd, int closeAllFilters)
{
    cci_lock();
    cci_forget(fd, closeAllFilters ? CCI_ABANDON : CCI_BACK);
    cci_unlock();
    return close(fd);
}
