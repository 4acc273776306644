/* Scenarios of exercise.c: a connection with several descriptors, and in several processes.
 *
 * Runs in: the tests. Sees: what they send to themselves. */
#define _GNU_SOURCE
#include "exercise.h"

#include <sys/wait.h>

void duplicating(void)
{
    int client, c = served(&client), other = cc_dup(c);
    CHECK(other >= 0 && other != c);
    CHECK(cc_close(c, 0) == 0);
    server_answers(other); /* still ours */
    client_gets(client, RESPONSE);
    CHECK(cc_dup2(other, c) == c && cc_dup2(c, c) == c);
    CHECK(cc_dup2(-1, c) < 0 && errno == EBADF);
    CHECK(cc_close(other, 1) == 0); /* said once, and true when the last goes */
    server_answers(c);
    client_gets(client, RESPONSE);
    CHECK(cc_close(c, 0) == 0);
    CHECK(is_ended(client));
    close(client);

    /* dup2 over the only descriptor of a connection gives that one back. */
    int null = open("/dev/null", O_RDWR);
    c = served(&client);
    CHECK(cc_dup2(null, c) == c);
    CHECK(cc_close(c, 0) == 0);
    close(null);
    comes_again(client);

    int listener = cc_dup(s);
    CHECK(listener >= 0 && cc_close(s, 0) == 0);
    s = listener;
    c = served(&client);
    CHECK(cc_close(c, 1) == 0 && is_ended(client));
    close(client);
}

static void wait_for(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void forking(void)
{
    int client, go[2], c = served(&client);
    CHECK(pipe(go) == 0);
    pid_t pid = cc_fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        char byte;
        CHECK(read(go[0], &byte, 1) == 1);
        server_answers(c);
        CHECK(cc_close(c, 0) == 0); /* the last: it goes back */
        exit(0);
    }
    CHECK(cc_close(c, 0) == 0);
    CHECK(write(go[1], "!", 1) == 1);
    client_gets(client, RESPONSE);
    wait_for(pid);
    comes_again(client);

    /* The child ends it, the parent's later words do not save it. */
    c = served(&client);
    pid = cc_fork();
    CHECK(pid >= 0);
    if (pid == 0)
        exit(cc_close(c, 1));
    wait_for(pid);
    server_answers(c);
    client_gets(client, RESPONSE);
    CHECK(cc_close(c, 0) == 0);
    CHECK(is_ended(client));
    close(client);
    close(go[0]);
    close(go[1]);
}

/* Processes of a plain fork(2) that accept on one listener, as prefork servers do; and one that inherits a connection,
 * which remains its parent's. */
void preforking(void)
{
    pid_t pids[2];
    for (int i = 0; i < 2; i++) {
        CHECK((pids[i] = fork()) >= 0);
        if (pids[i] == 0) {
            int client, c = served(&client);
            CHECK(cc_close(c, 1) == 0 && is_ended(client));
            exit(0);
        }
        wait_for(pids[i]);
    }
    int client, c = served(&client);
    CHECK((pids[0] = fork()) >= 0);
    if (pids[0] == 0)
        exit(cc_close(c, 1));
    wait_for(pids[0]);
    CHECK(cc_close(c, 0) == 0);
    comes_again(client);
}

/* A connection that was closed with close(2): its number is taken anew, and the other file is left alone. */
void losing(void)
{
    int client, c = served(&client), another = client_sends(REQUEST);
    close(c);
    CHECK(is_ended(client));
    CHECK(cc_accept(s, NULL, NULL) == c);
    server_reads(c, REQUEST);
    CHECK(cc_close(c, 0) == 0);
    comes_again(another);
    close(client);
}
