/*
 * Reads the lines of heads, and of trailers, as they come; see exchange.h.
 *
 * Runs in: a guarded server. Sees: a client's bytes, the server's bytes. Never: keeps more of a line than a word, so that
 * no line is too long to be understood.
 */
#include "exchange_parts.h"

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
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

void cc_exchange_first_line(struct exchange *exchange, struct message *message, const char **at, size_t *count)
{
    const char *const begin = *at;
    const size_t before = *count;
    const bool ended = cc_exchange_to_line_end(exchange, message, at, count);
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
        cc_exchange_end_message(exchange, message);
    else
        cc_exchange_end_head(exchange, message);
}

/* RFC 9112 5.1: no blank in a name; at the start of one it would continue the line before. */
void cc_exchange_name(struct exchange *exchange, struct message *message, const char **at, size_t *count)
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

void cc_exchange_value(struct exchange *exchange, struct message *message, const char **at, size_t *count)
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

