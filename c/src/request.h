/* One request and the response to it. */
#ifndef BULKHEAD_REQUEST_H
#define BULKHEAD_REQUEST_H

#include "head.h"

/* Of a body, what comes next. */
enum body_state { BODY_PART, CHUNK_LINE, CHUNK_PART, CHUNK_END, TRAILER, BODY_DONE, BODY_TOO_LONG, BODY_BROKEN };

struct response {
    int status;
    /* Header fields, each with its line end. */
    char fields[RESPONSE_HEAD_MAX];
    size_t fields_length;
    uint8_t waiting[RESPONSE_BUFFER];
    size_t waiting_length;
    /* What is still to be sent of a body whose length was said. */
    uint64_t owed;
    bool has_length, is_begun, is_chunked, is_broken;
};

struct bulkhead_request {
    struct bulkhead *b;
    struct input *input;
    struct head head;
    /* Where the head ends in the input. */
    size_t head_end;
    enum body_state body;
    /* What is still to come of the body or of a chunk, and what of the body's limit is left. */
    uint64_t left, limit_left;
    /* Until when more of it is waited for. */
    int64_t read_until;
    char *whole;
    struct response response;
};

/* body.c */
void body_begin(struct bulkhead_request *r);
/* Reads the rest, as far as it is there; whether that was all. */
bool body_skip(struct bulkhead_request *r);

/* response.c */
void response_begin(struct bulkhead_request *r);
/* Sends the rest; whether the response is whole. */
bool response_end(struct bulkhead_request *r);

#endif
