/* How long calls may take, as a data proxy says: whoever waits has a clock of its own, as a proxy that hangs says nothing.
 *
 * Runs in: a service. Sees: messages of data proxies. Never: remembers more than TIMEOUTS_MAX names. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

void timeouts_begin(struct timeouts *timeouts, const struct field *usual_ms)
{
    timeouts->usual_ms = (int64_t)usual_ms->number;
    timeouts->count = 0;
}

void timeouts_add(struct timeouts *timeouts, const struct field *name, const struct field *timeout_ms)
{
    if (timeouts->count == timeouts->room) {
        const size_t room = timeouts->room == 0 ? 16 : 2 * timeouts->room;
        struct timeout *more = room > TIMEOUTS_MAX ? NULL : realloc(timeouts->own, room * sizeof *more);
        if (more == NULL)
            return;
        timeouts->own = more;
        timeouts->room = room;
    }
    struct timeout *timeout = &timeouts->own[timeouts->count++];
    *timeout = (struct timeout){.ms = (int64_t)timeout_ms->number};
    memcpy(timeout->name, name->bytes, name->length);
}

int64_t timeouts_until(const struct timeouts *timeouts, const char *name, int64_t made)
{
    for (const struct timeout *own = timeouts->own; own < timeouts->own + timeouts->count; own++)
        if (strcmp(own->name, name) == 0)
            return made + own->ms + WORD_WAIT_MS;
    return timeouts->usual_ms == 0 ? NEVER : made + timeouts->usual_ms + WORD_WAIT_MS;
}
