/*
 * Follows requests and answers on one connection by the bytes that a server reads and writes: where they end, and
 * whether the connection may go on after them.
 *
 * Runs in: a guarded server. Sees: a client's bytes, the server's bytes. Never: allocates, does input or output, or
 * guesses: what it does not understand makes it lose track (`lost`), and then nothing is concluded any more.
 */
#ifndef EXCHANGE_H
#define EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* LIMIT: of a header line that matters, in bytes; a longer one of those makes it lose track. `Content-Length` and
 * `Transfer-Encoding: chunked` are far shorter; so is each `Connection` that servers write. */
enum { EXCHANGE_LINE_MAX = 96 };

/* LIMIT: requests in a pipeline of which the answer is due; one bit each. */
enum { EXCHANGE_WAITING_MAX = 64 };

enum stage { START, FIRST_LINE, FIELDS, COUNTED, CHUNK_SIZE, CHUNK, CHUNK_END, TRAILERS };

/* One direction. */
struct message {
    enum stage stage;
    uint64_t left;      /* bytes of the body, or of the chunk, to come */
    uint64_t length;    /* what Content-Length said */
    uint64_t tail;      /* the last eight bytes of the line */
    uint32_t line_size; /* of the line that is being read, which may be longer than what is kept of it */
    bool counted, chunked, says_close, says_keep, version_1_1;
    char line[EXCHANGE_LINE_MAX];
};

/* A connection. All zeros is a new one. */
struct exchange {
    struct message in, out;
    uint64_t heads;   /* of the requests waiting: whether it is HEAD; the oldest in the lowest bit */
    unsigned waiting; /* requests whose head was read and whose last answer has not ended */
    bool answered;    /* at least one was answered */
    bool last;        /* one side said that the connection ends */
    bool lost;
};

/* The server has read, or written, these bytes. */
void exchange_read(struct exchange *exchange, const void *bytes, size_t count);
void exchange_wrote(struct exchange *exchange, const void *bytes, size_t count);

/* It has read, or written, that many bytes that nobody has looked at (sendfile, splice): the inside of a body. */
void exchange_read_blind(struct exchange *exchange, size_t count);
void exchange_wrote_blind(struct exchange *exchange, size_t count);

/* How many of `count` bytes that the server could read belong to the request that it reads: up to its end. All, where it
 * is not known. */
size_t exchange_request_part(const struct exchange *exchange, const void *bytes, size_t count);

/* Whether the server has read all of a request that it has not answered, and would go on. */
bool exchange_answering(const struct exchange *exchange);

/* Whether all that was asked is answered, and both sides would go on. */
bool exchange_idle(const struct exchange *exchange);

#endif
