/* The process's life: set up, initialise, serve, retire.
 *
 * Runs in: a service, inside its jail. Sees: the launcher's messages (trusted: nonsense from there ends the process), and
 * connections, which it passes on. Never: asks for a connection before `init` is done. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

enum {
    CONTROL = 3,
    LOG = 4,
    /* Only there if nothing can be said at `CONTROL`. */
    SAY = 5,
    /* LIMIT: how long the end of the process waits for the logger. */
    FLUSH_MAX_MS = 2000,
    /* LIMIT: how long a worker of the site is let wait whose channel has no room; then it is tried again. */
    AGAIN_MS = 20,
    POLLED_MAX = 4 + ORDERS_MAX + 2 * SOURCES_MAX,
};

int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool process_fail(struct bulkhead *b, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (b->fault[0] == 0)
        vsnprintf(b->fault, sizeof b->fault, format, arguments);
    va_end(arguments);
    return false;
}

/* --- What the launcher says. */

static bool unexpected(struct bulkhead *b, const struct message *message)
{
    int surplus = message->descriptor;
    close_descriptor(&surplus);
    if (message->number == LAUNCHER_TO_SERVICE_TEMPLATES)
        return process_fail(b, "`templates` is for services in Rust; take it out of the configuration");
    return process_fail(b, "the launcher sent message %d out of turn or without its descriptor", message->number);
}

static bool attach(struct bulkhead *b, const struct message *message)
{
    if (message->fields[LAUNCHER_TO_SERVICE_ATTACH_SOURCE].number == SOURCE_SITE)
        return receiver_attach(b, message->descriptor);
    close(message->descriptor);
    return process_fail(b, "`takes_connections` is for services whose program is compiled with the SDK for Rust: in C, requests "
                           "come by way of the site's worker; take it out of the configuration");
}

/* Follows one message that came after `Limits`; false if the process has to end. */
static bool follow(struct bulkhead *b, const struct message *message)
{
    const bool has_descriptor = message->descriptor >= 0;
    const struct field *fields = message->fields;
    switch (message->number) {
    case LAUNCHER_TO_SERVICE_ATTACH:
        return has_descriptor ? attach(b, message) : unexpected(b, message);
    case LAUNCHER_TO_SERVICE_DATA_PROXY:
        if (!has_descriptor)
            return unexpected(b, message);
        return link_attach(b, &fields[LAUNCHER_TO_SERVICE_DATA_PROXY_NAME], &fields[LAUNCHER_TO_SERVICE_DATA_PROXY_TOKEN],
                           message->descriptor);
    case LAUNCHER_TO_SERVICE_ORDERS:
        if (!has_descriptor)
            return unexpected(b, message);
        orders_attend(b, message->descriptor);
        return true;
    case LAUNCHER_TO_SERVICE_REPORT:
        b->owes_counters = true;
        return !has_descriptor || unexpected(b, message);
    default:
        return unexpected(b, message);
    }
}

static void retire(struct bulkhead *b)
{
    close_descriptor(&b->control);
    close_descriptor(&b->say);
    b->quiet_since = NEVER;
    if (b->is_serving)
        receiver_drain(b);
}

/* Reads what the launcher has said; false if the process has to end. */
static bool control_read(struct bulkhead *b)
{
    struct message message;
    while (b->control >= 0)
        switch (channel_receive(b->control, &launcher_to_service, &message)) {
        case ARRIVED:
            if (!follow(b, &message))
                return false;
            break;
        case NOTHING_YET:
            return true;
        case CHANNEL_END:
            retire(b);
            break;
        case NO_MESSAGE:
            return process_fail(b, "the launcher sent what is no message");
        }
    return true;
}

static enum sending tell_launcher(struct bulkhead *b, int number, const struct field *fields)
{
    if (b->say >= 0)
        return pipe_send(b->say, &child_to_launcher, number, fields);
    return channel_send(b->control, &child_to_launcher, number, fields);
}

static void control_tell(struct bulkhead *b)
{
    if (!b->owes_counters || !b->is_serving || b->control < 0)
        return;
    const struct field counters[] = {{.number = b->connections_now}, {.number = b->connections}, {.number = b->requests}};
    b->owes_counters = tell_launcher(b, CHILD_TO_LAUNCHER_COUNTERS, counters) == NO_ROOM;
}

/* --- Waiting. */

struct polled {
    struct pollfd fds[POLLED_MAX];
    nfds_t count;
};

/* Adds a descriptor; its place. Those below 0 are passed over by poll. */
static nfds_t polled_add(struct polled *polled, int descriptor, short events)
{
    polled->fds[polled->count] = (struct pollfd){descriptor, events, 0};
    return polled->count++;
}

/* Tells everybody what they are owed, and waits for one of `polled`; false if the process has to end. */
static bool wait_for(struct bulkhead *b, struct polled *polled, int64_t deadline)
{
    control_tell(b);
    const bool is_again = receiver_tell(b) || b->owes_counters;
    log_send(&b->log);
    polled_add(polled, b->log.is_full ? b->log.channel : -1, POLLOUT);
    const nfds_t control = polled_add(polled, b->control, POLLIN);
    int64_t time = deadline == NEVER ? INT_MAX : deadline - now_ms();
    if (is_again && b->is_serving && time > AGAIN_MS)
        time = AGAIN_MS;
    time = time < 0 ? 0 : time > INT_MAX ? INT_MAX : time;
    if (poll(polled->fds, polled->count, deadline == NEVER && time == INT_MAX ? -1 : (int)time) < 0 && errno != EINTR)
        return process_fail(b, "poll: %s", strerror(errno));
    return polled->fds[control].revents == 0 || control_read(b);
}

int process_wait(struct bulkhead *b, int descriptor, short events, int64_t deadline)
{
    /* A channel that the launcher has closed ends an `init` that waits. */
    if (b->fault[0] != 0 || (b->control < 0 && !b->is_serving))
        return -1;
    struct polled polled = {.count = 0};
    polled_add(&polled, descriptor, events);
    if (!wait_for(b, &polled, deadline))
        return -1;
    return polled.fds[0].revents != 0 || now_ms() < deadline;
}

/* --- Serving. */

static void source_advance(struct bulkhead *b, struct source *source)
{
    if (input_read(&source->input) < 0 || !connection_serve(b, source))
        source_end_connection(b, source);
}

static void look_for_quiet(struct bulkhead *b, uint64_t connections_before)
{
    if (b->control < 0 || b->idle_stop_ms == 0)
        return;
    if (b->connections_now > 0 || b->connections != connections_before) {
        b->quiet_since = now_ms();
    } else if (now_ms() - b->quiet_since >= (int64_t)b->idle_stop_ms) {
        b->quiet_since = now_ms();
        tell_launcher(b, CHILD_TO_LAUNCHER_IDLE, NULL);
    }
}

/* One turn: waits for something to do, and does it. */
static bool turn(struct bulkhead *b)
{
    struct polled polled = {.count = 0};
    const uint64_t before = b->connections;
    const size_t sources = b->source_count;
    for (size_t i = 0; i < sources; i++) {
        polled_add(&polled, b->sources[i]->channel, POLLIN);
        polled_add(&polled, b->sources[i]->input.stream, POLLIN);
    }
    for (size_t i = 0; i < ORDERS_MAX; i++)
        polled_add(&polled, b->orders[i], POLLIN);
    const bool counts = b->idle_stop_ms > 0 && b->control >= 0;
    if (!wait_for(b, &polled, counts ? b->quiet_since + (int64_t)b->idle_stop_ms : NEVER))
        return false;
    for (size_t i = 0; i < sources && b->fault[0] == 0; i++) {
        struct source *source = b->sources[i];
        if (polled.fds[2 * i + 1].revents != 0 && source->input.stream >= 0)
            source_advance(b, source);
        if (polled.fds[2 * i].revents != 0 && source->channel >= 0)
            source_take(b, source);
        /* What was read of it before it came is not to be waited for. */
        if (source->input.stream >= 0 && source->input.end > 0 && polled.fds[2 * i + 1].revents == 0 &&
            !connection_serve(b, source))
            source_end_connection(b, source);
    }
    for (size_t i = 0; i < ORDERS_MAX && b->fault[0] == 0; i++)
        if (polled.fds[2 * sources + i].revents != 0 && b->orders[i] >= 0)
            orders_answer(b, &b->orders[i]);
    look_for_quiet(b, before);
    receiver_sweep(b);
    return b->fault[0] == 0;
}

static bool serve(struct bulkhead *b)
{
    if (!b->jit && refuse_new_code() != 0)
        return process_fail(b, "the process cannot give up new code: %s", strerror(errno));
    b->is_serving = true;
    b->since = b->quiet_since = now_ms();
    tell_launcher(b, CHILD_TO_LAUNCHER_READY, NULL);
    receiver_serve(b);
    while (b->control >= 0 || b->source_count > 0)
        if (!turn(b))
            return false;
    return true;
}

/* --- Setting up. */

static void take_limits(struct bulkhead *b, const struct field *fields)
{
    b->head_bytes = fields[LAUNCHER_TO_SERVICE_LIMITS_HEAD_BYTES].number;
    b->body_bytes = fields[LAUNCHER_TO_SERVICE_LIMITS_BODY_BYTES].number;
    b->idle_stop_ms = fields[LAUNCHER_TO_SERVICE_LIMITS_IDLE_STOP_MS].number;
    b->jit = fields[LAUNCHER_TO_SERVICE_LIMITS_JIT].number != 0;
    allow_dump(fields[LAUNCHER_TO_SERVICE_LIMITS_DUMPS].number != 0);
}

/* Receives everything up to `Begin`; false if the launcher has closed its channel before, or talks nonsense. */
static bool set_up(struct bulkhead *b)
{
    struct message message;
    for (bool has_limits = false;;) {
        struct pollfd control = {b->control, POLLIN, 0};
        poll(&control, 1, -1);
        const enum arrival arrival = channel_receive(b->control, &launcher_to_service, &message);
        if (arrival == NOTHING_YET)
            continue;
        if (arrival == CHANNEL_END)
            return false;
        if (arrival == NO_MESSAGE)
            return process_fail(b, "the launcher sent what is no message");
        if (!has_limits && message.number == LAUNCHER_TO_SERVICE_LIMITS && message.descriptor < 0)
            take_limits(b, message.fields), has_limits = true;
        else if (has_limits && message.number == LAUNCHER_TO_SERVICE_BEGIN && message.descriptor < 0)
            return true;
        else if (has_limits && message.number == LAUNCHER_TO_SERVICE_DATA_SOURCE && message.descriptor < 0) {
            if (!link_add(b, &message.fields[LAUNCHER_TO_SERVICE_DATA_SOURCE_NAME]))
                return false;
        } else if (!has_limits || message.number != LAUNCHER_TO_SERVICE_ATTACH || message.descriptor < 0) {
            return unexpected(b, &message);
        } else if (!attach(b, &message)) {
            return false;
        }
    }
}

/* Whether the process has ended as it should. */
static bool live(struct bulkhead *b, int argc, char **argv)
{
    if (!set_up(b))
        return b->fault[0] == 0;
    const struct bulkhead_service *service = b->service;
    b->deadline = NEVER;
    const int status = service->init == NULL ? 0 : service->init(b, argc, argv, service->state);
    rows_free_all(b);
    b->deadline = NEVER;
    if (b->fault[0] == 0 && !control_read(b))
        return false;
    if (b->control < 0) {
        log_text(&b->log, BULKHEAD_INFO, "the launcher closed its channel before `init` was done");
        return true;
    }
    if (status != 0)
        return process_fail(b, "`init` of the service has failed with %d", status);
    if (!serve(b))
        return false;
    if (service->end != NULL)
        service->end(b, service->state);
    return true;
}

static void log_flush(struct log *log)
{
    const int64_t until = now_ms() + FLUSH_MAX_MS;
    for (log_send(log); log->is_full && now_ms() < until; log_send(log)) {
        struct pollfd channel = {log->channel, POLLOUT, 0};
        poll(&channel, 1, (int)(until - now_ms()));
    }
}

int bulkhead_main(const struct bulkhead_service *service, int argc, char **argv)
{
    /* The log alone has 48 KiB. */
    static struct bulkhead process;
    struct bulkhead *b = &process;
    if (!channel_is(CONTROL)) {
        fprintf(stderr, "error: descriptor 3 is no channel; this program is started by `bulkhead run CONFIG`\n");
        return 2;
    }
    /* Nothing secret is in memory yet; from here on nobody looks into it. */
    allow_dump(false);
    *b = (struct bulkhead){.service = service,
                           .control = CONTROL,
                           .say = pipe_is(SAY) ? SAY : -1,
                           .log = {.channel = channel_is(LOG) ? LOG : -1}};
    for (size_t i = 0; i < ORDERS_MAX; i++)
        b->orders[i] = -1;
    const bool is_good = live(b, argc, argv);
    if (!is_good)
        fprintf(stderr, "error: %s\n", b->fault);
    log_flush(&b->log);
    return is_good ? 0 : 1;
}
