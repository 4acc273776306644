/* Scenarios of exercise.c: waiting with select(2), poll(2) and epoll(7).
 *
 * Runs in: the tests. Sees: what they send to themselves. */
#define _GNU_SOURCE
#include "exercise.h"

#include <pthread.h>

void selecting(void)
{
    int client = client_sends(REQUEST), c = cc_accept(s, NULL, NULL), idle[2];
    CHECK(pipe(idle) == 0);
    fd_set reading, writing;
    FD_ZERO(&reading);
    FD_ZERO(&writing);
    FD_SET(c, &reading);
    FD_SET(idle[0], &reading);
    FD_SET(idle[1], &writing);
    struct timeval long_time = {10, 0};
    CHECK(cc_select(c + idle[1] + 1, &reading, &writing, NULL, &long_time) == 2);
    CHECK(FD_ISSET(c, &reading) && !FD_ISSET(idle[0], &reading) && FD_ISSET(idle[1], &writing));
    server_reads(c, REQUEST);
    struct timeval short_time = {0, 20000};
    FD_ZERO(&reading);
    FD_SET(c, &reading);
    CHECK(cc_select(c + 1, &reading, NULL, NULL, &short_time) == 0 && !FD_ISSET(c, &reading));
    CHECK(cc_select(0, NULL, NULL, NULL, &short_time) == 0);
    CHECK(cc_close(c, 0) == 0);
    close(idle[0]);
    close(idle[1]);
    comes_again(client);
}

void polling(void)
{
    int client = client_sends(REQUEST), c = cc_accept(s, NULL, NULL), idle[2];
    CHECK(pipe(idle) == 0);
    struct pollfd fds[] = {{.fd = idle[0], .events = POLLIN}, {.fd = c, .events = POLLIN | POLLOUT}, {.fd = -1}};
    CHECK(cc_poll(fds, 3, 10000) == 1);
    CHECK(fds[0].revents == 0 && fds[1].revents == (POLLIN | POLLOUT) && fds[2].revents == 0);
    fds[1].events = POLLIN;
    CHECK(cc_poll(fds, 3, 10000) == 1 && fds[1].revents == POLLIN);
    server_reads(c, REQUEST);
    CHECK(cc_poll(fds, 3, 20) == 0);
    CHECK(cc_close(c, 0) == 0);
    close(idle[0]);
    close(idle[1]);
    comes_again(client);
}

static int epoll_tells(int set, uint32_t events, int data, int timeout)
{
    struct epoll_event told[4];
    int count = cc_epoll_wait(set, told, 4, timeout);
    return count == 1 && told[0].events == events && told[0].data.fd == data;
}

void epolling(void)
{
    int set = cc_epoll_create1(EPOLL_CLOEXEC), client = client_sends(REQUEST), c = cc_accept(s, NULL, NULL);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = c};
    CHECK(set >= 0 && cc_epoll_ctl(set, EPOLL_CTL_ADD, c, &event) == 0);
    CHECK(cc_epoll_ctl(set, EPOLL_CTL_ADD, c, &event) < 0 && errno == EEXIST);
    CHECK(epoll_tells(set, EPOLLIN, c, 10000));
    CHECK(epoll_tells(set, EPOLLIN, c, 10000)); /* level-triggered: again */
    event.events = EPOLLIN | EPOLLOUT;
    CHECK(cc_epoll_ctl(set, EPOLL_CTL_MOD, c, &event) == 0);
    CHECK(epoll_tells(set, EPOLLIN | EPOLLOUT, c, 10000));
    event.events = EPOLLIN | EPOLLET;
    CHECK(cc_epoll_ctl(set, EPOLL_CTL_MOD, c, &event) == 0);
    CHECK(epoll_tells(set, EPOLLIN, c, 10000));
    struct epoll_event none;
    CHECK(cc_epoll_wait(set, &none, 1, 20) == 0);
    event.events = EPOLLIN | EPOLLONESHOT;
    CHECK(cc_epoll_ctl(set, EPOLL_CTL_MOD, c, &event) == 0);
    CHECK(epoll_tells(set, EPOLLIN, c, 10000));
    CHECK(cc_epoll_wait(set, &none, 1, 20) == 0);
    CHECK(cc_epoll_ctl(set, EPOLL_CTL_MOD, c, &event) == 0);
    CHECK(epoll_tells(set, EPOLLIN, c, 10000));
    CHECK(cc_epoll_ctl(set, EPOLL_CTL_DEL, c, NULL) == 0);
    CHECK(cc_epoll_wait(set, &none, 1, 20) == 0);
    event.events = EPOLLIN;
    CHECK(cc_epoll_ctl(set, EPOLL_CTL_ADD, c, &event) == 0);
    server_reads(c, REQUEST);
    CHECK(cc_epoll_wait(set, &none, 1, 20) == 0);
    /* Given back, it is in no set any more: the next request is not told of here. */
    CHECK(cc_close(c, 0) == 0);
    CHECK(write(client, SECOND, strlen(SECOND)) > 0);
    c = cc_accept(s, NULL, NULL);
    CHECK(cc_epoll_wait(set, &none, 1, 20) == 0);
    CHECK(cc_epoll_ctl(set, EPOLL_CTL_ADD, c, &event) == 0);
    CHECK(cc_close(set, 0) == 0);
    server_reads(c, SECOND);
    CHECK(cc_close(c, 0) == 0);
    comes_again(client);
}

static void *wait_for_it(void *set)
{
    struct epoll_event told;
    CHECK(cc_epoll_wait(*(int *)set, &told, 1, 10000) == 1);
    server_reads(told.data.fd, REQUEST);
    return NULL;
}

/* A thread that waits for a set already is woken by what another thread puts into it. */
void epolling_thread(void)
{
    int set = cc_epoll_create1(0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, wait_for_it, &set) == 0);
    usleep(50000);
    int client = client_sends(REQUEST), c = cc_accept(s, NULL, NULL);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = c};
    CHECK(cc_epoll_ctl(set, EPOLL_CTL_ADD, c, &event) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(cc_close(c, 0) == 0);
    CHECK(cc_close(set, 0) == 0);
    comes_again(client);
}
