/* Connections that arrive from the site's workers, and the credits against which they send them.
 *
 * Runs in: a service. Sees: bundles of the site's workers. Never: takes a connection for which it has given no credit, or keeps
 * silent about one that ended.
 *
 * A worker of the site has one credit: while its request is answered, its next ones go to other processes of the service, or
 * wait with it. Were they here, nobody else could answer them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

enum { PREREAD_MAX = 64 << 10 };

static size_t input_room(const struct bulkhead *b)
{
    const size_t head = (size_t)b->head_bytes + ADDED_MAX;
    return (head > PREREAD_MAX ? head : PREREAD_MAX) + BODY_ROOM;
}

bool receiver_attach(struct bulkhead *b, int channel)
{
    struct source *source = calloc(1, sizeof *source);
    const size_t room = input_room(b);
    uint8_t *bytes = malloc(room);
    struct source **sources = b->source_count < SOURCES_MAX ? realloc(b->sources, (b->source_count + 1) * sizeof *sources) : NULL;
    if (sources != NULL)
        b->sources = sources;
    if (source == NULL || bytes == NULL || sources == NULL) {
        free(source);
        free(bytes);
        close(channel);
        return process_fail(b, "no memory for a worker of the site, or more than %d of them", SOURCES_MAX);
    }
    source->channel = channel;
    source->input = (struct input){.stream = -1, .bytes = bytes, .room = room};
    source->owes_credit = b->is_serving && b->control >= 0;
    source->owes_drain = b->is_serving && b->control < 0;
    b->sources[b->source_count++] = source;
    return true;
}

void receiver_serve(struct bulkhead *b)
{
    for (size_t i = 0; i < b->source_count; i++)
        b->sources[i]->owes_credit = true;
}

void receiver_drain(struct bulkhead *b)
{
    for (size_t i = 0; i < b->source_count; i++) {
        b->sources[i]->owes_credit = false;
        b->sources[i]->owes_drain = true;
    }
}

static void source_break_off(struct source *source)
{
    fprintf(stderr, "warning: the site's worker sends what is no connection; its channel is closed\n");
    channel_break_off(&source->channel);
}

static void source_connect(struct bulkhead *b, struct source *source, const struct message *message)
{
    const bool is_list = message->number == TO_WORKER_CONNECTIONS;
    const struct field *bundle = message->fields + is_list, *preread = &bundle[TO_WORKER_CONNECTION_PREREAD];
    if ((is_list && message->fields[0].number != 1) || message->descriptor < 0 || !source->has_credit ||
        !connection_is(message->descriptor) || fcntl(message->descriptor, F_SETFL, O_NONBLOCK) != 0)
        return source_break_off(source);
    source->has_credit = false;
    source->owes_word = true;
    source->id = bundle[TO_WORKER_CONNECTION_ID].number;
    source->input.stream = message->descriptor;
    source->input.begin = 0;
    source->input.end = preread->length;
    if (preread->length > 0)
        memcpy(source->input.bytes, preread->bytes, preread->length);
    b->connections++;
    b->connections_now++;
}

void source_take(struct bulkhead *b, struct source *source)
{
    struct message message;
    switch (channel_receive(source->channel, &to_worker, &message)) {
    case ARRIVED:
        return source_connect(b, source, &message);
    case NOTHING_YET:
        return;
    case CHANNEL_END:
        return close_descriptor(&source->channel);
    case NO_MESSAGE:
        return source_break_off(source);
    }
}

void source_end_connection(struct bulkhead *b, struct source *source)
{
    close_descriptor(&source->input.stream);
    b->connections_now--;
    source->owes_end = true;
    source->owes_credit = b->control >= 0;
}

/* Tells it; false if there is no room. */
static bool source_tell(struct source *source)
{
    const struct field returns[] = {{.number = source->owes_credit}, {.number = source->owes_end}, {.number = source->id}};
    if (source->channel >= 0 && (source->owes_credit || source->owes_end || source->owes_word)) {
        switch (channel_send(source->channel, &from_worker, FROM_WORKER_RETURNS, returns)) {
        case NO_ROOM:
            return false;
        case PEER_GONE: /* Which is read next. */
        case SENT:
            source->has_credit |= source->owes_credit;
        }
    }
    source->owes_credit = source->owes_end = source->owes_word = false;
    if (source->channel >= 0 && source->owes_drain &&
        channel_send(source->channel, &from_worker, FROM_WORKER_DRAIN, NULL) == NO_ROOM)
        return false;
    source->owes_drain = false;
    return true;
}

bool receiver_tell(struct bulkhead *b)
{
    bool has_waiting = false;
    for (size_t i = 0; i < b->source_count; i++)
        has_waiting |= !source_tell(b->sources[i]);
    return has_waiting;
}

void receiver_sweep(struct bulkhead *b)
{
    size_t kept = 0;
    for (size_t i = 0; i < b->source_count; i++) {
        struct source *source = b->sources[i];
        if (source->channel >= 0 || source->input.stream >= 0) {
            b->sources[kept++] = source;
            continue;
        }
        free(source->input.bytes);
        free(source);
    }
    b->source_count = kept;
}
