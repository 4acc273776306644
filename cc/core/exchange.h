/*
 * Follows the request and the answer on one connection by the bytes that a server reads and writes: where they end, and
 * whether the connection may go on after them.
 *
 * Runs in: a guarded server. Sees: a client's bytes, the server's bytes. Never: allocates, does input or output, or
 * guesses: what it does not understand makes it lose track (`lost`), and then nothing more is to be read.
 *
 * SECURITY: a server may take more for a request than the gate has checked, and filters have seen, only if this does. So
 * it is as strict as the crate `request` with heads, and stricter with chunks, which the gate never sees: a bare LF or
 * CR, a name with a blank, a size that does not fit is nothing that two readers would be sure to understand alike.
 */
#ifndef EXCHANGE_H
#define EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* LIMIT: what is kept of a line or a word, in bytes: the longest that matter are `transfer-encoding` and 18 digits. */
enum { EXCHANGE_WORD_MAX = 20 };

/* LIMIT: requests of which the answer is due; one bit each. A server is given one at a time. */
enum { EXCHANGE_WAITING_MAX = 64 };

enum stage {
    START, EMPTY_LINE, FIRST_LINE, NAME, VALUE, OTHER_VALUE, COUNTED, CHUNK_SIZE, CHUNK_BLANK, CHUNK_MORE, CHUNK, CHUNK_END,
};

/* Header lines that matter here. */
enum name { LENGTH, CODING, CONNECTION, UPGRADE };

/* One direction. */
struct message {
    uint64_t left;        /* bytes of the body, or of the chunk, to come */
    uint64_t length;      /* what Content-Length said */
    uint64_t tail;        /* the last eight bytes of the first line */
    enum stage stage;
    enum name name;       /* of the line whose value is read */
    uint8_t word_size;    /* above EXCHANGE_WORD_MAX, it is none of those that matter */
    bool cr;              /* the last byte was a CR, which a LF must follow */
    bool word_ended;      /* a blank came after it */
    bool began;           /* of a chunk's size, a digit; of a line, a byte */
    bool trailers, counted, chunked, says_close, says_keep, says_websocket, version_1_1;
    char word[EXCHANGE_WORD_MAX];
};

/* A connection. All zeros is a new one. */
struct exchange {
    struct message in, out;
    uint64_t heads;   /* of the requests waiting: whether it is HEAD; the oldest in the lowest bit */
    unsigned waiting; /* requests whose head was read and whose last answer has not ended */
    bool answered;    /* at least one was answered */
    bool last;        /* one side said that the connection ends */
    bool leaves;      /* the server said so */
    bool lost;        /* it is not known any more what is what, or the connection cannot go back to the gate */
    bool free;        /* a tunnel, TLS, or a connection that is to stay: nothing is followed */
};

/* What a server that wants to read may have. */
enum reading {
    READS_ALL,     /* whatever there is: nothing is followed */
    READS_REQUEST, /* up to the end of its request */
    READS_LATER,   /* nothing, as long as it has not answered */
    READS_NOTHING, /* nothing any more */
};
enum reading cc_exchange_reading(const struct exchange *exchange);

/* The server has read, or written, these bytes. */
void cc_exchange_read(struct exchange *exchange, const void *bytes, size_t count);
void cc_exchange_wrote(struct exchange *exchange, const void *bytes, size_t count);

/* It has read, or written, that many bytes that nobody has looked at (sendfile, splice): the inside of a body. */
void cc_exchange_read_blind(struct exchange *exchange, size_t count);
void cc_exchange_wrote_blind(struct exchange *exchange, size_t count);

/* How many of `count` bytes that come next belong to the request that the server reads: up to its end, or to where it
 * cannot be followed any more. */
size_t cc_exchange_request_part(const struct exchange *exchange, const void *bytes, size_t count);

/* How many bytes that come next certainly belong to the body. */
uint64_t cc_exchange_body_left(const struct exchange *exchange);

/* The connection goes on here after it was idle: the server may read its next request. */
void cc_exchange_again(struct exchange *exchange);

/* Whether all that was asked is answered, and both sides would go on. */
bool cc_exchange_idle(const struct exchange *exchange);

#endif
