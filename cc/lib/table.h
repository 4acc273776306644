/* What the library remembers: the guards that it started, the connections that it accepted, which descriptors refer
 * to which, and one lock for all of it.
 *
 * Runs in: a server that is linked with the library. Sees: nothing by itself. Never: blocks with the lock held, but for
 * a message of a few bytes to the gate, which always reads. */
#ifndef CC_TABLE_H
#define CC_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "../core/exchange.h"

/* What cc_createlsock started. It stays until neither a listening descriptor nor a connection of it is left. */
struct cci_guard {
    LIST_ENTRY(cci_guard) all;
    int control;       /* to the guard; its end is the end of the server */
    int process;       /* to the gate, this process's own; -1 until it is needed */
    int child_process; /* the same for the child that cc_fork is about to make */
    int descriptors;   /* that listen */
    int connections;
};

/* The part of a connection that all processes of cc_fork see, in a page of its own: it goes when the last of them
 * unmaps it or dies. LIMIT: a process may have 65,530 such pages (vm.max_map_count). */
struct cci_shared {
    atomic_int holders;    /* processes */
    atomic_bool abandoned; /* one of them closed it for all */
};

struct cci_watch;

struct cci_connection {
    LIST_ENTRY(cci_connection) all;
    struct cci_guard *guard;
    uint64_t id;
    struct sockaddr_storage peer;
    socklen_t peerlen;
    int descriptors;           /* of this process that refer to it */
    struct cci_shared *shared; /* NULL until cc_fork */
    bool abandoned;            /* it ends with its last descriptor */
    bool foreign;              /* a plain fork(2) brought it here: another process answers for it */
    struct exchange exchange;  /* how far cc_read got in the request; what is written is not followed */
    LIST_HEAD(, cci_watch) watches;
    size_t next, len; /* of `taken`: what cc_read has not returned yet begins at `next` */
    unsigned char taken[];
};

/* An epoll set of cc_epoll_create1. */
struct cci_set {
    int epfd; /* our own copy: the program's may be closed before its duplicates */
    int wake; /* an eventfd within the set, readable as long as `ready` is not empty */
    int descriptors;
    TAILQ_HEAD(cci_ready, cci_watch) ready;
    LIST_HEAD(, cci_watch) watches;
};

/* A connection's descriptor in an epoll set. */
struct cci_watch {
    LIST_ENTRY(cci_watch) of_connection, of_set;
    TAILQ_ENTRY(cci_watch) in_ready; /* if its request is buffered, is asked for, and was not told already */
    struct cci_connection *connection;
    struct cci_set *set;
    struct epoll_event event;
    int fd;
    bool ready;
};

/* Why a descriptor is forgotten. */
enum cci_end {
    CCI_BACK,    /* the server is done with it */
    CCI_ABANDON, /* the server wants the connection to end */
    CCI_LOST     /* it was closed without telling us; its number is another file's now, which must be left alone */
};

enum cci_kind { CCI_NONE, CCI_GUARD, CCI_CONNECTION, CCI_SET };

/* Takes the lock, and notices if this is the child of a plain fork(2). */
void cci_lock(void);
void cci_unlock(void);

/* All with the lock held. */
void *cci_find(int fd, enum cci_kind kind);
int cci_put(int fd, enum cci_kind kind, void *what); /* -1 with errno if there is no memory */
int cci_copy(int from, int to);                      /* `to` refers to what `from` does, which may be nothing */
void cci_forget(int fd, enum cci_end end);           /* before `fd` is closed, if it is not lost */

/* Guards and connections of this process. */
LIST_HEAD(cci_guards, cci_guard);
LIST_HEAD(cci_connections, cci_connection);
extern struct cci_guards cci_guards;
extern struct cci_connections cci_connections;
extern int cci_buffered; /* how many connections have something buffered */

void cci_guard_release(struct cci_guard *guard); /* frees it if nothing refers to it */
int cci_guard_process(struct cci_guard *guard);  /* its process channel, made if need be; or -1 */
void cci_is_owner(void);                         /* this process answers for what the table holds */

/* connection.c */
void cci_connection_add(struct cci_connection *connection, struct cci_guard *guard);
bool cci_is_buffered(const struct cci_connection *connection);
void cci_took(struct cci_connection *connection, size_t count); /* of what is buffered */
void cci_connection_release(struct cci_connection *connection, int fd, enum cci_end end);

/* epoll.c */
void cci_watch_free(struct cci_watch *watch);
void cci_watches_quiet(struct cci_connection *connection); /* nothing is buffered any more */
void cci_watches_leave(struct cci_connection *connection, int fd);
void cci_set_release(struct cci_set *set);

#endif
