/*
 * Follows requests and answers; see exchange.h. RFC 9112 is what decides where a message ends.
 *
 * Runs in: a guarded server. Sees: a client's bytes, the server's bytes. Never: allocates, guesses.
 */
#include "exchange.h"

#include <string.h>
#include <strings.h>

static bool is_request(const struct exchange *exchange, const struct message *message)
{
    return message == &exchange->in;
}

static size_t kept(const struct message *message)
{
    return message->line_size < EXCHANGE_LINE_MAX ? message->line_size : EXCHANGE_LINE_MAX;
}

static void next_line(struct message *message, enum stage stage)
{
    message->stage = stage;
    message->line_size = 0;
    message->tail = 0;
}

/* Adds to the line what there is of it; true if it has ended. The line is without its end then. */
static bool add_line(struct message *message, const char **at, size_t *count)
{
    const char *end = memchr(*at, '\n', *count);
    size_t part = end ? (size_t)(end - *at) : *count, room = EXCHANGE_LINE_MAX - kept(message);
    memcpy(message->line + kept(message), *at, part < room ? part : room);
    for (size_t i = part > 8 ? part - 8 : 0; i < part; i++)
        message->tail = message->tail << 8 | (unsigned char)(*at)[i];
    /* SECURITY: a line that never ends must not wrap the counter around to a short one. */
    message->line_size = part > UINT32_MAX - message->line_size ? UINT32_MAX : message->line_size + (uint32_t)part;
    *at += part + (end != NULL);
    *count -= part + (end != NULL);
    if (end && message->line_size && (message->tail & 0xff) == '\r') {
        message->line_size--;
        message->tail >>= 8;
    }
    return end != NULL;
}

/* RFC 9112 6.3: the end of one message, and so the start of the next. */
static void end_message(struct exchange *exchange, struct message *message)
{
    next_line(message, START);
    if (is_request(exchange, message))
        return;
    exchange->heads >>= 1;
    exchange->waiting--;
    exchange->answered = true;
}

static bool starts(const struct message *message, const char *text)
{
    return message->line_size >= strlen(text) && memcmp(message->line, text, strlen(text)) == 0;
}

/* RFC 9112 3: the version is the end of the line. Seven bytes of it are compared: eight, less a CR. */
static void request_line(struct exchange *exchange, struct message *message)
{
    const uint64_t version = message->tail & 0xffffffffffffff;
    message->version_1_1 = version == 0x5454502f312e31; /* TTP/1.1 */
    if (!message->version_1_1 && version != 0x5454502f312e30)
        exchange->lost = true;
    /* A tunnel, and the preface of HTTP/2, are followed by what is no HTTP/1. */
    if (starts(message, "CONNECT ") || starts(message, "PRI "))
        exchange->lost = true;
}

/* RFC 9112 4: HTTP/1.x, a blank, three digits (kept in `left` until the head has ended). */
static void status_line(struct exchange *exchange, struct message *message)
{
    const char *digits = message->line + 9;
    message->version_1_1 = starts(message, "HTTP/1.1 ");
    message->left = 0;
    if (message->line_size < 12 || !(message->version_1_1 || starts(message, "HTTP/1.0 "))) {
        exchange->lost = true;
        return;
    }
    for (int i = 0; i < 3; i++) {
        if (digits[i] < '0' || digits[i] > '9')
            exchange->lost = true;
        message->left = message->left * 10 + (uint64_t)(digits[i] - '0');
    }
    if (message->left < 100)
        exchange->lost = true;
}

static bool is(const char *text, size_t size, const char *other)
{
    return size == strlen(other) && strncasecmp(text, other, size) == 0;
}

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

static void trim(const char **text, size_t *size)
{
    while (*size && blank(**text))
        ++*text, --*size;
    while (*size && blank((*text)[*size - 1]))
        --*size;
}

static void content_length(struct exchange *exchange, struct message *message, const char *value, size_t size)
{
    uint64_t length = 0;
    /* LIMIT: 18 digits fit into the number. */
    if (size == 0 || size > 18)
        exchange->lost = true;
    for (size_t i = 0; i < size && !exchange->lost; i++) {
        if (value[i] < '0' || value[i] > '9')
            exchange->lost = true;
        length = length * 10 + (uint64_t)(value[i] - '0');
    }
    if (message->counted && message->length != length)
        exchange->lost = true;
    message->counted = true;
    message->length = length;
}

/* RFC 9110 7.6.1: a list of options. */
static void connection(struct message *message, const char *value, size_t size)
{
    while (size) {
        const char *comma = memchr(value, ',', size), *option = value;
        size_t part = comma ? (size_t)(comma - value) : size, whole = part;
        trim(&option, &part);
        message->says_close |= is(option, part, "close");
        message->says_keep |= is(option, part, "keep-alive");
        value += whole + (comma != NULL);
        size -= whole + (comma != NULL);
    }
}

static void field(struct exchange *exchange, struct message *message)
{
    const size_t size = kept(message);
    const char *colon = memchr(message->line, ':', size);
    if (!colon || blank(message->line[0])) {
        /* A long name is nobody's; a folded line could belong to one that matters. */
        exchange->lost |= message->line_size == size || blank(message->line[0]);
        return;
    }
    const size_t name = (size_t)(colon - message->line);
    const char *value = colon + 1;
    size_t value_size = size - name - 1;
    const bool length = is(message->line, name, "content-length");
    const bool coding = is(message->line, name, "transfer-encoding");
    if (!length && !coding && !is(message->line, name, "connection"))
        return;
    if (message->line_size > size) {
        exchange->lost = true;
        return;
    }
    trim(&value, &value_size);
    if (length) {
        content_length(exchange, message, value, value_size);
    } else if (coding) {
        exchange->lost |= message->chunked || !is(value, value_size, "chunked");
        message->chunked = true;
    } else {
        connection(message, value, value_size);
    }
}

/* RFC 9112 6.3: what follows the head. `certain` says whether it is known where a body without a length ends. */
static void begin_body(struct exchange *exchange, struct message *message, bool none, bool certain)
{
    if (none || (message->counted && message->length == 0 && !message->chunked)) {
        end_message(exchange, message);
    } else if (message->chunked && !message->counted) {
        next_line(message, CHUNK_SIZE);
    } else if (message->counted && !message->chunked) {
        message->left = message->length;
        message->stage = COUNTED;
    } else if (certain && !message->chunked) {
        end_message(exchange, message);
    } else {
        exchange->lost = true;
    }
}

static void end_request_head(struct exchange *exchange, struct message *message, bool head)
{
    if (exchange->waiting == EXCHANGE_WAITING_MAX) {
        exchange->lost = true;
        return;
    }
    exchange->heads |= (uint64_t)head << exchange->waiting++;
    begin_body(exchange, message, false, true);
}

static void end_answer_head(struct exchange *exchange, struct message *message)
{
    const uint64_t status = message->left;
    /* An answer to nothing, and what comes after an upgrade, cannot be followed. */
    if (exchange->waiting == 0 || status == 101)
        exchange->lost = true;
    else if (status < 200)
        next_line(message, START);
    else
        begin_body(exchange, message, exchange->heads & 1 || status == 204 || status == 304, false);
}

/* The head of a message has ended. What its first line said is gone but for the version, and HEAD. */
static void end_head(struct exchange *exchange, struct message *message)
{
    const bool interim = !is_request(exchange, message) && message->left < 200;
    if (!interim && (message->version_1_1 ? message->says_close : !message->says_keep || message->says_close))
        exchange->last = true;
    if (is_request(exchange, message))
        end_request_head(exchange, message, message->left);
    else
        end_answer_head(exchange, message);
}

static void first_line(struct exchange *exchange, struct message *message)
{
    message->counted = message->chunked = message->says_close = message->says_keep = false;
    if (is_request(exchange, message)) {
        message->left = starts(message, "HEAD ");
        request_line(exchange, message);
    } else {
        status_line(exchange, message);
    }
    next_line(message, FIELDS);
}

/* RFC 9112 7.1: hexadecimal digits, and perhaps an extension. */
static void chunk_size(struct exchange *exchange, struct message *message)
{
    uint64_t size = 0;
    size_t digits = 0, count = kept(message);
    for (; digits < count; digits++) {
        const char c = message->line[digits], low = (char)(c | 0x20);
        if (c >= '0' && c <= '9')
            size = size << 4 | (uint64_t)(c - '0');
        else if (low >= 'a' && low <= 'f')
            size = size << 4 | (uint64_t)(low - 'a' + 10);
        else
            break;
    }
    const bool end = digits == count || message->line[digits] == ';' || blank(message->line[digits]);
    /* LIMIT: 15 digits fit into the number. */
    if (digits == 0 || digits > 15 || !end)
        exchange->lost = true;
    message->left = size;
    next_line(message, size ? CHUNK : TRAILERS);
}

static void whole_line(struct exchange *exchange, struct message *message)
{
    switch (message->stage) {
    case FIRST_LINE:
        first_line(exchange, message);
        return;
    case FIELDS:
        if (message->line_size == 0) {
            end_head(exchange, message);
            return;
        }
        field(exchange, message);
        break;
    case CHUNK_SIZE:
        chunk_size(exchange, message);
        return;
    case CHUNK_END:
        exchange->lost |= message->line_size != 0;
        next_line(message, CHUNK_SIZE);
        return;
    default: /* TRAILERS */
        if (message->line_size == 0) {
            end_message(exchange, message);
            return;
        }
        break;
    }
    next_line(message, message->stage);
}

/* Goes over `count` bytes of a body or a chunk, of which there are at least so many. */
static void pass_body(struct exchange *exchange, struct message *message, uint64_t count)
{
    message->left -= count;
    if (message->left)
        return;
    if (message->stage == COUNTED)
        end_message(exchange, message);
    else
        next_line(message, CHUNK_END);
}

static void begin(struct exchange *exchange, struct message *message, const char **at, size_t *count)
{
    const bool request = is_request(exchange, message);
    /* RFC 9112 2.2: empty lines before a request are ignored. */
    if (request && (**at == '\r' || **at == '\n')) {
        ++*at, --*count;
    } else {
        exchange->lost |= request ? **at < 'A' || **at > 'Z' : **at != 'H';
        next_line(message, FIRST_LINE);
    }
}

/* One step: as many bytes as are of one kind. */
static void step(struct exchange *exchange, struct message *message, const char **at, size_t *count)
{
    if (message->stage == START) {
        begin(exchange, message, at, count);
    } else if (message->stage == COUNTED || message->stage == CHUNK) {
        const size_t part = *count < message->left ? *count : (size_t)message->left;
        pass_body(exchange, message, part);
        *at += part;
        *count -= part;
    } else if (add_line(message, at, count)) {
        whole_line(exchange, message);
    }
}

static void follow(struct exchange *exchange, struct message *message, const char *at, size_t count)
{
    while (count && !exchange->lost)
        step(exchange, message, &at, &count);
}

size_t exchange_request_part(const struct exchange *exchange, const void *bytes, size_t count)
{
    struct exchange ahead = *exchange;
    const char *at = bytes;
    size_t left = count;
    bool within = ahead.in.stage != START;
    while (left && !ahead.lost) {
        step(&ahead, &ahead.in, &at, &left);
        if (within && ahead.in.stage == START)
            return ahead.lost ? count : count - left;
        within = ahead.in.stage != START;
    }
    return count;
}

bool exchange_answering(const struct exchange *exchange)
{
    return !exchange->lost && !exchange->last && exchange->waiting && exchange->in.stage == START;
}

static void follow_blind(struct exchange *exchange, struct message *message, size_t count)
{
    if (!count || exchange->lost)
        return;
    if ((message->stage == COUNTED || message->stage == CHUNK) && count <= message->left)
        pass_body(exchange, message, count);
    else
        exchange->lost = true;
}

void exchange_read(struct exchange *exchange, const void *bytes, size_t count)
{
    follow(exchange, &exchange->in, bytes, count);
}

void exchange_wrote(struct exchange *exchange, const void *bytes, size_t count)
{
    follow(exchange, &exchange->out, bytes, count);
}

void exchange_read_blind(struct exchange *exchange, size_t count)
{
    follow_blind(exchange, &exchange->in, count);
}

void exchange_wrote_blind(struct exchange *exchange, size_t count)
{
    follow_blind(exchange, &exchange->out, count);
}

bool exchange_idle(const struct exchange *exchange)
{
    return exchange->answered && !exchange->lost && !exchange->last && exchange->waiting == 0 &&
           exchange->in.stage == START && exchange->out.stage == START;
}
