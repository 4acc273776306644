/* The encoding of messages: a version byte, a type byte, then the fields in order, integers little-endian. */
#ifndef BULKHEAD_CODEC_H
#define BULKHEAD_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "messages.h"

/* LIMIT: numbers of messages of one edge, and fields of a message: a list of connections has five for each. */
enum { NUMBERS_OF_EDGE = 32, FIELDS_MAX = 2 + NUMBERS_MAX };

/* An integer, a flag, the number of a choice or of the items of a list; or bytes, which stay where the message is. */
struct field {
    uint64_t number;
    const uint8_t *bytes;
    size_t length;
};

/* The messages of one direction between two processes, by their numbers. */
struct edge {
    const char *layouts[NUMBERS_OF_EDGE];
};

extern const struct edge launcher_to_service, child_to_launcher, to_worker, from_worker, service_to_data_proxy,
    data_proxy_to_service, admin_to_service, service_to_admin;

/* Reads a message that must fill its bytes exactly: its number, with its fields; -1 for what is none. */
int message_decode(const struct edge *edge, const uint8_t *bytes, size_t size, struct field fields[FIELDS_MAX]);
/* Writes a message with these fields; its length, or 0 if a field is over its limit or there is no room. */
size_t message_encode(const struct edge *edge, int number, const struct field *fields, uint8_t *out, size_t room);

/* What is left to be read. */
struct reader {
    const uint8_t *at;
    size_t left;
};

/* The next bytes; NULL if there are not so many. */
const uint8_t *reader_take(struct reader *reader, size_t count);
/* The next integer of so many bytes. */
bool reader_number(struct reader *reader, size_t width, uint64_t *number);
/* Writes an integer. */
void number_put(uint64_t number, size_t width, uint8_t *out);
/* How many bytes the first character of a text in UTF-8 has, of which at least one is left; 0 if it is none. */
size_t character_length(const uint8_t *text, size_t left);
bool is_utf8(const uint8_t *text, size_t length);

#endif
