/* What a filter process in C needs: the next request, and what to do with it.
 *
 *     #include <cc_filter.h>
 *
 *     int main(void)
 *     {
 *         struct cc_bundle request = {0};
 *         while (cc_filter_next(&request) > 0)
 *             cc_filter_pass(&request);
 *         return 0;
 *     }
 *
 * Runs in: a filter process, in a jail of its own; descriptor 3 brings bundles, 4 takes them. Sees: the heads of
 * clients' requests. Never: reads from a client's connection. cc_filter(3) says more. */
#ifndef BULKHEAD_CC_FILTER_H
#define BULKHEAD_CC_FILTER_H

#include "cc_core.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

#define CC_FILTER_IN 3
#define CC_FILTER_OUT 4

/* Waits for a request: `bytes` and `taken` are its head, which may be changed in place, shortened, or replaced by up
 * to CC_TAKEN_MAX other bytes; `fd` is the client's connection. If the one before was neither passed on nor dropped, it
 * is dropped. 1: there is one; 0: the chain ends, and so should the filter; -1: errno. */
int cc_filter_next(struct cc_bundle *request);

/* Passes the request on to the next filter or the gate. 0, or -1 and errno. */
int cc_filter_pass(struct cc_bundle *request);

/* Ends the connection, after `response` (a whole one, with its head) if that is not NULL. */
void cc_filter_drop(struct cc_bundle *request, const char *response);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
