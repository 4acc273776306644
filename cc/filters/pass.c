/* The filter that does nothing: what a hop through a chain costs, and the skeleton of a filter.
 *
 * Runs in: a filter process, in a jail of its own. Sees: the heads of requests. Never: looks at them. */
#include <cc_filter.h>

int main(void)
{
    struct cc_bundle request = {0};
    while (cc_filter_next(&request) > 0) {
        /* Here: look at request.bytes, of which there are request.taken; change them, or drop the request. */
        cc_filter_pass(&request);
    }
    return 0;
}
