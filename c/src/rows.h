/* Values of statements, and answers of data sources. */
#ifndef BULKHEAD_ROWS_H
#define BULKHEAD_ROWS_H

#include "internal.h"

struct bulkhead_rows {
    struct bulkhead_rows *next;
    uint8_t *answer;
    /* The rows of this result that were not read, and the results behind it. */
    struct reader rows, results;
    /* Names and values of the columns, in one piece of memory. */
    struct bulkhead_value *names, *values;
    size_t columns;
    uint64_t changed;
    bool has_row;
};

/* An answer that comes in parts. */
struct answer {
    uint8_t *bytes;
    size_t length, room;
    bool is_lost;
};

/* Adds a part, unless there is no memory: then the answer is lost. */
void answer_add(struct answer *answer, const struct field *part);
/* The results of an answer, whose memory they take over; NULL if it is not of the form of one. */
struct bulkhead_rows *rows_of(struct answer *answer);
void rows_free(struct bulkhead_rows *rows);
/* How many bytes parameters have as they travel; 0 if one is none. */
size_t parameters_length(const struct bulkhead_value *parameters, size_t count);
void parameters_put(const struct bulkhead_value *parameters, size_t count, uint8_t *out);

#endif
