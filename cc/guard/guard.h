/*
 * The preload library: what its files share.
 *
 * It gives a server that knows nothing of it connections from a gate in the place of its own listening socket, and
 * gives them back between requests. It is active only where the environment names a control channel (see cc_core.h).
 *
 * Runs in: every process of a guarded server, with the server's own privilege. Sees: what the gate sends (trusted),
 * bytes of clients and of the server. Never: makes the server fail; where something does not work out, the call does
 * what it does without this library.
 *
 * Order of locks: an entry's, then the table's or the channel's, then that of what is kept. Nothing is allocated by malloc(3), and nothing is
 * locked for a descriptor that is not in the table: such calls are safe where they were. While a thread holds a lock,
 * `guard_inside` is set: what a signal's handler calls then is not followed, and so waits for no lock of its own thread.
 */
#ifndef GUARD_H
#define GUARD_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "cc_core.h"
#include "exchange.h"
#include "real.h"

#define EXPORT __attribute__((visibility("default")))

/* LIMIT: descriptors that can be guarded; what the kernel allows a process by default (fs.nr_open). */
enum { DESCRIPTORS_MAX = 1 << 20 };

/* LIMIT: epoll sets that one connection may be in. Servers use one; a connection in more stays with the server. */
enum { WATCHES_MAX = 4 };

enum kind {
    BOUND,    /* a TCP socket that believes to have another address than it has (BULKHEAD_GUARD_LISTEN) */
    LISTENER, /* the shared channel, in the place of a listening socket */
    CLIENT,   /* a connection */
    GONE,     /* a dead socket, in the place of a connection that went back to the gate */
};

struct address {
    socklen_t length;
    union { struct sockaddr any; struct sockaddr_in v4; struct sockaddr_in6 v6; } is;
};

/* A descriptor's place in an epoll set. */
struct watch {
    bool used;
    bool widened; /* EPOLLOUT was added, because bytes are waiting here and not in the socket */
    bool paused;  /* EPOLLIN was taken away, because what is in the socket is for later */
    int set, fd;
    struct epoll_event event; /* as the server asked */
};

struct entry {
    pthread_mutex_t lock;
    _Atomic enum kind kind;
    unsigned references;          /* descriptors of this process; the table's lock */
    struct entry *next;           /* free, or pending; the table's lock */
    bool pending;                 /* in the list of those with taken bytes; the table's lock */
    bool announced;               /* this process has told the gate that it holds it */
    bool paused;                  /* one of `watches` is */
    bool corked, unwatched;       /* TCP_CORK is set; it is in epoll sets that `watches` does not know */
    bool hidden;                  /* the server has been told that nothing was there, and something was */
    _Atomic bool kept;            /* it waits for its next request here; with `lock`, the next four are keep.c's */
    int kept_fd;
    int64_t kept_until;
    struct entry *keep_next, *keep_before;
    uint64_t id, cookie;          /* the gate's number for it; the kernel's, by which a descriptor is known again */
    struct address peer, local;
    struct watch watches[WATCHES_MAX];
    unsigned char *_Atomic taken; /* bytes that come before those in the socket, from `taken_at` on; or NULL */
    size_t taken_at, taken_size;
    struct exchange exchange;
};

/* guard.c */
extern int guard_control;            /* the control descriptor; -1: not active */
extern bool guard_persists;          /* connections go back between requests; false: they stay with the server */
extern bool guard_filters;           /* there are filters, which have read the head of what is accepted */
extern pid_t guard_owner;            /* whose table this is: a child of vfork(2) shares its memory */
extern __thread int guard_inside;    /* the library's own calls are not followed */
extern _Atomic bool guard_shares_memory; /* this program may have children in its memory */
bool guard_mine(void);
void guard_forked(void);             /* in a process that accepts: makes the table its own, if it is its parent's */
void guard_say(const char *what);

/* table.c */
extern _Atomic(struct entry *) table_entries[DESCRIPTORS_MAX];
extern _Atomic int table_top;        /* the highest descriptor that was ever in it */
extern _Atomic int table_pending;    /* how many entries have taken bytes */
struct ended { bool tell; uint64_t id; };
struct entry *table_new(enum kind kind);
void table_put(int fd, struct entry *entry);         /* a new entry's first descriptor */
void table_share(int from, int to);                  /* after dup(2) */
struct ended table_take(int fd);                     /* before close(2); `tell`: the gate is to be told */
void table_discard(struct entry *entry);             /* one that was never put */
void table_set_pending(struct entry *entry, bool pending);
struct entry *table_first_pending(void);             /* with table_lock held */
void table_lock(void), table_unlock(void);
void table_after_fork(void);
unsigned char *table_buffer(void);                   /* CC_TAKEN_MAX bytes, or NULL */
void table_buffer_back(unsigned char *buffer);

static inline struct entry *entry_of(int fd)
{
    if (fd < 0 || fd >= DESCRIPTORS_MAX || guard_inside)
        return NULL;
    return atomic_load_explicit(&table_entries[fd], memory_order_acquire);
}

static inline struct entry *client_of(int fd)
{
    struct entry *entry = entry_of(fd);
    return entry && entry->kind == CLIENT ? entry : NULL;
}

/* channel.c: this process's channel to the gate. False: the gate could not be told. */
bool channel_took(const struct entry *entry);
bool channel_done(uint64_t id);
bool channel_back(const struct entry *entry, int fd);
bool channel_served(uint32_t requests);
void channel_say_gathered(void);                     /* what a thread that waits for events has left to be said */
int channel_before_wait(int timeout);
extern __thread bool channel_waits_for_events;
int channel_keep(struct cc_keep *keep);              /* as cc_core_keep */
void channel_watch(void);                            /* has keep.c hear it, if there is one */
int channel_descriptor(void);
void channel_lock(void), channel_unlock(void), channel_after_fork(void);

/* client.c: bytes moved between the server and a client; with NULL, bytes that were not seen. errno is kept. */
enum way { READ, WROTE };
void client_moved(struct entry *entry, int fd, enum way way, const struct iovec *parts, size_t count);
void client_take_leftover(struct entry *entry);
void client_give_back(struct entry *entry, int fd);  /* with the entry's lock held, between two requests */

/* keep.c */
enum kept_read { KEPT_OTHER, KEPT_NOTHING };
bool keep_begin(struct entry *entry, int fd);        /* with the entry's lock held; false: it is not kept */
void keep_end(struct entry *entry);                  /* with the entry's lock held */
bool keep_leave(int fd);                             /* gives it back, if it is kept and this process's */
void keep_give_back(unsigned count);                 /* all but so many, and those whose time is over */
enum kept_read keep_read(struct entry *entry, int fd, int flags);
unsigned keep_count(void);
bool keep_heard(void);                               /* whether the gate has ever answered this channel */
void keep_in(int epoll_set);
bool keep_watches(int epoll_set);
void keep_forget_set(int fd);                        /* `fd` is to be closed */
void keep_forget_range(unsigned first, unsigned last);
void keep_begin_hearing(int channel);                /* with the channel's lock held */
int keep_before_wait(int timeout);
int keep_events(int epoll_set, struct epoll_event *events, int count);
void keep_lock(void), keep_unlock(void), keep_after_fork(void);

/* epoll.c; all with the entry's lock held */
void watch_leave(struct entry *entry);               /* out of all sets */
void watch_return(struct entry *entry);              /* into them again, whatever the descriptor is now */
void watch_widen(struct entry *entry);               /* there are taken bytes, which are to be read */
void watch_narrow(struct entry *entry);              /* they have been read */
void watch_pause(struct entry *entry);               /* until the answer is complete, nothing is to be read */
void watch_resume(struct entry *entry);
void watch_again(struct entry *entry);               /* reports what is there, where only changes are reported */
void watch_forget(struct entry *entry, int fd);      /* the descriptor is to be closed */

/* leave.c: those of a message's descriptors that are clients' connections are not to be used by who gets them */
void leave_in(const struct msghdr *message);

/* listen.c */
struct entry *listener_known_again(int fd);          /* one that was inherited through exec(2), or NULL */

#endif
