/* Ways to cut what ties a process to the launcher. */
#define _GNU_SOURCE
#include "attack.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What it is sent when the launcher ends: `first` to `second`. */
static int death_signal(const struct way *way) {
    for (long number = way->first; number <= way->second; number++)
        if (number != SIGKILL && prctl(PR_SET_PDEATHSIG, number, 0, 0, 0) == 0)
            return note("signal %ld", number), 0;
    return errno;
}

/* A filter of its own is nobody's loss; but not one whose listener would be asked in the place of the server's. */
static int own_listener(const struct way *way) {
    struct {
        unsigned short length;
        const void *code;
    } program = {1, (unsigned long long[]){0x7fff000000000006}};
    return failed(syscall(SYS_seccomp, 1, way->first, &program));
}

const struct attempt PROCESS[] = {
    {"death-signal-none", death_signal, 0, 0, 0},
    {"death-signal-urgent", death_signal, 0, SIGURG, SIGURG},
    {"death-signal-term", death_signal, 0, SIGTERM, SIGTERM},
    {"death-signal-any", death_signal, 0, 1, 64},
    {"own-listener", own_listener, 0, 8, 0},
    {NULL, NULL, 0, 0, 0},
};

static void *executes_again(void *words) {
    execve(own_path, words, (char *[]){NULL});
    return NULL;
}

/* A thread of which the kernel does not know that it is to die with the launcher takes the place of the first one. */
static int by_thread(void) {
    static char *words[] = {NULL, "service", "0", "without", NULL};
    pthread_t thread;
    words[0] = (char *)own_path;
    int error = pthread_create(&thread, NULL, executes_again, words);
    if (!error) pthread_join(thread, NULL);
    return error ? error : EPERM;
}

/* A child's child, which nobody waits for; in a session of its own if asked for. */
static int orphan(int session) {
    pid_t child = fork();
    if (child < 0) return errno;
    if (child > 0) return 0;
    if (session) setsid();
    if (fork() != 0) _exit(0);
    if (session) setsid();
    for (int fd = 0; fd < 64; fd++) close(fd);
    for (;;) pause();
}

int stay(const char *how) {
    struct way none = {-1, 0, 0, 0}, urgent = {-1, 0, SIGURG, SIGURG}, term = {-1, 0, SIGTERM, SIGTERM};
    if (strcmp(how, "without") == 0) return 0;
    if (strcmp(how, "none") == 0) return death_signal(&none);
    if (strcmp(how, "urgent") == 0) return death_signal(&urgent);
    if (strcmp(how, "term") == 0) return signal(SIGTERM, SIG_IGN), death_signal(&term);
    if (strcmp(how, "orphan") == 0) return orphan(0);
    if (strcmp(how, "session") == 0) return orphan(1);
    if (strcmp(how, "thread") == 0) return by_thread();
    return EINVAL;
}
