/* Each call of the C library, one scenario a run: exercise SCENARIO PORT. The program is server and client at once.
 *
 * Runs in: the tests (test_cc_library.py), also under sanitizers and valgrind. It says what failed and exits with 1. */
#define _GNU_SOURCE
#include "exercise.h"

struct sockaddr_in address = {.sin_family = AF_INET};
int s;

int client_sends(const char *text)
{
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {10, 0};
    CHECK(setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    CHECK(connect(client, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(write(client, text, strlen(text)) == (ssize_t)strlen(text));
    return client;
}

void client_gets(int client, const char *text)
{
    char got[512] = {0};
    size_t at = 0;
    while (at < strlen(text)) {
        ssize_t count = read(client, got + at, strlen(text) - at);
        CHECK(count > 0);
        at += (size_t)count;
    }
    CHECK(strcmp(got, text) == 0);
}

int is_ended(int client)
{
    char byte;
    return read(client, &byte, 1) == 0;
}

void server_reads(int c, const char *text)
{
    char got[512] = {0};
    CHECK(cc_read(c, got, sizeof got) == (ssize_t)strlen(text));
    CHECK(strcmp(got, text) == 0);
}

void server_answers(int c)
{
    CHECK(write(c, RESPONSE, strlen(RESPONSE)) == (ssize_t)strlen(RESPONSE));
}

/* A connection whose client is `*client`, its request read, and answered. */
int served(int *client)
{
    *client = client_sends(REQUEST);
    int c = cc_accept(s, NULL, NULL);
    CHECK(c >= 0);
    server_reads(c, REQUEST);
    server_answers(c);
    client_gets(*client, RESPONSE);
    return c;
}

/* The connection of `client` has gone back: its next request is accepted anew. Ends it. */
void comes_again(int client)
{
    CHECK(write(client, SECOND, strlen(SECOND)) > 0);
    int c = cc_accept(s, NULL, NULL);
    CHECK(c >= 0);
    server_reads(c, SECOND);
    CHECK(cc_close(c, 1) == 0);
    CHECK(is_ended(client));
    close(client);
}

int main(int argc, char *argv[])
{
    static const struct { const char *name; void (*run)(void); } scenarios[] = {
        {"accepting", accepting}, {"pipelined", pipelined}, {"bytewise", bytewise}, {"body", body},
        {"strange_body", strange_body}, {"unread", unread}, {"selecting", selecting}, {"polling", polling},
        {"epolling", epolling}, {"epolling_thread", epolling_thread}, {"duplicating", duplicating}, {"forking", forking},
        {"preforking", preforking}, {"losing", losing}, {"ordinary", ordinary}, {"ending", ending}};
    CHECK(argc == 3);
    alarm(60);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((in_port_t)atoi(argv[2]));
    char *filters[] = {CC_FILTER_PRIOR, CC_FILTER_PERSIST, CC_FILTER_REQUEST, NULL};
    s = cc_createlsock(address.sin_addr, address.sin_port, 64, filters);
    CHECK(s >= 0);
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        if (strcmp(scenarios[i].name, argv[1]) == 0) {
            scenarios[i].run();
            CHECK(cc_close(s, 0) == 0);
            return 0;
        }
    }
    fprintf(stderr, "no such scenario: %s\n", argv[1]);
    return 1;
}
