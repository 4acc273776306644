/* Takes a part of one core away, all the time: what is left is what servers have in a measurement of throughput.
 *
 * Started by bench/conditioning/run as root, on the servers' core, and killed by it. It reads nothing, and ends with
 * whoever has started it.
 *
 *   ballast PERCENT
 *
 * Clients and attackers share the other core. Without this, a server as quick as its clients is waiting for them, and
 * what the attackers take from that core looks like harm that they have done to the server.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

/* Short beside a measurement, long beside a switch of processes, and out of step with the kernel's ticks, by which time
 * is counted. */
enum { PERIOD_NS = 2310000 };

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int main(int count, char **words)
{
    const int percent = count == 2 ? atoi(words[1]) : 0;
    const struct sched_param first = { .sched_priority = 1 };
    if (percent < 1 || percent > 90) {
        fputs("usage: ballast PERCENT, which is 1 to 90\n", stderr);
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (sched_setscheduler(0, SCHED_FIFO, &first) != 0) {
        perror("ballast: sched_setscheduler");
        return 1;
    }
    for (uint64_t next = now();; next += PERIOD_NS) {
        const struct timespec until = { (time_t)(next / 1000000000u), (long)(next % 1000000000u) };
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        while (now() < next + PERIOD_NS / 100 * (uint64_t)percent)
            ;
        /* After a pause of the whole machine nothing is made up for. */
        if (now() > next + PERIOD_NS)
            next = now();
    }
}
