/*
 * Finds the functions behind ours; see real.h.
 *
 * Runs in: a guarded server, once. Sees: nothing.
 */
#define _GNU_SOURCE
#include "real.h"

#include <dlfcn.h>
#include <string.h>

struct real real_functions;
_Atomic int real_found;

void real_find(void)
{
    /* ISO C has no conversion from an object's address to a function's; POSIX promises that the bytes are the same. */
#define REAL_FIND(name)                                                                                               \
    {                                                                                                                 \
        void *found = dlsym(RTLD_NEXT, #name);                                                                        \
        memcpy(&real_functions.name, &found, sizeof found);                                                           \
    }
    REAL_FUNCTIONS(REAL_FIND)
#undef REAL_FIND
    atomic_store_explicit(&real_found, 1, memory_order_release);
}
