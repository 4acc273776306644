/*
 * Feeds exchange.c with made-up bytes for a number of seconds, cut at random places, and checks what it must keep to:
 * the same bytes give the same end however they are cut; a count never goes below nothing; lost stays lost; and what a
 * server is given is one request, as a plain reading of the same bytes (one_request.h) finds it, and no byte more.
 *
 * Runs in: the tests, with the sanitizers. Built with -DLIBFUZZER, it is a target for libFuzzer instead.
 */
#include "exchange.h"
#include "one_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const PIECES[] = {
    "GET / HTTP/1.1\r\n", "HEAD /a HTTP/1.1\r\n", "POST / HTTP/1.0\r\n", "CONNECT a:1 HTTP/1.1\r\n", "\r\n", "\n", "\r",
    "Content-Length: 5\r\n", "content-length: 0\r\n", "Content-Length: 999999999999999999\r\n", "Connection: close\r\n",
    "Connection: keep-alive, x\r\n", "Transfer-Encoding: chunked\r\n", "Transfer-Encoding: gzip\r\n", "hello", "5\r\n",
    "0\r\n\r\n", "fffffffffffffff\r\n", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 304 N\r\n",
    "HTTP/1.0 200\r\n", "HTTP/1.1 101 S\r\n", ": ", " folded\r\n", "X-Long: ", "\0\xff\x80", "a;b=c\r\n",
};

/* Parts of requests: what may come first, in heads, and in bodies. */
static const char *const LINES[] = {"GET / HTTP/1.1\r\n", "POST /a HTTP/1.1\r\n", "HEAD / HTTP/1.0\r\n", "get / HTTP/1.1\r\n",
                                    "\r\nGET / HTTP/1.1\r\n", "CONNECT a:1 HTTP/1.1\r\n", "GET / HTTP/1.2\r\n"};
static const char *const FIELDS[] = {
    "Host: a\r\n", "Content-Length: 5\r\n", "content-length:\t 5 \t\r\n", "Content-Length: 0\r\n", "Content-Length: 05\r\n",
    "Content-Length : 5\r\n", "Content-Length: 5, 5\r\n", "Content-Length: 5 5\r\n", "Content-Length:\r\n", "Content-Length: 5\n",
    "Content-Length: 000000000000000005\r\n", "Content-Length: 0000000000000000005\r\n", "Content-Length: +5\r\n",
    "Transfer-Encoding: chunked\r\n", "TRANSFER-ENCODING:  Chunked \r\n", "Transfer-Encoding: x, chunked\r\n",
    "Transfer-Encoding: chunked, chunked\r\n", "Transfer-Encoding:\r\n chunked\r\n", "Transfer-Encoding: chunked\r\r\n",
    "Connection:                                                                                              close\r\n",
    "Connection: keep-alive, close\r\n", "Upgrade: websocket\r\n", " folded\r\n", "X: a\rb\r\n", "X\r\n", ": x\r\n", "X: y\n",
};
static const char *const BODIES[] = {
    "hello", "5\r\nhello\r\n", "0000000000000005\r\nhello\r\n", "5;a=\"b;c\"\r\nhello\r\n", "5 ;a\r\nhello\r\n", "5\nhello\r\n",
    "5\r\nhello\n", "5 5\r\nhello\r\n", "10000000000000005\r\nhello\r\n", "7fffffffffffffff\r\n", "8000000000000000\r\n",
    "00000000000000000000005\r\nhello\r\n", "-5\r\n", "0x5\r\n", "0\r\n\r\n", "0\r\nX: y\r\n\r\n", "0\r\nGET / HTTP/1.1\r\n\r\n",
    "0\r\n\n", "5\r\nhello0\r\n\r\n", "\r\n",
};

enum { TLS = 0x16 };

static void fail(const char *what)
{
    fprintf(stderr, "exchange_fuzz: %s\n", what);
    abort();
}

static void check(const struct exchange *exchange, bool was_lost)
{
    if (exchange->waiting > EXCHANGE_WAITING_MAX)
        fail("more answers than questions");
    if (was_lost && !exchange->lost)
        fail("found its way again");
    if (exchange->lost && cc_exchange_idle(exchange))
        fail("is sure although it is lost");
}

static void feed(struct exchange *exchange, bool wrote, const unsigned char *bytes, size_t count)
{
    const bool was_lost = exchange->lost;
    /* A buffer of its own, so that the sanitizer sees a read beyond it. */
    unsigned char *copy = malloc(count ? count : 1);
    memcpy(copy, bytes, count);
    if (!wrote) {
        const size_t part = cc_exchange_request_part(exchange, copy, count);
        struct exchange ahead = *exchange;
        cc_exchange_read(&ahead, copy, part < count ? part : count);
        const bool ended = ahead.lost || ahead.in.stage == START;
        cc_exchange_read(&ahead, copy + part, part < count ? count - part : 0);
        if (part > count || (part < count && !ended && !ahead.lost))
            fail("a part that is no whole request");
    }
    (wrote ? cc_exchange_wrote : cc_exchange_read)(exchange, copy, count);
    free(copy);
    check(exchange, was_lost);
}

static bool is_tls(const unsigned char *bytes, size_t count)
{
    size_t at = 0;
    while (at + 1 < count && bytes[at] == '\r' && bytes[at + 1] == '\n')
        at += 2;
    return at < count && bytes[at] == TLS;
}

/* Of what a new connection brings, a server is given one request; `seed` decides in which pieces it comes. */
static void compare(const unsigned char *bytes, size_t count, unsigned seed)
{
    struct exchange exchange = {0};
    size_t at = 0, come = 0;
    while (come < count && cc_exchange_reading(&exchange) == READS_REQUEST) {
        seed = seed * 1103515245 + 12345;
        const size_t more = seed >> 31 ? count - come : 1 + (seed >> 16) % 40;
        come = more < count - come ? come + more : count;
        const size_t part = cc_exchange_request_part(&exchange, bytes + at, come - at);
        cc_exchange_read(&exchange, bytes + at, part);
        at += part;
        /* What is left of a request is where it cannot be followed. */
        exchange.lost |= at < come && cc_exchange_reading(&exchange) == READS_REQUEST;
    }
    const long long length = is_tls(bytes, count) ? INCOMPLETE : one_request((const char *)bytes, count);
    const bool whole = cc_exchange_reading(&exchange) == READS_LATER;
    if (exchange.free != is_tls(bytes, count))
        fail("is not followed");
    if (whole != (length >= 0))
        fail(whole ? "takes what is no request for one" : "does not see the end of a request");
    if (length == BAD && cc_exchange_reading(&exchange) == READS_REQUEST)
        fail("goes on with what is no request");
    if (whole && (long long)at != length)
        fail("sees another end of a request");
}

/* Bytes are of the one or of the other side by turns; `seed` decides where they are cut. */
static void run(const unsigned char *bytes, size_t count, unsigned seed)
{
    struct exchange whole = {0}, cut = {0};
    for (size_t at = 0; at + 2 <= count;) {
        const bool wrote = bytes[at] & 1, blind = (bytes[at] & 0xe) == 0xe;
        size_t size = bytes[at + 1];
        at += 2;
        if (blind) {
            (wrote ? cc_exchange_wrote_blind : cc_exchange_read_blind)(&whole, size);
            (wrote ? cc_exchange_wrote_blind : cc_exchange_read_blind)(&cut, size);
            continue;
        }
        size = size < count - at ? size : count - at;
        feed(&whole, wrote, bytes + at, size);
        for (size_t part = 0; size; at += part, size -= part) {
            seed = seed * 1103515245 + 12345;
            part = 1 + (seed >> 16) % 9;
            part = part < size ? part : size;
            feed(&cut, wrote, bytes + at, part);
        }
    }
    if (whole.lost != cut.lost || (!whole.lost && (whole.waiting != cut.waiting || whole.last != cut.last ||
                                                   cc_exchange_idle(&whole) != cc_exchange_idle(&cut))))
        fail("depends on where the bytes are cut");
}

#ifdef LIBFUZZER
int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t count);
int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t count)
{
    run(bytes, count, (unsigned)count);
    compare(bytes, count, (unsigned)count);
    return 0;
}
#else
static size_t make(unsigned char *bytes, size_t room)
{
    size_t count = 0;
    for (int parts = rand() % 12; parts >= 0; parts--) {
        unsigned char *const head = bytes + count;
        size_t size = 0;
        head[0] = (unsigned char)rand();
        for (int pieces = rand() % 6; pieces >= 0; pieces--) {
            const char *piece = PIECES[(size_t)rand() % (sizeof PIECES / sizeof *PIECES)];
            const size_t length = *piece ? strlen(piece) : 3;
            if (size + length > 255 || count + 2 + size + length > room)
                break;
            memcpy(head + 2 + size, piece, length);
            size += length;
        }
        if (size && rand() % 8 == 0)
            head[2 + (size_t)rand() % size] = (unsigned char)rand();
        head[1] = (unsigned char)size;
        if (count + 2 + size + 2 > room)
            break;
        count += 2 + size;
    }
    return count;
}

#define ANY(list) list[(size_t)rand() % (sizeof(list) / sizeof *(list))]

static size_t add(unsigned char *bytes, size_t at, const char *text)
{
    memcpy(bytes + at, text, strlen(text));
    return at + strlen(text);
}

/* Two requests, of which one is nearly good. */
static size_t make_requests(unsigned char *bytes)
{
    size_t count = add(bytes, 0, rand() % 8 ? LINES[rand() % 3] : ANY(LINES));
    for (int lines = rand() % 4; lines > 0; lines--)
        count = add(bytes, count, ANY(FIELDS));
    count = add(bytes, count, "\r\n");
    for (int parts = rand() % 4; parts > 0; parts--)
        count = add(bytes, count, ANY(BODIES));
    if (rand() % 4 == 0)
        count = add(bytes, count, "0\r\n\r\n");
    count = add(bytes, count, "GET /secret HTTP/1.1\r\nHost: a\r\n\r\n");
    for (int changes = rand() % 6 - 3; changes > 0; changes--)
        bytes[(size_t)rand() % count] = (unsigned char)(rand() % 2 ? rand() : "\r\n :;,\t0"[rand() % 8]);
    return rand() % 8 ? count : (size_t)rand() % count;
}

int main(int argc, char **argv)
{
    const time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 30);
    unsigned long runs = 0;
    unsigned char bytes[4096];
    srand((unsigned)end);
    for (; runs % 1024 || time(NULL) < end; runs++) {
        run(bytes, make(bytes, sizeof bytes), (unsigned)runs);
        const size_t count = make_requests(bytes);
        /* A copy that is as long as it is, so that the sanitizer sees a read beyond it. */
        unsigned char *const copy = malloc(count ? count : 1);
        memcpy(copy, bytes, count);
        compare(copy, count, (unsigned)runs);
        free(copy);
    }
    printf("exchange_fuzz: %lu runs\n", runs);
    return 0;
}
#endif
