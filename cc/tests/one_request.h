/*
 * How long the request is that some bytes begin with, read in the plainest way: all of it at once, line by line.
 *
 * For exchange_fuzz.c, which compares it with what exchange.c makes of the same bytes as they come. It shares no code with
 * that, and follows RFC 9112 as the crate `request` does.
 */
#ifndef ONE_REQUEST_H
#define ONE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

enum { INCOMPLETE = -1, BAD = -2 };

struct line { const char *text; size_t size; };

/* The line at `*at`, which ends with CR LF and has neither in it; 0 where it does not end, -1 where it is bad. */
static int take_line(const char *bytes, size_t count, size_t *at, struct line *line)
{
    for (size_t i = *at; i < count; i++) {
        if (bytes[i] == '\n')
            return -1;
        if (bytes[i] != '\r')
            continue;
        if (i + 1 == count)
            return 0;
        if (bytes[i + 1] != '\n')
            return -1;
        *line = (struct line){bytes + *at, i - *at};
        *at = i + 2;
        return 1;
    }
    return 0;
}

static bool in(char c, const char *set)
{
    return c && strchr(set, c);
}

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* Divides a field line at its colon, and takes blanks off the value. */
static bool divide(struct line line, struct line *name, struct line *value)
{
    size_t colon = 0;
    while (colon < line.size && in(line.text[colon], LETTERS "0123456789!#$%&'*+-.^_`|~"))
        colon++;
    if (colon == 0 || colon == line.size || line.text[colon] != ':')
        return false;
    *name = (struct line){line.text, colon};
    *value = (struct line){line.text + colon + 1, line.size - colon - 1};
    while (value->size && in(value->text[0], " \t"))
        value->text++, value->size--;
    while (value->size && in(value->text[value->size - 1], " \t"))
        value->size--;
    return true;
}

static bool same(struct line line, const char *text)
{
    return line.size == strlen(text) && strncasecmp(line.text, text, line.size) == 0;
}

static bool number(struct line value, long long *found)
{
    *found = 0;
    for (size_t i = 0; i < value.size; i++) {
        if (value.size > 18 || !in(value.text[i], "0123456789"))
            return false;
        *found = *found * 10 + (value.text[i] - '0');
    }
    return value.size > 0;
}

/* The size that a line names; -1 if it names none. */
static long long size_of_chunk(struct line line)
{
    size_t at = 0;
    unsigned long long size = 0;
    for (; at < line.size && in(line.text[at], "0123456789abcdefABCDEF"); at++) {
        const char c = line.text[at];
        if (size > (unsigned long long)INT64_MAX / 16)
            return -1;
        size = size * 16 + (unsigned long long)(c <= '9' ? c - '0' : (c & 0xdf) - 'A' + 10);
    }
    if (at == 0)
        return -1;
    while (at < line.size && in(line.text[at], " \t"))
        at++;
    if (at < line.size && line.text[at] != ';')
        return -1;
    for (; at < line.size; at++)
        if ((unsigned char)line.text[at] < ' ' && line.text[at] != '\t')
            return -1;
    return (long long)size;
}

#define LINE(at)                                                                                                      \
    switch (take_line(bytes, count, &(at), &line)) {                                                                  \
    case 0: return INCOMPLETE;                                                                                        \
    case -1: return BAD;                                                                                              \
    }

static long long end_of_chunks(const char *bytes, size_t count, size_t at)
{
    struct line line, name, value;
    for (;;) {
        LINE(at)
        const long long size = size_of_chunk(line);
        if (size < 0)
            return BAD;
        if (size == 0)
            break;
        if ((unsigned long long)size > count - at)
            return INCOMPLETE;
        at += (size_t)size;
        LINE(at)
        if (line.size)
            return BAD;
    }
    for (;;) {
        LINE(at)
        if (!line.size)
            return (long long)at;
        if (!divide(line, &name, &value))
            return BAD;
    }
}

static long long one_request(const char *bytes, size_t count)
{
    size_t at = 0;
    struct line line, name, value;
    do {
        LINE(at)
    } while (!line.size);
    if (line.size < 9 || !in(line.text[0], LETTERS "0123456789!#$%&'*+-.^_`|~") ||
        (strncmp(line.text, "CONNECT ", 8) == 0 || strncmp(line.text, "PRI ", 4) == 0))
        return BAD;
    const bool old = memcmp(line.text + line.size - 7, "TTP/1.0", 7) == 0;
    if (!old && memcmp(line.text + line.size - 7, "TTP/1.1", 7) != 0)
        return BAD;
    bool counted = false, chunked = false;
    long long length = 0, more;
    for (;;) {
        LINE(at)
        if (!line.size)
            break;
        if (!divide(line, &name, &value))
            return BAD;
        if (same(name, "content-length")) {
            if (!number(value, &more) || (counted && more != length))
                return BAD;
            counted = true;
            length = more;
        } else if (same(name, "transfer-encoding")) {
            if (chunked || !same(value, "chunked"))
                return BAD;
            chunked = true;
        }
    }
    if (chunked && (counted || old))
        return BAD;
    if (chunked)
        return end_of_chunks(bytes, count, at);
    return (unsigned long long)length > count - at ? INCOMPLETE : (long long)at + length;
}

#endif
