/* Time in which the host had given a core of this machine to others, and in which nobody here could do anything.
 *
 * Included by client.c. On each core that is watched a thread that goes before all others wakes up every half a
 * millisecond; when it is late, nobody else had the core either.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

/* The kernel itself can hold such a thread up for less than LATE_NS. */
enum { CORES_MAX = 64, AWAY_MAX = 1 << 16, EVERY_NS = 500000, LATE_NS = 1000000 };

struct span {
    uint64_t from, to;
};

struct watched {
    atomic_size_t count;
    struct span *times;
};

static struct watched watched[CORES_MAX];
static int watched_count;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void *watch_core(void *of)
{
    struct watched *one = of;
    for (uint64_t due = now() + EVERY_NS;; due = now() + EVERY_NS) {
        const struct timespec until = {(time_t)(due / 1000000000u), (long)(due % 1000000000u)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        uint64_t time = now();
        size_t count = atomic_load(&one->count);
        if (time > due + LATE_NS && count < AWAY_MAX) {
            one->times[count] = (struct span){due, time};
            atomic_store(&one->count, count + 1);
        }
    }
    return NULL;
}

/* Watches these cores, which are given with commas, from now on; "-" is none. */
static bool watch(const char *cores)
{
    const struct sched_param before_all = {.sched_priority = 2};
    for (char *end; *cores >= '0' && *cores <= '9' && watched_count < CORES_MAX; cores = *end == ',' ? end + 1 : end) {
        struct watched *one = &watched[watched_count++];
        one->times = calloc(AWAY_MAX, sizeof *one->times);
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(strtoul(cores, &end, 10), &set);
        pthread_attr_t how;
        pthread_t thread;
        pthread_attr_init(&how);
        pthread_attr_setinheritsched(&how, PTHREAD_EXPLICIT_SCHED);
        pthread_attr_setschedpolicy(&how, SCHED_FIFO);
        pthread_attr_setschedparam(&how, &before_all);
        pthread_attr_setaffinity_np(&how, sizeof set, &set);
        if (!one->times || pthread_create(&thread, &how, watch_core, one) != 0)
            return false;
    }
    return *cores == '\0' || (*cores == '-' && watched_count == 0);
}

static int by_begin(const void *left, const void *right)
{
    const struct span *a = left, *b = right;
    return (a->from > b->from) - (a->from < b->from);
}

/* Replaces `all` by the times in which at least one core was away, in order; returns how many there are. */
static size_t away_times(struct span **all)
{
    size_t count = 0, kept = 0;
    *all = calloc((size_t)watched_count * AWAY_MAX + 1, sizeof **all);
    for (int at = 0; *all && at < watched_count; at++)
        for (size_t one = 0; one < atomic_load(&watched[at].count); one++)
            (*all)[count++] = watched[at].times[one];
    qsort(*all, count, sizeof **all, by_begin);
    for (size_t at = 1; at < count; at++) {
        struct span *last = &(*all)[kept], *next = &(*all)[at];
        if (next->from > last->to)
            (*all)[++kept] = *next;
        else if (next->to > last->to)
            last->to = next->to;
    }
    return count ? kept + 1 : 0;
}

/* How much of the time between `from` and `to` at least one core was away. */
static uint64_t away_between(const struct span *all, size_t count, uint64_t from, uint64_t to)
{
    uint64_t sum = 0;
    for (size_t at = 0; at < count && all[at].from < to; at++) {
        uint64_t begin = all[at].from > from ? all[at].from : from, end = all[at].to < to ? all[at].to : to;
        sum += end > begin ? end - begin : 0;
    }
    return sum;
}
