/*
 * bare: the floor of the benchmark. One thread, one level-triggered epoll loop, two files held in memory with
 * their response heads already written. No log, no access control, no timeouts, almost no parsing: it shows what
 * the kernel's own work for one request costs here, and is no server to use.
 *
 *     bare PORT DIRECTORY        serves DIRECTORY/100.bin and DIRECTORY/10k.bin on 127.0.0.1:PORT
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_FD = 8192, IN_MAX = 4096, OUT_MAX = 16384, EVENTS = 512 };

struct answer { size_t length; char bytes[OUT_MAX]; };

struct conn {
    size_t have;                /* bytes of `in` filled */
    const struct answer *out;   /* an answer not yet wholly sent */
    size_t sent;
    int last;                   /* close once `out` is sent */
    char in[IN_MAX + 1];
};

static const char *const names[2] = { "/100.bin", "/10k.bin" };
static struct answer answers[2][2];     /* [file][close] */
static struct answer missing;
static struct conn *conns[MAX_FD];
static int poller;

static void die(const char *what) { perror(what); exit(1); }

static void load(const char *directory, int file) {
    char path[4096], body[OUT_MAX];
    snprintf(path, sizeof path, "%s%s", directory, names[file]);
    FILE *in = fopen(path, "rb");
    if (!in) die(path);
    size_t size = fread(body, 1, sizeof body - 512, in);
    fclose(in);
    for (int closing = 0; closing < 2; closing++) {
        struct answer *a = &answers[file][closing];
        int head = snprintf(a->bytes, OUT_MAX,
            "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %zu\r\n%s\r\n",
            size, closing ? "Connection: close\r\n" : "");
        memcpy(a->bytes + head, body, size);
        a->length = (size_t)head + size;
    }
}

static void drop(int fd) { free(conns[fd]); conns[fd] = NULL; close(fd); }

static void watch(int fd, unsigned events, int how) {
    struct epoll_event e = { .events = events, .data.fd = fd };
    if (epoll_ctl(poller, how, fd, &e) < 0) die("epoll_ctl");
}

/* Sends what is left of the answer: 1 = all sent, go on; 0 = the socket is full; -1 = connection gone. */
static int flush(int fd, struct conn *c) {
    while (c->sent < c->out->length) {
        ssize_t n = send(fd, c->out->bytes + c->sent, c->out->length - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) { watch(fd, EPOLLOUT, EPOLL_CTL_MOD); return 0; }
        if (n < 0) { drop(fd); return -1; }
        c->sent += (size_t)n;
    }
    c->out = NULL;
    if (c->last) { drop(fd); return -1; }
    return 1;
}

static void choose(struct conn *c) {
    c->sent = 0;
    c->last = strcasestr(c->in, "\r\nConnection: close") != NULL;
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(names[i]);
        if (!strncmp(c->in, "GET ", 4) && !strncmp(c->in + 4, names[i], n) && c->in[4 + n] == ' ') {
            c->out = &answers[i][c->last];
            return;
        }
    }
    c->out = &missing;
    c->last = 1;
}

/* Answers every whole request in the buffer. */
static void answer(int fd, struct conn *c) {
    char *end;
    while ((end = strstr(c->in, "\r\n\r\n"))) {
        end[2] = '\0';
        choose(c);
        size_t used = (size_t)(end + 4 - c->in);
        c->have -= used;
        memmove(c->in, c->in + used, c->have);
        c->in[c->have] = '\0';
        if (flush(fd, c) != 1) return;
    }
    if (c->have == IN_MAX) drop(fd);
}

static void readable(int fd, struct conn *c) {
    ssize_t n = recv(fd, c->in + c->have, IN_MAX - c->have, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) { drop(fd); return; }
    c->have += (size_t)n;
    c->in[c->have] = '\0';
    answer(fd, c);
}

static void writable(int fd, struct conn *c) {
    if (flush(fd, c) != 1) return;
    watch(fd, EPOLLIN, EPOLL_CTL_MOD);
    answer(fd, c);
}

static void welcome(int listener) {
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        if (fd >= MAX_FD || !(conns[fd] = malloc(sizeof(struct conn)))) { close(fd); continue; }
        conns[fd]->have = 0;
        conns[fd]->out = NULL;
        watch(fd, EPOLLIN, EPOLL_CTL_ADD);
    }
}

static int listen_on(int port) {
    struct sockaddr_in where = { .sin_family = AF_INET, .sin_port = htons((unsigned short)port) };
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) die("socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);     /* accepted sockets inherit it */
    if (bind(fd, (struct sockaddr *)&where, sizeof where) < 0) die("bind");
    if (listen(fd, 4096) < 0) die("listen");
    return fd;
}

int main(int argc, char **argv) {
    struct epoll_event ready[EVENTS];
    if (argc != 3) { fprintf(stderr, "usage: bare PORT DIRECTORY\n"); return 2; }
    for (int i = 0; i < 2; i++) load(argv[2], i);
    missing.length = (size_t)snprintf(missing.bytes, OUT_MAX,
        "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    int listener = listen_on(atoi(argv[1]));
    if ((poller = epoll_create1(EPOLL_CLOEXEC)) < 0) die("epoll_create1");
    watch(listener, EPOLLIN, EPOLL_CTL_ADD);
    for (;;) {
        int n = epoll_wait(poller, ready, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            int fd = ready[i].data.fd;
            if (fd == listener) welcome(listener);
            else if (!conns[fd]) continue;
            else if (conns[fd]->out) writable(fd, conns[fd]);
            else readable(fd, conns[fd]);
        }
    }
}
