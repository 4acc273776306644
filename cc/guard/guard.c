/*
 * The preload library's start, and what it does at fork(2).
 *
 * Runs in: every process of a guarded server. Sees: the environment. Never: stops a program from starting.
 */
#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PERSIST_VARIABLE "BULKHEAD_GUARD_PERSIST"
#define FILTERS_VARIABLE "BULKHEAD_GUARD_FILTERS"

int guard_control = -1;
bool guard_persists = true, guard_filters;
pid_t guard_owner;
__thread int guard_inside __attribute__((tls_model("initial-exec")));

/* Whether this program has ever made a child that may share its memory (syscall.c). */
_Atomic bool guard_shares_memory;

/* A byte that the kernel clears in each child that does not; NULL: there is none. */
static _Atomic unsigned char *cleared_in_children;

/* SECURITY: a child of vfork(2) runs in its parent's memory, with descriptors of its own: what it closes is not closed
 * for the parent. Its number is how it is known; where there can be no child, the kernel need not be asked for it. */
bool guard_mine(void)
{
    if (cleared_in_children && *cleared_in_children && !guard_shares_memory)
        return true;
    return getpid() == guard_owner;
}

static void find_children_out(void)
{
    void *page = mmap(NULL, sizeof *cleared_in_children, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED || madvise(page, sizeof *cleared_in_children, MADV_WIPEONFORK) < 0)
        return;
    cleared_in_children = page;
    *cleared_in_children = 1;
}

void guard_say(const char *what)
{
    /* Programs close what they do not need; a client may have got the number. */
    if (table_entries[STDERR_FILENO])
        return;
    struct iovec parts[] = {{(void *)"bulkhead guard: ", 16}, {(void *)what, strlen(what)}, {(void *)"\n", 1}};
    int error = errno;
    if (real()->writev(STDERR_FILENO, parts, 3) < 0) {
        /* There is nobody left to tell. */
    }
    errno = error;
}

static void before_fork(void)
{
    channel_say_gathered();
    guard_inside++;
    channel_lock();
    table_lock();
    keep_lock();
}

static void in_parent(void)
{
    keep_unlock();
    table_unlock();
    channel_unlock();
    guard_inside--;
}

/* The child has its parent's connections, but the gate does not know it until it uses one. */
static void become_own(void)
{
    guard_owner = getpid();
    if (cleared_in_children)
        *cleared_in_children = 1;
    keep_after_fork();
    table_after_fork();
    channel_after_fork();
}

static void in_child(void)
{
    in_parent();
    become_own();
}

/* A child that was made without fork(3): by _Fork(3), or by clone(2). One of vfork(2) accepts nothing. */
void guard_forked(void)
{
    if (!guard_mine())
        become_own();
}

__attribute__((constructor)) static void start(void)
{
    real_find();
    guard_inside++;
    guard_control = cc_core_control();
    guard_inside--;
    guard_owner = getpid();
    if (guard_control < 0)
        return;
    find_children_out();
    const char *persist = getenv(PERSIST_VARIABLE);
    guard_persists = !persist || strcmp(persist, "0") != 0;
    guard_filters = getenv(FILTERS_VARIABLE) != NULL;
    /* libuv would otherwise change its epoll sets through io_uring, where nobody can follow. */
    setenv("UV_USE_IO_URING", "0", 1);
    /* Node's cluster would otherwise accept in one process and send connections to others; its workers can accept. */
    setenv("NODE_CLUSTER_SCHED_POLICY", "none", 1);
    if (pthread_atfork(before_fork, in_parent, in_child) != 0) {
        guard_say("cannot follow fork(2); this program runs unguarded");
        guard_control = -1;
    }
}
