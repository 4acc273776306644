/* See codec.h.
 *
 * Runs in: a service. Sees: bytes of less trusted peers, such as a data proxy. Never: trusts a length, or takes a message that
 * has a byte too few or too many.
 *
 * The letters of a layout: 1, 2, 4, 8: an integer of so many bytes. b: a flag. a: an address, 16 bytes and a port. cN; one of
 * N choices, in a byte. rN; N bytes. tN; text behind its length in 2 bytes, at most N. yN; bytes behind their length in 4
 * bytes, at most N. lN;(..) items behind their number in 2 bytes, at most N. */
#include "codec.h"

#include <string.h>

enum { ADDRESS_BYTES = 18 };

const struct edge launcher_to_service = {{LAUNCHER_TO_SERVICE_LAYOUTS}}, child_to_launcher = {{CHILD_TO_LAUNCHER_LAYOUTS}},
                  to_worker = {{TO_WORKER_LAYOUTS}}, from_worker = {{FROM_WORKER_LAYOUTS}},
                  service_to_data_proxy = {{SERVICE_TO_DATA_PROXY_LAYOUTS}},
                  data_proxy_to_service = {{DATA_PROXY_TO_SERVICE_LAYOUTS}}, admin_to_service = {{ADMIN_TO_SERVICE_LAYOUTS}},
                  service_to_admin = {{SERVICE_TO_ADMIN_LAYOUTS}};

const uint8_t *reader_take(struct reader *reader, size_t count)
{
    if (count > reader->left)
        return NULL;
    const uint8_t *found = reader->at;
    reader->at += count;
    reader->left -= count;
    return found;
}

bool reader_number(struct reader *reader, size_t width, uint64_t *number)
{
    const uint8_t *bytes = reader_take(reader, width);
    *number = 0;
    for (size_t i = width; bytes != NULL && i-- > 0;)
        *number = *number << 8 | bytes[i];
    return bytes != NULL;
}

void number_put(uint64_t number, size_t width, uint8_t *out)
{
    for (size_t i = 0; i < width; i++)
        out[i] = (uint8_t)(number >> 8 * i);
}

size_t character_length(const uint8_t *text, size_t left)
{
    const uint8_t first = text[0];
    const size_t count = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    if (count > left)
        return 0;
    for (size_t i = 1; i < count; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    /* Too long a form, half of a pair, or above U+10FFFF. */
    const uint8_t second = count > 1 ? text[1] : 0;
    const bool is_none = (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
                         (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f);
    return is_none ? 0 : count;
}

bool is_utf8(const uint8_t *text, size_t length)
{
    for (size_t at = 0, count; at < length; at += count)
        if ((count = character_length(text + at, length - at)) == 0)
            return false;
    return true;
}

/* The number behind a letter, and past its `;`. */
static size_t parameter(const char **layout)
{
    size_t number = 0;
    for (; **layout != ';'; ++*layout)
        number = number * 10 + (size_t)(**layout - '0');
    ++*layout;
    return number;
}

static bool take_bytes(struct reader *reader, size_t count, struct field *field)
{
    field->bytes = reader_take(reader, count);
    field->length = count;
    return field->bytes != NULL;
}

static bool take_prefixed(struct reader *reader, size_t width, size_t most, struct field *field)
{
    uint64_t length;
    return reader_number(reader, width, &length) && length <= most && take_bytes(reader, (size_t)length, field) &&
           (width != 2 || is_utf8(field->bytes, field->length));
}

/* Reads one field that is no list, and goes on in the layout. */
static bool take_field(struct reader *reader, const char **layout, struct field *field)
{
    const char letter = *(*layout)++;
    *field = (struct field){0};
    switch (letter) {
    case '1': case '2': case '4': case '8':
        return reader_number(reader, (size_t)(letter - '0'), &field->number);
    case 'b':
        return reader_number(reader, 1, &field->number) && field->number <= 1;
    case 'c':
        return reader_number(reader, 1, &field->number) && field->number < parameter(layout);
    case 'a':
        return take_bytes(reader, ADDRESS_BYTES, field);
    case 'r':
        return take_bytes(reader, parameter(layout), field);
    case 't':
        return take_prefixed(reader, 2, parameter(layout), field);
    default: /* y */
        return take_prefixed(reader, 4, parameter(layout), field);
    }
}

static bool take_list(struct reader *reader, const char **layout, struct field *fields, size_t *count)
{
    const size_t most = parameter(layout);
    fields[(*count)++] = (struct field){0};
    uint64_t *items = &fields[*count - 1].number;
    if (!reader_number(reader, 2, items) || *items > most)
        return false;
    const char *item = *layout + 1;
    for (uint64_t i = 0; i < *items; i++)
        for (const char *at = item; *at != ')';)
            if (*count >= FIELDS_MAX || !take_field(reader, &at, &fields[(*count)++]))
                return false;
    *layout = strchr(*layout, ')') + 1;
    return true;
}

int message_decode(const struct edge *edge, const uint8_t *bytes, size_t size, struct field fields[FIELDS_MAX])
{
    struct reader reader = {bytes, size};
    uint64_t version, number;
    if (!reader_number(&reader, 1, &version) || !reader_number(&reader, 1, &number) || version != VERSION ||
        number >= NUMBERS_OF_EDGE || edge->layouts[number] == NULL)
        return -1;
    size_t count = 0;
    for (const char *layout = edge->layouts[number]; *layout != 0;) {
        if (*layout == 'l') {
            layout++;
            if (!take_list(&reader, &layout, fields, &count))
                return -1;
        } else if (count >= FIELDS_MAX || !take_field(&reader, &layout, &fields[count++])) {
            return -1;
        }
    }
    return reader.left == 0 ? (int)number : -1;
}

/* Where a message is written, as far as there is room. */
struct writer {
    uint8_t *at;
    size_t left;
};

static bool put_number(struct writer *writer, uint64_t number, size_t width)
{
    if (width > writer->left || (width < 8 && number >> 8 * width != 0))
        return false;
    number_put(number, width, writer->at);
    writer->at += width;
    writer->left -= width;
    return true;
}

static bool put_bytes(struct writer *writer, const struct field *field, size_t least, size_t most)
{
    if (field->length < least || field->length > most || field->length > writer->left)
        return false;
    if (field->length > 0)
        memcpy(writer->at, field->bytes, field->length);
    writer->at += field->length;
    writer->left -= field->length;
    return true;
}

static bool put_field(struct writer *writer, const char **layout, const struct field *field)
{
    const char letter = *(*layout)++;
    size_t limit;
    switch (letter) {
    case '1': case '2': case '4': case '8':
        return put_number(writer, field->number, (size_t)(letter - '0'));
    case 'b':
        return field->number <= 1 && put_number(writer, field->number, 1);
    case 'c':
        return field->number < parameter(layout) && put_number(writer, field->number, 1);
    case 'a':
        return put_bytes(writer, field, ADDRESS_BYTES, ADDRESS_BYTES);
    case 'r':
        limit = parameter(layout);
        return put_bytes(writer, field, limit, limit);
    case 't':
        limit = parameter(layout);
        return is_utf8(field->bytes, field->length) && put_number(writer, field->length, 2) && put_bytes(writer, field, 0, limit);
    default: /* y */
        limit = parameter(layout);
        return put_number(writer, field->length, 4) && put_bytes(writer, field, 0, limit);
    }
}

static bool put_list(struct writer *writer, const char **layout, const struct field **field)
{
    const size_t most = parameter(layout);
    const uint64_t items = (*field)++->number;
    if (items > most || !put_number(writer, items, 2))
        return false;
    for (uint64_t i = 0; i < items; i++)
        for (const char *at = *layout + 1; *at != ')';)
            if (!put_field(writer, &at, (*field)++))
                return false;
    *layout = strchr(*layout, ')') + 1;
    return true;
}

size_t message_encode(const struct edge *edge, int number, const struct field *fields, uint8_t *out, size_t room)
{
    struct writer writer = {out, room};
    if (!put_number(&writer, VERSION, 1) || !put_number(&writer, (uint64_t)number, 1))
        return 0;
    for (const char *layout = edge->layouts[number]; *layout != 0;) {
        if (*layout == 'l') {
            layout++;
            if (!put_list(&writer, &layout, &fields))
                return 0;
        } else if (!put_field(&writer, &layout, fields++)) {
            return 0;
        }
    }
    return room - writer.left;
}
