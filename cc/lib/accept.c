/* cc_accept, cc_read, cc_close: the life of a connection in a server.
 *
 * Runs in: a server's processes and threads. Sees: bundles from the gate, requests of clients. Never: reads beyond the
 * request that the server was given. */
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

/* From what came in the bundle. -1 where it is no request any more. */
static ssize_t read_buffered(struct cci_connection *connection, void *buf, size_t count)
{
    const unsigned char *bytes = connection->taken + connection->next;
    size_t there = connection->len - connection->next;
    size_t part = cc_exchange_request_part(&connection->exchange, bytes, count < there ? count : there);
    if (!part) {
        connection->exchange.lost = true;
        errno = ECONNRESET;
        return -1;
    }
    memcpy(buf, bytes, part);
    cc_exchange_read(&connection->exchange, buf, part);
    cci_took(connection, part);
    return (ssize_t)part;
}

/* From the socket, but not beyond the request: the next one is for whoever gets it from the gate. */
static ssize_t read_request(int fd, void *buf, size_t count)
{
    ssize_t there = recv(fd, buf, count, MSG_PEEK);
    if (there <= 0)
        return there;
    size_t part = (size_t)there;
    cci_lock();
    struct cci_connection *connection = cci_find(fd, CCI_CONNECTION);
    if (connection) {
        part = cc_exchange_request_part(&connection->exchange, buf, part);
        cc_exchange_read(&connection->exchange, buf, part);
        connection->exchange.lost |= !part;
    }
    cci_unlock();
    /* A server that takes the buffer for a string shall not find the next request in it. */
    memset((char *)buf + part, 0, (size_t)there - part);
    if (!part) {
        errno = ECONNRESET;
        return -1;
    }
    return recv(fd, buf, part, 0);
}

/* There is nothing more of the request. Whoever does not wait is told so until the client ends the connection. */
static ssize_t read_nothing(int fd)
{
    char byte;
    if (!(fcntl(fd, F_GETFL) & O_NONBLOCK))
        return 0;
    ssize_t there = recv(fd, &byte, 1, MSG_PEEK);
    if (there <= 0)
        return there;
    errno = EAGAIN;
    return -1;
}

ssize_t cc_read(int fd, void *buf, size_t count)
{
    enum reading reading = READS_ALL;
    cci_lock();
    struct cci_connection *connection = cci_find(fd, CCI_CONNECTION);
    if (connection && count > 0) {
        reading = cc_exchange_reading(&connection->exchange);
        if (cci_is_buffered(connection) && reading == READS_REQUEST) {
            ssize_t part = read_buffered(connection, buf, count);
            cci_unlock();
            return part;
        }
    }
    cci_unlock();
    switch (reading) {
    case READS_REQUEST: return read_request(fd, buf, count);
    case READS_LATER: return read_nothing(fd);
    case READS_NOTHING: errno = ECONNRESET; return -1;
    default: return read(fd, buf, count);
    }
}

int cc_close(int fd, int closeAllFilters)
{
    cci_lock();
    cci_forget(fd, closeAllFilters ? CCI_ABANDON : CCI_BACK);
    cci_unlock();
    return close(fd);
}
