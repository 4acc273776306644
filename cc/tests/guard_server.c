/* A server in C under the preload library, for what no interpreter does: guard_server SCENARIO PORT.
 *
 * Runs in: the tests (test_guard_edges.py). Sees: one client's requests. Never: knows of the library. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "Traceback: line %d: not so: %s\n", __LINE__, #what);                                      \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static int client;

/* Whether the request was one for /last. */
static int serve_one(void)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    char text[4096] = "";
    size_t size = 0;
    while (!strstr(text, "\r\n\r\n")) {
        const ssize_t got = read(client, text + size, sizeof text - 1 - size);
        CHECK(got > 0);
        size += (size_t)got;
    }
    CHECK(write(client, answer, sizeof answer - 1) == sizeof answer - 1);
    return strstr(text, "/last") != NULL;
}

/* What a child of vfork(2) does with the number of the connection, it does with a descriptor of its own. */
static void vforking(void)
{
    int ends[2], status;
    char got[8] = "";
    CHECK(pipe(ends) == 0);
    const pid_t pid = vfork();
    if (pid == 0) {
        dup2(ends[1], client);
        const int written = write(client, "child\r\n", 7) == 7 && close(client) == 0;
        _exit(!written);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(read(ends[0], got, 7) == 7 && strcmp(got, "child\r\n") == 0);
}

static void copy_it(int signal)
{
    (void)signal;
    const int copy = dup(client);
    if (copy >= 0)
        close(copy);
}

/* dup(2) and close(2) are allowed in a signal's handler, and it may interrupt these calls themselves. */
static void interrupted(void)
{
    const struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    CHECK(signal(SIGALRM, copy_it) != SIG_ERR && setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (const time_t end = time(NULL) + 2; time(NULL) < end;)
        for (int i = 0; i < 1000; i++)
            CHECK(close(dup(client)) == 0);
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

/* A child of vfork(2) waits for events when the gate has said something. */
static void hear_in_child(int set)
{
    struct epoll_event event;
    struct pollfd said = {.fd = set, .events = POLLIN};
    int status;
    CHECK(poll(&said, 1, -1) == 1);
    const pid_t pid = vfork();
    if (pid == 0)
        _exit(epoll_wait(set, &event, 1, 0));
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* Waits in one epoll set, and so may keep connections. */
static void keeping(int listener)
{
    const int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, listener, &event) == 0);
    for (;;) {
        CHECK(epoll_wait(set, &event, 1, -1) == 1);
        client = event.data.fd;
        char byte;
        if (client == listener) {
            CHECK((event.data.fd = accept(listener, NULL, NULL)) >= 0);
            CHECK(epoll_ctl(set, EPOLL_CTL_ADD, event.data.fd, &event) == 0);
        } else if (recv(client, &byte, 1, MSG_PEEK) <= 0) {
            CHECK(close(client) == 0);
        } else if (serve_one()) {
            hear_in_child(set);
        }
    }
}

int main(int argc, char *argv[])
{
    CHECK(argc == 3);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((in_port_t)atoi(argv[2]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 9) == 0);
    if (strcmp(argv[1], "keeping") == 0)
        keeping(listener);
    CHECK((client = accept(listener, NULL, NULL)) >= 0);
    (strcmp(argv[1], "vforking") == 0 ? vforking : interrupted)();
    serve_one();
    CHECK(close(client) == 0);
    CHECK((client = accept(listener, NULL, NULL)) >= 0);
    serve_one();
    CHECK(close(client) == 0);
    return 0;
}
