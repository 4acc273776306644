/* cc_epoll_create1, cc_epoll_ctl, cc_epoll_wait: an epoll set that knows of buffered requests.
 *
 * A set has an eventfd of its own in it, which is readable as long as a connection of the set has a request buffered
 * that is to be told. So whoever waits for the set, in cc_epoll_wait or by having it in another set, wakes up even if
 * another thread puts the connection into it meanwhile.
 *
 * Runs in: a server's processes and threads. Sees: nothing of clients. Never: tells of a connection that was closed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "../include/cc.h"
#include "table.h"

/* Its address is the eventfd's data in every set: no program's data is that. */
static char wake_mark;

/* Makes the eventfd as readable as `ready` is full. */
static void wake_if_ready(struct cci_set *set)
{
    eventfd_t ignored;
    if (TAILQ_EMPTY(&set->ready))
        eventfd_read(set->wake, &ignored);
    else
        eventfd_write(set->wake, 1);
}

static void set_ready(struct cci_watch *watch, bool ready)
{
    if (watch->ready == ready)
        return;
    watch->ready = ready;
    if (ready)
        TAILQ_INSERT_TAIL(&watch->set->ready, watch, in_ready);
    else
        TAILQ_REMOVE(&watch->set->ready, watch, in_ready);
    wake_if_ready(watch->set);
}

void cci_watch_free(struct cci_watch *watch)
{
    set_ready(watch, false);
    LIST_REMOVE(watch, of_connection);
    LIST_REMOVE(watch, of_set);
    free(watch);
}

void cci_watches_quiet(struct cci_connection *connection)
{
    struct cci_watch *watch;
    LIST_FOREACH(watch, &connection->watches, of_connection)
        set_ready(watch, false);
}

/* The kernel would go on telling of a connection that the gate has back, since the gate holds it open. */
void cci_watches_leave(struct cci_connection *connection, int fd)
{
    struct cci_watch *watch = LIST_FIRST(&connection->watches);
    while (watch) {
        struct cci_watch *next = LIST_NEXT(watch, of_connection);
        if (watch->fd == fd) {
            epoll_ctl(watch->set->epfd, EPOLL_CTL_DEL, fd, NULL);
            cci_watch_free(watch);
        }
        watch = next;
    }
}

void cci_set_release(struct cci_set *set)
{
    if (--set->descriptors > 0)
        return;
    while (!LIST_EMPTY(&set->watches))
        cci_watch_free(LIST_FIRST(&set->watches));
    close(set->wake);
    close(set->epfd);
    free(set);
}

/* The library's part of the set `epfd`; NULL with errno. */
static struct cci_set *new_set(int epfd)
{
    struct cci_set *set = calloc(1, sizeof *set);
    if (!set)
        return NULL;
    TAILQ_INIT(&set->ready);
    LIST_INIT(&set->watches);
    set->descriptors = 1;
    set->epfd = fcntl(epfd, F_DUPFD_CLOEXEC, 0);
    set->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &wake_mark};
    if (set->epfd >= 0 && set->wake >= 0 && epoll_ctl(epfd, EPOLL_CTL_ADD, set->wake, &event) == 0)
        return set;
    if (set->epfd >= 0)
        close(set->epfd);
    if (set->wake >= 0)
        close(set->wake);
    free(set);
    return NULL;
}

int cc_epoll_create1(int flags)
{
    int epfd = epoll_create1(flags);
    if (epfd < 0)
        return -1;
    struct cci_set *set = new_set(epfd);
    cci_lock();
    bool entered = set && cci_put(epfd, CCI_SET, set) == 0;
    if (set && !entered)
        cci_set_release(set);
    cci_unlock();
    if (!entered) {
        close(epfd);
        return -1;
    }
    return epfd;
}

static struct cci_watch *find_watch(struct cci_set *set, struct cci_connection *connection, int fd)
{
    struct cci_watch *watch;
    LIST_FOREACH(watch, &connection->watches, of_connection)
        if (watch->set == set && watch->fd == fd)
            return watch;
    return NULL;
}

static struct cci_watch *new_watch(struct cci_set *set, struct cci_connection *connection, int fd)
{
    struct cci_watch *watch = calloc(1, sizeof *watch);
    if (!watch)
        return NULL;
    watch->set = set;
    watch->connection = connection;
    watch->fd = fd;
    LIST_INSERT_HEAD(&connection->watches, watch, of_connection);
    LIST_INSERT_HEAD(&set->watches, watch, of_set);
    return watch;
}

/* Repeats for a connection of ours what the kernel has just done. */
static int follow(struct cci_set *set, struct cci_connection *connection, int op, int fd, struct epoll_event *event)
{
    struct cci_watch *watch = find_watch(set, connection, fd);
    if (op == EPOLL_CTL_DEL) {
        if (watch)
            cci_watch_free(watch);
        return 0;
    }
    if (!watch)
        watch = new_watch(set, connection, fd);
    if (!watch) {
        epoll_ctl(set->epfd, EPOLL_CTL_DEL, fd, NULL);
        errno = ENOMEM;
        return -1;
    }
    watch->event = *event;
    set_ready(watch, (event->events & (EPOLLIN | EPOLLRDNORM)) && cci_is_buffered(connection));
    return 0;
}

int cc_epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
    int result = 0;
    cci_lock();
    struct cci_set *set = cci_find(epfd, CCI_SET);
    struct cci_connection *connection = cci_find(fd, CCI_CONNECTION);
    result = epoll_ctl(epfd, op, fd, event);
    if (result == 0 && set && connection)
        result = follow(set, connection, op, fd, event);
    cci_unlock();
    return result;
}

/* One that is told only once, or only once until it is asked for again, is not told next time. */
static void was_told(struct cci_watch *watch)
{
    if (watch->event.events & EPOLLONESHOT) {
        struct epoll_event none = {.events = EPOLLONESHOT | EPOLLET, .data = watch->event.data};
        epoll_ctl(watch->set->epfd, EPOLL_CTL_MOD, watch->fd, &none);
    }
    if (watch->event.events & (EPOLLET | EPOLLONESHOT)) {
        set_ready(watch, false);
    } else {
        TAILQ_REMOVE(&watch->set->ready, watch, in_ready);
        TAILQ_INSERT_TAIL(&watch->set->ready, watch, in_ready);
    }
}

/* The buffered requests, into `events`; returns how many. `*ours` becomes false if `epfd` is no set of ours. */
static int tell_buffered(int epfd, struct epoll_event *events, int maxevents, bool *ours)
{
    int count = 0;
    cci_lock();
    struct cci_set *set = cci_find(epfd, CCI_SET);
    *ours = set != NULL;
    struct cci_watch *last = set ? TAILQ_LAST(&set->ready, cci_ready) : NULL;
    while (set && count < maxevents && !TAILQ_EMPTY(&set->ready)) {
        struct cci_watch *watch = TAILQ_FIRST(&set->ready);
        events[count].events = watch->event.events & (EPOLLIN | EPOLLRDNORM);
        events[count++].data = watch->event.data;
        was_told(watch);
        if (watch == last)
            break;
    }
    cci_unlock();
    return count;
}

/* Puts what the kernel told, at `events + count`, together with what was told already: one event for a connection, and
 * none for the eventfd. Returns how many there are. */
static int merge(struct epoll_event *events, int count, int more)
{
    int told = count;
    for (int i = count; i < count + more; i++) {
        if (events[i].data.ptr == &wake_mark)
            continue;
        int same = 0;
        while (same < count && events[same].data.u64 != events[i].data.u64)
            same++;
        if (same < count)
            events[same].events |= events[i].events;
        else
            events[told++] = events[i];
    }
    return told;
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int cc_epoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout)
{
    int64_t deadline = timeout > 0 ? now_ms() + timeout : 0;
    for (;;) {
        bool ours;
        int count = tell_buffered(epfd, events, maxevents, &ours);
        if (!ours)
            return epoll_wait(epfd, events, maxevents, timeout);
        if (count > 0 && count == maxevents)
            return count;
        int more = epoll_wait(epfd, events + count, maxevents - count, count > 0 ? 0 : timeout);
        if (more < 0)
            return count > 0 ? count : -1;
        int all = merge(events, count, more);
        if (all > 0 || more == 0)
            return all;
        /* Only the eventfd: another thread has put a connection into the set, or has just read its request. */
        if (timeout > 0)
            timeout = deadline > now_ms() ? (int)(deadline - now_ms()) : 0;
    }
}
