/* Bodies of requests, of a known length or in chunks.
 *
 * Runs in: a service. Sees: bytes of clients, in the form that the site's worker gives them. Never: reads beyond the body, or
 * passes on more than `body_bytes`. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "request.h"

enum {
    /* LIMIT: bytes of the line that says how long a chunk is, or of a trailer. */
    LINE_MAX_BYTES = 4096,
    CHUNK_DIGITS = 15,
    /* What a whole body is read into at first. */
    WHOLE_FIRST = 4096,
};

int input_read(struct input *input)
{
    if (input->end == input->room)
        return 0;
    const ssize_t count = recv(input->stream, input->bytes + input->end, input->room - input->end, MSG_DONTWAIT);
    if (count > 0)
        input->end += (size_t)count;
    return count > 0 ? 1 : count < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

void body_begin(struct bulkhead_request *r)
{
    r->limit_left = r->b->body_bytes;
    r->left = r->head.length;
    r->read_until = NEVER;
    r->body = r->head.is_chunked ? CHUNK_LINE : r->left > r->limit_left ? BODY_TOO_LONG : r->left > 0 ? BODY_PART : BODY_DONE;
}

static ssize_t fail(struct bulkhead_request *r, enum body_state how)
{
    r->body = how;
    return -1;
}

/* Waits for more behind what is there; false at the end. */
static bool fill(struct bulkhead_request *r)
{
    struct input *input = r->input;
    if (input->begin > r->head_end) {
        memmove(input->bytes + r->head_end, input->bytes + input->begin, input->end - input->begin);
        input->end -= input->begin - r->head_end;
        input->begin = r->head_end;
    }
    for (;;) {
        const int status = input_read(input);
        if (status != 0)
            return status > 0;
        if (process_wait(r->b, input->stream, POLLIN, r->read_until) != 1)
            return false;
    }
}

/* The next line, without its end; NULL for none. */
static const char *take_line(struct bulkhead_request *r, size_t *length)
{
    struct input *input = r->input;
    for (;;) {
        const char *line = (const char *)input->bytes + input->begin;
        const size_t there = input->end - input->begin, most = there < LINE_MAX_BYTES ? there : LINE_MAX_BYTES;
        const char *end = memmem(line, most, "\r\n", 2);
        if (end != NULL) {
            *length = (size_t)(end - line);
            input->begin += *length + 2;
            return line;
        }
        if (there >= LINE_MAX_BYTES || !fill(r))
            return NULL;
    }
}

static bool take_chunk_line(struct bulkhead_request *r)
{
    size_t length;
    const char *line = take_line(r, &length);
    if (line == NULL || length == 0 || length > CHUNK_DIGITS)
        return false;
    r->left = 0;
    for (size_t i = 0; i < length; i++) {
        const char byte = line[i];
        const int digit = byte >= '0' && byte <= '9'   ? byte - '0'
                          : byte >= 'a' && byte <= 'f' ? byte - 'a' + 10
                          : byte >= 'A' && byte <= 'F' ? byte - 'A' + 10
                                                       : -1;
        if (digit < 0)
            return false;
        r->left = r->left << 4 | (unsigned)digit;
    }
    r->body = r->left > r->limit_left ? BODY_TOO_LONG : r->left > 0 ? CHUNK_PART : TRAILER;
    return true;
}

static bool take_chunk_end(struct bulkhead_request *r)
{
    size_t length;
    if (take_line(r, &length) == NULL || length != 0)
        return false;
    r->body = CHUNK_LINE;
    return true;
}

static bool take_trailer(struct bulkhead_request *r)
{
    size_t length;
    if (take_line(r, &length) == NULL)
        return false;
    if (length == 0)
        r->body = BODY_DONE;
    return true;
}

static ssize_t take_part(struct bulkhead_request *r, void *to, size_t size)
{
    struct input *input = r->input;
    if (input->begin == input->end && !fill(r))
        return fail(r, BODY_BROKEN);
    size_t count = input->end - input->begin;
    count = count < size ? count : size;
    count = count < r->left ? count : (size_t)r->left;
    memcpy(to, input->bytes + input->begin, count);
    input->begin += count;
    r->left -= count;
    r->limit_left -= count;
    if (r->left == 0)
        r->body = r->body == BODY_PART ? BODY_DONE : CHUNK_END;
    return (ssize_t)count;
}

ssize_t bulkhead_read(struct bulkhead_request *r, void *to, size_t size)
{
    for (;;) {
        bool is_good = true;
        switch (r->body) {
        case BODY_PART: case CHUNK_PART:
            return size > 0 ? take_part(r, to, size) : 0;
        case CHUNK_LINE:
            is_good = take_chunk_line(r);
            break;
        case CHUNK_END:
            is_good = take_chunk_end(r);
            break;
        case TRAILER:
            is_good = take_trailer(r);
            break;
        case BODY_DONE:
            return 0;
        case BODY_TOO_LONG: case BODY_BROKEN:
            return -1;
        }
        if (!is_good)
            return fail(r, BODY_BROKEN);
    }
}

const char *bulkhead_body(struct bulkhead_request *r, size_t most, size_t *length)
{
    size_t count = 0, room = 0;
    free(r->whole);
    r->whole = NULL;
    for (;;) {
        if (count + 1 >= room) {
            room = room == 0 ? WHOLE_FIRST : 2 * room;
            char *more = realloc(r->whole, room);
            if (more == NULL)
                return fail(r, BODY_TOO_LONG), NULL;
            r->whole = more;
        }
        const ssize_t part = bulkhead_read(r, r->whole + count, room - 1 - count);
        if (part < 0)
            return NULL;
        count += (size_t)part;
        if (count > most)
            return fail(r, BODY_TOO_LONG), NULL;
        if (part == 0) {
            r->whole[count] = 0;
            *length = count;
            return r->whole;
        }
    }
}

bool body_skip(struct bulkhead_request *r)
{
    char skipped[4096];
    r->read_until = now_ms();
    while (r->body < BODY_DONE) {
        struct pollfd stream = {r->input->stream, POLLIN, 0};
        if (r->input->begin == r->input->end && poll(&stream, 1, 0) != 1)
            return false;
        bulkhead_read(r, skipped, sizeof skipped);
    }
    return r->body == BODY_DONE;
}
