/*
 * Follows requests and answers; see exchange.h. RFC 9112 is what decides where a message ends.
 *
 * Runs in: a guarded server. Sees: a client's bytes, the server's bytes. Never: allocates, guesses.
 */
#include "exchange_parts.h"

/* A record of TLS that begins a handshake (RFC 8446 5.1); no request begins so. */
enum { TLS_HANDSHAKE = 0x16 };

/* Goes on to the end of a line; true if it was there. `began` says then whether there was anything before it. */
bool cc_exchange_to_line_end(struct exchange *exchange, struct message *message, const char **at, size_t *count)
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
void cc_exchange_end_message(struct exchange *exchange, struct message *message)
{
    next(message, START);
    if (is_request(exchange, message))
        return;
    exchange->heads >>= 1;
    exchange->waiting--;
    exchange->answered = true;
}

/* RFC 9112 6.3: what follows the head. `certain` says whether it is known where a body without a length ends. */
static void begin_body(struct exchange *exchange, struct message *message, bool none, bool certain)
{
    if (none || (message->counted && message->length == 0 && !message->chunked)) {
        cc_exchange_end_message(exchange, message);
    } else if (message->chunked && !message->counted && (message->version_1_1 || !is_request(exchange, message))) {
        next(message, CHUNK_SIZE);
        message->left = 0;
    } else if (message->counted && !message->chunked) {
        message->left = message->length;
        message->stage = COUNTED;
    } else if (certain && !message->chunked) {
        cc_exchange_end_message(exchange, message);
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
void cc_exchange_end_head(struct exchange *exchange, struct message *message)
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
        cc_exchange_end_message(exchange, message);
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
    const bool ended = cc_exchange_to_line_end(exchange, message, at, count);
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
        /* The gate lets it through where it may come; see docs/guide/guard.md. */
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
    case FIRST_LINE: cc_exchange_first_line(exchange, message, at, count); break;
    case NAME: cc_exchange_name(exchange, message, at, count); break;
    case VALUE: cc_exchange_value(exchange, message, at, count); break;
    case OTHER_VALUE:
        if (cc_exchange_to_line_end(exchange, message, at, count))
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

size_t cc_exchange_request_part(const struct exchange *exchange, const void *bytes, size_t count)
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

enum reading cc_exchange_reading(const struct exchange *exchange)
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

uint64_t cc_exchange_body_left(const struct exchange *exchange)
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

void cc_exchange_read(struct exchange *exchange, const void *bytes, size_t count)
{
    follow(exchange, &exchange->in, bytes, count);
}

void cc_exchange_wrote(struct exchange *exchange, const void *bytes, size_t count)
{
    follow(exchange, &exchange->out, bytes, count);
}

void cc_exchange_read_blind(struct exchange *exchange, size_t count)
{
    follow_blind(exchange, &exchange->in, count);
}

void cc_exchange_wrote_blind(struct exchange *exchange, size_t count)
{
    follow_blind(exchange, &exchange->out, count);
}

bool cc_exchange_idle(const struct exchange *exchange)
{
    return exchange->answered && !exchange->free && !exchange->lost && !exchange->last && exchange->waiting == 0 &&
           exchange->in.stage == START && exchange->out.stage == START;
}

void cc_exchange_again(struct exchange *exchange)
{
    if (cc_exchange_idle(exchange))
        exchange->answered = false;
}
