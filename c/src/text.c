/* See text.h: what clients write in a path, in a query or in a form.
 *
 * Runs in: a service. Sees: what clients made up. Never: writes more than there is room for. */
#define _GNU_SOURCE
#include "text.h"

#include <string.h>

#include "request.h"

static int digit(char byte)
{
    const char *const digits = "0123456789abcdef", *found = byte == 0 ? NULL : strchr(digits, byte >= 'A' && byte <= 'F' ? byte | 0x20 : byte);
    return found == NULL ? -1 : (int)(found - digits);
}

size_t text_decode(const char *text, size_t length, bool plus_is_blank, char *to)
{
    size_t count = 0;
    for (size_t at = 0; at < length; at++) {
        const bool is_escape = text[at] == '%' && length - at > 2 && digit(text[at + 1]) >= 0 && digit(text[at + 2]) >= 0;
        if (is_escape) {
            to[count++] = (char)(digit(text[at + 1]) << 4 | digit(text[at + 2]));
            at += 2;
        } else {
            to[count++] = plus_is_blank && text[at] == '+' ? ' ' : text[at];
        }
    }
    for (size_t at = 0, size; at < count; at += size ? size : 1)
        if ((size = character_length((const uint8_t *)to + at, count - at)) == 0)
            to[at] = '?';
    return count;
}

size_t text_filter(char *text, size_t length)
{
    size_t count = 0;
    for (size_t at = 0; at < length; at++) {
        const uint8_t byte = (uint8_t)text[at], next = at + 1 < length ? (uint8_t)text[at + 1] : 0;
        if (byte == 0xc2 && next >= 0x80 && next <= 0x9f)
            at++; /* A control character of Latin 1. */
        else if (byte >= 0x20 && byte != 0x7f && strchr("<>()#&;\"", byte) == NULL)
            text[count++] = text[at];
    }
    return count;
}

/* Ends a decoded text; its length, or -1 if it has NUL in it. */
static ssize_t finish(char *to, size_t length)
{
    to[length] = 0;
    return memchr(to, 0, length) == NULL ? (ssize_t)length : -1;
}

/* Decodes into `to`, of `size` bytes; the length, or SIZE_MAX if there is no room. */
static size_t decode_into(const char *text, size_t length, bool plus_is_blank, char *to, size_t size)
{
    /* What has room only when it is decoded: each `%` is followed by two bytes that go. */
    size_t escapes = 0;
    for (size_t at = 0; at < length; at++)
        if (text[at] == '%' && length - at > 2 && digit(text[at + 1]) >= 0 && digit(text[at + 2]) >= 0)
            escapes++, at += 2;
    return length - 2 * escapes < size ? text_decode(text, length, plus_is_blank, to) : SIZE_MAX;
}

/* Whether an encoded name is this one. */
static bool is_named(const char *text, size_t length, const char *name)
{
    char decoded[256];
    const size_t count = decode_into(text, length, true, decoded, sizeof decoded);
    return count == strlen(name) && memcmp(decoded, name, count) == 0;
}

/* The first value of a parameter, decoded; its length, or SIZE_MAX. */
static size_t find(const char *text, const char *name, char *to, size_t size)
{
    for (;;) {
        const size_t length = strcspn(text, "&");
        const char *equals = memchr(text, '=', length);
        const size_t name_length = equals == NULL ? length : (size_t)(equals - text);
        if (length > 0 && is_named(text, name_length, name)) {
            const char *value = equals == NULL ? text + length : equals + 1;
            return decode_into(value, (size_t)(text + length - value), true, to, size);
        }
        if (text[length] == 0)
            return SIZE_MAX;
        text += length + 1;
    }
}

ssize_t bulkhead_param(const struct bulkhead_request *r, const char *name, char *to, size_t size)
{
    const size_t length = find(r->head.query, name, to, size);
    return length == SIZE_MAX ? -1 : finish(to, text_filter(to, length));
}

ssize_t bulkhead_raw_param(const char *text, const char *name, char *to, size_t size)
{
    const size_t length = find(text, name, to, size);
    return length == SIZE_MAX ? -1 : finish(to, length);
}

ssize_t bulkhead_path_below(const struct bulkhead_request *r, const char *prefix, char *to, size_t size)
{
    const size_t skip = strlen(prefix);
    if (strncmp(r->head.path, prefix, skip) != 0)
        return -1;
    const char *rest = r->head.path + skip;
    const size_t length = decode_into(rest, strlen(rest), false, to, size);
    return length == SIZE_MAX ? -1 : finish(to, length);
}
