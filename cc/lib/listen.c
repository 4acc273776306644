/* cc_createlsock: a listening socket, and a guard whose gate accepts on it.
 *
 * Runs in: a server, once at its start. Sees: the server's own arguments. Never: keeps the listening socket; starts
 * the guard as a child that the server's wait(2) would meet. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../core/cc_core.h"
#include "../include/cc.h"
#include "table.h"

/* Where the guard finds its end of the control channel. */
#define CONTROL_IN_GUARD 3

static bool is_policy(const char *filter)
{
    static const char *const policies[] = {CC_FILTER_REQUEST, CC_FILTER_PERSIST, CC_FILTER_CHECK, CC_FILTER_PRIOR,
                                           CC_FILTER_SLOWREAD};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        if (strcmp(filter, policies[i]) == 0)
            return true;
    return false;
}

/* bulkhead guard --control 3 [--policy NAME | --filter "PROGRAM ARGS" | --OPTION=VALUE]...: to be freed by the caller,
 * its strings not. The guard wants the client's side first, as in a pipe; filters[] has it last. */
static char **guard_arguments(char *filters[])
{
    size_t count = 0;
    while (filters && filters[count])
        count++;
    char **arguments = calloc(4 + 2 * count + 1, sizeof *arguments);
    if (!arguments)
        return NULL;
    char *program = getenv("BULKHEAD");
    size_t at = 0;
    arguments[at++] = program ? program : "bulkhead";
    arguments[at++] = "guard";
    arguments[at++] = "--control";
    arguments[at++] = "3";
    while (count-- > 0) {
        if (strncmp(filters[count], "--", 2) != 0)
            arguments[at++] = is_policy(filters[count]) ? "--policy" : "--filter";
        arguments[at++] = filters[count];
    }
    return arguments;
}

/* In the child: becomes the guard, or says on `fault` why not. Only what is allowed after a fork in a threaded program. */
static _Noreturn void become_guard(char *const arguments[], int control, int fault)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    /* Its life ends with the control channel, and not with a key pressed at the server's terminal. A second fork makes
     * it nobody's child. */
    setsid();
    pid_t pid = fork();
    if (pid > 0)
        _exit(0);
    /* `control` may be what `fault` is to make room for: so `fault` moves out of the way first. */
    fault = fcntl(fault, F_DUPFD_CLOEXEC, CONTROL_IN_GUARD + 1);
    if (pid == 0 && fault >= 0 && (control == CONTROL_IN_GUARD ? fcntl(control, F_SETFD, 0) : dup2(control, 3)) >= 0)
        execvp(arguments[0], arguments);
    int error = errno;
    if (fault >= 0 && write(fault, &error, sizeof error) < 0)
        _exit(2);
    _exit(1);
}

/* Starts the guard; everything that this process holds is close-on-exec, as far as it is the library's. */
static int start_guard(char *const arguments[], int control)
{
    int fault[2], error = 0;
    if (pipe2(fault, O_CLOEXEC) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0)
        become_guard(arguments, control, fault[1]);
    if (pid < 0)
        error = errno;
    close(fault[1]);
    /* The end of the pipe is the exec; anything in it is the error that prevented it. */
    ssize_t got = -1;
    while (pid > 0 && (got = read(fault[0], &error, sizeof error)) < 0 && errno == EINTR)
        ;
    close(fault[0]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    errno = error;
    return pid > 0 && got == 0 ? 0 : -1;
}

/* A guard, with our end of the channel to it; NULL with errno. */
static struct cci_guard *new_guard(char *filters[])
{
    int ends[2] = {-1, -1};
    struct cci_guard *guard = calloc(1, sizeof *guard);
    char **arguments = guard_arguments(filters);

    if (!guard || !arguments || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0 ||
        start_guard(arguments, ends[1]) < 0) {
        if (ends[0] >= 0)
            close(ends[0]);
        free(guard);
        guard = NULL;
    } else {
        *guard = (struct cci_guard){.control = ends[0], .process = -1, .child_process = -1, .descriptors = 1};
    }
    if (ends[1] >= 0)
        close(ends[1]);
    free(arguments);
    return guard;
}

static int listen_on(const struct sockaddr *address, socklen_t length, int backlog)
{
    /* Not blocking, for the gate: it accepts all there are, and whether it waits is a matter of the socket. */
    int listener = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0)
        return -1;
    int on = 1;
    if (setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 || bind(listener, address, length) < 0 ||
        listen(listener, backlog) < 0) {
        int error = errno;
        close(listener);
        errno = error;
        return -1;
    }
    return listener;
}

int cc_createlsock_on(const struct sockaddr *address, socklen_t length, int backlog, char *filters[])
{
    /* Two libraries in one process would both speak for it: a program of ours is not put behind a second guard. */
    if (getenv(CC_CONTROL_VARIABLE)) {
        errno = EBUSY;
        return -1;
    }
    int listener = listen_on(address, length, backlog);
    if (listener < 0)
        return -1;
    struct cci_guard *guard = new_guard(filters);
    if (!guard) {
        close(listener);
        return -1;
    }
    int channel = cc_core_adopt(guard->control, listener, 0);
    close(listener);
    cci_lock();
    LIST_INSERT_HEAD(&cci_guards, guard, all);
    if (channel < 0 || cci_put(channel, CCI_GUARD, guard) < 0) {
        guard->descriptors = 0;
        cci_guard_release(guard);
        if (channel >= 0)
            close(channel);
        channel = -1;
    }
    cci_unlock();
    return channel;
}

int cc_createlsock(struct in_addr sin_addr, in_port_t sin_port, int backlog, char *filters[])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = sin_addr, .sin_port = sin_port};
    return cc_createlsock_on((struct sockaddr *)&address, sizeof address, backlog, filters);
}
