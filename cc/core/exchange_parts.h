/*
 * What the two files that follow an exchange share: exchange.c, and exchange_head.c for lines of heads.
 *
 * Runs in: as exchange.h says.
 */
#ifndef EXCHANGE_PARTS_H
#define EXCHANGE_PARTS_H

#include "exchange.h"

#include <string.h>

static inline bool is_request(const struct exchange *exchange, const struct message *message)
{
    return message == &exchange->in;
}

static inline void next(struct message *message, enum stage stage)
{
    message->stage = stage;
    message->word_size = 0;
    message->cr = message->word_ended = message->began = false;
}

static inline bool blank(char c)
{
    return c == ' ' || c == '\t';
}

/* RFC 9110 5.6.2. */
static inline bool is_token(char c)
{
    const char low = (char)(c | 0x20);
    return (low >= 'a' && low <= 'z') || c == '-' || (c >= '0' && c <= '9') ||
           (c > ' ' && c < 0x7f && strchr("!#$%&'*+.^_`|~", c));
}

/* SECURITY: in a request, lines end with CR LF, and neither comes by itself: servers disagree on both. */
static inline bool line_feed(struct exchange *exchange, const struct message *message)
{
    exchange->lost |= is_request(exchange, message) && !message->cr;
    return !exchange->lost;
}

static inline bool lonely_cr(struct exchange *exchange, const struct message *message, char next_byte)
{
    exchange->lost |= message->cr && next_byte != '\n' && is_request(exchange, message);
    return exchange->lost;
}

/* exchange.c */
bool cc_exchange_to_line_end(struct exchange *exchange, struct message *message, const char **at, size_t *count);
void cc_exchange_end_message(struct exchange *exchange, struct message *message);
void cc_exchange_end_head(struct exchange *exchange, struct message *message);

/* exchange_head.c: the first line of a message, and a name and a value of its header lines and trailers */
void cc_exchange_first_line(struct exchange *exchange, struct message *message, const char **at, size_t *count);
void cc_exchange_name(struct exchange *exchange, struct message *message, const char **at, size_t *count);
void cc_exchange_value(struct exchange *exchange, struct message *message, const char **at, size_t *count);

#endif
