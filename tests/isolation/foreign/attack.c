/* A program with raw system calls that speaks the protocol of a service, or is a filter, and tries to get out.
 *
 * Runs in: the jail of a service or a filter. Sees: requests, whose last word names an attempt. Never: is installed.
 *
 *     attack list                      the attempts, one a line
 *     attack service PORT [STAY]       on descriptor 3: the launcher's channel; with STAY it goes on without
 *     attack filter PORT               on descriptors 3 and 4: connections come in, and go on
 *
 * Each attempt is made in a child, as it may end the process; `report` answers with what came of all of them.
 */
#define _GNU_SOURCE
#include "attack.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GOT = 200, MANY = 512, CREDITS = 8, HEAD = 2 + 8 + 18 + 18 + 1 + 4, MESSAGE = 70000, PATIENCE = 8 };

static const struct attempt *const TABLES[] = {NETWORK, CONNECTION, MEMORY, PROCESS};

/* What came of an attempt, written by the child, read by its parent. */
struct outcome {
    char result[24], detail[100];
};

const char *own_path;
static struct outcome *outcomes, *current;
static int port, stays;

void note(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (current && !current->detail[0]) vsnprintf(current->detail, sizeof current->detail, format, arguments);
    va_end(arguments);
}

int failed(long result) {
    return result < 0 ? errno : 0;
}

/* The attempt of that number, or with that name; its number is written to `at`. */
static const struct attempt *attempt(const char *name, size_t wanted, size_t *at) {
    size_t number = 0;
    for (size_t table = 0; table < sizeof TABLES / sizeof *TABLES; table++)
        for (const struct attempt *one = TABLES[table]; one->name; one++, number++)
            if (name ? strcmp(one->name, name) == 0 : number == wanted) {
                if (at) *at = number;
                return one;
            }
    return NULL;
}

static int status_of(const struct attempt *one, int connection) {
    struct way way = {connection, port, one->first, one->second};
    int error = one->run(&way);
    return error ? (error < GOT ? error : EIO) : GOT;
}

static void make(const struct attempt *one, size_t number, int connection) {
    int status = 0;
    current = &outcomes[number];
    memset(current, 0, sizeof *current);
    pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE);
        _exit(status_of(one, connection));
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        snprintf(current->result, sizeof current->result, "no child: %d", errno);
    else if (WIFSIGNALED(status))
        snprintf(current->result, sizeof current->result, "signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status) == GOT)
        snprintf(current->result, sizeof current->result, "got");
    else
        snprintf(current->result, sizeof current->result, "errno %d", WEXITSTATUS(status));
    current = NULL;
}

int after_exec(const char *name, int connection, int to) {
    char words[2][16];
    int status = 0;
    snprintf(words[0], sizeof *words, "%d", connection);
    snprintf(words[1], sizeof *words, "%d", to);
    pid_t child = fork();
    if (child == 0) {
        char *const arguments[] = {(char *)own_path, "once", (char *)name, words[0], words[1], NULL};
        execve(own_path, arguments, (char *[]){NULL});
        _exit(errno);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) return errno;
    if (!WIFEXITED(status)) return EINTR;
    return WEXITSTATUS(status) == GOT ? 0 : WEXITSTATUS(status);
}

static void all(int to, const char *data, size_t length) {
    while (length) {
        ssize_t sent = send(to, data, length, MSG_NOSIGNAL);
        if (sent <= 0) return;
        data += sent, length -= (size_t)sent;
    }
}

static void answer(int connection, const char *body) {
    char head[200];
    int length = snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                          strlen(body));
    all(connection, head, (size_t)length);
    all(connection, body, strlen(body));
    shutdown(connection, SHUT_WR);
}

/* One line for each attempt that was made: name, result, detail, with tabs between. */
static void report(int connection) {
    static char text[MANY * 180];
    size_t length = 0;
    const struct attempt *one;
    text[0] = 0;
    for (size_t number = 0; (one = attempt(NULL, number, NULL)); number++)
        if (outcomes[number].result[0])
            length += (size_t)snprintf(text + length, sizeof text - length, "%s\t%s\t%s\n", one->name,
                                       outcomes[number].result, outcomes[number].detail);
    answer(connection, text);
}

/* Whether the request is one of ours; then it is done. What a site relays has not been read from the connection yet. */
static int serve(int connection, const char *taken) {
    static char head[MESSAGE];
    char path[512] = "";
    size_t number;
    if (!*taken) {
        poll(&(struct pollfd){connection, POLLIN, 0}, 1, PATIENCE * 1000);
        ssize_t length = recv(connection, head, sizeof head - 1, 0);
        head[length > 0 ? length : 0] = 0;
        taken = head;
    }
    if (sscanf(taken, "%*15s %511s", path) != 1) return 0;
    const char *word = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    const struct attempt *one = attempt(word, 0, &number);
    if (strcmp(word, "report") == 0) return report(connection), 1;
    if (!one) return 0;
    make(one, number, connection);
    if (!one->on_connection) answer(connection, "made\n");
    return 1;
}

/* A message and the descriptor that came along. */
static ssize_t receive(int from, unsigned char *data, int *descriptor) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr header;
    } control;
    struct iovec part = {data, MESSAGE};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control};
    ssize_t length = recvmsg(from, &message, 0);
    struct cmsghdr *header = length > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    *descriptor = -1;
    if (header && header->cmsg_type == SCM_RIGHTS) memcpy(descriptor, CMSG_DATA(header), sizeof(int));
    return length;
}

static void pass_on(int to, const unsigned char *data, size_t length, int descriptor) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr header;
    } control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct iovec part = {(void *)(uintptr_t)data, length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control};
    memcpy(CMSG_DATA(&control.header), &descriptor, sizeof descriptor);
    sendmsg(to, &message, MSG_NOSIGNAL);
}

/* The head in a message with a connection, or NULL if the message is none. */
static const char *head_of(unsigned char *data, ssize_t length) {
    if (length < HEAD || data[0] != 1 || data[1] != 1) return NULL;
    data[length] = 0;
    return (const char *)data + HEAD;
}

static void give_credits(int inlet, unsigned char count, const unsigned char *done) {
    unsigned char message[14] = {1, 1, count, 0, done ? 1 : 0, 0};
    if (done) memcpy(message + 6, done, 8);
    send(inlet, message, done ? 14 : 6, MSG_NOSIGNAL);
}

static int as_service(void) {
    static unsigned char data[MESSAGE + 1];
    struct pollfd watched[64] = {{.fd = 3, .events = POLLIN}};
    nfds_t count = 1;
    int came, ready = 0;
    for (;;) {
        poll(watched, count, -1);
        for (nfds_t at = count; at-- > 1;) {
            if (!watched[at].revents) continue;
            ssize_t length = receive(watched[at].fd, data, &came);
            const char *head = head_of(data, length);
            if (length <= 0) {
                close(watched[at].fd);
                watched[at] = watched[--count];
            } else if (head && came >= 0) {
                if (!serve(came, head)) answer(came, "what?\n");
                give_credits(watched[at].fd, 1, data + 2);
                close(came);
            }
        }
        if (!watched[0].revents) continue;
        if (receive(3, data, &came) <= 0) {
            if (!stays) return 0;
            watched[0].fd = -1;
            continue;
        }
        if (data[1] == 2) ready = 1, all(3, (char[]){1, 1}, 2);
        if (data[1] == 3 && count < 64) watched[count++] = (struct pollfd){.fd = came, .events = POLLIN};
        if (data[1] == 4) all(3, (char[22]){1, 2}, 22);
        if (ready && (data[1] == 2 || data[1] == 3))
            for (nfds_t at = data[1] == 2 ? 1 : count - 1; at < count; at++)
                give_credits(watched[at].fd, CREDITS, NULL);
    }
}

static int as_filter(void) {
    static unsigned char data[MESSAGE + 1];
    int came;
    ssize_t length;
    while ((length = receive(3, data, &came)) > 0) {
        const char *head = head_of(data, length);
        int ours = head && strncmp(head, "GET /filter/", 12) == 0;
        if (!ours || !serve(came, head)) pass_on(4, data, (size_t)length, came);
        close(came);
    }
    return 0;
}

int main(int count, char **words) {
    const char *mode = count > 1 ? words[1] : "";
    const struct attempt *one;
    own_path = words[0];
    if (strcmp(mode, "list") == 0) {
        for (size_t number = 0; (one = attempt(NULL, number, NULL)); number++)
            printf("%s\t%s\n", one->name, one->on_connection ? "connection" : "alone");
        return 0;
    }
    if (strcmp(mode, "once") == 0 && count == 5 && (one = attempt(words[2], 0, NULL))) {
        port = atoi(words[4]);
        return status_of(one, atoi(words[3]));
    }
    if (count < 3) return 2;
    port = atoi(words[2]);
    outcomes = mmap(NULL, MANY * sizeof *outcomes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (outcomes == MAP_FAILED) return 3;
    if (count > 3) {
        stays = 1;
        int error = stay(words[3]);
        fprintf(stderr, "stay %s: %s\n", words[3], error ? strerror(error) : "made");
    }
    return strcmp(mode, "filter") == 0 ? as_filter() : as_service();
}
