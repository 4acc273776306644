/* The head of a request, as the site's worker writes it. */
#ifndef BULKHEAD_HEAD_H
#define BULKHEAD_HEAD_H

#include "internal.h"

struct line {
    const char *name, *value;
};

struct head {
    const char *method, *path, *query;
    /* The client, as the site's worker says; empty if it does not. */
    const char *client;
    struct line lines[LINES_MAX];
    size_t count;
    /* The length of the body, unless it comes in chunks. */
    uint64_t length;
    bool is_chunked, keeps;
};

/* Where a head ends that begins here, its empty line included; 0 if it is not there whole. */
size_t head_find_end(const uint8_t *bytes, size_t length);
/* Reads a head of `length` bytes with its empty line, in place: names and values become texts that end with NUL. False for
 * what the site's worker does not write. */
bool head_parse(char *bytes, size_t length, struct head *head);
/* Whether a text is a name of a header, and whether it can stand behind one. */
bool is_token(const char *text);
bool is_field_value(const char *text);
bool is_same_name(const char *one, const char *other);

#endif
