/*
 * Follows requests and answers; see exchange.h. RFC 9112 is what decides where a message ends.
 *
 * Runs in: a guarded server. Sees: a client's bytes, the server's bytes. Never: allocates, guesses.
 */
#include "exchange.h"

#include <string.h>

/* A record of TLS that begins a handshake (RFC 8446 5.1); no request begins so. */
enum { TLS_HANDSHAKE = 0x16 };

static bool is_request(const struct exchange *exchange, const struct message *message)
{
    return message == &exchange->in;
}

static void next(struct message *message, enum stage stage)
{
    message->stage = stage;
    message->word_size = 0;
    message->cr = message->word_ended = message->began = false;
}

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

/* RFC 9110 5.6.2. */
static bool is_token(char c)
{
    const char low = (char)(c | 0x20);
    return (low >= 'a' && low <= 'z') || c == '-' || (c >= '0' && c <= '9') ||
           (c > ' ' && c < 0x7f && strchr("!#$%&'*+.^_`|~", c));
}

static void add_to_word(struct message *message, char c)
{
    if (message->word_size < EXCHANGE_WORD_MAX)
        message->word[message->word_size] = c;
    if (message->word_size <= EXCHANGE_WORD_MAX)
        message->word_size++;
}

static bool word_is(const struct message *message, const char *text)
{
    return message->word_size == strlen(text) && memcmp(message->word, text, message->word_size) == 0;
}

static bool word_begins(const struct message *message, const char *text)
{
    return message->word_size >= strlen(text) && memcmp(message->word, text, strlen(text)) == 0;
}

/* SECURITY: in a request, lines end with CR LF, and neither comes by itself: servers disagree on both. */
static bool line_feed(struct exchange *exchange, const struct message *message)
{
    exchange->lost |= is_request(exchange, message) && !message->cr;
    return !exchange->lost;
}

static bool lonely_cr(struct exchange *exchange, const struct message *message, char next_byte)
{
    exchange->lost |= message->cr && next_byte != '\n' && is_request(exchange, message);
    return exchange->lost;
}

/* Goes on to the end of a line; true if it was there. `began` says then whether there was anything before it. */
static bool to_line_end(struct exchange *exchange, struct message *message, const char **at, size_t *count)
{
    const char *const begin = *at, *const end = memchr(begin, '\n', *count);
    const size_t part = end ? (size_t)(end - begin) : *count;
    if (lonely_cr(exchange, message, *begin))
        return false;
    if (part) {
        const char *cr = memchr(begin, '\r', part);
        exchange->lost |= cr && cr != begin + part - 1 && is_request(exchange, message);
        message->cr = begin[part - 1] == '\r';
        message->began |= part > 1 || !message->cr;
    }
    *at += part + (end != NULL);
    *count -= part + (end != NULL);
    return end && line_feed(exchange, message);
}

/* RFC 9112 6.3: the end of one message, and so the start of the next. */
static void end_message(struct exchange *exchange, struct message *message)
{
    next(message, START);
    if (is_request(exchange, message))
        return;
    exchange->heads >>= 1;
    exchange->waiting--;
    exchange->answered = true;
}

/* RFC 9112 3: the version is the end of the line. Seven bytes of it are compared: eight, less a CR. */
static void request_line(struct exchange *exchange, struct message *message)
{
    const uint64_t version = message->tail & 0xffffffffffffff;
    message->version_1_1 = version == 0x5454502f312e31; /* TTP/1.1 */
    if (!message->version_1_1 && version != 0x5454502f312e30)
        exchange->lost = true;
    /* What follows a tunnel, and the preface of HTTP/2, is no HTTP/1; the gate passes neither on. */
    if (word_begins(message, "CONNECT ") || word_begins(message, "PRI "))
        exchange->lost = true;
    message->left = word_begins(message, "HEAD ");
}

/* RFC 9112 4: HTTP/1.x, a blank, three digits (kept in `left` until the head has ended). */
static void status_line(struct exchange *exchange, struct message *message)
{
    const char *digits = message->word + 9;
    message->version_1_1 = word_begins(message, "HTTP/1.1 ");
    message->left = 0;
    if (message->word_size < 12 || !(message->version_1_1 || word_begins(message, "HTTP/1.0 "))) {
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

static void first_line(struct exchange *exchange, struct message *message, const char **at, size_t *count)
{
    const char *const begin = *at;
    const size_t before = *count;
    const bool ended = to_line_end(exchange, message, at, count);
    const size_t part = before - *count - ended;
    for (size_t i = 0; i < part && message->word_size < EXCHANGE_WORD_MAX; i++)
        add_to_word(message, begin[i]);
    for (size_t i = part > 8 ? part - 8 : 0; i < part; i++)
        message->tail = message->tail << 8 | (unsigned char)begin[i];
    if (!ended)
        return;
    if (message->cr) {
        message->tail >>= 8;
        message->word_size -= message->word_size && message->word[message->word_size - 1] == '\r';
    }
    message->counted = message->chunked = message->says_close = message->says_keep = false;
    message->says_websocket = message->trailers = false;
    (is_request(exchange, message) ? request_line : status_line)(exchange, message);
    message->tail = 0;
    next(message, NAME);
}

static void content_length(struct exchange *exchange, struct message *message)
{
    uint64_t length = 0;
    /* LIMIT: 18 digits fit into the number; the crate `request` has the same limit. */
    if (message->word_size == 0 || message->word_size > 18)
        exchange->lost = true;
    for (size_t i = 0; i < message->word_size && !exchange->lost; i++) {
        if (message->word[i] < '0' || message->word[i] > '9')
            exchange->lost = true;
        length = length * 10 + (uint64_t)(message->word[i] - '0');
    }
    if (message->counted && message->length != length)
        exchange->lost = true;
    message->counted = true;
    message->length = length;
}

/* An element of a list, or a whole value, has ended. */
static void end_word(struct exchange *exchange, struct message *message)
{
    switch (message->name) {
    case LENGTH:
        content_length(exchange, message);
        break;
    case CODING:
        exchange->lost |= message->chunked || !word_is(message, "chunked");
        message->chunked = true;
        break;
    case CONNECTION:
        message->says_close |= word_is(message, "close");
        message->says_keep |= word_is(message, "keep-alive");
        break;
    default: /* UPGRADE */
        message->says_websocket |= word_is(message, "websocket");
        break;
    }
    message->word_size = 0;
    message->word_ended = false;
}

/* RFC 9112 6.3: what follows the head. `certain` says whether it is known where a body without a length ends. */
static void begin_body(struct exchange *exchange, struct message *message, bool none, bool certain)
{
    if (none || (message->counted && message->length == 0 && !message->chunked)) {
        end_message(exchange, message);
    } else if (message->chunked && !message->counted && (message->version_1_1 || !is_request(exchange, message))) {
        next(message, CHUNK_SIZE);
        message->left = 0;
    } else if (message->counted && !message->chunked) {
        message->left = message->length;
        message->stage = COUNTED;
    } else if (certain && !message->chunked) {
        end_message(exchange, message);
    } else {
        /* What has neither ends with the connection. */
        exchange->leaves |= !is_request(exchange, message);
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

/* RFC 9110 15.2.2. SECURITY: WebSocket alone, and only where it was asked for: `h2c` would carry requests that nobody
 * has checked. */
static void switch_protocols(struct exchange *exchange)
{
    const bool asked = exchange->waiting == 1 && exchange->in.stage == START && exchange->in.says_websocket;
    if (asked && exchange->out.says_websocket)
        exchange->free = true;
    else
        exchange->lost = true;
}

static void end_answer_head(struct exchange *exchange, struct message *message)
{
    const uint64_t status = message->left;
    /* What answers nothing cannot be followed. */
    if (exchange->waiting == 0)
        exchange->lost = true;
    else if (status == 101)
        switch_protocols(exchange);
    else if (status < 200)
        next(message, START);
    else
        begin_body(exchange, message, exchange->heads & 1 || status == 204 || status == 304, false);
}

/* The head of a message has ended. What its first line said is gone but for the version, and HEAD. */
static void end_head(struct exchange *exchange, struct message *message)
{
    const bool request = is_request(exchange, message), interim = !request && message->left < 200;
    if (!interim && (message->version_1_1 ? message->says_close : !message->says_keep || message->says_close)) {
        exchange->last = true;
        exchange->leaves |= !request;
    }
    if (request)
        end_request_head(exchange, message, message->left);
    else
        end_answer_head(exchange, message);
}

/* The names of header lines that matter; what comes in trailers does not. */
static void end_name(struct message *message)
{
    static const char *const names[] = {"content-length", "transfer-encoding", "connection", "upgrade"};
    enum stage stage = OTHER_VALUE;
    for (enum name name = LENGTH; name <= UPGRADE && !message->trailers; name++) {
        if (word_is(message, names[name])) {
            message->name = name;
            stage = VALUE;
        }
    }
    next(message, stage);
}

/* A line without a colon: the empty one, which is the end. */
static void end_fields(struct exchange *exchange, struct message *message)
{
    if (!line_feed(exchange, message))
        return;
    if (message->began)
        exchange->lost = true;
    else if (message->trailers)
        end_message(exchange, message);
    else
        end_head(exchange, message);
}

/* RFC 9112 5.1: no blank in a name; at the start of one it would continue the line before. */
static void name(struct exchange *exchange, struct message *message, const char **at, size_t *count)
{
    while (*count && !exchange->lost) {
        const char c = **at;
        if (lonely_cr(exchange, message, c))
            return;
        ++*at, --*count;
        if (c == '\n') {
            end_fields(exchange, message);
            return;
        }
        if (c == ':') {
            exchange->lost |= !message->began;
            end_name(message);
            return;
        }
        message->cr = c == '\r';
        if (message->cr)
            continue;
        exchange->lost |= !is_token(c) && (is_request(exchange, message) || !message->began);
        message->began = true;
        add_to_word(message, lower(c));
    }
}

static void value(struct exchange *exchange, struct message *message, const char **at, size_t *count)
{
    const bool is_list = message->name == CONNECTION || message->name == UPGRADE;
    while (*count && !exchange->lost) {
        const char c = **at;
        if (lonely_cr(exchange, message, c))
            return;
        ++*at, --*count;
        if (c == '\n') {
            if (line_feed(exchange, message)) {
                end_word(exchange, message);
                next(message, NAME);
            }
            return;
        }
        message->cr = c == '\r';
        if (c == ',' && is_list) {
            end_word(exchange, message);
        } else if (blank(c) || c == '\r') {
            message->word_ended = message->word_size > 0;
        } else if (message->word_ended) {
            exchange->lost |= !is_list;
            message->word_size = EXCHANGE_WORD_MAX + 1;
        } else {
            add_to_word(message, lower(c));
        }
    }
}

/* The line with the size of a chunk has ended. */
static void end_chunk_size(struct exchange *exchange, struct message *message)
{
    if (!line_feed(exchange, message))
        return;
    exchange->lost |= !message->began;
    message->trailers = message->left == 0;
    next(message, message->left ? CHUNK : NAME);
}

static int digit(char c)
{
    const char low = (char)(c | 0x20);
    return c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

/* RFC 9112 7.1: hexadecimal digits, blanks, and perhaps extensions, which begin with a semicolon. */
static void chunk_size_byte(struct exchange *exchange, struct message *message, char c)
{
    const int value = digit(c);
    if (c == '\r') {
        message->cr = true;
    } else if (message->stage == CHUNK_MORE) {
        exchange->lost |= (unsigned char)c < ' ' && c != '\t';
    } else if (c == ';' && message->began) {
        message->stage = CHUNK_MORE;
    } else if (blank(c) && message->began) {
        message->stage = CHUNK_BLANK;
    } else if (message->stage == CHUNK_SIZE && value >= 0) {
        /* LIMIT: 2^63 - 1, the largest that no server takes for a negative number. Zeros in front do no harm. */
        exchange->lost |= message->left >> 59 != 0;
        message->left = message->left << 4 | (uint64_t)value;
        message->began = true;
    } else {
        exchange->lost = true;
    }
}

static void chunk_size(struct exchange *exchange, struct message *message, const char **at, size_t *count)
{
    while (*count && !exchange->lost) {
        const char c = **at;
        if (lonely_cr(exchange, message, c))
            return;
        ++*at, --*count;
        if (c == '\n') {
            end_chunk_size(exchange, message);
            return;
        }
        message->cr = false;
        chunk_size_byte(exchange, message, c);
    }
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
        next(message, CHUNK_END);
}

static void body(struct exchange *exchange, struct message *message, const char **at, size_t *count)
{
    const size_t part = *count < message->left ? *count : (size_t)message->left;
    pass_body(exchange, message, part);
    *at += part;
    *count -= part;
}

static void chunk_end(struct exchange *exchange, struct message *message, const char **at, size_t *count)
{
    const bool ended = to_line_end(exchange, message, at, count);
    exchange->lost |= message->began;
    if (!ended || exchange->lost)
        return;
    next(message, CHUNK_SIZE);
    message->left = 0;
}

static bool is_new(const struct exchange *exchange)
{
    return !exchange->waiting && !exchange->answered && exchange->out.stage == START;
}

static void begin(struct exchange *exchange, struct message *message, const char **at, size_t *count)
{
    const bool request = is_request(exchange, message);
    const char c = **at;
    /* RFC 9112 2.2: empty lines before a request are ignored. */
    if (request && c == '\r') {
        message->stage = EMPTY_LINE;
        ++*at, --*count;
    } else if (request && c == TLS_HANDSHAKE && is_new(exchange)) {
        /* The gate lets it through where it may come; see docs/guard.md. */
        exchange->free = true;
    } else {
        exchange->lost |= request ? !is_token(c) : c != 'H';
        next(message, FIRST_LINE);
    }
}

static void empty_line(struct exchange *exchange, struct message *message, const char **at, size_t *count)
{
    exchange->lost |= **at != '\n';
    message->stage = START;
    ++*at, --*count;
}

/* One step: as many bytes as are of one kind. */
static void step(struct exchange *exchange, struct message *message, const char **at, size_t *count)
{
    switch (message->stage) {
    case START: begin(exchange, message, at, count); break;
    case EMPTY_LINE: empty_line(exchange, message, at, count); break;
    case FIRST_LINE: first_line(exchange, message, at, count); break;
    case NAME: name(exchange, message, at, count); break;
    case VALUE: value(exchange, message, at, count); break;
    case OTHER_VALUE:
        if (to_line_end(exchange, message, at, count))
            next(message, NAME);
        break;
    case COUNTED:
    case CHUNK: body(exchange, message, at, count); break;
    case CHUNK_SIZE:
    case CHUNK_BLANK:
    case CHUNK_MORE: chunk_size(exchange, message, at, count); break;
    case CHUNK_END: chunk_end(exchange, message, at, count); break;
    }
}

static void follow(struct exchange *exchange, struct message *message, const char *at, size_t count)
{
    while (count && !exchange->lost && !exchange->free)
        step(exchange, message, &at, &count);
}

size_t exchange_request_part(const struct exchange *exchange, const void *bytes, size_t count)
{
    struct exchange ahead = *exchange;
    const char *at = bytes;
    size_t left = count;
    bool within = ahead.in.stage > EMPTY_LINE;
    while (left && !ahead.free) {
        const size_t before = left;
        step(&ahead, &ahead.in, &at, &left);
        if (ahead.lost)
            return count - before;
        if (within && ahead.in.stage == START)
            return count - left;
        within = ahead.in.stage > EMPTY_LINE;
    }
    return count;
}

enum reading exchange_reading(const struct exchange *exchange)
{
    if (exchange->free)
        return READS_ALL;
    if (exchange->lost)
        return READS_NOTHING;
    if (exchange->in.stage > EMPTY_LINE)
        return READS_REQUEST;
    if (exchange->waiting)
        return READS_LATER;
    return exchange->answered ? READS_NOTHING : READS_REQUEST;
}

uint64_t exchange_body_left(const struct exchange *exchange)
{
    const bool within = exchange->in.stage == COUNTED || exchange->in.stage == CHUNK;
    return within && !exchange->lost ? exchange->in.left : 0;
}

static void follow_blind(struct exchange *exchange, struct message *message, size_t count)
{
    if (!count || exchange->lost || exchange->free)
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
    return exchange->answered && !exchange->free && !exchange->lost && !exchange->last && exchange->waiting == 0 &&
           exchange->in.stage == START && exchange->out.stage == START;
}
