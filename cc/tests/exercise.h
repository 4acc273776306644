/* What the scenarios of exercise.c share: a client, a server, and what is checked.
 *
 * Runs in: the tests. Sees: what they send to themselves. */
#ifndef EXERCISE_H
#define EXERCISE_H

#include <arpa/inet.h>
#include <cc.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: not so: %s (errno: %s)\n", __FILE__, __LINE__, #what, strerror(errno));            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define REQUEST "GET /one HTTP/1.1\r\nHost: a.test\r\n\r\n"
#define SECOND "GET /two HTTP/1.1\r\nHost: a.test\r\n\r\n"
#define RESPONSE "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

extern struct sockaddr_in address; /* where it listens */
extern int s;                      /* what cc_createlsock gave */

int client_sends(const char *text);
void client_gets(int client, const char *text);
int is_ended(int client);
void server_reads(int c, const char *text);
void server_answers(int c);
int served(int *client);       /* a connection whose request was read and answered */
void comes_again(int client);  /* it went back, and its next request is accepted anew; ends it */

/* exercise_calls.c: accepting, reading, closing; what is no connection */
void accepting(void), pipelined(void), bytewise(void), body(void), strange_body(void), unread(void), ordinary(void), ending(void);
/* exercise_waiting.c */
void selecting(void), polling(void), epolling(void), epolling_thread(void);
/* exercise_shared.c: a connection with several descriptors, or in several processes */
void duplicating(void), forking(void), preforking(void), losing(void);

#endif
