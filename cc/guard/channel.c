/*
 * This process's own channel to the gate: what it has taken, closed, and gives back.
 *
 * Runs in: a guarded server. Sees: how many connections the gate lets it keep. Never: stays quiet about a connection that ended
 * while the gate can be told.
 */
#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int channel = -1;
static bool complained;

/* What is to be said when the thread that waits for events does so again: with `lock`. */
static uint64_t took[CC_BATCH_MAX], done[CC_BATCH_MAX];
static size_t took_count, done_count;
static _Atomic bool gathered;
static _Atomic int64_t gathered_since;

/* LIMIT: how long it may be left to be said, in milliseconds. */
enum { GATHER_TIME = 5 };

/* Whether this thread waits for events with the listener, and so says soon what it leaves to be said. */
__thread bool channel_waits_for_events __attribute__((tls_model("initial-exec")));

void channel_lock(void)
{
    pthread_mutex_lock(&lock);
}

void channel_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

int channel_descriptor(void)
{
    return channel;
}

/* The parent's end of the channel is closed here: the gate takes the channel's end for the parent's. */
void channel_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    if (channel >= 0)
        real()->close(channel);
    channel = -1;
    complained = false;
    took_count = done_count = 0;
    gathered = false;
}

/* With the lock held: the channel, made if need be. */
static int opened(void)
{
    if (channel < 0) {
        channel = cc_core_process(guard_control);
        if (channel >= 0)
            keep_begin_hearing(channel);
    }
    if (channel < 0 && !complained) {
        complained = true;
        guard_say("the guard cannot be reached; connections stay with this process");
    }
    return channel;
}

/* With the lock held. A gate that has gone may have a successor, which is reached through a new channel. To one that
 * does not listen, the end of the channel says that what it was not told of has ended. */
static bool told(int result)
{
    if (result < 0 && channel >= 0 && (errno == EPIPE || errno == ECONNRESET || errno == EAGAIN)) {
        real()->close(channel);
        channel = -1;
    }
    return result == 0;
}

/* With the lock held: says what was gathered. Everything else comes after it. */
static void say_gathered(void)
{
    if (gathered && opened() >= 0)
        told(cc_core_batch(channel, took, took_count, done, done_count));
    took_count = done_count = 0;
    gathered = false;
}

#define TELL(call)                                                                                                    \
    int error = errno, cancel;                                                                                        \
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);                                                          \
    guard_inside++;                                                                                                   \
    channel_lock();                                                                                                   \
    say_gathered();                                                                                                   \
    bool said = opened() >= 0 && told(call);                                                                          \
    channel_unlock();                                                                                                 \
    guard_inside--;                                                                                                   \
    pthread_setcancelstate(cancel, NULL);                                                                             \
    errno = error;                                                                                                    \
    return said

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* With the lock held: whether something more may be left to be said. The thread that waits for events begins; others add
 * to what that thread has begun, and so will say soon. */
static bool may_gather(size_t count)
{
    if (channel_waits_for_events)
        return true;
    return gathered && count < CC_BATCH_MAX && now_ms() - gathered_since < GATHER_TIME;
}

/* Whether `id` is left to be said with others. */
static bool gather(uint64_t *ids, size_t *count, uint64_t id)
{
    if (!keep_heard())
        return false;
    guard_inside++;
    channel_lock();
    const bool may = may_gather(*count);
    if (may) {
        if (*count == CC_BATCH_MAX)
            say_gathered();
        ids[(*count)++] = id;
        if (!gathered)
            gathered_since = now_ms();
        gathered = true;
    }
    channel_unlock();
    guard_inside--;
    return may;
}

void channel_say_gathered(void)
{
    if (!gathered)
        return;
    const int error = errno;
    int cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    guard_inside++;
    channel_lock();
    say_gathered();
    channel_unlock();
    guard_inside--;
    pthread_setcancelstate(cancel, NULL);
    errno = error;
}

/* How long the thread may wait for events that would wait for `timeout`. */
int channel_before_wait(int timeout)
{
    if (!gathered)
        return timeout;
    if (now_ms() - gathered_since >= GATHER_TIME) {
        channel_say_gathered();
        return timeout;
    }
    return timeout < 0 || timeout > GATHER_TIME ? GATHER_TIME : timeout;
}

bool channel_took(const struct entry *entry)
{
    if (gather(took, &took_count, entry->id))
        return true;
    struct cc_bundle bundle = {.id = entry->id};
    *(struct sockaddr_in6 *)&bundle.peer = entry->peer.is.v6;
    TELL(cc_core_took(channel, &bundle));
}

bool channel_done(uint64_t id)
{
    if (gather(done, &done_count, id))
        return true;
    TELL(cc_core_done(channel, id));
}

bool channel_back(const struct entry *entry, int fd)
{
    TELL(cc_core_back(channel, entry->id, fd, entry->taken ? entry->taken + entry->taken_at : NULL,
                      entry->taken ? entry->taken_size - entry->taken_at : 0));
}

bool channel_served(uint32_t requests)
{
    TELL(cc_core_served(channel, requests));
}

/* A channel that has ended would be reported for ever. */
int channel_keep(struct cc_keep *keep)
{
    channel_lock();
    const int got = channel >= 0 ? cc_core_keep(channel, keep) : 0;
    if (channel >= 0 && (got == 0 || (got < 0 && errno != EAGAIN && errno != EBADMSG))) {
        real()->close(channel);
        channel = -1;
    }
    channel_unlock();
    return got;
}

void channel_watch(void)
{
    channel_lock();
    if (channel >= 0)
        keep_begin_hearing(channel);
    channel_unlock();
}
