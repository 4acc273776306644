/*
 * Feeds exchange.c with made-up bytes for a number of seconds, cut at random places, and checks what it must keep to:
 * the same bytes give the same end however they are cut; a count never goes below nothing; lost stays lost.
 *
 * Runs in: the tests, with the sanitizers. Built with -DLIBFUZZER, it is a target for libFuzzer instead.
 */
#include "exchange.h"

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
    if (exchange->lost && exchange_idle(exchange))
        fail("is sure although it is lost");
}

static void feed(struct exchange *exchange, bool wrote, const unsigned char *bytes, size_t count)
{
    const bool was_lost = exchange->lost;
    /* A buffer of its own, so that the sanitizer sees a read beyond it. */
    unsigned char *copy = malloc(count ? count : 1);
    memcpy(copy, bytes, count);
    if (!wrote) {
        const size_t part = exchange_request_part(exchange, copy, count);
        struct exchange ahead = *exchange;
        exchange_read(&ahead, copy, part);
        if (part > count || (part < count && !ahead.lost && ahead.in.stage != START))
            fail("a part that is no whole request");
    }
    (wrote ? exchange_wrote : exchange_read)(exchange, copy, count);
    free(copy);
    check(exchange, was_lost);
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
            (wrote ? exchange_wrote_blind : exchange_read_blind)(&whole, size);
            (wrote ? exchange_wrote_blind : exchange_read_blind)(&cut, size);
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
                                                   exchange_idle(&whole) != exchange_idle(&cut))))
        fail("depends on where the bytes are cut");
}

#ifdef LIBFUZZER
int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t count);
int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t count)
{
    run(bytes, count, (unsigned)count);
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

int main(int argc, char **argv)
{
    const time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 30);
    unsigned long runs = 0;
    unsigned char bytes[4096];
    srand((unsigned)end);
    for (; runs % 1024 || time(NULL) < end; runs++)
        run(bytes, make(bytes, sizeof bytes), (unsigned)runs);
    printf("exchange_fuzz: %lu runs\n", runs);
    return 0;
}
#endif
