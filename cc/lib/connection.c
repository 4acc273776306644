/* What becomes of a connection: who holds it, and where it goes when nobody does. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

#include "../core/cc_core.h"
#include "finish.h"
#include "table.h"

void cci_connection_add(struct cci_connection *connection, struct cci_guard *guard)
{
    connection->guard = guard;
    connection->descriptors = 1;
    guard->connections++;
    LIST_INSERT_HEAD(&cci_connections, connection, all);
    if (connection->len > 0)
        cci_buffered++;
}

bool cci_is_buffered(const struct cci_connection *connection)
{
    return connection->next < connection->len;
}

void cci_took(struct cci_connection *connection, size_t count)
{
    connection->next += count;
    if (count > 0 && !cci_is_buffered(connection)) {
        cci_buffered--;
        cci_watches_quiet(connection);
    }
}

/* True if no other process holds the connection; `abandoned` is then what any of them said. */
static bool was_last_process(struct cci_connection *connection)
{
    struct cci_shared *shared = connection->shared;
    if (!shared)
        return true;
    if (connection->abandoned)
        atomic_store(&shared->abandoned, true);
    bool last = atomic_fetch_sub(&shared->holders, 1) == 1;
    connection->abandoned = atomic_load(&shared->abandoned);
    munmap(shared, sizeof *shared);
    return last;
}

/* Gives the connection back, or ends it, or leaves it to the other processes. */
static void settle(struct cci_connection *connection, int fd)
{
    int process = cci_guard_process(connection->guard);
    const unsigned char *rest = connection->taken + connection->next;
    bool last = was_last_process(connection);
    /* A request that was not read would come again, for ever; and what is left of its body would be the next one. */
    bool back = !connection->abandoned && cc_exchange_reading(&connection->exchange) == READS_LATER;

    if (last && back && cc_core_back(process, connection->id, fd, rest, connection->len - connection->next) == 0)
        return;
    if (last)
        cci_finish(fd);
    cc_core_done(process, connection->id);
}

void cci_connection_release(struct cci_connection *connection, int fd, enum cci_end end)
{
    struct cci_guard *guard = connection->guard;

    cci_watches_leave(connection, fd);
    connection->abandoned |= end != CCI_BACK;
    if (end == CCI_LOST)
        fd = -1;
    if (--connection->descriptors > 0)
        return;
    if (!connection->foreign)
        settle(connection, fd);
    else if (connection->shared)
        munmap(connection->shared, sizeof *connection->shared);
    cci_took(connection, connection->len - connection->next);
    LIST_REMOVE(connection, all);
    free(connection);
    guard->connections--;
    cci_guard_release(guard);
}
