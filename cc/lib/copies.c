/* cc_dup, cc_dup2, cc_fork: more descriptors, and more processes, that refer to one connection.
 *
 * Runs in: a server's processes. Sees: nothing of clients. Never: gives a connection back while another holds it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../core/cc_core.h"
#include "../include/cc.h"
#include "table.h"

int cc_dup(int oldfd)
{
    cci_lock();
    int newfd = dup(oldfd);
    if (newfd >= 0 && cci_copy(oldfd, newfd) < 0) {
        close(newfd);
        newfd = -1;
        errno = ENOMEM;
    }
    cci_unlock();
    return newfd;
}

int cc_dup2(int oldfd, int newfd)
{
    if (oldfd == newfd || fcntl(oldfd, F_GETFD) < 0)
        return dup2(oldfd, newfd);
    cci_lock();
    cci_forget(newfd, CCI_BACK); /* dup2 is to close it in silence: the server is done with it */
    int result = dup2(oldfd, newfd);
    if (result >= 0 && cci_copy(oldfd, newfd) < 0) {
        close(newfd);
        result = -1;
        errno = ENOMEM;
    }
    cci_unlock();
    return result;
}

/* Makes the count of processes that hold `connection`, or adds one to it. */
static int share(struct cci_connection *connection)
{
    if (!connection->shared) {
        void *page = mmap(NULL, sizeof *connection->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED)
            return -1;
        connection->shared = page;
        atomic_init(&connection->shared->holders, 1);
    }
    atomic_fetch_add(&connection->shared->holders, 1);
    return 0;
}

/* Takes the child out of the counts again, up to (and without) `end`. */
static void unshare(const struct cci_connection *end)
{
    struct cci_connection *connection;
    LIST_FOREACH(connection, &cci_connections, all) {
        if (connection == end)
            return;
        if (!connection->foreign)
            atomic_fetch_sub(&connection->shared->holders, 1);
    }
}

/* The child holds what we hold: counts it in. */
static int share_all(void)
{
    struct cci_connection *connection;
    LIST_FOREACH(connection, &cci_connections, all) {
        if (!connection->foreign && share(connection) < 0) {
            int error = errno;
            unshare(connection);
            errno = error;
            return -1;
        }
    }
    return 0;
}

/* Makes the child's channels and says on them what it will hold. This is done before the fork, so that the gate cannot
 * hear the parent's "done" before it knows of the child. */
static void introduce_child(void)
{
    struct cci_guard *guard;
    LIST_FOREACH(guard, &cci_guards, all)
        guard->child_process = guard->control >= 0 ? cc_core_process(guard->control) : -1;
    struct cci_connection *connection;
    LIST_FOREACH(connection, &cci_connections, all) {
        struct cc_bundle bundle = {.id = connection->id, .peer = connection->peer, .peerlen = connection->peerlen};
        if (!connection->foreign && connection->guard->child_process >= 0)
            cc_core_took(connection->guard->child_process, &bundle);
    }
}

/* Each process keeps its own channels and closes the other's. */
static void part(bool is_child)
{
    struct cci_guard *guard;
    LIST_FOREACH(guard, &cci_guards, all) {
        int other = is_child ? guard->process : guard->child_process;
        if (other >= 0)
            close(other);
        if (is_child)
            guard->process = guard->child_process;
        guard->child_process = -1;
    }
    if (is_child)
        cci_is_owner();
}

pid_t cc_fork(void)
{
    cci_lock();
    if (share_all() < 0) {
        cci_unlock();
        return -1;
    }
    introduce_child();
    pid_t pid = fork();
    int error = errno;
    if (pid < 0)
        unshare(NULL);
    part(pid == 0);
    cci_unlock();
    errno = error;
    return pid;
}
