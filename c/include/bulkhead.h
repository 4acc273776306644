/* The SDK for C: what a program needs in order to be a service of Bulkhead.
 *
 *     static int process(struct bulkhead *b, struct bulkhead_request *r, void *state)
 *     {
 *         bulkhead_html(r, bulkhead_path(r), BULKHEAD_WHOLE);
 *         return 0;
 *     }
 *
 *     int main(int argc, char **argv)
 *     {
 *         const struct bulkhead_service service = {.process = process};
 *         return bulkhead_main(&service, argc, argv);
 *     }
 *
 * Runs in: a service, under its uid, inside its jail. Sees: requests of clients, whole or in part made up. Never: opens a
 * file or a socket by name (the service itself may, as far as its jail lets it).
 *
 * A process has one thread and answers one request after the other; `workers` of the configuration says how many processes
 * there are. Nothing here may be called by another thread, or by a signal handler. Texts end with NUL and are UTF-8 unless
 * something else is said; lengths are bytes without that NUL. A pointer that a request gives is good until `process`
 * returns. c/tests/service.c uses all of this. */
#ifndef BULKHEAD_H
#define BULKHEAD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The process, and what it was granted. */
struct bulkhead;
/* One request, and the response to it. */
struct bulkhead_request;
/* The answer of a data source. */
struct bulkhead_rows;

/* As a length: the text ends with NUL. */
#define BULKHEAD_WHOLE ((size_t)-1)

/* --- A service. ---------------------------------------------------------------------------------------------------- */

/* What a service does; `process` must be there, the others may be NULL. Each gets `state` as it stands here. */
struct bulkhead_service {
    /* Makes the state, before the first request; another result than 0 ends the process with status 1, and says why before by
     * bulkhead_log. The launcher waits for `start_timeout`. */
    int (*init)(struct bulkhead *b, int argc, char **argv, void *state);
    /* Answers one request. Another result than 0 is answered with 500 if nothing of a response was sent; half of a response is
     * cut off, so that the client sees that it is half. */
    int (*process)(struct bulkhead *b, struct bulkhead_request *r, void *state);
    /* Carries out an order of the administrator (`bulkhead send SITE/SERVICE NAME ARGUMENT`), within 10 seconds: writes what
     * there is to say into `answer`, of `size` bytes, and returns 0, or -1 if it is not carried out. Both words are at most 63
     * and 2,048 bytes long. An order waits until the request under way is answered. */
    int (*command)(struct bulkhead *b, const char *name, const char *argument, char *answer, size_t size, void *state);
    /* After the last request. */
    void (*end)(struct bulkhead *b, void *state);
    void *state;
};

/* The whole of a program that is this service; returns the program's exit status: 0 after it was retired, 1 if `init` has
 * failed, 2 if the program was not started by Bulkhead. `argv` is what `main` was given: the words of `command` in the
 * configuration. */
int bulkhead_main(const struct bulkhead_service *service, int argc, char **argv);

/* How bad an event is. */
enum bulkhead_level { BULKHEAD_ERROR, BULKHEAD_WARNING, BULKHEAD_INFO };

/* Writes a line to the error log, as printf; what is longer than 1,024 bytes is cut, and other control characters than tabs
 * become `?`. Never waits: when more than 48 KiB wait for the logger, lines are lost, and the log says how many. */
void bulkhead_log(struct bulkhead *b, enum bulkhead_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* --- A request. ---------------------------------------------------------------------------------------------------- */

/* The method, as it was sent: `GET`. */
const char *bulkhead_method(const struct bulkhead_request *r);
/* The path, as it was sent: with its `%20`, and without what follows `?`. */
const char *bulkhead_path(const struct bulkhead_request *r);
/* What follows `?`, as it was sent; empty if there is nothing. */
const char *bulkhead_query(const struct bulkhead_request *r);
/* The client's address and port, `192.0.2.1:1024` or `[2001:db8::1]:1024`; no header of the client can change it. */
const char *bulkhead_client(const struct bulkhead_request *r);
/* The value of the first header of this name, whose case does not matter; NULL if there is none. Bytes above 127 are as the
 * client has sent them. */
const char *bulkhead_header(const struct bulkhead_request *r, const char *name);
/* The header at this place, counted from 0, its name in lower case; 0, or -1 behind the last one. */
int bulkhead_header_at(const struct bulkhead_request *r, size_t place, const char **name, const char **value);

/* The next part of the body, at most `size` bytes into `to`; 0 at its end. -1: the client has gone, or the body is longer than
 * `body_bytes` of the configuration; `process` returns then, and the client, if it is there, gets 413. */
ssize_t bulkhead_read(struct bulkhead_request *r, void *to, size_t size);
/* The rest of the body in one piece with NUL behind it, and its length; NULL as bulkhead_read gives -1, or if it is longer than
 * `most` bytes (then the answer is 413 as well) or there is no memory. It is freed when `process` returns. */
const char *bulkhead_body(struct bulkhead_request *r, size_t most, size_t *length);

/* The first value of a parameter in the query, decoded, without the characters that are special to HTML and to shells
 * (`< > ( ) # & ; "` and control characters). It is still to be escaped wherever it is put out. Its length, which is below
 * `size`; -1 if there is none, or no room for it, or the value holds NUL. */
ssize_t bulkhead_param(const struct bulkhead_request *r, const char *name, char *to, size_t size);
/* The same of any text in the form of a query, such as the body of a form, and whole: any character may be in it but NUL. */
ssize_t bulkhead_raw_param(const char *text, const char *name, char *to, size_t size);
/* What follows `prefix` in the path, decoded; any character may be in it but NUL, also `/`, so it is not the name of a file.
 * Its length, which is below `size`; -1 if the path does not begin with `prefix`, or as of bulkhead_param. */
ssize_t bulkhead_path_below(const struct bulkhead_request *r, const char *prefix, char *to, size_t size);

/* --- The response. ------------------------------------------------------------------------------------------------- */
/* It begins as a page with status 200: `content-type: text/html; charset=utf-8` and `x-content-type-options: nosniff`. What is
 * written waits in 32 KiB; is that full, it is sent in chunks, unless `content-length` was set. At the return of `process` the
 * rest is sent. The library writes no body to HEAD, 204 and 304. */

/* Sets the status, from 200 to 599; -1 if it is another, or something was sent already. */
int bulkhead_status(struct bulkhead_request *r, int status);
/* Sets a header in the place of all of this name; -1 if it cannot stand in a head, is about the connection, does not fit (16
 * KiB for all), or something was sent already. */
int bulkhead_set(struct bulkhead_request *r, const char *name, const char *value);
/* The same, and leaves those of this name: `set-cookie`. */
int bulkhead_add(struct bulkhead_request *r, const char *name, const char *value);
/* Writes to the body; -1 if the client has gone, or it is more than `content-length` says. */
int bulkhead_write(struct bulkhead_request *r, const void *data, size_t length);
/* Writes text to the body, escaped so that it may stand in HTML where text or a quoted attribute's value may. */
int bulkhead_html(struct bulkhead_request *r, const char *text, size_t length);
/* Writes to the body, as printf; nothing is escaped. -1 as well if it becomes longer than 16 KiB. */
int bulkhead_print(struct bulkhead_request *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Sends what waits, and waits while the client does not take it; -1 if the client has gone. */
int bulkhead_flush(struct bulkhead_request *r);
/* Answers with a small page that says what the status says, such as 404, in the place of what was written; 0 or -1. */
int bulkhead_status_page(struct bulkhead_request *r, int status);

/* --- Data sources. ------------------------------------------------------------------------------------------------- */

/* The type of a value. */
enum bulkhead_type { BULKHEAD_NULL, BULKHEAD_INT, BULKHEAD_REAL, BULKHEAD_TEXT, BULKHEAD_BLOB };

/* A parameter, or a value of a row. Text and blobs do not end with NUL, and may hold it. */
struct bulkhead_value {
    enum bulkhead_type type;
    union {
        int64_t integer;
        double real;
        struct {
            const char *bytes;
            size_t length;
        };
    };
};

/* Parameters: bulkhead_int(7), bulkhead_text("ann"). `bool` is an integer, 0 or 1. */
struct bulkhead_value bulkhead_null(void);
struct bulkhead_value bulkhead_int(int64_t value);
struct bulkhead_value bulkhead_real(double value);
struct bulkhead_value bulkhead_text(const char *text);
struct bulkhead_value bulkhead_blob(const void *bytes, size_t length);

/* Why a call has no answer, and what has become of it. */
enum bulkhead_fault {
    BULKHEAD_OK,          /* there is an answer */
    BULKHEAD_REFUSED,     /* no such statement, or it is not granted to this service; nothing has changed */
    BULKHEAD_PARAMETERS,  /* too many, too few, of a wrong type, or above 4 MiB; nothing has changed */
    BULKHEAD_TOO_LARGE,   /* the answer has more than the statement may give; nothing has changed */
    BULKHEAD_BUSY,        /* too many calls are under way; nothing has changed */
    BULKHEAD_LATE,        /* it took too long; nothing has changed */
    BULKHEAD_CONSTRAINT,  /* a rule of the tables refuses it, such as a name that is there already; nothing has changed */
    BULKHEAD_DATABASE,    /* the database cannot; nothing has changed */
    BULKHEAD_LOST,        /* the data source was lost while the call was under way: it may have been done, or not */
    BULKHEAD_UNAVAILABLE, /* there was no data source for 5 seconds, or `data` does not name it; the call was not made */
    BULKHEAD_SHAPE,       /* the answer is not of the form that was asked for, or there is no memory for it; the statement was
                             carried out */
};

/* Calls a statement or a transaction of a data source by its name, with `count` parameters (those of a transaction one
 * statement after the other), and waits for the whole answer. `rows` may be NULL if nobody looks at it; it is freed when
 * `init`, `process` or `command` returns, or by bulkhead_free. No call is ever repeated. A call that is not answered by the
 * deadline is cancelled: then it is BULKHEAD_LATE, or BULKHEAD_LOST if it was too late for that. */
enum bulkhead_fault bulkhead_call(struct bulkhead *b, const char *source, const char *name,
                                  const struct bulkhead_value *parameters, size_t count, struct bulkhead_rows **rows);
/* What the last call's fault was, in words for the log. */
const char *bulkhead_reason(const struct bulkhead *b);
/* Has the calls of this request answered within so many milliseconds from now on. At first it is 59 seconds from the request
 * on, as the site answers with 504 after 60; and no time in `init`. */
void bulkhead_deadline(struct bulkhead *b, unsigned milliseconds);

/* Goes to the next row of a result: 1, or 0 behind the last. The first call goes to the first row. */
int bulkhead_next(struct bulkhead_rows *rows);
/* Goes to the next statement's result, before its first row: 1, or 0 behind the last. The first result is there at once. */
int bulkhead_next_result(struct bulkhead_rows *rows);
/* How many columns the result has, at most 4,096. */
size_t bulkhead_columns(const struct bulkhead_rows *rows);
/* The name of a column, which does not end with NUL; a text without bytes if there is no such column. */
struct bulkhead_value bulkhead_column(const struct bulkhead_rows *rows, size_t column);
/* The value in a column of the row, counted from 0; NULL's value if there is no such column, or no row. */
struct bulkhead_value bulkhead_value(const struct bulkhead_rows *rows, size_t column);
/* The same by the name of the column. */
struct bulkhead_value bulkhead_get(const struct bulkhead_rows *rows, const char *column);
/* How many rows the result's statement has changed. */
uint64_t bulkhead_changed(const struct bulkhead_rows *rows);
/* Frees an answer before its time; NULL is no error. */
void bulkhead_free(struct bulkhead *b, struct bulkhead_rows *rows);

#ifdef __cplusplus
}
#endif
#endif
