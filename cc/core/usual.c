/*
 * Usual request heads; see usual.h.
 *
 * Runs in: a guarded server. Sees: a client's bytes. Never: reads beyond the bytes that it was given.
 */
#define _GNU_SOURCE
#include "usual.h"

#include <stdint.h>
#include <string.h>

/* LIMIT: those of `Setting::Strict` in the crate `conditioning`, or less. */
enum { TARGET_MAX = 4096, SEGMENTS_MAX = 60, PARAMETERS_MAX = 190, LINES_MAX = 60, NAME_MAX_BYTES = 64,
       VALUE_MAX = 8000, REPEATED_MAX = 8, COMMAS_MAX = 90, RANGES_MAX = 7, LABEL_MAX = 63 };

/* The longest name that is looked at for what it is: `transfer-encoding`. */
enum { WORD_MAX = 17 };

struct line { const unsigned char *name, *value; size_t name_size, value_size; };

struct head { unsigned hosts, lengths; uint8_t names[64]; };

static bool digit(unsigned char c) { return c >= '0' && c <= '9'; }
static unsigned char low(unsigned char c) { return c >= 'A' && c <= 'Z' ? c | 0x20 : c; }
static bool letter(unsigned char c) { return low(c) >= 'a' && low(c) <= 'z'; }

static int hex(unsigned char c)
{
    return digit(c) ? c - '0' : low(c) >= 'a' && low(c) <= 'f' ? low(c) - 'a' + 10 : -1;
}

static bool is(const unsigned char *bytes, size_t size, const char *word)
{
    if (size != strlen(word))
        return false;
    for (size_t i = 0; i < size; i++)
        if (low(bytes[i]) != (unsigned char)word[i])
            return false;
    return true;
}

static size_t count_of(const unsigned char *bytes, size_t size, unsigned char wanted)
{
    size_t count = 0;
    for (size_t i = 0; i < size; i++)
        count += bytes[i] == wanted;
    return count;
}

/* How long the method is that `bytes` begin with, if it is one of the usual ones; or 0. */
static size_t method(const unsigned char *bytes, size_t count)
{
    static const char *const METHODS[] = {"GET ", "HEAD ", "POST ", "PUT ", "DELETE ", "PATCH ", "OPTIONS "};
    for (size_t i = 0; i < sizeof METHODS / sizeof *METHODS; i++) {
        const size_t size = strlen(METHODS[i]);
        if (count > size && memcmp(bytes, METHODS[i], size) == 0)
            return size;
    }
    return 0;
}

/* Whether what `%` and two digits stand for is hidden from nobody. */
static bool plain_escape(const unsigned char *digits, bool in_query)
{
    const int high = hex(digits[0]), second = hex(digits[1]), byte = high * 16 + second;
    if (high < 0 || second < 0 || byte == 0)
        return false;
    return in_query || byte >= 0x80 || (byte >= ' ' && byte < 0x7f && !strchr("/\\%.;", byte));
}

/* RFC 9112 3.2.1, without dots in a row, slashes in a row or parameters of a part. The end of the line is behind it. */
static bool usual_target(const unsigned char *target, size_t size)
{
    size_t segments = 0, parameters = 0;
    bool in_query = false;
    if (!size || size > TARGET_MAX || target[0] != '/')
        return false;
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = target[i], before = i ? target[i - 1] : 0;
        if (letter(c) || digit(c) || c == '-' || c == '_' || c == '~')
            continue;
        /* A set of characters has a NUL at its end. */
        if (!c)
            return false;
        if (c == '%') {
            if (size - i < 3 || !plain_escape(target + i + 1, in_query))
                return false;
            i += 2;
        } else if (in_query) {
            parameters += c == '&' || c == ';';
            if (!strchr("/.?!$&'()*+,;:@=", c))
                return false;
        } else if (c == '?') {
            in_query = true;
        } else if (!strchr("/.!$&'()*+,:@=", c) || ((c == '/' || c == '.') && c == before)) {
            return false;
        } else {
            segments += c == '/';
        }
    }
    return segments <= SEGMENTS_MAX && parameters <= PARAMETERS_MAX;
}

/* Four numbers below 256, without zeros in front. */
static bool is_address(const unsigned char *name, size_t size)
{
    unsigned numbers = 0, value = 0, digits = 0;
    for (size_t i = 0; i <= size; i++) {
        if (i == size || name[i] == '.') {
            if (!digits || value > 255)
                return false;
            numbers++;
            value = digits = 0;
        } else if (!digit(name[i]) || (digits && !value) || ++digits > 3) {
            return false;
        } else {
            value = value * 10 + name[i] - '0';
        }
    }
    return numbers == 4;
}

/* Labels of letters, digits and hyphens, the last of which begins with a letter: no number in whatever base. */
static bool is_name(const unsigned char *name, size_t size)
{
    size_t label = 0;
    for (size_t i = 0; i < size; i++) {
        const bool end = i + 1 == size || name[i + 1] == '.';
        if (name[i] == '.') {
            if (!label)
                return false;
            label = 0;
        } else if (!letter(name[i]) && !digit(name[i]) && (name[i] != '-' || !label || end)) {
            return false;
        } else if (++label > LABEL_MAX) {
            return false;
        }
    }
    return label && letter(name[size - label]);
}

static bool usual_host(const unsigned char *value, size_t size)
{
    const unsigned char *colon = memchr(value, ':', size);
    const size_t name = colon ? (size_t)(colon - value) : size;
    if (colon) {
        const size_t digits = size - name - 1;
        if (!digits || digits > 4 || colon[1] == '0')
            return size == name + 6 && usual_host(value, name) && colon[1] >= '1' && colon[1] <= '5' &&
                   digit(colon[2]) && digit(colon[3]) && digit(colon[4]) && digit(colon[5]);
        for (size_t i = 1; i <= digits; i++)
            if (!digit(colon[i]))
                return false;
    }
    return name && (is_name(value, name) || is_address(value, name));
}

static bool usual_length(const unsigned char *value, size_t size)
{
    if (!size || size > 15 || (value[0] == '0' && size > 1))
        return false;
    for (size_t i = 0; i < size; i++)
        if (!digit(value[i]))
            return false;
    return true;
}

/* Lines that mean something before, or at the side of, the server that the request is for. */
static bool usual_by_name(struct head *head, const struct line *line)
{
    static const char *const OTHERS[] = {"proxy", "expect", "upgrade", "transfer-encoding", "x-rewrite-url",
                                         "x-original-url"};
    if (is(line->name, line->name_size, "host"))
        return ++head->hosts == 1 && usual_host(line->value, line->value_size);
    if (is(line->name, line->name_size, "content-length"))
        return ++head->lengths == 1 && usual_length(line->value, line->value_size);
    if (is(line->name, line->name_size, "connection"))
        return is(line->value, line->value_size, "keep-alive") || is(line->value, line->value_size, "close");
    if (is(line->name, line->name_size, "range") || is(line->name, line->name_size, "request-range"))
        return count_of(line->value, line->value_size, ',') < RANGES_MAX;
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++)
        if (is(line->name, line->name_size, OTHERS[i]))
            return false;
    return true;
}

/* `end` is where the line ends, before its CR. */
static bool usual_line(struct head *head, const unsigned char *at, const unsigned char *end)
{
    const unsigned char *colon = memchr(at, ':', (size_t)(end - at));
    if (!colon || colon == at || colon - at > NAME_MAX_BYTES)
        return false;
    struct line line = {.name = at, .name_size = (size_t)(colon - at)};
    unsigned bucket = 0;
    for (const unsigned char *c = at; c < colon; c++) {
        if (!letter(*c) && !digit(*c) && *c != '-')
            return false;
        bucket = bucket * 31 + low(*c);
    }
    if (++head->names[bucket % sizeof head->names] > REPEATED_MAX)
        return false;
    for (at = colon + 1; at < end && *at == ' '; at++)
        ;
    while (end > at && end[-1] == ' ')
        end--;
    line.value = at;
    line.value_size = (size_t)(end - at);
    for (const unsigned char *c = at; c < end; c++)
        if (*c < ' ' || *c >= 0x7f)
            return false;
    if (line.value_size > VALUE_MAX || count_of(at, line.value_size, ',') > COMMAS_MAX ||
        (line.value_size >= 2 && memcmp(at, "()", 2) == 0))
        return false;
    return line.name_size > WORD_MAX || usual_by_name(head, &line);
}

/* The end of the line at `at`, which is where its CR is; NULL if it has none, or another. */
static const unsigned char *line_end(const unsigned char *at, const unsigned char *end)
{
    const unsigned char *feed = memchr(at, '\n', (size_t)(end - at));
    return feed && feed > at && feed[-1] == '\r' ? feed - 1 : NULL;
}

bool cc_usual_head(const unsigned char *bytes, size_t count, size_t head_max)
{
    static const char VERSION[] = " HTTP/1.1";
    enum { VERSION_SIZE = sizeof VERSION - 1 };
    struct head head = {0};
    const unsigned char *const limit = bytes + (count < head_max ? count : head_max);
    const unsigned char *end = count ? line_end(bytes, limit) : NULL;
    const size_t begin = end ? method(bytes, (size_t)(end - bytes)) : 0;
    if (!begin || (size_t)(end - bytes) < begin + VERSION_SIZE ||
        memcmp(end - VERSION_SIZE, VERSION, VERSION_SIZE) != 0 ||
        !usual_target(bytes + begin, (size_t)(end - bytes) - begin - VERSION_SIZE))
        return false;
    for (unsigned lines = 0; lines <= LINES_MAX; lines++) {
        const unsigned char *at = end + 2;
        if (at >= limit || !(end = line_end(at, limit)))
            return false;
        if (end == at)
            return head.hosts == 1;
        if (!usual_line(&head, at, end))
            return false;
    }
    return false;
}
