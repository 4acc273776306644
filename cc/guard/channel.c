/*
 * This process's own channel to the gate: what it has taken, closed, and gives back.
 *
 * Runs in: a guarded server. Sees: nothing; the gate does not answer. Never: stays quiet about a connection that ended
 * while the gate can be told.
 */
#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int channel = -1;
static bool complained;

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
}

/* With the lock held: the channel, made if need be. */
static int opened(void)
{
    if (channel < 0)
        channel = cc_core_process(guard_control);
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

#define TELL(call)                                                                                                    \
    int error = errno, cancel;                                                                                        \
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);                                                          \
    guard_inside++;                                                                                                   \
    channel_lock();                                                                                                   \
    bool done = opened() >= 0 && told(call);                                                                          \
    channel_unlock();                                                                                                 \
    guard_inside--;                                                                                                   \
    pthread_setcancelstate(cancel, NULL);                                                                             \
    errno = error;                                                                                                    \
    return done

bool channel_took(const struct entry *entry)
{
    struct cc_bundle bundle = {.id = entry->id};
    *(struct sockaddr_in6 *)&bundle.peer = entry->peer.is.v6;
    TELL(cc_core_took(channel, &bundle));
}

bool channel_done(uint64_t id)
{
    TELL(cc_core_done(channel, id));
}

bool channel_back(const struct entry *entry, int fd)
{
    TELL(cc_core_back(channel, entry->id, fd, entry->taken ? entry->taken + entry->taken_at : NULL,
                      entry->taken ? entry->taken_size - entry->taken_at : 0));
}
