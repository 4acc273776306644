/*
 * Connections that stay with the server between two requests, as long as the gate allows it.
 *
 * Runs in: a guarded server. Sees: what the gate allows. Never: keeps a connection that nobody can take back, or one
 * beyond what the gate allows; gives the server a request that the gate would look at twice (usual.h).
 *
 * A connection is kept in a process that waits for events in one epoll set, in which the listener is. The process's own
 * channel to the gate is put there as well: what the gate says wakes the process, and here is where that is heard. What
 * is not asked for within a short time goes back to the gate, as does what the server would wait for in any other way,
 * closes or shuts down: to the server, the client has closed it.
 */
#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <time.h>

#include "usual.h"

/* LIMIT: how long a connection is kept without a request, in milliseconds. What rests longer is the gate's business. */
enum { KEEP_TIME = 1000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *oldest, *newest;
static _Atomic unsigned kept, allowed, served;
static _Atomic uint32_t head_bytes;
static _Atomic bool heard;
static _Atomic int set = -1; /* the epoll set that this is about */
static uint64_t marker;      /* its address tells the channel's events from others */

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool keep_heard(void)
{
    return heard;
}

unsigned keep_count(void)
{
    return kept;
}

void keep_lock(void)
{
    pthread_mutex_lock(&lock);
}

void keep_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* The child has its parent's connections and epoll set, but neither is its own. */
void keep_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    for (struct entry *entry = oldest; entry; entry = entry->keep_next)
        entry->kept = false;
    oldest = newest = NULL;
    kept = allowed = served = 0;
    heard = channel_waits_for_events = false;
    set = -1;
}

bool keep_watches(int epoll_set)
{
    return epoll_set >= 0 && epoll_set == set;
}

/* The server waits for its listener in this set. */
void keep_in(int epoll_set)
{
    int none = -1;
    if (guard_persists && !guard_filters && guard_mine() && atomic_compare_exchange_strong(&set, &none, epoll_set))
        channel_watch();
}

/* The process's channel is new: what the gate said on the one before it is of no more use. */
void keep_begin_hearing(int channel)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = &marker}};
    allowed = 0;
    heard = false;
    if (set < 0 || real()->epoll_ctl(set, EPOLL_CTL_ADD, channel, &event) < 0 || cc_core_keeps(channel) < 0)
        set = -1;
}

/* A set of that number was closed. */
void keep_forget_set(int fd)
{
    if (fd >= 0 && fd == set && guard_mine()) {
        set = -1;
        allowed = 0;
        heard = false;
        channel_say_gathered();
        keep_give_back(0);
    }
}

void keep_forget_range(unsigned first, unsigned last)
{
    const int watched = set;
    if (watched >= 0 && (unsigned)watched >= first && (unsigned)watched <= last)
        keep_forget_set(watched);
}

static bool only_in_set(const struct entry *entry)
{
    for (int i = 0; i < WATCHES_MAX; i++)
        if (entry->watches[i].used && entry->watches[i].set != set)
            return false;
    return true;
}

bool keep_begin(struct entry *entry, int fd)
{
    if (kept >= allowed || set < 0 || entry->taken || entry->hidden || entry->references != 1 || entry->unwatched ||
        !entry->announced || !only_in_set(entry))
        return false;
    keep_lock();
    entry->kept = true;
    entry->kept_fd = fd;
    entry->kept_until = now_ms() + KEEP_TIME;
    entry->keep_next = NULL;
    entry->keep_before = newest;
    *(newest ? &newest->keep_next : &oldest) = entry;
    newest = entry;
    kept++;
    keep_unlock();
    return true;
}

void keep_end(struct entry *entry)
{
    if (!entry->kept)
        return;
    keep_lock();
    *(entry->keep_before ? &entry->keep_before->keep_next : &oldest) = entry->keep_next;
    *(entry->keep_next ? &entry->keep_next->keep_before : &newest) = entry->keep_before;
    entry->kept = false;
    kept--;
    keep_unlock();
}

bool keep_leave(int fd)
{
    struct entry *entry = client_of(fd);
    if (!entry || !entry->kept || !guard_mine())
        return false;
    const int error = errno;
    int cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    guard_inside++;
    pthread_mutex_lock(&entry->lock);
    if (entry->kept)
        client_give_back(entry, fd);
    pthread_mutex_unlock(&entry->lock);
    guard_inside--;
    pthread_setcancelstate(cancel, NULL);
    errno = error;
    return true;
}

/* The oldest one, if there are more than `count` or its time is over; its descriptor, or -1. */
static int due(unsigned count, int64_t now)
{
    keep_lock();
    const int fd = oldest && (kept > count || oldest->kept_until <= now) ? oldest->kept_fd : -1;
    keep_unlock();
    return fd;
}

void keep_give_back(unsigned count)
{
    const int64_t now = now_ms();
    int fd;
    /* What cannot leave now, as in a child of vfork(2), is due again later. */
    while ((fd = due(count, now)) >= 0 && keep_leave(fd)) {
    }
}

static void report(void)
{
    const unsigned requests = atomic_exchange(&served, 0);
    if (requests)
        channel_served(requests);
}

/* What the gate has said. */
static void hear(void)
{
    struct cc_keep keep;
    int got;
    guard_inside++;
    while ((got = channel_keep(&keep)) > 0) {
        head_bytes = keep.head_bytes;
        allowed = keep.connections;
        heard = true;
    }
    guard_inside--;
    if (got == 0)
        allowed = 0;
    keep_give_back(allowed);
}

/* Before the server waits for events for `timeout` milliseconds: does what is due, and says how long to wait. */
int keep_before_wait(int timeout)
{
    static _Atomic int64_t reported;
    if (!allowed && !kept)
        return timeout;
    const int64_t now = now_ms();
    if (kept)
        keep_give_back(allowed);
    if (served && now - reported >= KEEP_TIME) {
        reported = now;
        report();
    }
    return timeout < 0 || timeout > KEEP_TIME ? KEEP_TIME : timeout;
}

/* Takes the channel's event out of `count` events, and hears what was said; how many are left. In a set that a child
 * has from its parent, it is the parent's. */
int keep_events(int epoll_set, struct epoll_event *events, int count)
{
    bool said = false;
    int left = 0;
    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr == &marker)
            said = true;
        else if (left++ < i)
            events[left - 1] = events[i];
    }
    if (said && keep_watches(epoll_set))
        hear();
    return left;
}

/* Before the server reads from a connection that is kept. A usual request is taken from the socket, and then it is the
 * server's; with any other, or where the server would wait for one, the connection goes back. KEPT_NOTHING: there is
 * nothing, and it is still kept. */
enum kept_read keep_read(struct entry *entry, int fd, int flags)
{
    enum kept_read result = KEPT_OTHER;
    int cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    guard_inside++;
    pthread_mutex_lock(&entry->lock);
    unsigned char *const buffer = entry->kept ? table_buffer() : NULL;
    const ssize_t got = buffer ? real()->recv(fd, buffer, CC_TAKEN_MAX, MSG_DONTWAIT) : 0;
    if (got > 0) {
        entry->taken_at = 0;
        entry->taken_size = (size_t)got;
        entry->taken = buffer;
        if (cc_usual_head(buffer, (size_t)got, head_bytes)) {
            keep_end(entry);
            cc_exchange_again(&entry->exchange);
            served++;
        } else {
            client_give_back(entry, fd);
        }
    } else if (buffer) {
        table_buffer_back(buffer);
        if (got == 0 || errno != EAGAIN)
            keep_end(entry);
        else if (flags & MSG_DONTWAIT || fcntl(fd, F_GETFL) & O_NONBLOCK)
            result = KEPT_NOTHING;
        else
            client_give_back(entry, fd);
    } else if (entry->kept) {
        client_give_back(entry, fd);
    }
    pthread_mutex_unlock(&entry->lock);
    guard_inside--;
    pthread_setcancelstate(cancel, NULL);
    if (result == KEPT_NOTHING)
        errno = EAGAIN;
    return result;
}

__attribute__((destructor)) static void end(void)
{
    if (guard_control < 0 || !guard_mine())
        return;
    channel_say_gathered();
    keep_give_back(0);
    report();
}
