/* The least that a chained process can cost on this machine: bare programs that pass a descriptor and 300 bytes on.
 *
 * Started by bench/conditioning/run on the core of the servers, without any privilege; it sees nothing of anybody's.
 * Each hop is a process that receives, sends and closes, with no jail, no uid of its own and nothing to look at: what
 * is above this figure is ours.
 *
 *   hop COUNT
 *
 * Prints the median time of a message through COUNT processes, in microseconds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HOPS_MAX = 64, BYTES = 300, ROUNDS = 20000 };

static char bytes[BYTES];

/* The descriptor that comes next; ends the process with the channel. */
static int take(int channel)
{
    union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control;
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control};
    if (recvmsg(channel, &message, MSG_CMSG_CLOEXEC) <= 0)
        _exit(0);
    int descriptor;
    memcpy(&descriptor, CMSG_DATA(&control.header), sizeof descriptor);
    return descriptor;
}

static void give(int channel, int descriptor)
{
    union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control = {0};
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control};
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof descriptor);
    memcpy(CMSG_DATA(&control.header), &descriptor, sizeof descriptor);
    if (sendmsg(channel, &message, MSG_NOSIGNAL) < 0)
        _exit(1);
}

static void pass_on(int in, int out)
{
    for (;;) {
        int descriptor = take(in);
        give(out, descriptor);
        close(descriptor);
    }
}

/* Starts `count` processes after one another; `first` and the channel from the last one stay here. */
static int chain(int count, int first, int last)
{
    for (int at = 0; at < count; at++) {
        int next[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, next) != 0)
            _exit(1);
        if (fork() == 0) {
            close(first);
            close(next[1]);
            pass_on(last, next[0]);
        }
        close(last);
        close(next[0]);
        last = next[1];
    }
    return last;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static int by_size(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

int main(int words, char **word)
{
    static double times[ROUNDS];
    int ends[2], count = words == 2 ? atoi(word[1]) : 0;
    if (count < 1 || count > HOPS_MAX || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0)
        return fprintf(stderr, "usage: hop 1..%d\n", HOPS_MAX), 2;
    int last = chain(count, ends[0], ends[1]);
    int passed = socket(AF_INET, SOCK_STREAM, 0);
    for (int at = 0; at < ROUNDS; at++) {
        double began = now();
        give(ends[0], passed);
        close(take(last));
        times[at] = now() - began;
    }
    qsort(times, ROUNDS, sizeof *times, by_size);
    printf("%.2f\n", times[ROUNDS / 2]);
    /* One after the other sees the end of its channel. */
    close(ends[0]);
    while (wait(NULL) > 0) {}
    return 0;
}
