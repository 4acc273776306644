/* One connection from a worker of the site: requests, one after the other, and their answers.
 *
 * Runs in: a service. Sees: requests of several clients, whose heads the site's worker has checked. Never: closes the connection
 * while a request may be on its way, or answers a client with why its service has failed. */
#define _GNU_SOURCE
#include "request.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    /* LIMIT: until when calls are answered: the site's worker gives 504 after 60 s. */
    ANSWER_MAX_MS = 59000,
    /* LIMIT: how long we wait, after our last answer, for a peer that is still sending. */
    LINGER_MAX_MS = 2000,
};

const char *bulkhead_method(const struct bulkhead_request *r)
{
    return r->head.method;
}

const char *bulkhead_path(const struct bulkhead_request *r)
{
    return r->head.path;
}

const char *bulkhead_query(const struct bulkhead_request *r)
{
    return r->head.query;
}

const char *bulkhead_client(const struct bulkhead_request *r)
{
    return r->head.client;
}

const char *bulkhead_header(const struct bulkhead_request *r, const char *name)
{
    for (size_t i = 0; i < r->head.count; i++)
        if (is_same_name(r->head.lines[i].name, name))
            return r->head.lines[i].value;
    return NULL;
}

int bulkhead_header_at(const struct bulkhead_request *r, size_t place, const char **name, const char **value)
{
    if (place >= r->head.count)
        return -1;
    *name = r->head.lines[place].name;
    *value = r->head.lines[place].value;
    return 0;
}

/* RFC 9112 9.6: closing while the peer still sends would reset the connection, and the answer might be lost. */
static void linger(struct bulkhead *b, int stream)
{
    char skipped[4096];
    const int64_t until = now_ms() + LINGER_MAX_MS;
    shutdown(stream, SHUT_WR);
    while (process_wait(b, stream, POLLIN, until) == 1) {
        const ssize_t count = recv(stream, skipped, sizeof skipped, MSG_DONTWAIT);
        if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR))
            return;
    }
}

/* Has the service answer; whether the response is whole. */
static bool answer(struct bulkhead_request *r)
{
    struct bulkhead *b = r->b;
    const int status = b->service->process(b, r, b->service->state);
    if (status == 0)
        return response_end(r);
    const bool is_too_long = r->body == BODY_TOO_LONG;
    if (r->body == BODY_BROKEN || r->response.is_broken || b->fault[0] != 0)
        return false;
    if (!is_too_long)
        bulkhead_log(b, BULKHEAD_ERROR, "`process` has failed with %d for %s %s", status, r->head.method, r->head.path);
    if (r->response.is_begun)
        return false;
    response_begin(r);
    bulkhead_status_page(r, is_too_long ? 413 : 500);
    return response_end(r);
}

/* Answers the request whose head is at the beginning of the input; whether the connection goes on. */
static bool serve_one(struct bulkhead *b, struct input *input, size_t head_end)
{
    /* Requests come one after the other. */
    static struct bulkhead_request request;
    struct bulkhead_request *r = &request;
    r->b = b;
    r->input = input;
    r->whole = NULL;
    r->head_end = input->begin = head_end;
    if (!head_parse((char *)input->bytes, head_end, &r->head)) {
        log_text(&b->log, BULKHEAD_WARNING, "a malformed request from the site's worker");
        return false;
    }
    body_begin(r);
    response_begin(r);
    b->deadline = now_ms() + ANSWER_MAX_MS;
    const bool is_whole = answer(r);
    b->deadline = NEVER;
    free(r->whole);
    rows_free_all(b);
    b->requests++;
    if (!is_whole)
        return false;
    if (!body_skip(r)) {
        linger(b, input->stream);
        return false;
    }
    input->end -= input->begin;
    memmove(input->bytes, input->bytes + input->begin, input->end);
    input->begin = 0;
    return r->head.keeps;
}

bool connection_serve(struct bulkhead *b, struct source *source)
{
    struct input *input = &source->input;
    const size_t most = (size_t)b->head_bytes + ADDED_MAX;
    while (b->fault[0] == 0) {
        const size_t end = head_find_end(input->bytes, input->end < most ? input->end : most);
        if (end == 0 && input->end >= most)
            log_text(&b->log, BULKHEAD_WARNING, "a head from the site's worker is longer than its limit");
        if (end == 0)
            return input->end < most;
        if (!serve_one(b, input, end))
            return false;
    }
    return false;
}
