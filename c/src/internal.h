/* What the parts of the library share; bulkhead.h is what services see.
 *
 * Everything that may take a while waits in process_wait, which goes on answering the launcher. What it does meanwhile
 * never waits itself. */
#ifndef BULKHEAD_INTERNAL_H
#define BULKHEAD_INTERNAL_H

#include <stdbool.h>

#include "bulkhead.h"
#include "codec.h"

enum {
    NAME_MAX_BYTES = 63,
    /* LIMIT: data sources of a service; the configuration names them one by one. */
    LINKS_MAX = 32,
    /* LIMIT: orders of the administrator that wait for the request under way. */
    ORDERS_MAX = 8,
    /* LIMIT: processes of the site that one process serves: those of `workers`, and as many again during a relaunch. */
    SOURCES_MAX = 256,
    /* LIMIT: header fields of a request; the site takes 100, and adds a few. */
    LINES_MAX = 128,
    /* LIMIT: what the site's worker adds to a head: the certificate of a client, and what it says of the client. */
    ADDED_MAX = 32 << 10,
    /* LIMIT: bytes of a body that are read at once beside its head. */
    BODY_ROOM = 32 << 10,
    /* LIMIT: header fields of a response. The site takes 64 KiB. */
    RESPONSE_HEAD_MAX = 16 << 10,
    /* LIMIT: bytes of a response that wait. */
    RESPONSE_BUFFER = 32 << 10,
};

/* --- channel.c: messages over a SOCK_SEQPACKET socket, with a descriptor that comes along. */

struct message {
    int number;
    /* The descriptor that came along, or -1. */
    int descriptor;
    struct field fields[FIELDS_MAX];
};

enum arrival { ARRIVED, NOTHING_YET, CHANNEL_END, NO_MESSAGE };

/* The next message; its fields are good until the next one is received, on whatever channel. */
enum arrival channel_receive(int channel, const struct edge *edge, struct message *message);
enum sending { SENT, NO_ROOM, PEER_GONE };
enum sending channel_send(int channel, const struct edge *edge, int number, const struct field *fields);
bool channel_is(int descriptor);
/* Ends a channel on which nonsense came; what waits in it is not closed. */
void channel_break_off(int *channel);
/* Whether what came is one end of a pair that this process may read from, and close: it does not linger, and brings no descriptors along. */
bool connection_is(int descriptor);
/* The same for the pipe by which a service speaks to the launcher on kernels where its channel would carry descriptors there. */
enum sending pipe_send(int pipe, const struct edge *edge, int number, const struct field *fields);
bool pipe_is(int descriptor);
void close_descriptor(int *descriptor);

/* --- log.c: records on their way to the logger. */

struct log {
    int channel; /* or -1: standard error */
    uint8_t batch[LOG_BATCH_MAX];
    size_t length;
    uint64_t next;
    bool has_lost, is_full;
};

void log_text(struct log *log, enum bulkhead_level level, const char *text);
/* Sends what waits, if there is room. */
void log_send(struct log *log);

/* --- connection.c: what arrives of a connection, and what is sent on it. */

struct input {
    int stream; /* or -1 */
    uint8_t *bytes;
    size_t room, begin, end;
};

/* Reads what has arrived behind what there is: 1, 0 if nothing has, -1 at the end. */
int input_read(struct input *input);

/* --- receiver.c: connections that arrive from the site's workers. */

/* One process of the site. It has one credit, so that a process of the service has at most one connection of each. */
struct source {
    int channel; /* or -1: it has said its last */
    struct input input;
    uint64_t id;
    /* What it is to be told: a credit, that its connection has arrived or has ended, to send no more. */
    bool owes_credit, owes_word, owes_end, owes_drain;
    bool has_credit;
};

/* --- timeouts.c: how long calls may take, as a data proxy says. */

struct timeout {
    char name[NAME_MAX_BYTES + 1];
    int64_t ms;
};

struct timeouts {
    int64_t usual_ms; /* or 0: nobody knows */
    struct timeout *own;
    size_t count, room;
};

/* All of them are said anew. */
void timeouts_begin(struct timeouts *timeouts, const struct field *usual_ms);
void timeouts_add(struct timeouts *timeouts, const struct field *name, const struct field *timeout_ms);
/* Until when a call of this name is waited for that was made then; or NEVER. */
int64_t timeouts_until(const struct timeouts *timeouts, const char *name, int64_t made);

/* --- data.c: the way to the data proxy of one source. */

struct link {
    char name[NAME_MAX_BYTES + 1];
    int channel, next; /* or -1; `next` has come while a call was under way */
    uint8_t next_login[20];
    bool is_welcome, is_busy;
    uint32_t number;
    struct timeouts timeouts;
};

/* --- process.c */

struct bulkhead {
    const struct bulkhead_service *service;
    int control; /* or -1: the process retires */
    int say;     /* where the launcher is told something, or -1: at `control` */
    struct log log;
    uint64_t head_bytes, body_bytes, idle_stop_ms;
    bool jit, is_serving, owes_counters;
    struct source **sources;
    size_t source_count;
    struct link links[LINKS_MAX];
    size_t link_count;
    int orders[ORDERS_MAX];
    uint64_t connections_now, connections, requests;
    int64_t since, quiet_since;
    /* Of the request under way: milliseconds of the monotonic clock, or NEVER. */
    int64_t deadline;
    char reason[513];
    struct bulkhead_rows *rows;
    char fault[256]; /* why the process ends, if it does so with status 1 */
};

#define NEVER INT64_MAX

int64_t now_ms(void);
/* Waits until a descriptor, if it is not -1, is ready for `events` of poll, and answers the launcher meanwhile: 1, 0 at the
 * deadline, or -1 if the process is to end. It is 1 also if something else has happened: then the caller waits again. */
int process_wait(struct bulkhead *b, int descriptor, short events, int64_t deadline);
bool process_fail(struct bulkhead *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* receiver.c */
bool receiver_attach(struct bulkhead *b, int channel);
void receiver_serve(struct bulkhead *b);
void receiver_drain(struct bulkhead *b);
void source_take(struct bulkhead *b, struct source *source);
void source_end_connection(struct bulkhead *b, struct source *source);
/* Tells sources what they are owed; whether one of them has no room for it. */
bool receiver_tell(struct bulkhead *b);
/* Forgets those that have said their last and have no connection. */
void receiver_sweep(struct bulkhead *b);

/* data.c */
bool link_add(struct bulkhead *b, const struct field *name);
bool link_attach(struct bulkhead *b, const struct field *name, const struct field *token, int channel);
void rows_free_all(struct bulkhead *b);

/* orders.c */
void orders_attend(struct bulkhead *b, int channel);
void orders_answer(struct bulkhead *b, int *channel);

/* request.c */
/* Answers the requests of which the heads are there whole. Whether the connection goes on. */
bool connection_serve(struct bulkhead *b, struct source *source);

/* jail.c */
void allow_dump(bool allow);
int refuse_new_code(void);

#endif
