/* The filter's side of a chain. See cc_filter.h.
 *
 * Runs in: a filter process, which has one thread. Sees: bundles of the gate or of the filter before. Never: waits for
 * a client. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../include/cc_filter.h"
#include "finish.h"

/* The head of the request at hand. */
static unsigned char head[CC_TAKEN_MAX];

/* The descriptor of the request that is not settled yet, or -1. */
static int at_hand = -1;

static void let_go(struct cc_bundle *request)
{
    if (request->fd >= 0)
        close(request->fd);
    request->fd = -1;
    at_hand = -1;
}

int cc_filter_next(struct cc_bundle *request)
{
    if (at_hand >= 0 && request->fd == at_hand)
        cc_filter_drop(request, NULL);
    int got;
    do {
        request->bytes = head;
        /* What is no bundle was sent by the filter before; it harms that request and no other one. */
        got = cc_core_receive(CC_FILTER_IN, request, MSG_CMSG_CLOEXEC);
    } while (got < 0 && (errno == EINTR || errno == EBADMSG));
    at_hand = got > 0 ? request->fd : -1;
    return got;
}

int cc_filter_pass(struct cc_bundle *request)
{
    int result = cc_core_send(CC_FILTER_OUT, request, request->bytes, request->taken);
    int error = errno;
    let_go(request);
    errno = error;
    return result;
}

void cc_filter_drop(struct cc_bundle *request, const char *response)
{
    size_t length = response ? strlen(response) : 0;
    /* A client that does not read gets less of it: a filter waits for nobody. */
    if (length > 0)
        (void)!send(request->fd, response, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    cci_finish(request->fd);
    let_go(request);
}
