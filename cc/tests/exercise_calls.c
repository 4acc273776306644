/* Scenarios of exercise.c: accepting, reading and closing, and descriptors that are no connections.
 *
 * Runs in: the tests. Sees: what they send to themselves. */
#define _GNU_SOURCE
#include "exercise.h"

void accepting(void)
{
    int client = client_sends(REQUEST);
    struct sockaddr_in peer, own, seen;
    socklen_t length = sizeof peer, same = sizeof own;
    int c = cc_accept(s, (struct sockaddr *)&peer, &length);
    CHECK(c >= 0 && length == sizeof peer);
    CHECK(getsockname(client, (struct sockaddr *)&own, &same) == 0);
    CHECK(peer.sin_port == own.sin_port && peer.sin_addr.s_addr == own.sin_addr.s_addr);
    CHECK(getpeername(c, (struct sockaddr *)&seen, &same) == 0 && seen.sin_port == own.sin_port);
    CHECK((fcntl(c, F_GETFL) & O_NONBLOCK) == 0 && (fcntl(c, F_GETFD) & FD_CLOEXEC) == 0);
    server_reads(c, REQUEST);
    server_answers(c);
    CHECK(cc_close(c, 0) == 0);
    CHECK(fcntl(c, F_GETFD) < 0);
    client_gets(client, RESPONSE);

    CHECK(write(client, REQUEST, strlen(REQUEST)) > 0);
    length = 3; /* too short: cut, and its true length told */
    c = cc_accept4(s, (struct sockaddr *)&peer, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    CHECK(c >= 0 && length == sizeof peer);
    CHECK((fcntl(c, F_GETFL) & O_NONBLOCK) && (fcntl(c, F_GETFD) & FD_CLOEXEC));
    server_reads(c, REQUEST);
    char byte;
    CHECK(cc_read(c, &byte, 1) < 0 && errno == EAGAIN);
    CHECK(cc_close(c, 0) == 0);
    comes_again(client);
    CHECK(fcntl(s, F_SETFL, O_NONBLOCK) == 0);
    CHECK(cc_accept(s, NULL, NULL) < 0 && errno == EAGAIN);
}

void pipelined(void)
{
    int client = client_sends(REQUEST SECOND REQUEST);
    const char *const texts[] = {REQUEST, SECOND, REQUEST};
    for (int i = 0; i < 3; i++) {
        int c = cc_accept(s, NULL, NULL);
        CHECK(c >= 0);
        server_reads(c, texts[i]);
        server_answers(c);
        CHECK(cc_close(c, 0) == 0);
        client_gets(client, RESPONSE);
    }
    comes_again(client);
}

void bytewise(void)
{
    int client = client_sends("\r\n" REQUEST SECOND);
    char got[64] = {0};
    int c = cc_accept(s, NULL, NULL);
    for (size_t i = 0; i < strlen("\r\n" REQUEST); i++)
        CHECK(cc_read(c, got + i, 1) == 1);
    CHECK(strcmp(got, "\r\n" REQUEST) == 0);
    CHECK(cc_read(c, got, 0) == 0);
    CHECK(cc_close(c, 0) == 0);
    c = cc_accept(s, NULL, NULL);
    server_reads(c, SECOND);
    CHECK(cc_close(c, 0) == 0);
    comes_again(client);
}

void body(void)
{
    static const char whole[] = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 10\r\n\r\nhelloagain";
    char got[sizeof whole + 64] = {0};
    int client = client_sends("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 10\r\n\r\nhello");
    int c = cc_accept(s, NULL, NULL);
    /* Its head may have come along, and the rest not. */
    size_t at = 0;
    while (at < sizeof whole - 1 - 5)
        at += (size_t)cc_read(c, got + at, sizeof got - at);
    CHECK(write(client, "again" SECOND, 5 + strlen(SECOND)) == 5 + (ssize_t)strlen(SECOND));
    CHECK(cc_read(c, got + at, sizeof got - at) == 5);
    CHECK(strcmp(got, whole) == 0);
    /* The next request is not this one's body. */
    CHECK(cc_read(c, got, sizeof got) == 0);
    server_answers(c);
    CHECK(cc_close(c, 0) == 0);
    client_gets(client, RESPONSE);
    c = cc_accept(s, NULL, NULL);
    server_reads(c, SECOND);
    CHECK(cc_close(c, 0) == 0);
    comes_again(client);
}

/* Of which the end is not known, or not read: it ends with its connection. */
void strange_body(void)
{
    char got[256];
    int client = client_sends("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n" SECOND);
    int c = cc_accept(s, NULL, NULL);
    ssize_t count = cc_read(c, got, sizeof got);
    CHECK(count > 0 && count <= (ssize_t)strlen("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5"));
    while ((count = cc_read(c, got, sizeof got)) > 0)
        CHECK(count <= 1);
    CHECK(errno == ECONNRESET);
    CHECK(cc_close(c, 0) == 0);
    CHECK(is_ended(client));

    client = client_sends("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhel");
    c = cc_accept(s, NULL, NULL);
    CHECK(cc_read(c, got, sizeof got) > 0);
    CHECK(cc_close(c, 0) == 0);
    CHECK(is_ended(client));
}

/* What was not read would come again for ever; so it ends instead. */
void unread(void)
{
    int client = client_sends(REQUEST);
    int c = cc_accept(s, NULL, NULL);
    CHECK(cc_close(c, 0) == 0);
    CHECK(is_ended(client));
    close(client);
}

/* On anything else the calls are the system's. */
void ordinary(void)
{
    int ends[2], client;
    char byte = 0;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(write(ends[0], "x", 1) == 1 && cc_read(ends[1], &byte, 1) == 1 && byte == 'x');
    CHECK(cc_close(ends[0], 0) == 0 && cc_read(ends[1], &byte, 1) == 0 && cc_close(ends[1], 1) == 0);
    CHECK(cc_close(ends[1], 0) < 0 && errno == EBADF);
    CHECK(cc_accept(0, NULL, NULL) < 0);
    CHECK(cc_read(-1, &byte, 1) < 0 && errno == EBADF);
    struct epoll_event told;
    CHECK(cc_epoll_wait(-1, &told, 1, 0) < 0 && errno == EBADF);
    CHECK(cc_epoll_wait(0, &told, 0, 0) < 0);
    int c = served(&client);
    CHECK(cc_close(c, 1) == 0);
    close(client);
    setenv("BULKHEAD_GUARD", "7", 1);
    CHECK(cc_createlsock((struct in_addr){0}, htons(1), 1, NULL) < 0 && errno == EBUSY);
    unsetenv("BULKHEAD_GUARD");
    CHECK(cc_createlsock(address.sin_addr, address.sin_port, 1, NULL) < 0 && errno == EADDRINUSE);
    setenv("BULKHEAD", "/nonexistent", 1);
    CHECK(cc_createlsock(address.sin_addr, 0, 1, NULL) < 0 && errno == ENOENT);
}

/* The guard ends, which the test sees to. */
void ending(void)
{
    CHECK(cc_accept(s, NULL, NULL) < 0 && errno == EINVAL);
}
