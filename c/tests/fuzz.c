/*
 * Gives whole and spoilt bytes to everything in the SDK that reads bytes of others, for a number of seconds: messages of other
 * processes, heads and bodies of requests, answers of data sources, texts of clients. What is whole is read as it was written;
 * what is spoilt is refused, or is something that could have been written.
 *
 * Runs in: the tests, with the sanitizers. Each input ends where its memory does, so that one byte too many is found.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "request.h"
#include "rows.h"
#include "text.h"

enum { ROOM = 2 * MESSAGE_MAX, BODY_MOST = 60000 };

static uint8_t bytes[ROOM], again[ROOM], random_bytes[ROOM];
static struct field fields[FIELDS_MAX];
static volatile unsigned touched;

#define CHECK(condition) \
    do { \
        if (!(condition)) \
            fail(__LINE__, #condition); \
    } while (0)

static void fail(int line, const char *what)
{
    fprintf(stderr, "fuzz.c:%d: not so: %s\n", line, what);
    abort();
}

/* A number below `most`, often a small one. */
static size_t some(size_t most)
{
    return most == 0 ? 0 : (size_t)rand() % (rand() % 4 && most > 8 ? 8 : most);
}

static void touch(const void *data, size_t length)
{
    for (size_t i = 0; i < length; i++)
        touched += ((const uint8_t *)data)[i];
}

/* A copy without a byte behind it, in which up to three things have changed. */
static uint8_t *spoilt(const uint8_t *whole, size_t *length, bool is_spoilt)
{
    uint8_t *copy = malloc(*length + 1);
    memcpy(copy, whole, *length);
    for (int changes = is_spoilt ? rand() % 4 : 0; changes > 0 && *length > 0; changes--) {
        const size_t at = (size_t)rand() % *length;
        switch (rand() % 4) {
        case 0:
            copy[at] = (uint8_t)rand();
            break;
        case 1:
            copy[at] ^= (uint8_t)(1 << rand() % 8);
            break;
        case 2:
            *length = at;
            break;
        default:
            memmove(copy + at, copy + at + 1, *length - at - 1);
            --*length;
        }
    }
    uint8_t *exact = malloc(*length);
    memcpy(exact, copy, *length);
    free(copy);
    return exact;
}

/* --- Messages. */

static const char *some_field(const char *layout, struct field *field)
{
    const char letter = *layout++;
    const size_t limit = strchr("crty", letter) ? (size_t)strtoul(layout, NULL, 10) : 0;
    *field = (struct field){.bytes = random_bytes + rand() % 1000};
    if (strchr("1248", letter))
        field->number = (uint64_t)rand() >> (8 * (size_t)(letter - '0') < 31 ? 31 - 8 * (letter - '0') : 0);
    else if (letter == 'b')
        field->number = (uint64_t)rand() % 2;
    else if (letter == 'c')
        field->number = (uint64_t)rand() % limit;
    else
        field->length = letter == 'a' ? 18 : letter == 'r' ? limit : some(limit < 2000 ? limit + 1 : 2000);
    if (letter == 't')
        field->bytes = (const uint8_t *)"ein längerer Text für eine Nachricht, in dem auch ein € vorkommt";
    if (letter == 't')
        field->length = field->length > 40 ? 40 : field->length;
    while (letter == 't' && !is_utf8(field->bytes, field->length))
        field->length--;
    return strchr("crty", letter) ? strchr(layout, ';') + 1 : layout;
}

static void some_fields(const char *layout)
{
    struct field *field = fields;
    while (*layout) {
        if (*layout != 'l') {
            layout = some_field(layout, field++);
            continue;
        }
        const char *item = strchr(layout, '(') + 1;
        field->number = some((size_t)strtoul(layout + 1, NULL, 10) + 1) % 20;
        for (uint64_t left = field++->number; left > 0; left--)
            for (const char *at = item; *at != ')';)
                at = some_field(at, field++);
        layout = strchr(item, ')') + 1;
    }
}

static void messages(bool is_spoilt)
{
    static const struct edge *const edges[] = {&launcher_to_service, &child_to_launcher, &to_worker, &from_worker,
                                               &service_to_data_proxy, &data_proxy_to_service, &admin_to_service, &service_to_admin};
    const struct edge *edge = edges[(size_t)rand() % (sizeof edges / sizeof *edges)];
    const int number = rand() % NUMBERS_OF_EDGE;
    if (edge->layouts[number] == NULL)
        return;
    some_fields(edge->layouts[number]);
    size_t length = message_encode(edge, number, fields, bytes, ROOM);
    CHECK(length > 0);
    uint8_t *copy = spoilt(bytes, &length, is_spoilt);
    const int found = message_decode(edge, copy, length, fields);
    CHECK(is_spoilt || found == number);
    if (found >= 0) {
        CHECK(message_encode(edge, found, fields, again, ROOM) == length);
        CHECK(memcmp(again, copy, length) == 0);
    }
    free(copy);
}

/* What bytes by chance hardly ever are: lengths around their limits, what is nearly UTF-8, a body of two lengths. */
static void edges(void)
{
    static const char *const no_texts[] = {"\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80"};
    for (size_t i = 0; i < sizeof no_texts / sizeof *no_texts; i++)
        CHECK(!is_utf8((const uint8_t *)no_texts[i], strlen(no_texts[i])));
    static struct head parsed;
    char two[] = "POST / HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n";
    CHECK(!head_parse(two, sizeof two - 1, &parsed));
    for (size_t length = 60; length < 70; length++) {
        const uint8_t head[] = {VERSION, LAUNCHER_TO_SERVICE_DATA_SOURCE, (uint8_t)length, 0};
        memcpy(bytes, head, sizeof head);
        memset(bytes + sizeof head, 'a', length);
        CHECK((message_decode(&launcher_to_service, bytes, sizeof head + length, fields) >= 0) == (length <= 63));
    }
    for (size_t length = PART_MAX - 2; length < PART_MAX + 2; length++) {
        const uint8_t head[] = {VERSION, DATA_PROXY_TO_SERVICE_PART, 1, 2, 3, 4};
        memcpy(bytes, head, sizeof head);
        number_put(length, 4, bytes + sizeof head);
        CHECK((message_decode(&data_proxy_to_service, bytes, sizeof head + 4 + length, fields) >= 0) == (length <= PART_MAX));
    }
}

/* --- Requests. */

enum { GOOD_LINES = 7 };
/* The first of them are lines of any head. */
static const char *const head_parts[] = {
    "host: a\r\n", "Host: b.example:80\r\n", "bulkhead-client: 192.0.2.1:77\r\n", "bulkhead-client: [::ffff:192.0.2.1]:77\r\n",
    "x-own:  \t y \r\n", "x:\r\n", "connection: a, close\r\n", "content-length: 5\r\n", "content-length: 18446744073709551616\r\n",
    "transfer-encoding: chunked\r\n", ": x\r\n", "a b: c\r\n", " folded\r\n", "x: \xff\x01\r\n", "\r\n", "\n", "\r", "x",
};

static void heads(bool is_spoilt)
{
    static const char *const first[] = {"GET /a%20b?q=1&r=%3C HTTP/1.1\r\n", "OPTIONS * HTTP/1.1\r\n", "HEAD x HTTP/1.1\r\n"};
    const bool is_good = rand() % 2;
    size_t length = (size_t)sprintf((char *)bytes, "%s", first[is_good ? rand() % 2 : rand() % 3]);
    int lines = rand() % (rand() % 20 ? 8 : 2 * LINES_MAX);
    for (int left = lines; left > 0; left--) {
        const char *part = head_parts[(size_t)rand() % (is_good ? GOOD_LINES : sizeof head_parts / sizeof *head_parts)];
        memcpy(bytes + length, part, strlen(part));
        length += strlen(part);
    }
    memcpy(bytes + length, "\r\n\r\n", 4);
    length += 4;
    uint8_t *copy = spoilt(bytes, &length, is_spoilt);
    const size_t end = head_find_end(copy, length);
    CHECK(end <= length);
    if (end > 0) {
        char *exact = malloc(end);
        memcpy(exact, copy, end);
        static struct head head;
        const bool is_parsed = head_parse(exact, end, &head);
        CHECK(is_parsed || is_spoilt || !is_good || lines > LINES_MAX);
        if (is_parsed) {
            CHECK(head.count <= LINES_MAX && is_token(head.method) && strchr("/*", head.path[0]) && head.path[0] != 0);
            touch(head.query, strlen(head.query));
            touch(head.client, strlen(head.client));
            for (size_t i = 0; i < head.count; i++)
                CHECK(is_token(head.lines[i].name) && strpbrk(head.lines[i].value, "\r\n") == NULL);
        }
        free(exact);
    }
    free(copy);
}

/* A body in chunks, in `bytes`; how long it is so. */
static size_t in_chunks(const uint8_t *body, size_t length)
{
    size_t at = 0;
    for (size_t done = 0, part; done < length; done += part) {
        part = 1 + some(length - done);
        at += (size_t)sprintf((char *)bytes + at, rand() % 2 ? "%zx\r\n" : "%04zX\r\n", part);
        memcpy(bytes + at, body + done, part);
        memcpy(bytes + at + part, "\r\n", 2);
        at += part + 2;
    }
    return at + (size_t)sprintf((char *)bytes + at, rand() % 2 ? "0\r\n\r\n" : "0\r\nx: y\r\n\r\n");
}

static void bodies(bool is_spoilt)
{
    static struct bulkhead b = {.control = -1, .body_bytes = BODY_MOST / 2};
    static struct bulkhead_request r;
    int ends[2];
    const size_t length = some(rand() % 8 ? 3000 : BODY_MOST), room = 100 + BODY_ROOM;
    size_t sent = in_chunks(random_bytes, length);
    uint8_t *copy = spoilt(bytes, &sent, is_spoilt);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && write(ends[1], copy, sent) == (ssize_t)sent);
    close(ends[1]);
    struct input input = {.stream = ends[0], .bytes = malloc(room), .room = room, .begin = 100, .end = 100};
    r = (struct bulkhead_request){.b = &b, .input = &input, .head = {.is_chunked = true}, .head_end = 100};
    body_begin(&r);
    size_t got = 0;
    ssize_t count;
    while ((count = bulkhead_read(&r, again + got, 1 + some(5000))) > 0)
        got += (size_t)count;
    CHECK(got <= b.body_bytes);
    if (!is_spoilt && length <= b.body_bytes)
        CHECK(count == 0 && got == length && memcmp(again, random_bytes, length) == 0);
    if (!is_spoilt && length > b.body_bytes)
        CHECK(count == -1 && r.body == BODY_TOO_LONG);
    free(input.bytes);
    close(ends[0]);
    free(copy);
}

/* --- Answers. */

static uint8_t *put_value(uint8_t *to, const char *text)
{
    struct bulkhead_value value = text           ? bulkhead_text(text)
                                  : rand() % 4 ? bulkhead_int(rand())
                                  : rand() % 2 ? bulkhead_blob(random_bytes, some(500))
                                               : bulkhead_null();
    parameters_put(&value, 1, to);
    return to + parameters_length(&value, 1);
}

/* Some results, in `bytes`; how long they are. */
static size_t some_results(size_t *rows_of_all)
{
    uint8_t *to = bytes;
    for (int results = 1 + rand() % 3; results > 0; results--) {
        const size_t columns = some(20), rows = some(30);
        number_put(columns, 2, to);
        to += 2;
        for (size_t i = 0; i < columns; i++)
            to = put_value(to, i % 2 ? "name" : "größe");
        for (size_t row = 0; row < rows; row++) {
            *to++ = 1;
            for (size_t i = 0; i < columns; i++)
                to = put_value(to, rand() % 3 ? NULL : "ä text");
        }
        *to++ = 0;
        number_put(rows, 8, to);
        to += 8;
        *rows_of_all += rows;
    }
    return (size_t)(to - bytes);
}

static void answers(bool is_spoilt)
{
    size_t wanted = 0, length = some_results(&wanted), seen = 0;
    uint8_t *copy = spoilt(bytes, &length, is_spoilt);
    struct answer answer = {0};
    for (size_t done = 0, part; done < length; done += part) {
        part = 1 + some(length - done);
        answer_add(&answer, &(struct field){.bytes = copy + done, .length = part});
    }
    /* Without the room that is left. */
    if (length > 0)
        answer.bytes = realloc(answer.bytes, length);
    struct bulkhead_rows *rows = rows_of(&answer);
    CHECK(is_spoilt || rows != NULL);
    if (rows != NULL) {
        do {
            for (size_t i = 0; i <= bulkhead_columns(rows); i++)
                touch(bulkhead_column(rows, i).bytes, bulkhead_column(rows, i).length);
            for (; bulkhead_next(rows); seen++)
                for (size_t i = 0; i <= bulkhead_columns(rows); i++) {
                    const struct bulkhead_value value = bulkhead_value(rows, i);
                    CHECK(value.type <= BULKHEAD_BLOB);
                    CHECK(value.type != BULKHEAD_TEXT || is_utf8((const uint8_t *)value.bytes, value.length));
                    if (value.type == BULKHEAD_BLOB)
                        touch(value.bytes, value.length);
                }
            touched += (unsigned)bulkhead_changed(rows) + (unsigned)bulkhead_get(rows, "name").type;
        } while (bulkhead_next_result(rows));
        CHECK(is_spoilt || seen == wanted);
        rows_free(rows);
    }
    free(copy);
}

/* --- Texts. */

static void texts(bool is_spoilt)
{
    static const char *const parts[] = {"q=", "&", "%", "%3", "%3C", "%00", "%c3%bc", "%ff", "+", "ü", "<", "a", "/", "?", "=", ";", "\""};
    static struct bulkhead_request r;
    size_t length = 0, room = 1 + some(64);
    for (int left = rand() % 20; left > 0; left--) {
        const char *part = parts[(size_t)rand() % (sizeof parts / sizeof *parts)];
        memcpy(bytes + length, part, strlen(part));
        length += strlen(part);
    }
    uint8_t *copy = spoilt(bytes, &length, is_spoilt);
    char *text = malloc(length + 1), *decoded = malloc(length + 1), *value = malloc(room);
    memcpy(text, copy, length);
    text[length] = 0;
    const size_t left = text_decode(text, strlen(text), rand() % 2, decoded);
    CHECK(left <= strlen(text) && is_utf8((const uint8_t *)decoded, left));
    decoded[text_filter(decoded, left)] = 0;
    CHECK(strpbrk(decoded, "<>()#&;\"\r\n") == NULL);
    r.head.query = r.head.path = text;
    ssize_t count = bulkhead_param(&r, "q", value, room);
    CHECK(count < (ssize_t)room && (count < 0 || (strlen(value) == (size_t)count && strpbrk(value, "<>()#&;\"\r\n") == NULL)));
    count = bulkhead_raw_param(text, "q", value, room);
    CHECK(count < (ssize_t)room && (count < 0 || strlen(value) == (size_t)count));
    count = bulkhead_path_below(&r, "/", value, room);
    CHECK(count < (ssize_t)room && (count < 0 || strlen(value) == (size_t)count));
    free(copy);
    free(text);
    free(decoded);
    free(value);
}

int main(int argc, char **argv)
{
    static void (*const subjects[])(bool) = {messages, heads, bodies, answers, texts};
    const time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 10);
    unsigned long runs = 0;
    srand(argc > 2 ? (unsigned)atoi(argv[2]) : (unsigned)end);
    printf("fuzz: seed %u\n", argc > 2 ? (unsigned)atoi(argv[2]) : (unsigned)end);
    fflush(stdout);
    for (size_t i = 0; i < sizeof random_bytes; i++)
        random_bytes[i] = (uint8_t)rand();
    edges();
    for (; runs % 256 || time(NULL) < end; runs++)
        subjects[(size_t)rand() % (sizeof subjects / sizeof *subjects)](rand() % 4);
    printf("fuzz: %lu runs\n", runs);
    return 0;
}
