/* A service that does what it is asked for by the last word of the path; tests/toolkit/test_c.py asks. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bulkhead.h"

enum { PARAMETERS_MAX = 8 };

static const char *const faults[] = {
    "OK", "Refused", "Parameters", "TooLarge", "Busy", "Late", "Constraint", "Database", "Lost", "Unavailable", "Shape",
};

static int number(const struct bulkhead_request *r, const char *name)
{
    char text[32];
    return bulkhead_param(r, name, text, sizeof text) < 0 ? 0 : atoi(text);
}

static int do_pid(struct bulkhead *b, struct bulkhead_request *r)
{
    (void)b;
    return bulkhead_print(r, "%d\n", (int)getpid());
}

static int do_about(struct bulkhead *b, struct bulkhead_request *r)
{
    (void)b;
    const char *name, *value;
    char q[64], raw[64];
    bulkhead_set(r, "content-type", "text/plain; charset=utf-8");
    bulkhead_print(r, "method %s\npath %s\nquery %s\nclient %s\n", bulkhead_method(r), bulkhead_path(r), bulkhead_query(r), bulkhead_client(r));
    if (bulkhead_param(r, "q", q, sizeof q) >= 0 && bulkhead_raw_param(bulkhead_query(r), "q", raw, sizeof raw) >= 0)
        bulkhead_print(r, "param %s\nraw %s\n", q, raw);
    for (size_t i = 0; bulkhead_header_at(r, i, &name, &value) == 0; i++)
        bulkhead_print(r, "header %s: %s\n", name, value);
    return 0;
}

static int do_html(struct bulkhead *b, struct bulkhead_request *r)
{
    (void)b;
    char q[256];
    return bulkhead_raw_param(bulkhead_query(r), "q", q, sizeof q) < 0 ? -1 : bulkhead_html(r, q, BULKHEAD_WHOLE);
}

static int do_sum(struct bulkhead *b, struct bulkhead_request *r)
{
    (void)b;
    char part[10000];
    ssize_t count;
    long sum = 0;
    while ((count = bulkhead_read(r, part, sizeof part)) > 0)
        sum += count;
    return count < 0 ? -1 : bulkhead_print(r, "%ld\n", sum);
}

static int do_echo(struct bulkhead *b, struct bulkhead_request *r)
{
    (void)b;
    size_t length;
    const char *body = bulkhead_body(r, BULKHEAD_WHOLE, &length);
    return body == NULL ? -1 : bulkhead_write(r, body, length);
}

static int do_form(struct bulkhead *b, struct bulkhead_request *r)
{
    (void)b;
    size_t length;
    char q[64];
    const char *body = bulkhead_body(r, 1000, &length);
    return body == NULL || bulkhead_raw_param(body, "q", q, sizeof q) < 0 ? -1 : bulkhead_print(r, "%s\n", q);
}

static int do_early(struct bulkhead *b, struct bulkhead_request *r)
{
    (void)b;
    return bulkhead_print(r, "early\n");
}

static int do_stream(struct bulkhead *b, struct bulkhead_request *r)
{
    (void)b;
    const int parts = number(r, "parts");
    for (int i = 0; i < parts; i++)
        if (bulkhead_print(r, "%06d\n", i) != 0)
            return -1;
    return 0;
}

/* Sends each part by itself. */
static int do_parts(struct bulkhead *b, struct bulkhead_request *r)
{
    (void)b;
    return bulkhead_print(r, "one ") | bulkhead_flush(r) | bulkhead_flush(r) | bulkhead_print(r, "two") | bulkhead_flush(r);
}

static int do_slow(struct bulkhead *b, struct bulkhead_request *r)
{
    (void)b;
    fprintf(stderr, "a slow one begins\n");
    usleep((useconds_t)number(r, "ms") * 1000);
    return bulkhead_print(r, "slow\n");
}

static int do_error(struct bulkhead *b, struct bulkhead_request *r)
{
    (void)r;
    bulkhead_log(b, BULKHEAD_WARNING, "the secret word is %s", "xyzzy");
    return 7;
}

static int do_broken(struct bulkhead *b, struct bulkhead_request *r)
{
    (void)b;
    return bulkhead_print(r, "some of it") | bulkhead_flush(r) | -1;
}

/* Says that there is more of it. */
static int do_short(struct bulkhead *b, struct bulkhead_request *r)
{
    (void)b;
    bulkhead_set(r, "content-length", "100");
    return bulkhead_print(r, "some of it");
}

static int do_headers(struct bulkhead *b, struct bulkhead_request *r)
{
    (void)b;
    static char large[20000];
    memset(large, 'a', sizeof large - 1);
    const int refused = bulkhead_set(r, "x-bad", "a\r\nset-cookie: b") + bulkhead_set(r, "x bad", "a") + bulkhead_set(r, "Connection", "close") +
                        bulkhead_set(r, "x-large", large) + bulkhead_set(r, "content-length", "-1") + bulkhead_status(r, 101) +
                        bulkhead_set(r, "transfer-encoding", "gzip");
    bulkhead_add(r, "set-cookie", "a=1");
    bulkhead_add(r, "Set-Cookie", "b=2");
    bulkhead_set(r, "X-Own", "before");
    bulkhead_set(r, "x-own", "after");
    bulkhead_status(r, 201);
    bulkhead_set(r, "Content-Length", "3");
    return bulkhead_print(r, "%03d", -refused) | (bulkhead_print(r, "x") == -1 ? 0 : 1) | (bulkhead_flush(r) == 0 ? 0 : 1) |
           (bulkhead_set(r, "x-late", "a") == -1 ? 0 : 1);
}

static int do_none(struct bulkhead *b, struct bulkhead_request *r)
{
    (void)b;
    return bulkhead_status(r, number(r, "status")) | bulkhead_print(r, "nobody sees it");
}

/* What memory it may have; whether it can be told to be looked into. */
static int do_code(struct bulkhead *b, struct bulkhead_request *r)
{
    (void)b;
    const void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return bulkhead_print(r, "%s\n", code == MAP_FAILED ? strerror(errno) : "mapped");
}

static int do_die(struct bulkhead *b, struct bulkhead_request *r)
{
    (void)b, (void)r;
    _exit(3);
}

static void put_value(struct bulkhead_request *r, struct bulkhead_value value)
{
    switch (value.type) {
    case BULKHEAD_NULL:
        bulkhead_print(r, "null");
        return;
    case BULKHEAD_INT:
        bulkhead_print(r, "%lld", (long long)value.integer);
        return;
    case BULKHEAD_REAL:
        bulkhead_print(r, "%g", value.real);
        return;
    case BULKHEAD_TEXT:
        bulkhead_write(r, value.bytes, value.length);
        return;
    case BULKHEAD_BLOB:
        bulkhead_print(r, "blob of %zu", value.length);
    }
}

static void put_rows(struct bulkhead_request *r, struct bulkhead_rows *rows)
{
    do {
        bulkhead_print(r, "result");
        for (size_t i = 0; i < bulkhead_columns(rows); i++) {
            bulkhead_print(r, "|");
            put_value(r, bulkhead_column(rows, i));
        }
        bulkhead_print(r, "\n");
        while (bulkhead_next(rows)) {
            for (size_t i = 0; i < bulkhead_columns(rows); i++) {
                bulkhead_print(r, i ? "|" : "");
                put_value(r, bulkhead_value(rows, i));
            }
            bulkhead_print(r, "\n");
        }
        bulkhead_print(r, "changed %llu\n", (unsigned long long)bulkhead_changed(rows));
    } while (bulkhead_next_result(rows));
}

/* Calls `statement` with the parameters p0, p1 and so on: `i7`, `r0.5`, `tann`, `bann`, `n`. */
static int do_call(struct bulkhead *b, struct bulkhead_request *r)
{
    static char texts[PARAMETERS_MAX][1000];
    char statement[100], source[64] = "catalog";
    struct bulkhead_value parameters[PARAMETERS_MAX];
    size_t count = 0;
    for (char name[] = "p0"; count < PARAMETERS_MAX; name[1]++, count++) {
        char *text = texts[count];
        if (bulkhead_raw_param(bulkhead_query(r), name, text, sizeof texts[0]) < 0)
            break;
        parameters[count] = *text == 'i'   ? bulkhead_int(strtoll(text + 1, NULL, 10))
                            : *text == 'r' ? bulkhead_real(strtod(text + 1, NULL))
                            : *text == 't' ? bulkhead_text(text + 1)
                            : *text == 'b' ? bulkhead_blob(text + 1, strlen(text + 1))
                                           : bulkhead_null();
    }
    if (bulkhead_raw_param(bulkhead_query(r), "statement", statement, sizeof statement) < 0)
        return -1;
    bulkhead_raw_param(bulkhead_query(r), "source", source, sizeof source);
    if (number(r, "deadline") > 0)
        bulkhead_deadline(b, (unsigned)number(r, "deadline"));
    struct bulkhead_rows *rows;
    const enum bulkhead_fault fault = bulkhead_call(b, source, statement, parameters, count, &rows);
    bulkhead_set(r, "content-type", "text/plain; charset=utf-8");
    if (fault != BULKHEAD_OK)
        return bulkhead_status(r, 502) | bulkhead_print(r, "%s: %s\n", faults[fault], bulkhead_reason(b));
    put_rows(r, rows);
    if (number(r, "free"))
        bulkhead_free(b, rows);
    return 0;
}

/* Parameters of 3 MiB, and what comes back of them. */
static int do_large(struct bulkhead *b, struct bulkhead_request *r)
{
    static char large[3 << 20];
    memset(large, 'x', sizeof large);
    const struct bulkhead_value parameters[] = {bulkhead_null(), bulkhead_blob(large, sizeof large), {.type = BULKHEAD_TEXT, .bytes = "\xff", .length = 1}};
    struct bulkhead_rows *rows;
    const enum bulkhead_fault wrong = bulkhead_call(b, "catalog", "types", parameters, 3, &rows);
    const enum bulkhead_fault right = bulkhead_call(b, "catalog", "types", parameters, 2, &rows);
    if (right != BULKHEAD_OK || !bulkhead_next(rows))
        return bulkhead_print(r, "%s, %s: %s\n", faults[wrong], faults[right], bulkhead_reason(b));
    const struct bulkhead_value value = bulkhead_get(rows, "b");
    const int same = value.type == BULKHEAD_BLOB && value.length == sizeof large && memcmp(value.bytes, large, value.length) == 0;
    return bulkhead_print(r, "%s, %s: %d %d %d\n", faults[wrong], faults[right], same, bulkhead_get(rows, "a").type, bulkhead_get(rows, "none").type);
}

static const struct {
    const char *name;
    int (*deed)(struct bulkhead *b, struct bulkhead_request *r);
} deeds[] = {
    {"pid", do_pid}, {"about", do_about}, {"html", do_html}, {"sum", do_sum}, {"echo", do_echo}, {"form", do_form}, {"early", do_early},
    {"stream", do_stream}, {"parts", do_parts}, {"slow", do_slow}, {"error", do_error}, {"broken", do_broken}, {"short", do_short},
    {"headers", do_headers}, {"none", do_none}, {"code", do_code}, {"die", do_die}, {"call", do_call}, {"large", do_large},
};

static int process(struct bulkhead *b, struct bulkhead_request *r, void *state)
{
    ++*(int *)state;
    const char *name = strrchr(bulkhead_path(r), '/') + 1;
    for (size_t i = 0; i < sizeof deeds / sizeof *deeds; i++)
        if (strcmp(deeds[i].name, name) == 0)
            return deeds[i].deed(b, r);
    return bulkhead_status_page(r, 404);
}

static int init(struct bulkhead *b, int argc, char **argv, void *state)
{
    (void)state;
    if (argc > 1 && strcmp(argv[1], "fail") == 0) {
        bulkhead_log(b, BULKHEAD_ERROR, "no index here");
        return 5;
    }
    if (argc > 1 && strcmp(argv[1], "wait") == 0)
        return bulkhead_call(b, "catalog", "users", NULL, 0, NULL) != BULKHEAD_OK;
    return 0;
}

static int command(struct bulkhead *b, const char *name, const char *argument, char *answer, size_t size, void *state)
{
    (void)b;
    if (strcmp(name, "echo") == 0)
        return snprintf(answer, size, "%s", argument) < 0;
    snprintf(answer, size, "after %d requests: what is %s?", *(int *)state, name);
    return -1;
}

static void end(struct bulkhead *b, void *state)
{
    bulkhead_log(b, BULKHEAD_INFO, "ends after %d requests", *(int *)state);
}

int main(int argc, char **argv)
{
    static int requests;
    const struct bulkhead_service service = {init, process, command, end, &requests};
    return bulkhead_main(&service, argc, argv);
}
