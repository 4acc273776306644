/* Regular clients, measured: a few connections in a closed loop, from chosen source addresses.
 *
 * Started by bench/conditioning/run, without any privilege, towards an address of its network namespace. It reads what
 * the servers under test answer, looks at the status and the length of an answer, and believes nothing else. It never
 * sends anything but one kind of GET.
 *
 *   client ADDRESS PORT TARGET keep|close CONNECTIONS SECONDS PAUSE_US TIMEOUT_MS CORES [SOURCE ...]
 *
 * Each connection asks, waits for the whole answer, pauses, asks again (with `close` on a new connection). A request
 * that takes longer than the timeout is given up. Latency is from the beginning of the connect (with `keep`: of the
 * request) to the end of the answer; requests that were given up or are unfinished at the end count with their age, so
 * that a server that answers nobody has no good latency. Time in which the host had taken one of CORES away (such as
 * 0,1; "-" for none; see away.h) is not counted. Prints one line of JSON.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "away.h"

enum { CONNECTIONS_MAX = 1024, ROOM = 16384, SAMPLES_MAX = 8 << 20 };

struct connection {
    int fd;                 /* -1 while it pauses without a connection */
    bool asked;             /* a request is under way */
    uint64_t began, again;  /* when the request began; when the next may */
    size_t head, left;      /* bytes of head read so far; bytes of body still to come */
    bool in_body, ends;     /* the length is known; the server closes after it */
    char buffer[ROOM];
};

static struct {
    struct sockaddr_in server;
    const char *target;
    bool keep;
    int count;
    double seconds;
    uint64_t pause, timeout;
    /* Addresses, which connections have in turn: at a server that closes, each of them has 55,000 ports a minute. */
    char **sources;
    int source_count;
} plan;

static struct connection connections[CONNECTIONS_MAX];
/* When each request began and ended; at the end, their latencies in microseconds. */
static struct span *spans;
static float *samples;
static size_t sampled, completed, refused, failed, late;
static char request[1024];
static size_t request_size;
static int poller;

static void sample(uint64_t began)
{
    if (sampled < SAMPLES_MAX)
        spans[sampled++] = (struct span){began, now()};
}

static void hang_up(struct connection *one)
{
    if (one->fd >= 0)
        close(one->fd);
    one->fd = -1;
}

/* The request is over; the next one comes after the pause. */
static void over(struct connection *one, bool closes)
{
    if (closes || !plan.keep)
        hang_up(one);
    one->asked = false;
    one->again = now() + plan.pause;
}

static void fails(struct connection *one, size_t *counter)
{
    ++*counter;
    sample(one->began);
    hang_up(one);
    one->asked = false;
    /* Whoever is turned away does not hammer. */
    one->again = now() + (plan.pause > 10000000u ? plan.pause : 10000000u);
}

static bool open_connection(struct connection *one)
{
    one->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (one->fd < 0)
        return false;
    int yes = 1;
    setsockopt(one->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (plan.source_count) {
        static unsigned int turn;
        const char *source = plan.sources[turn++ % (unsigned int)plan.source_count];
        struct sockaddr_in from = {.sin_family = AF_INET};
        setsockopt(one->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes);
        if (inet_pton(AF_INET, source, &from.sin_addr) != 1 ||
            bind(one->fd, (struct sockaddr *)&from, sizeof from) != 0)
            return false;
    }
    if (connect(one->fd, (struct sockaddr *)&plan.server, sizeof plan.server) != 0 && errno != EINPROGRESS)
        return false;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = one};
    return epoll_ctl(poller, EPOLL_CTL_ADD, one->fd, &event) == 0;
}

/* The whole request fits into an empty send buffer; before the connection is there, it cannot be sent. */
static void ask(struct connection *one)
{
    ssize_t sent = send(one->fd, request, request_size, MSG_NOSIGNAL);
    if (sent == (ssize_t)request_size)
        one->head = one->left = 0, one->in_body = one->ends = false, one->asked = true;
    else if (sent >= 0 || (errno != EAGAIN && errno != ENOTCONN))
        fails(one, &failed);
}

static void begin(struct connection *one)
{
    one->began = now();
    if (one->fd >= 0)
        ask(one);
    else if (!open_connection(one))
        fails(one, &failed);
}

/* Whether a head is complete in the buffer; then the body's length is known. */
static bool understand(struct connection *one)
{
    one->buffer[one->head] = 0;
    char *end = strstr(one->buffer, "\r\n\r\n");
    if (!end)
        return false;
    char *length = strcasestr(one->buffer, "\r\ncontent-length:");
    char *closes = strcasestr(one->buffer, "\r\nconnection: close");
    size_t body = length && length < end ? strtoul(length + 17, NULL, 10) : 0;
    size_t here = one->head - (size_t)(end + 4 - one->buffer);
    one->left = body > here ? body - here : 0;
    one->ends = closes && closes < end;
    one->in_body = true;
    return true;
}

static void finish(struct connection *one)
{
    if (strncmp(one->buffer, "HTTP/1.1 200", 12) != 0)
        return fails(one, &refused);
    ++completed;
    sample(one->began);
    over(one, one->ends);
}

static void read_some(struct connection *one)
{
    static char waste[65536];
    while (one->fd >= 0 && one->asked) {
        bool body = one->in_body;
        ssize_t got = body ? recv(one->fd, waste, sizeof waste, 0)
                           : recv(one->fd, one->buffer + one->head, ROOM - 1 - one->head, 0);
        if (got < 0 && errno == EAGAIN)
            return;
        if (got <= 0)
            return fails(one, &failed);
        if (body)
            one->left -= (size_t)got < one->left ? (size_t)got : one->left;
        else
            one->head += (size_t)got;
        if (!body && !understand(one)) {
            if (one->head == ROOM - 1)
                return fails(one, &failed);
            continue;
        }
        if (one->left == 0)
            return finish(one);
    }
}

static void happened(struct connection *one, uint32_t events)
{
    if (one->fd < 0)
        return;
    if (!one->asked && one->again == UINT64_MAX && events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
        ask(one);
    if (one->fd >= 0 && one->asked && events & (EPOLLIN | EPOLLERR | EPOLLHUP))
        read_some(one);
    else if (one->fd >= 0 && !one->asked && one->again != UINT64_MAX && events & (EPOLLIN | EPOLLERR | EPOLLHUP))
        hang_up(one); /* closed between two requests, as a server may */
}

static void look_after(struct connection *one, uint64_t time)
{
    bool under_way = one->asked || one->again == UINT64_MAX;
    if (under_way && time - one->began > plan.timeout)
        fails(one, &late);
    else if (!under_way && one->again <= time) {
        one->again = UINT64_MAX;
        begin(one);
    }
}

static int by_size(const void *left, const void *right)
{
    float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

static double percentile(double share)
{
    return sampled ? samples[(size_t)(share * (double)(sampled - 1))] : 0;
}

/* Turns spans into latencies; returns the time that does not count, in microseconds. */
static double count_latencies(void)
{
    struct span *times;
    size_t count = away_times(&times);
    for (size_t at = 0; at < sampled; at++) {
        struct span span = spans[at];
        samples[at] = (float)(span.to - span.from - away_between(times, count, span.from, span.to)) / 1000.0f;
    }
    uint64_t sum = away_between(times, count, 0, UINT64_MAX);
    free(times);
    return (double)sum / 1000.0;
}

static void report(double seconds)
{
    size_t unfinished = 0;
    uint64_t time = now();
    for (int at = 0; at < plan.count; at++) {
        struct connection *one = &connections[at];
        if (one->asked || one->again == UINT64_MAX) {
            unfinished++;
            /* One that has only just begun says nothing yet. */
            if (time - one->began > 100000000u)
                sample(one->began);
        }
    }
    double away = count_latencies();
    qsort(samples, sampled, sizeof *samples, by_size);
    printf("{\"seconds\": %.3f, \"completed\": %zu, \"rps\": %.2f, \"refused\": %zu, \"failed\": %zu, \"late\": %zu, "
           "\"unfinished\": %zu, \"p50_us\": %.2f, \"p90_us\": %.2f, \"p99_us\": %.2f, \"max_us\": %.2f, "
           "\"away_us\": %.2f}\n",
           seconds, completed, (double)completed / seconds, refused, failed, late, unfinished, percentile(0.5),
           percentile(0.9), percentile(0.99), percentile(1.0), away);
}

static void run(void)
{
    struct epoll_event events[256];
    uint64_t began = now(), end = began + (uint64_t)(plan.seconds * 1e9), looked = 0;
    for (uint64_t time = began; time < end; time = now()) {
        /* Connections that wait for their turn are looked after at least once a millisecond. */
        if (time - looked > 200000u) {
            looked = time;
            for (int at = 0; at < plan.count; at++)
                look_after(&connections[at], time);
        }
        int ready = epoll_wait(poller, events, 256, 1);
        for (int at = 0; at < ready; at++) {
            struct connection *one = events[at].data.ptr;
            happened(one, events[at].events);
            if (plan.pause == 0 && one->again <= now())
                look_after(one, now());
        }
    }
    report((double)(now() - began) / 1e9);
}

int main(int count, char **words)
{
    if (count < 10) {
        fprintf(stderr, "usage: client ADDRESS PORT TARGET keep|close CONNECTIONS SECONDS PAUSE_US TIMEOUT_MS "
                        "CORES [SOURCE ...]\n");
        return 2;
    }
    plan.server.sin_family = AF_INET;
    plan.server.sin_port = htons((uint16_t)atoi(words[2]));
    plan.target = words[3];
    plan.keep = strcmp(words[4], "keep") == 0;
    plan.count = atoi(words[5]);
    plan.sources = words + 10;
    plan.source_count = count > 10 ? count - 10 : 0;
    plan.seconds = atof(words[6]);
    plan.pause = (uint64_t)(atof(words[7]) * 1e3);
    plan.timeout = (uint64_t)(atof(words[8]) * 1e6);
    if (inet_pton(AF_INET, words[1], &plan.server.sin_addr) != 1 || plan.count < 1 || plan.count > CONNECTIONS_MAX)
        return fprintf(stderr, "client: an address that is none, or not 1 to %d connections\n", CONNECTIONS_MAX), 2;
    request_size = (size_t)snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: bench\r\n%s\r\n", plan.target,
                                    plan.keep ? "" : "Connection: close\r\n");
    spans = malloc(SAMPLES_MAX * sizeof *spans);
    samples = malloc(SAMPLES_MAX * sizeof *samples);
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (!watch(words[9]))
        return fputs("client: cores that cannot be watched (it must be root)\n", stderr), 1;
    if (!spans || !samples || poller < 0 || request_size >= sizeof request)
        return perror("client"), 1;
    for (int at = 0; at < plan.count; at++) {
        connections[at].fd = -1;
        /* They do not all begin at the same moment. */
        connections[at].again = now() + plan.pause * (uint64_t)at / (uint64_t)plan.count;
    }
    run();
    return 0;
}
