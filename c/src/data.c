/* The way to the data proxies: calls of named statements, one at a time.
 *
 * Runs in: a service. Sees: answers of data proxies. Never: repeats a call that may have been done, sends SQL, or knows a
 * password of a database. Calls go to the proxy that came last; a call under way goes on with an earlier one.
 *
 * Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 3.3. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rows.h"

enum {
    /* LIMIT: how long a call waits for a data proxy: a new one is there within a second. */
    PROXY_WAIT_MS = 5000,
    /* LIMIT: how long the data proxy has to say what has become of a call that was cancelled. */
    CANCEL_WAIT_MS = 2000,
};

/* Faults of messages are those of callers, from BULKHEAD_REFUSED on. */
_Static_assert(BULKHEAD_REFUSED == CALL_FAULT_REFUSED + 1 && BULKHEAD_PARAMETERS == CALL_FAULT_PARAMETERS + 1 &&
                   BULKHEAD_TOO_LARGE == CALL_FAULT_TOO_LARGE + 1 && BULKHEAD_BUSY == CALL_FAULT_BUSY + 1 &&
                   BULKHEAD_LATE == CALL_FAULT_LATE + 1 && BULKHEAD_CONSTRAINT == CALL_FAULT_CONSTRAINT + 1 &&
                   BULKHEAD_DATABASE == CALL_FAULT_DATABASE + 1 && BULKHEAD_LOST == CALL_FAULT_LOST + 1,
               "faults of calls");

struct call {
    const char *name;
    uint8_t *values;
    size_t length;
    int64_t made;
    struct answer answer;
};

static enum bulkhead_fault fault(struct bulkhead *b, enum bulkhead_fault fault, const char *reason)
{
    snprintf(b->reason, sizeof b->reason, "%s", reason);
    return fault;
}

static struct link *link_find(struct bulkhead *b, const char *name, size_t length)
{
    for (struct link *link = b->links; link < b->links + b->link_count; link++)
        if (strlen(link->name) == length && memcmp(link->name, name, length) == 0)
            return link;
    return NULL;
}

bool link_add(struct bulkhead *b, const struct field *name)
{
    if (b->link_count == LINKS_MAX)
        return process_fail(b, "a service in C has at most %d data sources; take some out of `data`", LINKS_MAX);
    struct link *link = &b->links[b->link_count++];
    *link = (struct link){.channel = -1, .next = -1};
    memcpy(link->name, name->bytes, name->length);
    return true;
}

static void link_log_in(struct link *link, int channel, const uint8_t *token)
{
    close_descriptor(&link->channel);
    const struct field login = {.bytes = token, .length = sizeof link->next_login};
    link->channel = channel;
    link->is_welcome = false;
    if (channel_send(channel, &service_to_data_proxy, SERVICE_TO_DATA_PROXY_LOGIN, &login) != SENT ||
        channel_send(channel, &service_to_data_proxy, SERVICE_TO_DATA_PROXY_TIMEOUTS, NULL) != SENT)
        close_descriptor(&link->channel);
}

bool link_attach(struct bulkhead *b, const struct field *name, const struct field *token, int channel)
{
    struct link *link = link_find(b, (const char *)name->bytes, name->length);
    if (link == NULL) {
        close(channel);
        return process_fail(b, "the launcher has sent no such data source");
    }
    if (!link->is_busy) {
        link_log_in(link, channel, token->bytes);
        return true;
    }
    close_descriptor(&link->next);
    link->next = channel;
    memcpy(link->next_login, token->bytes, sizeof link->next_login);
    return true;
}

/* The call is over: one that is to come goes to a proxy that has come meanwhile. */
static void link_release(struct link *link)
{
    link->is_busy = false;
    if (link->next < 0)
        return;
    const int next = link->next;
    link->next = -1;
    link_log_in(link, next, link->next_login);
}

/* Takes what a proxy says of timeouts; other messages are left as they are. */
static void link_take_timeouts(struct link *link, struct message *message)
{
    const struct field *fields = message->fields;
    if (message->number == DATA_PROXY_TO_SERVICE_TIMEOUTS)
        timeouts_begin(&link->timeouts, &fields[DATA_PROXY_TO_SERVICE_TIMEOUTS_USUAL_MS]);
    else if (message->number == DATA_PROXY_TO_SERVICE_TIMEOUT)
        timeouts_add(&link->timeouts, &fields[DATA_PROXY_TO_SERVICE_TIMEOUT_NAME],
                     &fields[DATA_PROXY_TO_SERVICE_TIMEOUT_TIMEOUT_MS]);
    else
        return;
    message->number = 0;
}

/* Reads one message of a proxy, 0 if there is none for a caller: false at its end, or if it is none. */
static bool link_receive(struct link *link, struct message *message)
{
    const enum arrival arrival = channel_receive(link->channel, &data_proxy_to_service, message);
    if (arrival == NOTHING_YET) {
        message->number = 0;
        return true;
    }
    if (arrival == ARRIVED && message->descriptor < 0) {
        link_take_timeouts(link, message);
        return true;
    }
    if (arrival == CHANNEL_END)
        close_descriptor(&link->channel);
    else
        channel_break_off(&link->channel);
    return false;
}

/* Waits for a proxy that knows us. */
static enum bulkhead_fault link_ready(struct bulkhead *b, struct link *link, int64_t until)
{
    struct message message;
    while (link->channel < 0 || !link->is_welcome) {
        if (process_wait(b, link->channel, POLLIN, until) != 1)
            return fault(b, BULKHEAD_UNAVAILABLE, "the data source is not there");
        if (link->channel >= 0 && link_receive(link, &message) && message.number == DATA_PROXY_TO_SERVICE_WELCOME)
            link->is_welcome = true;
    }
    return BULKHEAD_OK;
}

/* Sends a message, and waits for room. */
static bool send_message(struct bulkhead *b, struct link *link, int number, const struct field *fields, int64_t until)
{
    for (;;) {
        const enum sending sending = channel_send(link->channel, &service_to_data_proxy, number, fields);
        if (sending == SENT)
            return true;
        if (sending == PEER_GONE || process_wait(b, link->channel, POLLOUT, until) != 1)
            return false;
    }
}

/* Sends a call in parts. Whether its first one was sent; without the others, the channel is of no use. */
static bool send_call(struct bulkhead *b, struct link *link, const struct call *call, int64_t until)
{
    const size_t first = call->length < PART_MAX ? call->length : PART_MAX;
    struct field fields[] = {
        [SERVICE_TO_DATA_PROXY_CALL_ID] = {.number = link->number},
        [SERVICE_TO_DATA_PROXY_CALL_NAME] = {.bytes = (const uint8_t *)call->name, .length = strlen(call->name)},
        [SERVICE_TO_DATA_PROXY_CALL_COMPLETE] = {.number = first == call->length},
        [SERVICE_TO_DATA_PROXY_CALL_VALUES] = {.bytes = call->values, .length = first},
    };
    if (!send_message(b, link, SERVICE_TO_DATA_PROXY_CALL, fields, until)) {
        close_descriptor(&link->channel);
        return false;
    }
    link->is_busy = true;
    for (size_t at = first, count; at < call->length; at += count) {
        count = call->length - at < PART_MAX ? call->length - at : PART_MAX;
        struct field more[] = {
            [SERVICE_TO_DATA_PROXY_MORE_ID] = {.number = link->number},
            [SERVICE_TO_DATA_PROXY_MORE_COMPLETE] = {.number = at + count == call->length},
            [SERVICE_TO_DATA_PROXY_MORE_VALUES] = {.bytes = call->values + at, .length = count},
        };
        if (!send_message(b, link, SERVICE_TO_DATA_PROXY_MORE, more, until)) {
            close_descriptor(&link->channel);
            return true;
        }
    }
    return true;
}

static enum bulkhead_fault lost(struct bulkhead *b)
{
    return fault(b, BULKHEAD_LOST, "the data source was lost while the call was under way");
}

/* Takes one message that is about this call; whether that was its end. */
static bool take(struct bulkhead *b, struct call *call, const struct message *message, enum bulkhead_fault *result)
{
    const struct field *fields = message->fields;
    if (message->number == DATA_PROXY_TO_SERVICE_FAILED) {
        const struct field *reason = &fields[DATA_PROXY_TO_SERVICE_FAILED_REASON];
        *result = (enum bulkhead_fault)(fields[DATA_PROXY_TO_SERVICE_FAILED_FAULT].number + 1);
        snprintf(b->reason, sizeof b->reason, "%.*s", (int)reason->length, (const char *)reason->bytes);
        return true;
    }
    answer_add(&call->answer, &fields[DATA_PROXY_TO_SERVICE_DONE_RESULTS]);
    *result = BULKHEAD_OK;
    return message->number == DATA_PROXY_TO_SERVICE_DONE;
}

/* Waits for the end of a call. */
static enum bulkhead_fault receive_answer(struct bulkhead *b, struct link *link, struct call *call)
{
    const struct field number = {.number = link->number};
    struct message message;
    enum bulkhead_fault result;
    bool is_cancelled = false;
    for (int64_t until = b->deadline;;) {
        /* The proxy may have said meanwhile how long it may take. */
        const int64_t late = timeouts_until(&link->timeouts, call->name, call->made);
        const int ready = link->channel < 0 ? -1 : process_wait(b, link->channel, POLLIN, until < late ? until : late);
        if (ready < 0 || (ready == 0 && is_cancelled))
            return lost(b);
        if (ready == 0) {
            channel_send(link->channel, &service_to_data_proxy, SERVICE_TO_DATA_PROXY_CANCEL, &number);
            if (late <= until)
                return fault(b, BULKHEAD_LOST, "its data proxy does not answer");
            is_cancelled = true;
            until = now_ms() + CANCEL_WAIT_MS;
            continue;
        }
        if (!link_receive(link, &message))
            return lost(b);
        /* 0 is no message; what was given up before may still be answered. */
        if (message.number == 0 || message.number == DATA_PROXY_TO_SERVICE_WELCOME ||
            message.fields[DATA_PROXY_TO_SERVICE_DONE_ID].number != link->number)
            continue;
        if (take(b, call, &message, &result))
            /* Parts of an answer that nobody wants are not sent. */
            return result == BULKHEAD_OK && is_cancelled ? fault(b, BULKHEAD_LOST, "it was done too late for its answer") : result;
    }
}

static enum bulkhead_fault make_call(struct bulkhead *b, struct link *link, struct call *call)
{
    int64_t until = now_ms() + PROXY_WAIT_MS;
    until = until < b->deadline ? until : b->deadline;
    do {
        /* Once: proxies that come and do not stay are none. */
        if (link_ready(b, link, until) != BULKHEAD_OK)
            return BULKHEAD_UNAVAILABLE;
        link->number++;
    } while (!send_call(b, link, call, until));
    const enum bulkhead_fault result = receive_answer(b, link, call);
    link_release(link);
    return result;
}

enum bulkhead_fault bulkhead_call(struct bulkhead *b, const char *source, const char *name,
                                  const struct bulkhead_value *parameters, size_t count, struct bulkhead_rows **rows)
{
    struct link *link = link_find(b, source, strlen(source));
    struct call call = {.name = name, .length = parameters_length(parameters, count), .made = now_ms()};
    if (rows != NULL)
        *rows = NULL;
    b->reason[0] = 0;
    if (link == NULL)
        return fault(b, BULKHEAD_UNAVAILABLE, "`data` of this service has no such source in the configuration");
    if (strlen(name) > NAME_MAX_BYTES || !is_utf8((const uint8_t *)name, strlen(name)))
        return fault(b, BULKHEAD_REFUSED, "no statement has such a name");
    if (count > 0 && call.length == 0)
        return fault(b, BULKHEAD_PARAMETERS, "a text is no UTF-8, or the parameters have more than 4 MiB");
    call.values = malloc(call.length + 1);
    if (call.values == NULL)
        return fault(b, BULKHEAD_PARAMETERS, "there is no memory for the parameters");
    parameters_put(parameters, count, call.values);
    enum bulkhead_fault result = make_call(b, link, &call);
    free(call.values);
    struct bulkhead_rows *found = NULL;
    if (result == BULKHEAD_OK && rows != NULL)
        found = rows_of(&call.answer);
    else
        free(call.answer.bytes);
    if (result == BULKHEAD_OK && rows != NULL && found == NULL)
        return fault(b, BULKHEAD_SHAPE, "the answer has no form of one, or there is no memory for it");
    if (found == NULL)
        return result;
    found->next = b->rows;
    *rows = b->rows = found;
    return BULKHEAD_OK;
}

const char *bulkhead_reason(const struct bulkhead *b)
{
    return b->reason;
}

void bulkhead_deadline(struct bulkhead *b, unsigned milliseconds)
{
    b->deadline = now_ms() + milliseconds;
}

void bulkhead_free(struct bulkhead *b, struct bulkhead_rows *rows)
{
    for (struct bulkhead_rows **at = &b->rows; *at != NULL && rows != NULL; at = &(*at)->next)
        if (*at == rows) {
            *at = rows->next;
            rows_free(rows);
            return;
        }
}

void rows_free_all(struct bulkhead *b)
{
    while (b->rows != NULL)
        bulkhead_free(b, b->rows);
}
