/* The table of descriptors and its lock. See table.h. */
#define _GNU_SOURCE
#include "table.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../core/cc_core.h"

struct entry {
    enum cci_kind kind;
    void *what;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct entry *entries;
static size_t size;
static pid_t owner;

struct cci_guards cci_guards = LIST_HEAD_INITIALIZER(cci_guards);
struct cci_connections cci_connections = LIST_HEAD_INITIALIZER(cci_connections);
int cci_buffered;

void cci_is_owner(void)
{
    owner = getpid();
}

/* In the child of a plain fork(2): the parent still answers for its connections, and its channels are not ours. */
static void notice_fork(void)
{
    struct cci_guard *guard;
    LIST_FOREACH(guard, &cci_guards, all) {
        if (guard->process >= 0)
            close(guard->process);
        guard->process = -1;
    }
    struct cci_connection *connection;
    LIST_FOREACH(connection, &cci_connections, all)
        connection->foreign = true;
    cci_is_owner();
}

void cci_lock(void)
{
    pthread_mutex_lock(&mutex);
    if (owner != getpid())
        notice_fork();
}

void cci_unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

static int grow(size_t wanted)
{
    size_t larger = size ? size : 64;
    while (larger < wanted)
        larger *= 2;
    struct entry *grown = realloc(entries, larger * sizeof *grown);
    if (!grown)
        return -1;
    memset(grown + size, 0, (larger - size) * sizeof *grown);
    entries = grown;
    size = larger;
    return 0;
}

void *cci_find(int fd, enum cci_kind kind)
{
    if (fd < 0 || (size_t)fd >= size || entries[fd].kind != kind)
        return NULL;
    return entries[fd].what;
}

int cci_put(int fd, enum cci_kind kind, void *what)
{
    if ((size_t)fd >= size && grow((size_t)fd + 1) < 0)
        return -1;
    cci_forget(fd, CCI_LOST);
    entries[fd] = (struct entry){kind, what};
    return 0;
}

int cci_copy(int from, int to)
{
    if (from < 0 || (size_t)from >= size || entries[from].kind == CCI_NONE)
        return 0;
    struct entry entry = entries[from];
    if (cci_put(to, entry.kind, entry.what) < 0)
        return -1;
    switch (entry.kind) {
    case CCI_GUARD:
        ((struct cci_guard *)entry.what)->descriptors++;
        break;
    case CCI_CONNECTION:
        ((struct cci_connection *)entry.what)->descriptors++;
        break;
    case CCI_SET:
        ((struct cci_set *)entry.what)->descriptors++;
        break;
    case CCI_NONE:
        break;
    }
    return 0;
}

void cci_forget(int fd, enum cci_end end)
{
    if (fd < 0 || (size_t)fd >= size)
        return;
    struct entry entry = entries[fd];
    entries[fd] = (struct entry){CCI_NONE, NULL};
    switch (entry.kind) {
    case CCI_GUARD:
        ((struct cci_guard *)entry.what)->descriptors--;
        cci_guard_release(entry.what);
        break;
    case CCI_CONNECTION:
        cci_connection_release(entry.what, fd, end);
        break;
    case CCI_SET:
        cci_set_release(entry.what);
        break;
    case CCI_NONE:
        break;
    }
}

int cci_guard_process(struct cci_guard *guard)
{
    if (guard->process < 0 && guard->control >= 0)
        guard->process = cc_core_process(guard->control);
    return guard->process;
}

void cci_guard_release(struct cci_guard *guard)
{
    if (guard->descriptors > 0)
        return;
    /* Nothing more is accepted: to the guard, this process has ended. Connections still go back on its own channel. */
    if (guard->control >= 0)
        close(guard->control);
    guard->control = -1;
    if (guard->connections > 0)
        return;
    if (guard->process >= 0)
        close(guard->process);
    LIST_REMOVE(guard, all);
    free(guard);
}
