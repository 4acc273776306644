/* Lines of the error log on their way to the logger, in batches.
 *
 * Runs in: a service. Sees: what the service says. Never: waits for the logger, or loses a record without leaving a gap in the
 * numbers. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "internal.h"

/* Of a batch: its version and the number of its first record. Of a record: its length, its type, the time, how bad it is,
 * and the length of the text. */
enum { BATCH_HEAD = 1 + 8, RECORD_HEAD = 2 + 1 + 8 + 1 + 2, EVENT = 1 };

/* How much of a text fits, to the border of a character. */
static size_t cut(const char *text, size_t most)
{
    const size_t length = strnlen(text, most + 1);
    size_t end = length > most ? most : length;
    while (length > most && end > 0 && ((uint8_t)text[end] & 0xc0) == 0x80)
        end--;
    return end;
}

static void append(struct log *log, enum bulkhead_level level, const char *text, size_t length)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (log->length == 0) {
        log->batch[0] = VERSION;
        number_put(log->next, 8, log->batch + 1);
        log->length = BATCH_HEAD;
    }
    uint8_t *at = log->batch + log->length;
    number_put(RECORD_HEAD - 2 + length, 2, at);
    at[2] = EVENT;
    number_put((uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000, 8, at + 3);
    at[11] = (uint8_t)level;
    number_put(length, 2, at + 12);
    for (size_t i = 0; i < length; i++)
        at[RECORD_HEAD + i] = (uint8_t)text[i] < 0x20 && text[i] != '\t' ? '?' : (uint8_t)text[i];
    log->length += RECORD_HEAD + length;
}

void log_text(struct log *log, enum bulkhead_level level, const char *text)
{
    const size_t length = cut(text, LOG_TEXT_MAX);
    if (log->channel < 0) {
        fprintf(stderr, "%s: %s\n", level == BULKHEAD_ERROR ? "error" : level == BULKHEAD_WARNING ? "warning" : "info", text);
        return;
    }
    if (log->length + RECORD_HEAD + length > sizeof log->batch)
        log_send(log);
    /* What comes after a gap goes into another batch, as a batch has the number of its first record alone. */
    log->has_lost = log->length > 0 && (log->has_lost || log->length + RECORD_HEAD + length > sizeof log->batch);
    if (!log->has_lost)
        append(log, level, text, length);
    log->next++;
}

void log_send(struct log *log)
{
    if (log->length == 0)
        return;
    const ssize_t result = send(log->channel, log->batch, log->length, MSG_DONTWAIT | MSG_NOSIGNAL);
    log->is_full = result < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS);
    /* The launcher keeps the other end as long as it lives: without it, the end of this process is near. */
    if (!log->is_full)
        log->length = 0;
}

void bulkhead_log(struct bulkhead *b, enum bulkhead_level level, const char *format, ...)
{
    char text[LOG_TEXT_MAX + 4];
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(text, sizeof text, format, arguments) >= 0)
        log_text(&b->log, level, text);
    va_end(arguments);
}
