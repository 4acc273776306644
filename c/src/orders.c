/* Orders of the administrator: what the process has done, and words of the service's own.
 *
 * Runs in: a service. Sees: what the administrator has typed, by way of the admin role. Never: answers more than one order on a
 * channel. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

void orders_attend(struct bulkhead *b, int channel)
{
    for (size_t i = 0; i < ORDERS_MAX; i++)
        if (b->orders[i] < 0) {
            b->orders[i] = channel;
            return;
        }
    /* The administrator is told that the process has not answered. */
    close(channel);
}

static bool diagnose(const struct bulkhead *b, char *text, size_t size)
{
    snprintf(text, size,
             "{\"uptime_s\":%" PRId64 ",\"connections_now\":%" PRIu64 ",\"connections\":%" PRIu64 ",\"requests\":%" PRIu64 "}",
             (now_ms() - b->since) / 1000, b->connections_now, b->connections, b->requests);
    return true;
}

static bool carry_out(struct bulkhead *b, const struct message *message, char *text, size_t size)
{
    const struct field *name = &message->fields[ADMIN_TO_SERVICE_ORDER_NAME],
                       *argument = &message->fields[ADMIN_TO_SERVICE_ORDER_ARGUMENT];
    char words[2][2049];
    snprintf(words[0], sizeof words[0], "%.*s", (int)name->length, (const char *)name->bytes);
    snprintf(words[1], sizeof words[1], "%.*s", (int)argument->length, (const char *)argument->bytes);
    if (b->service->command == NULL) {
        snprintf(text, size, "this service has no order \"%s\"", words[0]);
        return false;
    }
    const bool is_done = b->service->command(b, words[0], words[1], text, size, b->service->state) == 0;
    rows_free_all(b);
    b->deadline = NEVER;
    return is_done;
}

void orders_answer(struct bulkhead *b, int *channel)
{
    static char text[ORDER_ANSWER_MAX];
    struct message message;
    const enum arrival arrival = channel_receive(*channel, &admin_to_service, &message);
    if (arrival == NOTHING_YET)
        return;
    if (arrival == NO_MESSAGE)
        return channel_break_off(channel);
    if (arrival == ARRIVED) {
        text[0] = 0;
        const bool is_done = message.number == ADMIN_TO_SERVICE_DIAGNOSTICS ? diagnose(b, text, sizeof text)
                                                                           : carry_out(b, &message, text, sizeof text);
        text[sizeof text - 1] = 0;
        /* What a service says may end in the midst of a character, or be none. */
        for (size_t at = 0, length = strlen(text), size; at < length; at += size ? size : 1)
            if ((size = character_length((const uint8_t *)text + at, length - at)) == 0)
                text[at] = '?';
        const struct field said = {.bytes = (const uint8_t *)text, .length = strlen(text)};
        channel_send(*channel, &service_to_admin, is_done ? SERVICE_TO_ADMIN_DONE : SERVICE_TO_ADMIN_FAILED, &said);
    }
    close_descriptor(channel);
}
