/* A response, as a service makes it.
 *
 * Runs in: a service. Sees: what the service puts in. Never: sends what cannot stand in a header field, or more or less of a
 * body than its head says. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "request.h"

/* What is said of one connection, which is not the service's to say (RFC 9110 7.6.1). */
static const char *const ours[] = {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"};

static const struct {
    int status;
    const char *text;
} reasons[] = {
    {200, "OK"}, {201, "Created"}, {202, "Accepted"}, {204, "No Content"}, {206, "Partial Content"}, {301, "Moved Permanently"},
    {302, "Found"}, {303, "See Other"}, {304, "Not Modified"}, {307, "Temporary Redirect"}, {308, "Permanent Redirect"},
    {400, "Bad Request"}, {401, "Unauthorized"}, {403, "Forbidden"}, {404, "Not Found"}, {405, "Method Not Allowed"},
    {406, "Not Acceptable"}, {409, "Conflict"}, {410, "Gone"}, {411, "Length Required"}, {412, "Precondition Failed"},
    {413, "Content Too Large"}, {415, "Unsupported Media Type"}, {422, "Unprocessable Content"}, {429, "Too Many Requests"},
    {500, "Internal Server Error"}, {501, "Not Implemented"}, {502, "Bad Gateway"}, {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
};

static const char *reason(int status)
{
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status)
            return reasons[i].text;
    return "";
}

void response_begin(struct bulkhead_request *r)
{
    struct response *response = &r->response;
    response->status = 200;
    response->fields_length = response->waiting_length = 0;
    response->owed = 0;
    response->has_length = response->is_begun = response->is_chunked = response->is_broken = false;
    bulkhead_set(r, "content-type", "text/html; charset=utf-8");
    /* SECURITY: text must not become a page because it looks like one. */
    bulkhead_set(r, "x-content-type-options", "nosniff");
}

int bulkhead_status(struct bulkhead_request *r, int status)
{
    if (status < 200 || status > 599 || r->response.is_begun)
        return -1;
    r->response.status = status;
    return 0;
}

static bool parse_owed(struct response *response, const char *value)
{
    const size_t digits = strspn(value, "0123456789");
    if (digits == 0 || digits > 18 || value[digits] != 0)
        return false;
    response->has_length = true;
    response->owed = strtoull(value, NULL, 10);
    return true;
}

static bool is_field(const char *name, const char *value)
{
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (is_same_name(name, ours[i]))
            return false;
    return is_token(name) && is_field_value(value);
}

/* Takes all fields of this name out. */
static void remove_fields(struct response *response, const char *name)
{
    const size_t length = strlen(name);
    for (char *at = response->fields; at < response->fields + response->fields_length;) {
        char *next = (char *)memchr(at, '\n', (size_t)(response->fields + response->fields_length - at)) + 1;
        if (strncasecmp(at, name, length) != 0 || at[length] != ':') {
            at = next;
            continue;
        }
        memmove(at, next, (size_t)(response->fields + response->fields_length - next));
        response->fields_length -= (size_t)(next - at);
    }
}

int bulkhead_add(struct bulkhead_request *r, const char *name, const char *value)
{
    struct response *response = &r->response;
    const size_t length = strlen(name) + strlen(value) + 4, left = sizeof response->fields - response->fields_length;
    if (response->is_begun || !is_field(name, value) || length >= left)
        return -1;
    if (is_same_name(name, "content-length") && (response->has_length || !parse_owed(response, value)))
        return -1;
    snprintf(response->fields + response->fields_length, left, "%s: %s\r\n", name, value);
    response->fields_length += length;
    return 0;
}

int bulkhead_set(struct bulkhead_request *r, const char *name, const char *value)
{
    if (r->response.is_begun || !is_field(name, value))
        return -1;
    remove_fields(&r->response, name);
    if (is_same_name(name, "content-length"))
        r->response.has_length = false;
    return bulkhead_add(r, name, value);
}

/* Sends all of these, and waits where the client does not take them; -1 if it has gone. */
static int send_parts(struct bulkhead_request *r, struct iovec *parts, size_t count)
{
    while (count > 0) {
        const struct msghdr head = {.msg_iov = parts, .msg_iovlen = count};
        ssize_t size = sendmsg(r->input->stream, &head, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (size < 0 && errno != EAGAIN && errno != EINTR)
            size = -2;
        if (size == -2 || (size < 0 && process_wait(r->b, r->input->stream, POLLOUT, NEVER) != 1)) {
            r->response.is_broken = true;
            return -1;
        }
        for (; count > 0 && size >= (ssize_t)parts->iov_len; parts++, count--)
            size -= (ssize_t)parts->iov_len;
        if (count > 0 && size > 0) {
            parts->iov_base = (char *)parts->iov_base + size;
            parts->iov_len -= (size_t)size;
        }
    }
    return 0;
}

static bool may_have_body(const struct response *response)
{
    return response->status != 204 && response->status != 304;
}

static bool has_body(const struct bulkhead_request *r)
{
    return may_have_body(&r->response) && strcmp(r->head.method, "HEAD") != 0;
}

/* Writes the head with what it says of the body's length. */
static size_t make_head(struct bulkhead_request *r, bool is_last, char *out, size_t room)
{
    struct response *response = &r->response;
    char framing[64] = "";
    if (response->status == 204)
        remove_fields(response, "content-length"); /* RFC 9110 8.6: not even the length of nothing. */
    else if (may_have_body(response) && !response->has_length && is_last)
        snprintf(framing, sizeof framing, "content-length: %zu\r\n", response->waiting_length);
    response->is_chunked = may_have_body(response) && !response->has_length && !is_last;
    if (response->is_chunked)
        snprintf(framing, sizeof framing, "transfer-encoding: chunked\r\n");
    response->is_begun = true;
    /* What is left of a body cannot be told from a next request. */
    r->head.keeps = r->head.keeps && r->body == BODY_DONE;
    const int length = snprintf(out, room, "HTTP/1.1 %d %s\r\n%.*s%s%s\r\n", response->status, reason(response->status),
                                (int)response->fields_length, response->fields, framing,
                                r->head.keeps ? "" : "connection: close\r\n");
    return (size_t)length;
}

/* Sends what waits, behind the head if that was not sent. */
static int send_waiting(struct bulkhead_request *r, bool is_last)
{
    static char head[RESPONSE_HEAD_MAX + 256];
    struct response *response = &r->response;
    if (response->is_broken)
        return -1;
    struct iovec parts[4];
    size_t count = 0;
    char line[32];
    if (!response->is_begun)
        parts[count++] = (struct iovec){head, make_head(r, is_last, head, sizeof head)};
    if (has_body(r)) {
        const bool is_chunk = response->is_chunked && response->waiting_length > 0;
        if (is_chunk)
            parts[count++] = (struct iovec){line, (size_t)snprintf(line, sizeof line, "%zx\r\n", response->waiting_length)};
        parts[count++] = (struct iovec){response->waiting, response->waiting_length};
        const char *end = is_chunk && is_last ? "\r\n0\r\n\r\n" : is_chunk ? "\r\n" : response->is_chunked && is_last ? "0\r\n\r\n" : "";
        parts[count++] = (struct iovec){(char *)end, strlen(end)};
    }
    response->waiting_length = 0;
    return send_parts(r, parts, count);
}

int bulkhead_write(struct bulkhead_request *r, const void *data, size_t length)
{
    struct response *response = &r->response;
    if (response->is_broken || (response->has_length && length > response->owed))
        return -1;
    if (response->has_length)
        response->owed -= length;
    for (const uint8_t *at = data; length > 0;) {
        size_t room = sizeof response->waiting - response->waiting_length;
        if (room == 0) {
            if (send_waiting(r, false) != 0)
                return -1;
            room = sizeof response->waiting;
        }
        const size_t count = length < room ? length : room;
        memcpy(response->waiting + response->waiting_length, at, count);
        response->waiting_length += count;
        at += count;
        length -= count;
    }
    return 0;
}

int bulkhead_flush(struct bulkhead_request *r)
{
    return send_waiting(r, false);
}

int bulkhead_html(struct bulkhead_request *r, const char *text, size_t length)
{
    static const char *const entities[] = {['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;", ['\''] = "&#39;"};
    if (length == BULKHEAD_WHOLE)
        length = strlen(text);
    for (size_t at = 0; at < length; at++) {
        size_t plain = at;
        while (plain < length && (memchr("&<>\"'", text[plain], 5) == NULL))
            plain++;
        if (bulkhead_write(r, text + at, plain - at) != 0)
            return -1;
        at = plain;
        if (at < length && bulkhead_write(r, entities[(uint8_t)text[at]], strlen(entities[(uint8_t)text[at]])) != 0)
            return -1;
    }
    return 0;
}

int bulkhead_print(struct bulkhead_request *r, const char *format, ...)
{
    static char text[16 << 10];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return length < 0 || length >= (int)sizeof text ? -1 : bulkhead_write(r, text, (size_t)length);
}

int bulkhead_status_page(struct bulkhead_request *r, int status)
{
    struct response *response = &r->response;
    if (response->is_begun || status < 200 || status > 599)
        return -1;
    remove_fields(response, "content-length");
    response->has_length = false;
    response->waiting_length = 0;
    response->status = status;
    bulkhead_set(r, "content-type", "text/html; charset=utf-8");
    return bulkhead_print(r, "<!doctype html>\n<title>%d %s</title>\n<h1>%d %s</h1>\n", status, reason(status), status,
                          reason(status));
}

bool response_end(struct bulkhead_request *r)
{
    const struct response *response = &r->response;
    return send_waiting(r, true) == 0 && !(response->has_length && response->owed > 0 && has_body(r));
}
