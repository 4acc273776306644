/* See rows.h.
 *
 * Runs in: a service. Sees: answers of a data proxy. Never: trusts a length of an answer. */
#include "rows.h"

#include <stdlib.h>
#include <string.h>

/* LIMIT: bytes of one answer; a statement may give 256 MiB, and a proxy that sends more is not what it should be. */
#define ANSWER_MAX ((size_t)257 << 20)

enum { MORE_ROWS = 1, TYPE_AND_LENGTH = 1 + 4, TYPE_AND_NUMBER = 1 + 8 };

struct bulkhead_value bulkhead_null(void)
{
    return (struct bulkhead_value){.type = BULKHEAD_NULL};
}

struct bulkhead_value bulkhead_int(int64_t value)
{
    return (struct bulkhead_value){.type = BULKHEAD_INT, .integer = value};
}

struct bulkhead_value bulkhead_real(double value)
{
    return (struct bulkhead_value){.type = BULKHEAD_REAL, .real = value};
}

struct bulkhead_value bulkhead_text(const char *text)
{
    return (struct bulkhead_value){.type = BULKHEAD_TEXT, .bytes = text, .length = strlen(text)};
}

struct bulkhead_value bulkhead_blob(const void *bytes, size_t length)
{
    return (struct bulkhead_value){.type = BULKHEAD_BLOB, .bytes = bytes, .length = length};
}

size_t parameters_length(const struct bulkhead_value *parameters, size_t count)
{
    size_t length = 0;
    for (const struct bulkhead_value *value = parameters; value < parameters + count; value++) {
        const bool has_bytes = value->type == BULKHEAD_TEXT || value->type == BULKHEAD_BLOB;
        if (value->type > BULKHEAD_BLOB || (has_bytes && value->length > PARAMETERS_BYTES_MAX) ||
            (value->type == BULKHEAD_TEXT && !is_utf8((const uint8_t *)value->bytes, value->length)))
            return 0;
        length += has_bytes ? TYPE_AND_LENGTH + value->length : value->type == BULKHEAD_NULL ? 1 : TYPE_AND_NUMBER;
        if (length > PARAMETERS_BYTES_MAX)
            return 0;
    }
    return length;
}

void parameters_put(const struct bulkhead_value *parameters, size_t count, uint8_t *out)
{
    for (const struct bulkhead_value *value = parameters; value < parameters + count; value++) {
        *out++ = (uint8_t)value->type;
        if (value->type == BULKHEAD_INT || value->type == BULKHEAD_REAL) {
            uint64_t number;
            memcpy(&number, value->type == BULKHEAD_INT ? (const void *)&value->integer : &value->real, sizeof number);
            number_put(number, sizeof number, out);
            out += sizeof number;
        } else if (value->type != BULKHEAD_NULL) {
            number_put(value->length, 4, out);
            if (value->length > 0)
                memcpy(out + 4, value->bytes, value->length);
            out += 4 + value->length;
        }
    }
}

void answer_add(struct answer *answer, const struct field *part)
{
    if (answer->is_lost || part->length == 0)
        return;
    if (part->length > answer->room - answer->length) {
        size_t room = answer->room == 0 ? PART_MAX : 2 * answer->room;
        room = room > ANSWER_MAX ? ANSWER_MAX : room;
        uint8_t *more = part->length > room - answer->length ? NULL : realloc(answer->bytes, room);
        if (more == NULL) {
            free(answer->bytes);
            *answer = (struct answer){.is_lost = true};
            return;
        }
        answer->bytes = more;
        answer->room = room;
    }
    memcpy(answer->bytes + answer->length, part->bytes, part->length);
    answer->length += part->length;
}

static bool take_value(struct reader *reader, struct bulkhead_value *value)
{
    uint64_t type, number;
    if (!reader_number(reader, 1, &type) || type > BULKHEAD_BLOB)
        return false;
    *value = (struct bulkhead_value){.type = (enum bulkhead_type)type};
    if (type == BULKHEAD_NULL)
        return true;
    if (!reader_number(reader, type < BULKHEAD_TEXT ? 8 : 4, &number))
        return false;
    if (type == BULKHEAD_INT)
        memcpy(&value->integer, &number, sizeof number);
    else if (type == BULKHEAD_REAL)
        memcpy(&value->real, &number, sizeof number);
    else {
        value->length = (size_t)number;
        value->bytes = (const char *)reader_take(reader, value->length);
        return value->bytes != NULL && (type == BULKHEAD_BLOB || is_utf8((const uint8_t *)value->bytes, value->length));
    }
    return true;
}

/* Reads rows up to their end: a byte that is 0, then how many the statement has changed. */
static bool skip_rows(struct reader *reader, size_t columns, uint64_t *changed)
{
    struct bulkhead_value value;
    for (uint64_t more;;) {
        if (!reader_number(reader, 1, &more) || more > MORE_ROWS)
            return false;
        if (more == 0)
            return reader_number(reader, 8, changed);
        for (size_t i = 0; i < columns; i++)
            if (!take_value(reader, &value))
                return false;
    }
}

/* Goes to the result that comes next, and looks at all of it. */
static bool open_result(struct bulkhead_rows *rows)
{
    uint64_t columns;
    rows->has_row = false;
    if (!reader_number(&rows->results, 2, &columns) || columns > VALUES_MAX)
        return false;
    if (columns > 0) {
        struct bulkhead_value *more = realloc(rows->names, 2 * columns * sizeof *more);
        if (more == NULL)
            return false;
        rows->names = more;
    }
    rows->columns = (size_t)columns;
    rows->values = columns > 0 ? rows->names + columns : NULL;
    for (size_t i = 0; i < rows->columns; i++)
        if (!take_value(&rows->results, &rows->names[i]) || rows->names[i].type != BULKHEAD_TEXT)
            return false;
    rows->rows = rows->results;
    return skip_rows(&rows->results, rows->columns, &rows->changed);
}

struct bulkhead_rows *rows_of(struct answer *answer)
{
    struct bulkhead_rows *rows = answer->is_lost || answer->length == 0 ? NULL : calloc(1, sizeof *rows);
    if (rows == NULL) {
        free(answer->bytes);
        return NULL;
    }
    const struct reader all = {answer->bytes, answer->length};
    rows->answer = answer->bytes;
    rows->results = all;
    bool is_good = true;
    while (is_good && rows->results.left > 0)
        is_good = open_result(rows);
    rows->results = all;
    if (is_good && open_result(rows))
        return rows;
    rows_free(rows);
    return NULL;
}

void rows_free(struct bulkhead_rows *rows)
{
    free(rows->names);
    free(rows->answer);
    free(rows);
}

int bulkhead_next(struct bulkhead_rows *rows)
{
    uint64_t more = 0;
    struct reader at = rows->rows;
    rows->has_row = reader_number(&at, 1, &more) && more == MORE_ROWS;
    for (size_t i = 0; rows->has_row && i < rows->columns; i++)
        rows->has_row = take_value(&at, &rows->values[i]);
    if (rows->has_row)
        rows->rows = at;
    return rows->has_row;
}

int bulkhead_next_result(struct bulkhead_rows *rows)
{
    if (rows->results.left > 0 && open_result(rows))
        return 1;
    rows->columns = 0;
    rows->rows = (struct reader){0};
    rows->has_row = false;
    rows->changed = 0;
    return 0;
}

size_t bulkhead_columns(const struct bulkhead_rows *rows)
{
    return rows->columns;
}

struct bulkhead_value bulkhead_column(const struct bulkhead_rows *rows, size_t column)
{
    return column < rows->columns ? rows->names[column] : bulkhead_text("");
}

struct bulkhead_value bulkhead_value(const struct bulkhead_rows *rows, size_t column)
{
    return rows->has_row && column < rows->columns ? rows->values[column] : bulkhead_null();
}

struct bulkhead_value bulkhead_get(const struct bulkhead_rows *rows, const char *column)
{
    const size_t length = strlen(column);
    for (size_t i = 0; i < rows->columns; i++)
        if (rows->names[i].length == length && memcmp(rows->names[i].bytes, column, length) == 0)
            return bulkhead_value(rows, i);
    return bulkhead_null();
}

uint64_t bulkhead_changed(const struct bulkhead_rows *rows)
{
    return rows->changed;
}
