/*
 * Epoll sets: which ones a guarded descriptor is in, so that what takes its place can be put there too; and waiting
 * for bytes that are here, and not in the socket.
 *
 * Runs in: a guarded server. Sees: nothing of the network. Never: leaves a connection that is the gate's again in a set.
 *
 * Of a connection with taken bytes the kernel says nothing. While it has some, EPOLLOUT is added to what the server
 * asks for: the kernel says at once that one can write, and the server is told that it can read.
 */
#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <limits.h>
#include <time.h>

static bool widens(const struct entry *entry, const struct epoll_event *event)
{
    return entry->kind == CLIENT && entry->pending && event->events & EPOLLIN && !(event->events & EPOLLEXCLUSIVE);
}

static struct watch *watch_of(struct entry *entry, int set, int fd)
{
    for (int i = 0; i < WATCHES_MAX; i++)
        if (entry->watches[i].used && entry->watches[i].set == set && entry->watches[i].fd == fd)
            return &entry->watches[i];
    return NULL;
}

static void note(struct entry *entry, int set, int fd, const struct epoll_event *event, bool widened)
{
    struct watch *watch = watch_of(entry, set, fd);
    for (int i = 0; i < WATCHES_MAX && !watch; i++)
        if (!entry->watches[i].used)
            watch = &entry->watches[i];
    if (watch)
        *watch = (struct watch){.used = true, .widened = widened, .set = set, .fd = fd, .event = *event};
    else
        entry->unwatched = true;
}

static int change(struct entry *entry, int set, int operation, int fd, const struct epoll_event *event)
{
    const bool adds = operation != EPOLL_CTL_DEL && event;
    if (adds && entry->kind == LISTENER)
        keep_in(set);
    else if (adds && entry->kept && !keep_watches(set))
        client_give_back(entry, fd);
    struct epoll_event asked = adds ? *event : (struct epoll_event){0};
    const bool widened = adds && widens(entry, event);
    if (widened)
        asked.events |= EPOLLOUT;
    const int result = real()->epoll_ctl(set, operation, fd, adds ? &asked : NULL);
    struct watch *watch = watch_of(entry, set, fd);
    if (result == 0 && adds)
        note(entry, set, fd, event, widened);
    else if (result == 0 && watch)
        watch->used = false;
    return result;
}

EXPORT int epoll_ctl(int set, int operation, int fd, struct epoll_event *event)
{
    struct entry *entry = entry_of(fd);
    if (!entry)
        return real()->epoll_ctl(set, operation, fd, event);
    guard_inside++;
    pthread_mutex_lock(&entry->lock);
    const int result = change(entry, set, operation, fd, event);
    pthread_mutex_unlock(&entry->lock);
    guard_inside--;
    return result;
}

void watch_leave(struct entry *entry)
{
    for (int i = 0; i < WATCHES_MAX; i++) {
        struct watch *watch = &entry->watches[i];
        /* A set that was closed, or is another one now, does not know it. */
        if (watch->used && real()->epoll_ctl(watch->set, EPOLL_CTL_DEL, watch->fd, NULL) < 0)
            watch->used = false;
    }
}

void watch_return(struct entry *entry)
{
    for (int i = 0; i < WATCHES_MAX; i++) {
        struct watch *watch = &entry->watches[i];
        watch->widened = watch->paused = false;
        if (watch->used && real()->epoll_ctl(watch->set, EPOLL_CTL_ADD, watch->fd, &watch->event) < 0)
            watch->used = false;
    }
}

void watch_widen(struct entry *entry)
{
    if (entry->pending)
        return;
    table_set_pending(entry, true);
    for (int i = 0; i < WATCHES_MAX; i++) {
        struct watch *watch = &entry->watches[i];
        struct epoll_event more = watch->event;
        if (!watch->used || !widens(entry, &more))
            continue;
        more.events |= EPOLLOUT;
        watch->widened = true;
        /* One that reports once is asked for again by the server. */
        if (!(more.events & EPOLLONESHOT))
            real()->epoll_ctl(watch->set, EPOLL_CTL_MOD, watch->fd, &more);
    }
}

void watch_narrow(struct entry *entry)
{
    for (int i = 0; i < WATCHES_MAX; i++) {
        struct watch *watch = &entry->watches[i];
        if (!watch->used || !watch->widened)
            continue;
        watch->widened = false;
        /* One that reports once has reported; changing it would make it report again. */
        if (!(watch->event.events & EPOLLONESHOT))
            real()->epoll_ctl(watch->set, EPOLL_CTL_MOD, watch->fd, &watch->event);
    }
}

/* Of a set that reports changes only there will be no report. */
void watch_pause(struct entry *entry)
{
    for (int i = 0; i < WATCHES_MAX; i++) {
        struct watch *watch = &entry->watches[i];
        struct epoll_event less = watch->event;
        if (!watch->used || watch->paused || !(less.events & EPOLLIN) || less.events & (EPOLLET | EPOLLONESHOT))
            continue;
        less.events &= ~(uint32_t)(EPOLLIN | EPOLLRDNORM);
        watch->paused = real()->epoll_ctl(watch->set, EPOLL_CTL_MOD, watch->fd, &less) == 0;
        entry->paused |= watch->paused;
    }
}

void watch_resume(struct entry *entry)
{
    for (int i = 0; i < WATCHES_MAX; i++) {
        struct watch *watch = &entry->watches[i];
        if (watch->used && watch->paused)
            real()->epoll_ctl(watch->set, EPOLL_CTL_MOD, watch->fd, &watch->event);
        watch->paused = false;
    }
    entry->paused = false;
}

void watch_again(struct entry *entry)
{
    for (int i = 0; i < WATCHES_MAX; i++) {
        struct watch *watch = &entry->watches[i];
        if (watch->used && (watch->event.events & (EPOLLET | EPOLLONESHOT)) == EPOLLET)
            real()->epoll_ctl(watch->set, EPOLL_CTL_MOD, watch->fd, &watch->event);
    }
}

/* The kernel forgets a descriptor that is closed only if it was the last of its connection. */
void watch_forget(struct entry *entry, int fd)
{
    for (int i = 0; i < WATCHES_MAX; i++) {
        if (!entry->watches[i].used || entry->watches[i].fd != fd)
            continue;
        entry->watches[i].used = false;
        entry->unwatched = true;
    }
}

/* With the table's lock held: whether `watch` made this event come. */
static bool came_from(const struct watch *watch, int set, const struct epoll_event *event)
{
    return watch->used && watch->widened && watch->set == set && watch->event.data.u64 == event->data.u64;
}

static void translate(int set, struct epoll_event *event)
{
    for (struct entry *entry = table_first_pending(); entry; entry = entry->next) {
        for (int i = 0; i < WATCHES_MAX; i++) {
            const struct watch *watch = &entry->watches[i];
            if (!came_from(watch, set, event))
                continue;
            if (!(watch->event.events & EPOLLOUT))
                event->events &= ~(uint32_t)EPOLLOUT;
            event->events |= EPOLLIN;
            return;
        }
    }
}

static int translated(int set, struct epoll_event *events, int count)
{
    if (count > 0)
        count = keep_events(set, events, count);
    if (!table_pending || count <= 0)
        return count;
    guard_inside++;
    table_lock();
    for (int i = 0; i < count; i++)
        if (events[i].events & EPOLLOUT)
            translate(set, &events[i]);
    table_unlock();
    guard_inside--;
    return count;
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int wait_once(int set, struct epoll_event *events, int count, int timeout, const sigset_t *mask)
{
    return mask ? real()->epoll_pwait(set, events, count, timeout, mask)
                : real()->epoll_wait(set, events, count, timeout);
}

/* Waits as long as the server asks for in the set that keep.c watches, and in between does what is due. */
static int wait_and_keep(int set, struct epoll_event *events, int count, int timeout, const sigset_t *mask)
{
    const int64_t end = timeout > 0 ? now_ms() + timeout : 0;
    channel_waits_for_events = true;
    for (int left = timeout;;) {
        const int part = channel_before_wait(left ? keep_before_wait(left) : 0);
        const int got = wait_once(set, events, count, part, mask), ours = translated(set, events, got);
        if (got == 0)
            channel_say_gathered();
        if (got < 0 || ours > 0 || !left)
            return ours;
        if (timeout > 0 && (left = (int)(end - now_ms())) <= 0)
            return 0;
    }
}

static int wait_for(int set, struct epoll_event *events, int count, int timeout, const sigset_t *mask)
{
    if (keep_watches(set))
        return wait_and_keep(set, events, count, timeout, mask);
    return translated(set, events, wait_once(set, events, count, timeout, mask));
}

EXPORT int epoll_wait(int set, struct epoll_event *events, int count, int timeout)
{
    return wait_for(set, events, count, timeout, NULL);
}

EXPORT int epoll_pwait(int set, struct epoll_event *events, int count, int timeout, const sigset_t *mask)
{
    return wait_for(set, events, count, timeout, mask);
}

EXPORT int epoll_pwait2(int set, struct epoll_event *events, int count, const struct timespec *timeout,
                        const sigset_t *mask)
{
    if (!keep_watches(set))
        return translated(set, events, real()->epoll_pwait2(set, events, count, timeout, mask));
    const int64_t ms = timeout ? (int64_t)timeout->tv_sec * 1000 + (timeout->tv_nsec + 999999) / 1000000 : -1;
    return wait_for(set, events, count, ms > INT_MAX ? INT_MAX : (int)ms, mask);
}
